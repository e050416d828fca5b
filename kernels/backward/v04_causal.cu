// backward v04_causal: softmax, both rows in registers, packets above the diagonal are never loaded, prefetches into L2.
// Shapes   gradient, probabilities, out (N, Tk) row-major, N = B * nh * Tq.
// Needs    nothing (rows that are no multiple of 16 bytes, or longer than 16 KB, are v03's)
// Moves    every 32-byte sector with a visible element of both operands once, plus N * Tk * sizeof(T) written.
// Versus   v03: 16 bytes per access, one pass, all loads in flight before the sum. Blocks start while the previous kernel
//          drains.
// Source   softmax v03_causal
#include "backward.h"
#include "causal.cuh"
#include "check.cuh"
#include "overlap.cuh"
#include "row_norm.cuh"
#include "vec.cuh"

cudaError_t backward_v03_passes(const BackwardCall& call);

#ifndef BACKWARD_V04_AHEAD_MB
#define BACKWARD_V04_AHEAD_MB 6
#endif

namespace {
constexpr int64_t AHEAD_BYTES = int64_t{BACKWARD_V04_AHEAD_MB} << 20;  // of both operands; 0: no prefetch
}

// G threads per row have COUNT packets of WIDTH elements each: COUNT * G * WIDTH >= Tk. A block has ROWS rows.
template <typename T, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS)
    backward_v04_causal(const T* gradient, const T* probabilities, T* out, int rows, int queries, int columns,
                        float scale, int ahead) {
  constexpr int WIDTH = 16 / sizeof(T);
  using Part = Packet<T, WIDTH>;
  let_next_start();
  const int lane = threadIdx.x % G, row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole rows return; no barrier spans two rows
  const int visible = visible_columns(row, queries, columns);
  const int64_t start = static_cast<int64_t>(row) * columns;

  wait_for_previous();
  Part gradients[COUNT], parts[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < visible) {
      gradients[k] = Part::load(gradient + start + column);
      parts[k] = Part::load(probabilities + start + column);
    }
  }
  if (AHEAD_BYTES > 0 && lane == 0 && ahead < rows - row) {
    const int later = visible_columns(row + ahead, queries, columns);
    const uint32_t bytes = (later * static_cast<uint32_t>(sizeof(T)) + 15) & ~15u;
    const int64_t place = start + static_cast<int64_t>(ahead) * columns;
    if (later > 0) prefetch_l2(gradient + place, bytes), prefetch_l2(probabilities + place, bytes);
  }

  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < visible) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j)
        if (column + j < visible) sum += to_float(gradients[k].values[j]) * to_float(parts[k].values[j]);
    }
  }
  sum = row_sum<G, ROWS, 0>(sum);
  const float beyond = 0.0f * sum;  // NaN in a row with a NaN
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column >= columns) break;
    float result[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) result[j] = beyond;
    if (column < visible) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j)
        if (column + j < visible)
          result[j] = (to_float(gradients[k].values[j]) - sum) * to_float(parts[k].values[j]) * scale;
    }
    Part::scaled(result, 1.0f).store(out + start + column);
  }
}

template <typename T, int COUNT, int G, int ROWS>
static cudaError_t launch_rows(const BackwardCall& call) {
  const int rows = static_cast<int>(call.rows);
  const auto kernel = backward_v04_causal<T, COUNT, G, ROWS>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status = launch_overlapped(
      kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.gradient),
      static_cast<const T*>(call.x), static_cast<T*>(call.out), rows, call.queries, call.columns, call.number,
      static_cast<int>(AHEAD_BYTES / (2 * call.columns * static_cast<int64_t>(sizeof(T)))));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const BackwardCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.gradient) |
                         reinterpret_cast<uintptr_t>(call.out) | (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (addresses % 16 || packets > 1024) return backward_v03_passes(call);
  if (packets <= 32) return launch_rows<T, 1, 32, 4>(call);
  if (packets <= 64) return launch_rows<T, 2, 32, 4>(call);
  if (packets <= 128) return launch_rows<T, 4, 32, 4>(call);
  if (packets <= 256) return launch_rows<T, 4, 64, 2>(call);
  if (packets <= 512) return launch_rows<T, 4, 128, 1>(call);
  return launch_rows<T, 4, 256, 1>(call);
}

cudaError_t backward_v04_causal(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
