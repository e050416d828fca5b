// topk v01_rounds: one block per row; each of k rounds finds the largest entry below that of the round before.
// Shapes   x (N, V) row-major; values, indices (N, k).
// Needs    nothing
// Moves    N * V * sizeof(T) bytes from DRAM; later rounds read from L2 or L1.
// Versus   PyTorch: no other kernel, and k passes.
// Source   selection sort
#include "check.cuh"
#include "entries.cuh"

#ifndef TOPK_V01_THREADS
#define TOPK_V01_THREADS 512
#endif

namespace {
constexpr int THREADS = TOPK_V01_THREADS;
}  // namespace

template <typename T>
__global__ void __launch_bounds__(THREADS) topk_v01_rounds(const T* __restrict__ x, T* __restrict__ values,
                                                           int64_t* __restrict__ indices, int columns, int k) {
  __shared__ Entry partial[THREADS / 32];
  const int64_t place = blockIdx.x;
  const T* row = x + place * columns;
  Entry last = ABOVE_ALL;
  for (int round = 0; round < k; ++round) {
    Entry largest = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < columns; i += THREADS) {
      const Entry entry = entry_of(to_float(row[i]), i);
      if (entry < last) largest = max(largest, entry);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < THREADS / 32; ++warp) largest = max(largest, partial[warp]);
    __syncthreads();
    if (threadIdx.x == 0) write_entry(largest, values + place * k + round, indices + place * k + round);
    last = largest;
  }
}

template <typename T>
static cudaError_t launch(const TopkCall& call) {
  topk_v01_rounds<<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<T*>(call.values), call.indices, call.columns, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t topk_v01_rounds(const TopkCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
