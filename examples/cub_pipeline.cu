// Reduce, scan and sort 64 Mi keys with CUB, again and again. No NVTX, no Python.
//
// Build and run   nvcc -O3 -arch=native examples/cub_pipeline.cu -o cub_pipeline && ./cub_pipeline [keys] [rounds]
// Expert's list, before any capture
// 1. The radix sort takes most of the time, in one pass over the keys per 8 bits.
// 2. Reduce and scan are at the DRAM roof: only reading less, or in one pass, helps.
// 3. Each round ends in a copy to the host that the next one waits for.
#include <cub/cub.cuh>
#include <cstdio>
#include <cstdlib>

static void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "cub_pipeline: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

__global__ void fill(unsigned* keys, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) keys[i] = i * 2654435761u;
}

int main(int count, char** words) {
  const int n = count > 1 ? std::atoi(words[1]) : 1 << 26, rounds = count > 2 ? std::atoi(words[2]) : 8;
  unsigned *keys, *sums, *sorted, *total, on_host = 0;
  check(cudaMalloc(&keys, sizeof(unsigned) * n));
  check(cudaMalloc(&sums, sizeof(unsigned) * n));
  check(cudaMalloc(&sorted, sizeof(unsigned) * n));
  check(cudaMalloc(&total, sizeof(unsigned)));
  size_t reduce = 0, scan = 0, sort = 0;
  check(cub::DeviceReduce::Sum(nullptr, reduce, keys, total, n));
  check(cub::DeviceScan::InclusiveSum(nullptr, scan, keys, sums, n));
  check(cub::DeviceRadixSort::SortKeys(nullptr, sort, sums, sorted, n));
  void* scratch;
  check(cudaMalloc(&scratch, std::max(reduce, std::max(scan, sort))));
  fill<<<1024, 256>>>(keys, n);
  for (int round = 0; round < rounds; round++) {
    check(cub::DeviceReduce::Sum(scratch, reduce, keys, total, n));
    check(cub::DeviceScan::InclusiveSum(scratch, scan, keys, sums, n));
    check(cub::DeviceRadixSort::SortKeys(scratch, sort, sums, sorted, n));
    check(cudaMemcpy(&on_host, total, sizeof on_host, cudaMemcpyDeviceToHost));
  }
  std::printf("%u\n", on_host);
}
