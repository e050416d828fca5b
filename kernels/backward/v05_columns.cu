// backward v05_columns: layernorm in two launches, a block per row for x and a thread per column for weight and bias.
// Shapes   gradient, x, out (N, C) row-major; weight, of_weight, of_bias (C,); workspace 2 N floats, mean and scale.
// Needs    nothing
// Moves    5 * N * C * sizeof(T) bytes, if each row's later passes hit L1 or L2: both operands again for the weight.
// Versus   PyTorch: mean and scale are computed here, not kept by the forward pass.
// Source   the chain rule; Ba, Kiros, Hinton 2016, arXiv:1607.06450
#include "backward.h"
#include "check.cuh"
#include "row_norm.cuh"
#include "vec.cuh"

#ifndef BACKWARD_V05_THREADS
#define BACKWARD_V05_THREADS 256
#endif

namespace {
constexpr int THREADS = BACKWARD_V05_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) backward_v05_rows(const T* gradient, const T* x, const T* weight, T* out,
                                                             float2* statistics, int columns, float eps) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  float sum = 0.0f, all_wanted = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    sum += to_float(x[start + column]);
    all_wanted += to_float(gradient[start + column]) * to_float(weight[column]);
  }
  const float mean = row_sum<THREADS, 1, 0>(sum) / columns;
  const float mean_wanted = row_sum<THREADS, 1, 1>(all_wanted) / columns;
  float squares = 0.0f, products = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    const float centred = to_float(x[start + column]) - mean;
    squares += centred * centred;
    products += centred * to_float(gradient[start + column]) * to_float(weight[column]);
  }
  const float scale = rsqrtf(row_sum<THREADS, 1, 2>(squares) / columns + eps);
  const float mean_product = row_sum<THREADS, 1, 3>(products) * scale / columns;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    const float wanted = to_float(gradient[start + column]) * to_float(weight[column]);
    const float z = (to_float(x[start + column]) - mean) * scale;
    out[start + column] = from_float<T>(scale * (wanted - mean_wanted - z * mean_product));
  }
  if (threadIdx.x == 0) statistics[blockIdx.x] = {mean, scale};
}

template <typename T>
__global__ void __launch_bounds__(THREADS) backward_v05_columns(const T* gradient, const T* x, const float2* statistics,
                                                                T* of_weight, T* of_bias, int rows, int columns) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  float weight = 0.0f, bias = 0.0f;
  for (int row = 0; row < rows; ++row) {
    const int64_t place = static_cast<int64_t>(row) * columns + column;
    const float2 of_row = statistics[row];
    weight += to_float(gradient[place]) * ((to_float(x[place]) - of_row.x) * of_row.y);
    bias += to_float(gradient[place]);
  }
  of_weight[column] = from_float<T>(weight);
  of_bias[column] = from_float<T>(bias);
}

template <typename T>
static cudaError_t launch(const BackwardCall& call) {
  const T *gradient = static_cast<const T*>(call.gradient), *x = static_cast<const T*>(call.x);
  float2* statistics = reinterpret_cast<float2*>(call.workspace);
  backward_v05_rows<T><<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      gradient, x, static_cast<const T*>(call.weight), static_cast<T*>(call.out), statistics, call.columns,
      call.number);
  RETURN_IF_LAUNCH_FAILED();
  backward_v05_columns<T><<<static_cast<unsigned>((call.columns - 1) / THREADS + 1), THREADS, 0, call.stream>>>(
      gradient, x, statistics, static_cast<T*>(call.of_weight), static_cast<T*>(call.of_bias),
      static_cast<int>(call.rows), call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t backward_v05_columns(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
