// layernorm v03_shuffle: one warp per row, sums by shuffles, no shared memory and no barrier.
// Shapes   x, out (N, C) row-major; weight, bias (C,).
// Needs    nothing
// Moves    2 * N * C * sizeof(T) bytes: every element once from DRAM (the second and third pass hit L1), once out.
// Versus   v02: 5 shuffles per sum instead of a tree of 8 steps with barriers; the rows of a block do not wait for each
//          other.
// Source   Luitjens 2014, "Faster parallel reductions on Kepler", NVIDIA developer blog
#include "check.cuh"
#include "layernorm.h"
#include "reduce.cuh"
#include "vec.cuh"

#ifndef LAYERNORM_V03_THREADS
#define LAYERNORM_V03_THREADS 128
#endif

namespace {
constexpr int THREADS = LAYERNORM_V03_THREADS;
constexpr int ROWS = THREADS / 32;
}  // namespace

template <typename T>
__global__ void __launch_bounds__(THREADS)
    layernorm_v03_shuffle(const T* x, const T* weight, const T* bias, T* out, int64_t rows, int columns, float eps) {
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / 32;
  if (row >= rows) return;
  const T* from = x + row * columns;
  T* to = out + row * columns;
  float sum = 0.0f;
  for (int column = lane; column < columns; column += 32) sum += to_float(from[column]);
  const float mean = warp_sum(sum) / columns;
  float squares = 0.0f;
  for (int column = lane; column < columns; column += 32) {
    const float centred = to_float(from[column]) - mean;
    squares += centred * centred;
  }
  const float scale = rsqrtf(warp_sum(squares) / columns + eps);
  for (int column = lane; column < columns; column += 32)
    to[column] =
        from_float<T>((to_float(from[column]) - mean) * scale * to_float(weight[column]) + to_float(bias[column]));
}

template <typename T>
static cudaError_t launch(const LayernormCall& call) {
  layernorm_v03_shuffle<T><<<static_cast<unsigned>((call.rows - 1) / ROWS + 1), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.rows, call.columns, call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t layernorm_v03_shuffle(const LayernormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
