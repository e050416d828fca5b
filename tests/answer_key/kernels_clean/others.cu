// The set has clean kernels alone; the other groups are empty.
#include "frame.h"

void memory_cases() {}
void sync_cases() {}
void compute_cases() {}
void product_cases() {}
void library_cases() {}
void trap_cases() {}
void clean_cases() { stream_cases(), row_cases(), cache_cases(), mill_cases(), matrix_cases(), group_cases(), small_cases(), tempting_cases(); }
