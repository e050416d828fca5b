// softmax v07_warp: one warp per row, the row in its registers, maximum and sum by shuffles, no barrier.
// Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.
// Needs    nothing (rows of more than 2048 columns are read three times, twice from L1 or L2)
// Moves    2 * N * Tk * sizeof(T) bytes: every score once, every output once.
// Versus   v06: ten shuffles instead of sixteen tree steps with barriers; a warp waits for no other; registers instead
//          of shared memory.
// Source   CUDA C++ Programming Guide, "Warp Shuffle Functions"
#include "check.cuh"
#include "reduce.cuh"
#include "softmax.h"
#include "vec.cuh"

#ifndef SOFTMAX_V07_ROWS
#define SOFTMAX_V07_ROWS 4
#endif

namespace {
constexpr int ROWS = SOFTMAX_V07_ROWS;  // per block
}

// COUNT scores per lane: COUNT * 32 >= Tk.
template <typename T, int COUNT>
__global__ void __launch_bounds__(32 * ROWS)
    softmax_v07_warp(const T* scores, T* out, int64_t rows, int tq, int tk, float scale) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32, last = static_cast<int>(row % tq) + tk - tq;
  const T* from = scores + row * tk;
  T* to = out + row * tk;

  float value[COUNT];  // dense: the masked part is read too
#pragma unroll
  for (int i = 0; i < COUNT; ++i) value[i] = i * 32 + lane < tk ? to_float(from[i * 32 + lane]) : 0.0f;
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int column = i * 32 + lane;
    value[i] = column < tk && column <= last ? value[i] * scale : -INFINITY;
    largest = fmaxf(largest, value[i]);  // fmaxf ignores a NaN; the sum keeps it
  }
  largest = warp_max(largest);
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    value[i] = exp_fast(value[i] - largest);  // -inf - -inf: NaN, as in PyTorch
    total += value[i];
  }
  total = warp_sum(total);
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if (i * 32 + lane < tk) to[i * 32 + lane] = from_float<T>(value[i] / total);
}

// Rows too long for registers.
template <typename T>
__global__ void __launch_bounds__(32 * ROWS)
    softmax_v07_warp_long(const T* scores, T* out, int64_t rows, int tq, int tk, float scale) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32, last = static_cast<int>(row % tq) + tk - tq;
  const T* from = scores + row * tk;
  T* to = out + row * tk;
  const auto score = [&](int column) { return column <= last ? to_float(from[column]) * scale : -INFINITY; };
  float largest = -INFINITY, total = 0.0f;
  for (int column = lane; column < tk; column += 32) largest = fmaxf(largest, score(column));
  largest = warp_max(largest);
  for (int column = lane; column < tk; column += 32) total += exp_fast(score(column) - largest);
  total = warp_sum(total);
  for (int column = lane; column < tk; column += 32)
    to[column] = from_float<T>(exp_fast(score(column) - largest) / total);
}

template <typename T>
static cudaError_t launch(const SoftmaxCall& call) {
  const auto go = [&](auto kernel) {
    kernel<<<static_cast<unsigned>((call.rows - 1) / ROWS + 1), 32 * ROWS, 0, call.stream>>>(
        static_cast<const T*>(call.scores), static_cast<T*>(call.out), call.rows, call.tq, call.tk, call.scale);
    RETURN_IF_LAUNCH_FAILED();
    return cudaSuccess;
  };
  if (call.tk <= 512) return go(softmax_v07_warp<T, 16>);
  if (call.tk <= 1024) return go(softmax_v07_warp<T, 32>);
  if (call.tk <= 2048) return go(softmax_v07_warp<T, 64>);
  return go(softmax_v07_warp_long<T>);
}

cudaError_t softmax_v07_warp(const SoftmaxCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
