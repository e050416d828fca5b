// backward v03_passes: softmax, one block per row, a pass for the sum and one for the gradient, element by element.
// Shapes   gradient, probabilities, out (N, Tk) row-major, N = B * nh * Tq.
// Needs    nothing
// Moves    every 32-byte sector with a visible element of both operands once, plus N * Tk * sizeof(T) written; the second
//          pass hits L1 or L2.
// Versus   PyTorch: one launch, and nothing above the diagonal is read.
// Source   the chain rule
#include "backward.h"
#include "causal.cuh"
#include "check.cuh"
#include "row_norm.cuh"
#include "vec.cuh"

#ifndef BACKWARD_V03_THREADS
#define BACKWARD_V03_THREADS 128
#endif

namespace {
constexpr int THREADS = BACKWARD_V03_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    backward_v03_passes(const T* gradient, const T* probabilities, T* out, int queries, int columns, float scale) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  const int visible = visible_columns(static_cast<int>(blockIdx.x), queries, columns);
  float sum = 0.0f;
  for (int column = threadIdx.x; column < visible; column += THREADS)
    sum += to_float(gradient[start + column]) * to_float(probabilities[start + column]);
  sum = row_sum<THREADS, 1, 0>(sum);
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    float result = 0.0f * sum;  // NaN in a row with a NaN
    if (column < visible)
      result = (to_float(gradient[start + column]) - sum) * to_float(probabilities[start + column]) * scale;
    out[start + column] = from_float<T>(result);
  }
}

template <typename T>
static cudaError_t launch(const BackwardCall& call) {
  backward_v03_passes<T><<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.gradient), static_cast<const T*>(call.x), static_cast<T*>(call.out), call.queries,
      call.columns, call.number);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t backward_v03_passes(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
