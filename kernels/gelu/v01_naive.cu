// gelu v01_naive: one thread per element, the tanh form as written, tanhf, a 64-bit remainder for the bias.
// Shapes   x, out (N, C) row-major; bias (C,) or none.
// Needs    nothing
// Moves    2 * N * C * sizeof(T) bytes (+ C for the bias): every element once in, once out.
// Versus   PyTorch: with a bias, one launch instead of two, so 2 passes instead of 4.
// Source   Hendrycks and Gimpel 2016, arXiv:1606.08415
#include "check.cuh"
#include "gelu.h"
#include "vec.cuh"

#ifndef GELU_V01_THREADS
#define GELU_V01_THREADS 256
#endif

namespace {
constexpr int THREADS = GELU_V01_THREADS;
}

template <typename T, bool BIAS>
__global__ void __launch_bounds__(THREADS)
    gelu_v01_naive(const T* x, const T* bias, T* out, int64_t elements, int columns) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= elements) return;
  float y = to_float(x[at]);
  if constexpr (BIAS) y += to_float(bias[at % columns]);
  const float inner = 0.7978845608028654f * (y + 0.044715f * y * y * y);
  out[at] = from_float<T>(0.5f * y * (1.0f + tanhf(inner)));
}

template <typename T>
static cudaError_t launch(const GeluCall& call) {
  const int64_t blocks = (call.elements - 1) / THREADS + 1;
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  const auto kernel = call.bias ? gelu_v01_naive<T, true> : gelu_v01_naive<T, false>;
  kernel<<<static_cast<unsigned>(blocks), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.bias), static_cast<T*>(call.out), call.elements,
      call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t gelu_v01_naive(const GeluCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
