// Particles sorted by their cell with Thrust. a: Thrust allocates its memory from CUDA each time, b: from a pool of ours.
#include "key.h"
#include <map>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>

__global__ void cells_of(const float* x, unsigned* cells, unsigned* order, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cells[i] = (unsigned)(i * 2654435761u) >> 12, order[i] = i + (x[i] > 0);
}
__global__ void gather(const unsigned* order, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[order[i] % n];
}

struct Pool {
  typedef char value_type;
  std::multimap<size_t, char*> free;
  std::map<char*, size_t> used;
  char* allocate(std::ptrdiff_t size) {
    char* data = nullptr;
    auto found = free.lower_bound(size);
    if (found != free.end()) {
      size = found->first, data = found->second;
      free.erase(found);
    } else CHECK(cudaMalloc(&data, size));
    used[data] = size;
    return data;
  }
  void deallocate(char* data, size_t) {
    free.insert({used[data], data});
    used.erase(data);
  }
};

struct Program {
  static const int n = 1 << 22;
  bool pooled;
  Pool pool;
  float *x = device<float>(n), *y = device<float>(n);
  unsigned *cells = device<unsigned>(n), *order = device<unsigned>(n);
  Program(char form) : pooled(form == 'b') {}
  void step(int) {
    for (int species = 0; species < 3; species++) {
      cells_of<<<n / 256, 256>>>(x, cells, order, n);
      auto keys = thrust::device_pointer_cast(cells), values = thrust::device_pointer_cast(order);
      if (pooled) thrust::sort_by_key(thrust::cuda::par(pool), keys, keys + n, values);
      else thrust::sort_by_key(thrust::device, keys, keys + n, values);
      gather<<<n / 256, 256>>>(order, x, y, n);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
