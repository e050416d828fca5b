// residual_layernorm v01_shuffle: one warp per row; the sum is written, then read again in two passes.
// Shapes   x, y, residual, out (N, C) row-major; weight, bias (C,).
// Needs    nothing
// Moves    4 * N * C * sizeof(T) bytes: x and y once in, residual and out once out. The second and third pass find the
//          residual in L1 or L2.
// Versus   separate addition and layernorm: one launch instead of two, and 4 passes over DRAM instead of 5, because the
//          residual is not read from DRAM.
// Source   layernorm v03_shuffle; llm.c has the same pair as fused_residual_forward
#include "check.cuh"
#include "reduce.cuh"
#include "residual_layernorm.h"
#include "vec.cuh"

#ifndef RESIDUAL_LAYERNORM_V01_THREADS
#define RESIDUAL_LAYERNORM_V01_THREADS 128
#endif

namespace {
constexpr int THREADS = RESIDUAL_LAYERNORM_V01_THREADS;
constexpr int ROWS = THREADS / 32;
}  // namespace

// A lane reads only what it wrote itself, so the passes need no fence.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    residual_layernorm_v01_shuffle(const T* x, const T* y, const T* weight, const T* bias, T* residual, T* out,
                                   int64_t rows, int columns, float eps) {
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / 32;
  if (row >= rows) return;
  const int64_t start = row * columns;
  float sum = 0.0f;
  for (int column = lane; column < columns; column += 32) {
    const T added = from_float<T>(to_float(x[start + column]) + to_float(y[start + column]));
    residual[start + column] = added;
    sum += to_float(added);
  }
  const float mean = warp_sum(sum) / columns;
  float squares = 0.0f;
  for (int column = lane; column < columns; column += 32) {
    const float centred = to_float(residual[start + column]) - mean;
    squares += centred * centred;
  }
  const float scale = rsqrtf(warp_sum(squares) / columns + eps);
  for (int column = lane; column < columns; column += 32)
    out[start + column] = from_float<T>((to_float(residual[start + column]) - mean) * scale * to_float(weight[column]) +
                                        to_float(bias[column]));
}

template <typename T>
static cudaError_t launch(const ResidualLayernormCall& call) {
  residual_layernorm_v01_shuffle<T><<<static_cast<unsigned>((call.rows - 1) / ROWS + 1), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.y), static_cast<const T*>(call.weight),
      static_cast<const T*>(call.bias), static_cast<T*>(call.residual), static_cast<T*>(call.out), call.rows,
      call.columns, call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t residual_layernorm_v01_shuffle(const ResidualLayernormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
