// rmsnorm v01_block: one block per row, one element per access, two passes.
// Shapes   x, out (N, C) row-major; weight (C,).
// Needs    nothing
// Moves    2 * N * C * sizeof(T) bytes if the second pass hits L1 or L2.
// Versus   PyTorch: one launch, sums in fp32.
// Source   Zhang, Sennrich 2019, "Root Mean Square Layer Normalization"
#include "check.cuh"
#include "rmsnorm.h"
#include "row_norm.cuh"
#include "vec.cuh"

#ifndef RMSNORM_V01_THREADS
#define RMSNORM_V01_THREADS 256
#endif

namespace {
constexpr int THREADS = RMSNORM_V01_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    rmsnorm_v01_block(const T* x, const T* weight, T* out, int columns, float eps) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  float squares = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    const float value = to_float(x[start + column]);
    squares += value * value;
  }
  const float scale = rsqrtf(row_sum<THREADS, 1, 0>(squares) / columns + eps);
  for (int column = threadIdx.x; column < columns; column += THREADS)
    out[start + column] = from_float<T>(to_float(x[start + column]) * scale * to_float(weight[column]));
}

template <typename T>
static cudaError_t launch(const RmsnormCall& call) {
  rmsnorm_v01_block<T><<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<T*>(call.out), call.columns,
      call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t rmsnorm_v01_block(const RmsnormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
