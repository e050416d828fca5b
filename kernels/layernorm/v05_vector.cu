// layernorm v05_vector: a row in registers, read once in 16-byte packets; prefetches into L2, overlapped launches.
// Shapes   x, out (N, C) row-major; weight, bias (C,).
// Needs    nothing (rows that are no multiple of 16 bytes, or longer than 16 KB, take three passes by a block)
// Moves    2 * N * C * sizeof(T) bytes: every element once from DRAM, once out; weight and bias from L1.
// Versus   v03: one pass instead of three, 16 bytes per access, all loads of a row in flight before the first use.
// Source   the mapping of softmax v03_causal; apex's layer_norm also keeps a row in registers for its statistics
#include "check.cuh"
#include "layernorm.h"
#include "overlap.cuh"
#include "row_norm.cuh"
#include "vec.cuh"

#ifndef LAYERNORM_V05_ROWS
#define LAYERNORM_V05_ROWS 4
#endif
#ifndef LAYERNORM_V05_AHEAD_MB
#define LAYERNORM_V05_AHEAD_MB 3
#endif
#ifndef LAYERNORM_V05_EARLY
#define LAYERNORM_V05_EARLY 3
#endif

namespace {
// distance of the prefetch into L2; 0: no prefetch
constexpr int64_t AHEAD_BYTES = int64_t{LAYERNORM_V05_AHEAD_MB} << 20;
constexpr int TOGETHER = LAYERNORM_V05_ROWS;  // rows per block, if a row is narrow
constexpr int64_t FEW_ROWS = 256;
constexpr int ANY_THREADS = 256;
// with up to so many packets per thread, weight and bias are loaded with the row
constexpr int EARLY_COUNT = LAYERNORM_V05_EARLY;
}  // namespace

// G threads per row have COUNT packets of WIDTH elements each: COUNT * G * WIDTH >= C. A block has ROWS rows.
template <typename T, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS) layernorm_v05_vector(const T* x, const T* weight, const T* bias, T* out,
                                                                int rows, int columns, float eps, int ahead) {
  constexpr int WIDTH = 16 / sizeof(T);
  constexpr bool EARLY = COUNT <= EARLY_COUNT;
  let_next_start();
  const int lane = threadIdx.x % G;
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole warps return; no barrier spans two rows
  const T* from = x + static_cast<int64_t>(row) * columns;
  T* to = out + static_cast<int64_t>(row) * columns;

  wait_for_previous();
  Packet<T, WIDTH> loaded[COUNT], weights[COUNT], biases[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < columns) loaded[k] = Packet<T, WIDTH>::load(from + column);
    if (EARLY && column < columns) {
      weights[k] = Packet<T, WIDTH>::load(weight + column);
      biases[k] = Packet<T, WIDTH>::load(bias + column);
    }
  }
  if (AHEAD_BYTES > 0 && lane == 0 && ahead < rows - row)
    prefetch_l2(x + static_cast<int64_t>(row + ahead) * columns, columns * static_cast<uint32_t>(sizeof(T)));

  float value[COUNT][WIDTH];
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      value[k][j] = (k * G + lane) * WIDTH < columns ? to_float(loaded[k].values[j]) : 0.0f;
  const auto [mean, scale] = row_statistics<G, ROWS>(value, lane, columns, eps);

#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column >= columns) break;
    if (!EARLY) weights[k] = Packet<T, WIDTH>::load(weight + column), biases[k] = Packet<T, WIDTH>::load(bias + column);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      value[k][j] = (value[k][j] - mean) * scale * to_float(weights[k].values[j]) + to_float(biases[k].values[j]);
    Packet<T, WIDTH>::scaled(value[k], 1.0f).store(to + column);
  }
}

// Any length and alignment: one block per row, three passes.
template <typename T>
__global__ void __launch_bounds__(ANY_THREADS)
    layernorm_v05_any(const T* x, const T* weight, const T* bias, T* out, int columns, float eps) {
  const T* from = x + static_cast<int64_t>(blockIdx.x) * columns;
  T* to = out + static_cast<int64_t>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int column = threadIdx.x; column < columns; column += ANY_THREADS) sum += to_float(from[column]);
  const float mean = row_sum<ANY_THREADS, 1, 0>(sum) / columns;
  float squares = 0.0f;
  for (int column = threadIdx.x; column < columns; column += ANY_THREADS) {
    const float centred = to_float(from[column]) - mean;
    squares += centred * centred;
  }
  const float scale = rsqrtf(row_sum<ANY_THREADS, 1, 1>(squares) / columns + eps);
  for (int column = threadIdx.x; column < columns; column += ANY_THREADS)
    to[column] =
        from_float<T>((to_float(from[column]) - mean) * scale * to_float(weight[column]) + to_float(bias[column]));
}

template <typename T, int COUNT, int G, int ROWS>
static cudaError_t launch_rows(const LayernormCall& call) {
  const int rows = static_cast<int>(call.rows);
  const auto kernel = layernorm_v05_vector<T, COUNT, G, ROWS>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status = launch_overlapped(
      kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.x),
      static_cast<const T*>(call.weight), static_cast<const T*>(call.bias), static_cast<T*>(call.out), rows,
      call.columns, call.eps, static_cast<int>(AHEAD_BYTES / (call.columns * static_cast<int64_t>(sizeof(T)))));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const LayernormCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.out) |
                         (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (addresses % 16 == 0 && packets <= 1024) {
    if (packets <= 32) return launch_rows<T, 1, 32, TOGETHER>(call);
    // decode: few rows, where only the time of one row counts
    if (call.rows <= FEW_ROWS && packets <= 128) return launch_rows<T, 1, 128, 1>(call);
    if (call.rows <= FEW_ROWS && packets <= 256) return launch_rows<T, 1, 256, 1>(call);
    if (packets <= 64) return launch_rows<T, 2, 32, TOGETHER>(call);
    if (packets <= 96) return launch_rows<T, 3, 32, TOGETHER>(call);
    if (packets <= 128) return launch_rows<T, 4, 32, TOGETHER>(call);
    if (packets <= 192) return launch_rows<T, 2, 96, TOGETHER>(call);
    if (packets <= 256) return launch_rows<T, 8, 32, TOGETHER>(call);
    if (packets <= 512) return launch_rows<T, 4, 128, 1>(call);
    return launch_rows<T, 4, 256, 1>(call);
  }
  layernorm_v05_any<T><<<static_cast<unsigned>(call.rows), ANY_THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.columns, call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t layernorm_v05_vector(const LayernormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
