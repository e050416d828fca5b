// layernorm v01_thread: one thread per row, three passes over it: mean, variance, result.
// Shapes   x, out (N, C) row-major; weight, bias (C,).
// Needs    nothing
// Moves    at best 2 * N * C * sizeof(T) bytes. Lanes are C elements apart, so each load takes 32 sectors and uses 4
//          bytes (fp32) of each. Later loads find the rest in L1 only if the rows of a block stay there.
// Versus   nothing: this is the first rung.
// Source   llm.c, dev/cuda/layernorm_forward.cu, kernel 1 (the idea)
#include "check.cuh"
#include "layernorm.h"
#include "vec.cuh"

#ifndef LAYERNORM_V01_THREADS
#define LAYERNORM_V01_THREADS 128
#endif

namespace {
constexpr int THREADS = LAYERNORM_V01_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    layernorm_v01_thread(const T* x, const T* weight, const T* bias, T* out, int64_t rows, int columns, float eps) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (row >= rows) return;
  const T* from = x + row * columns;
  T* to = out + row * columns;
  float sum = 0.0f;
  for (int column = 0; column < columns; ++column) sum += to_float(from[column]);
  const float mean = sum / columns;
  float squares = 0.0f;
  for (int column = 0; column < columns; ++column) {
    const float centred = to_float(from[column]) - mean;
    squares += centred * centred;
  }
  const float scale = rsqrtf(squares / columns + eps);
  for (int column = 0; column < columns; ++column)
    to[column] =
        from_float<T>((to_float(from[column]) - mean) * scale * to_float(weight[column]) + to_float(bias[column]));
}

template <typename T>
static cudaError_t launch(const LayernormCall& call) {
  layernorm_v01_thread<T><<<static_cast<unsigned>((call.rows - 1) / THREADS + 1), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.rows, call.columns, call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t layernorm_v01_thread(const LayernormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
