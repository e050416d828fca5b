// residual v01_element: one thread per element.
// Shapes   x, y, out of one shape, N * C elements.
// Needs    nothing
// Moves    3 * N * C * sizeof(T) bytes: both operands once in, the sum once out.
// Versus   PyTorch: its kernel uses 16-byte packets.
// Source   llm.c, dev/cuda/residual_forward.cu, kernel 1 (the idea)
#include "check.cuh"
#include "residual.h"
#include "vec.cuh"

#ifndef RESIDUAL_V01_THREADS
#define RESIDUAL_V01_THREADS 256
#endif

namespace {
constexpr int THREADS = RESIDUAL_V01_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) residual_v01_element(const T* x, const T* y, T* out, int64_t elements) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < elements) out[at] = from_float<T>(to_float(x[at]) + to_float(y[at]));
}

template <typename T>
static cudaError_t launch(const ResidualCall& call) {
  const int64_t blocks = (call.elements - 1) / THREADS + 1;
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  residual_v01_element<T><<<static_cast<unsigned>(blocks), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.y), static_cast<T*>(call.out), call.elements);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t residual_v01_element(const ResidualCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
