// Calls of cuBLAS and CUB: two whose arguments cost time, and two that are as good as they can be. cuBLAS is looked up when the program runs.
#include <dlfcn.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_select.cuh>

#include "frame.h"

using Handle = void*;
using Batched = int (*)(Handle, int, int, int, int, int, const void*, const void*, int, int, i64, const void*, int, int, i64, const void*, void*, int, int, i64, int, int, int);
static Handle handle;
static Batched batched;
static const int AS_F32 = 0, AS_F16 = 2, AS_BF16 = 14, SUM_F32 = 68, BEST = -1;
static void need(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "cuBLAS: %s\n", what);
  std::exit(1);
}
static void start_cublas() {
  if (handle) return;
  void* file = dlopen("libcublas.so.13", RTLD_NOW | RTLD_GLOBAL);
  if (!file) file = dlopen("libcublas.so.12", RTLD_NOW | RTLD_GLOBAL);
  if (!file) file = dlopen("libcublas.so", RTLD_NOW | RTLD_GLOBAL);
  need(file != nullptr, "not found");
  batched = (Batched)dlsym(file, "cublasGemmStridedBatchedEx");
  auto create = (int (*)(Handle*))dlsym(file, "cublasCreate_v2");
  need(batched && create && create(&handle) == 0, "does not start");
}
static void layers(int m, int n, int k, int count, const void* w, const void* x, int type, void* y, int to) {  // y = w transposed times x, column by column
  float one = 1, zero = 0;
  need(batched(handle, 1, 0, m, n, k, &one, w, type, k, (i64)m * k, x, type, k, (i64)n * k, &zero, y, to, m, (i64)m * n, count, SUM_F32, BEST) == 0, "no product");
}
__global__ void make_twins(const float* a, bf16* narrow, float* wide, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) narrow[i] = __float2bfloat16(a[i] - 0.25f), wide[i] = __bfloat162float(narrow[i]);
}
__global__ void make_flags(const float* a, unsigned char* narrow, int* wide, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = a[i] < 0.3f;
}
// ---- library_mixtures: 16 experts' layers whose values fit in 16 bits, as floats; or as BF16 on tensor cores; expected 6 times
// ---- library_rows: rows that pass a filter, with flags of four bytes; or of one; expected 1.3 times

void library_cases() {
  static bf16* narrow;
  static float* wide;
  static __half* halves;
  static unsigned char* flags;
  static int *wide_flags, *passed;
  static void *room, *scratch;
  static size_t bytes = 0, taken = 0;
  const int LAYERS = 1 << 25, ROWS = 1 << 26;
  cases.push_back({"library_mixtures", "fp32_for_matrix", "precision|wide_data", [] { layers(1024, 512, 1024, 16, wide, wide + (1 << 24), AS_F32, C, AS_F32); }, [] { layers(1024, 512, 1024, 16, narrow, narrow + (1 << 24), AS_BF16, C, AS_F32); }, C, 16 * 1024 * 512, false, [] {
    start_cublas();
    narrow = device<bf16>(LAYERS), wide = device<float>(LAYERS);
    make_twins<<<1056, 256>>>(A, narrow, wide, LAYERS);
  }});
  cases.push_back({"library_rows", "wide_data", "precision", [] { CHECK(cub::DeviceSelect::Flagged(room, bytes, (const float*)B, (const int*)wide_flags, C, passed, ROWS)); }, [] { CHECK(cub::DeviceSelect::Flagged(room, bytes, (const float*)B, (const unsigned char*)flags, C, passed, ROWS)); }, C, 1 << 24, false, [] {
    flags = device<unsigned char>(ROWS), wide_flags = device<int>(ROWS), passed = device<int>(1);
    make_flags<<<1056, 256>>>(A, flags, wide_flags, ROWS);
    size_t other = 0;
    CHECK(cub::DeviceSelect::Flagged(nullptr, bytes, (const float*)B, (const int*)wide_flags, C, passed, ROWS));
    CHECK(cub::DeviceSelect::Flagged(nullptr, other, (const float*)B, (const unsigned char*)flags, C, passed, ROWS));
    bytes = std::max(bytes, other);
    CHECK(cudaMalloc(&room, bytes));
  }});
  cases.push_back({"library_projections", "none_at_roof", "", [] { layers(8192, 4096, 4096, 1, halves, halves + (1 << 25), AS_F16, C, AS_F32); }, nullptr, nullptr, 0, false, [] {
    start_cublas();
    halves = cast<__half>(A, 3 << 24, 0.5f);
  }});
  cases.push_back({"library_warmest", "none_at_roof", "", [] { CHECK(cub::DeviceReduce::Max(scratch, taken, (const float*)A, C, ROWS)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceReduce::Max(nullptr, taken, (const float*)A, C, ROWS));
    CHECK(cudaMalloc(&scratch, taken));
  }});
}
