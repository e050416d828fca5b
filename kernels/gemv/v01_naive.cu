// gemv v01_naive: one thread per output, which walks its row of weights alone.
// Shapes   weight (N, K) row-major, x (K), bias, out (N).
// Needs    nothing
// Moves    (N*K + K + 2*N) * sizeof(T) bytes if caches kept every sector until its last element is read.
// Versus   nothing: this is the first rung.
// Source   the first kernel of every course
#include <cstdint>

#include "check.cuh"
#include "gemv.h"
#include "vec.cuh"

#ifndef GEMV_V01_THREADS
#define GEMV_V01_THREADS 128
#endif

namespace {
constexpr int THREADS = GEMV_V01_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    gemv_v01_naive(const T* __restrict__ weight, const T* __restrict__ x, const T* __restrict__ bias,
                   T* __restrict__ out, int n, int k) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= n) return;
  const T* from = weight + static_cast<int64_t>(row) * k;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += to_float(from[i]) * to_float(x[i]);
  out[row] = from_float<T>(sum + to_float(bias[row]));
}

template <typename T>
static cudaError_t launch(const GemvCall& call) {
  gemv_v01_naive<T><<<(call.n - 1) / THREADS + 1, THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.weight), static_cast<const T*>(call.x), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t gemv_v01_naive(const GemvCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
