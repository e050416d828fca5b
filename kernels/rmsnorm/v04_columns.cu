// rmsnorm v04_columns: backward in two launches, a block per row for x and a thread per column for the weight.
// Shapes   gradient, x, out (N, C) row-major; weight, of_weight (C,); workspace N floats, the scales of the rows.
// Needs    nothing
// Moves    5 * N * C * sizeof(T) bytes, if each row's second pass hits L1 or L2: both operands again for the weight.
// Versus   PyTorch: the scales are computed here, not kept by the forward pass.
// Source   the chain rule; Zhang, Sennrich 2019
#include "check.cuh"
#include "rmsnorm.h"
#include "row_norm.cuh"
#include "vec.cuh"

#ifndef RMSNORM_V04_THREADS
#define RMSNORM_V04_THREADS 256
#endif

namespace {
constexpr int THREADS = RMSNORM_V04_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    rmsnorm_v04_rows(const T* gradient, const T* x, const T* weight, T* out, float* scales, int columns, float eps) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  float squares = 0.0f, products = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    const float value = to_float(x[start + column]);
    squares += value * value;
    products += value * to_float(gradient[start + column]) * to_float(weight[column]);
  }
  const float scale = rsqrtf(row_sum<THREADS, 1, 0>(squares) / columns + eps);
  const float mean = row_sum<THREADS, 1, 1>(products) * scale / columns;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    const float wanted = to_float(gradient[start + column]) * to_float(weight[column]);
    out[start + column] = from_float<T>(scale * (wanted - to_float(x[start + column]) * scale * mean));
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    rmsnorm_v04_columns(const T* gradient, const T* x, const float* scales, T* of_weight, int rows, int columns) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row) {
    const int64_t place = static_cast<int64_t>(row) * columns + column;
    sum += to_float(gradient[place]) * (to_float(x[place]) * scales[row]);
  }
  of_weight[column] = from_float<T>(sum);
}

template <typename T>
static cudaError_t launch(const RmsnormCall& call) {
  const T *gradient = static_cast<const T*>(call.gradient), *x = static_cast<const T*>(call.x);
  rmsnorm_v04_rows<T><<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      gradient, x, static_cast<const T*>(call.weight), static_cast<T*>(call.out), call.workspace, call.columns,
      call.eps);
  RETURN_IF_LAUNCH_FAILED();
  rmsnorm_v04_columns<T><<<static_cast<unsigned>((call.columns - 1) / THREADS + 1), THREADS, 0, call.stream>>>(
      gradient, x, call.workspace, static_cast<T*>(call.of_weight), static_cast<int>(call.rows), call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t rmsnorm_v04_columns(const RmsnormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
