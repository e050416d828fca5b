// layernorm v08_one_exchange: the threads of a row exchange once for mean and variance; few rows without prefetches.
// Shapes   x, out (N, C) row-major; weight, bias (C,).
// Needs    nothing (rows of other than 64, 96, 128, 192 or 256 aligned packets of 16 bytes are v05's)
// Moves    2 * N * C * sizeof(T) bytes: every element once from DRAM, once out; weight and bias from L1.
// Versus   v05: five shuffles one after the other in place of ten, one barrier in place of two, and no instruction for
//          columns past the end of a row or for prefetches that few rows do not make.
// Source   v05_vector; Chan, Golub, LeVeque 1979 for the statistics of two parts together
#include "check.cuh"
#include "layernorm.h"
#include "overlap.cuh"
#include "row_exchange.cuh"
#include "vec.cuh"

cudaError_t layernorm_v05_vector(const LayernormCall& call);

#ifndef LAYERNORM_V08_AHEAD_MB
#define LAYERNORM_V08_AHEAD_MB 3
#endif

namespace {
constexpr int64_t AHEAD_BYTES = int64_t{LAYERNORM_V08_AHEAD_MB} << 20;  // distance of the prefetch into L2
constexpr int64_t FEW_ROWS = 256, FED_ROWS = 4096;                      // above FED_ROWS, blocks prefetch into L2
}  // namespace

// G threads per row have COUNT packets of WIDTH elements each, which are all of the row. A block has ROWS rows.
template <typename T, int COUNT, int G, int ROWS, bool FED>
__global__ void __launch_bounds__(G* ROWS)
    layernorm_v08_one_exchange(const T* x, const T* weight, const T* bias, T* out, int rows, float eps, int ahead) {
  constexpr int WIDTH = 16 / sizeof(T), COLUMNS = COUNT * G * WIDTH;
  let_next_start();
  const int lane = threadIdx.x % G;
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole warps return; no barrier spans two rows
  const int64_t start = static_cast<int64_t>(row) * COLUMNS;

  wait_for_previous();
  Packet<T, WIDTH> loaded[COUNT], weights[COUNT], biases[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    loaded[k] = Packet<T, WIDTH>::load(x + start + column);
    weights[k] = Packet<T, WIDTH>::load(weight + column);
    biases[k] = Packet<T, WIDTH>::load(bias + column);
  }
  if (FED && AHEAD_BYTES > 0 && lane == 0 && ahead < rows - row)
    prefetch_l2(x + start + static_cast<int64_t>(ahead) * COLUMNS, COLUMNS * static_cast<uint32_t>(sizeof(T)));

  float value[COUNT][WIDTH];
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[k][j] = to_float(loaded[k].values[j]);
  const auto [mean, scale] = exchanged_statistics<G, ROWS>(value, eps);

#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      value[k][j] = (value[k][j] - mean) * scale * to_float(weights[k].values[j]) + to_float(biases[k].values[j]);
    Packet<T, WIDTH>::scaled(value[k], 1.0f).store(out + start + (k * G + lane) * WIDTH);
  }
}

template <typename T, int COUNT, int G, int ROWS, bool FED>
static cudaError_t launch_rows(const LayernormCall& call) {
  const int rows = static_cast<int>(call.rows);
  const auto kernel = layernorm_v08_one_exchange<T, COUNT, G, ROWS, FED>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status = launch_overlapped(
      kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.x),
      static_cast<const T*>(call.weight), static_cast<const T*>(call.bias), static_cast<T*>(call.out), rows, call.eps,
      static_cast<int>(AHEAD_BYTES / (call.columns * static_cast<int64_t>(sizeof(T)))));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T, int COUNT, int G, int ROWS>
static cudaError_t launch(const LayernormCall& call) {
  // decode: few rows, where only the time of one row counts
  if (call.rows <= FEW_ROWS) return launch_rows<T, 1, COUNT * G, 1, false>(call);
  if (call.rows <= FED_ROWS) return launch_rows<T, COUNT, G, ROWS, false>(call);
  return launch_rows<T, COUNT, G, ROWS, true>(call);
}

template <typename T>
static cudaError_t launch_packets(const LayernormCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.out) |
                         (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (addresses % 16 == 0) {
    if (packets == 64) return launch<T, 2, 32, 4>(call);
    if (packets == 96 && call.rows <= FED_ROWS) return launch<T, 1, 96, 2>(call);
    if (packets == 96) return launch<T, 3, 32, 4>(call);
    if (packets == 128) return launch<T, 4, 32, 4>(call);
    if (packets == 192) return launch<T, 2, 96, 2>(call);
    if (packets == 256) return launch<T, 2, 128, 2>(call);
  }
  return layernorm_v05_vector(call);
}

cudaError_t layernorm_v08_one_exchange(const LayernormCall& call) {
  return call.dtype == DType::float32 ? launch_packets<float>(call) : launch_packets<__nv_bfloat16>(call);
}
