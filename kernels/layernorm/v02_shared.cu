// layernorm v02_shared: one block per row, sums by a tree in shared memory.
// Shapes   x, out (N, C) row-major; weight, bias (C,).
// Needs    nothing
// Moves    2 * N * C * sizeof(T) bytes: every element once from DRAM (the second and third pass hit L1), once out.
// Versus   v01: neighbouring threads read neighbouring elements, and a row (3 KB at C 768 in fp32) stays in L1.
// Source   Harris 2007, "Optimizing parallel reduction in CUDA", with sequential addressing
#include "check.cuh"
#include "layernorm.h"
#include "vec.cuh"

#ifndef LAYERNORM_V02_THREADS
#define LAYERNORM_V02_THREADS 256
#endif

namespace {
constexpr int THREADS = LAYERNORM_V02_THREADS;
}

// Sums over the block, and returns the sum to every thread. `partial` may be used again afterwards.
__device__ __forceinline__ float block_sum(float value, float* partial) {
  partial[threadIdx.x] = value;
  __syncthreads();
#pragma unroll
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  const float sum = partial[0];
  __syncthreads();
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    layernorm_v02_shared(const T* x, const T* weight, const T* bias, T* out, int columns, float eps) {
  __shared__ float partial[THREADS];
  const T* from = x + static_cast<int64_t>(blockIdx.x) * columns;
  T* to = out + static_cast<int64_t>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) sum += to_float(from[column]);
  const float mean = block_sum(sum, partial) / columns;
  float squares = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    const float centred = to_float(from[column]) - mean;
    squares += centred * centred;
  }
  const float scale = rsqrtf(block_sum(squares, partial) / columns + eps);
  for (int column = threadIdx.x; column < columns; column += THREADS)
    to[column] =
        from_float<T>((to_float(from[column]) - mean) * scale * to_float(weight[column]) + to_float(bias[column]));
}

template <typename T>
static cudaError_t launch(const LayernormCall& call) {
  layernorm_v02_shared<T><<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.columns, call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t layernorm_v02_shared(const LayernormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
