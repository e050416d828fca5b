// Returns of a lidar, sorted into cells by two passes. a: two work buffers are allocated and freed for each sweep, b: once.
#include "key.h"

__global__ void cells_of(const float* range, int* cell) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cell[i] = ((int)(range[i] * 64) + i * 17) & 65535;
}
__global__ void count_cells(const int* cell, int* count) { atomicAdd(count + cell[blockIdx.x * blockDim.x + threadIdx.x], 1); }
__global__ void heights(const int* count, const float* range, const int* cell, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = range[i] / (1 + count[cell[i]]);
}

struct Program {
  static const int n = 1 << 22;
  bool each;
  float *range = device<float>(n), *out = device<float>(n);
  int *cell, *count;
  Program(char form) : each(form == 'a') {
    if (!each) make();
  }
  void make() {
    CHECK(cudaMalloc(&cell, n * sizeof(int)));
    CHECK(cudaMalloc(&count, 65536 * 64 * sizeof(int)));
  }
  void step(int) {
    if (each) make();
    cells_of<<<n / 256, 256>>>(range, cell);
    for (int k = 0; k < 4; k++) count_cells<<<n / 256, 256>>>(cell, count);
    heights<<<n / 256, 256>>>(count, range, cell, out);
    CHECK(cudaGetLastError());
    if (each) {
      CHECK(cudaFree(cell));
      CHECK(cudaFree(count));
    }
  }
};
KEY_MAIN(Program)
