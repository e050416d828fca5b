// Particles sorted by their cell's key. a: the sorter's scratch and its output are allocated for each sort, b: once.
#include "key.h"
#include <cub/device/device_radix_sort.cuh>

__global__ void cells(unsigned* keys, int n, int i) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < n) keys[k] = (k + i) * 2654435761u;
}

struct Program {
  static const int n = 1 << 21;
  bool fresh;
  unsigned *keys = device<unsigned>(n), *sorted = nullptr;
  void* scratch = nullptr;
  size_t bytes = 0;
  Program(char form) : fresh(form == 'a') {
    CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, keys, sorted, n));
    if (!fresh) allocate();
  }
  void allocate() {
    CHECK(cudaMalloc(&scratch, bytes));
    CHECK(cudaMalloc(&sorted, n * sizeof(unsigned)));
  }
  void step(int i) {
    cells<<<n / 256, 256>>>(keys, n, i);
    if (fresh) allocate();
    CHECK(cub::DeviceRadixSort::SortKeys(scratch, bytes, keys, sorted, n));
    if (fresh) {
      CHECK(cudaFree(scratch));
      CHECK(cudaFree(sorted));
    }
  }
};
KEY_MAIN(Program)
