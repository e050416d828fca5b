// backward v01_element: GELU, one thread per element, the derivative of the tanh form as written, tanhf.
// Shapes   gradient, x, out (N, C) row-major.
// Needs    nothing
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once.
// Versus   PyTorch: the same passes; its kernel loads several elements a thread.
// Source   the chain rule; Hendrycks and Gimpel 2016, arXiv:1606.08415
#include "backward.h"
#include "check.cuh"
#include "vec.cuh"

#ifndef BACKWARD_V01_THREADS
#define BACKWARD_V01_THREADS 256
#endif

namespace {
constexpr int THREADS = BACKWARD_V01_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    backward_v01_element(const T* gradient, const T* x, T* out, int64_t elements) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= elements) return;
  const float y = to_float(x[at]);
  const float inner = 0.7978845608028654f * (y + 0.044715f * y * y * y), tangent = tanhf(inner);
  const float of_inner = 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * y * y);
  const float slope = 0.5f * (1.0f + tangent) + 0.5f * y * (1.0f - tangent * tangent) * of_inner;
  out[at] = from_float<T>(to_float(gradient[at]) * slope);
}

template <typename T>
static cudaError_t launch(const BackwardCall& call) {
  const int64_t elements = call.rows * call.columns, blocks = (elements - 1) / THREADS + 1;
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  backward_v01_element<T><<<static_cast<unsigned>(blocks), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.gradient), static_cast<const T*>(call.x), static_cast<T*>(call.out), elements);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t backward_v01_element(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
