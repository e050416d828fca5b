// residual_layernorm v02_vector: the sum stays in registers, 16-byte packets, overlapped launches; with many rows,
// prefetches into L2.
// Shapes   x, y, residual, out (N, C) row-major; weight, bias (C,).
// Needs    nothing (rows that are no multiple of 16 bytes, or longer than 16 KB, take three passes by a block)
// Moves    4 * N * C * sizeof(T) bytes: x and y once in, residual and out once out; weight and bias from L1.
// Versus   v01: one pass instead of three, 16 bytes per access, all loads of a row in flight before the first use.
// Source   layernorm v05_vector
#include "check.cuh"
#include "overlap.cuh"
#include "residual_layernorm.h"
#include "row_norm.cuh"
#include "vec.cuh"

#ifndef RESIDUAL_LAYERNORM_V02_ROWS
#define RESIDUAL_LAYERNORM_V02_ROWS 4
#endif
#ifndef RESIDUAL_LAYERNORM_V02_AHEAD_MB
#define RESIDUAL_LAYERNORM_V02_AHEAD_MB 3
#endif
#ifndef RESIDUAL_LAYERNORM_V02_EARLY
#define RESIDUAL_LAYERNORM_V02_EARLY 3
#endif

namespace {
// distance of the prefetch into L2, of x and of y each; 0: no prefetch
constexpr int64_t AHEAD_BYTES = int64_t{RESIDUAL_LAYERNORM_V02_AHEAD_MB} << 20;
constexpr int TOGETHER = RESIDUAL_LAYERNORM_V02_ROWS;  // rows per block, if a warp has a row
constexpr int64_t FEW_ROWS = 256;
constexpr int64_t MANY_ROWS = 4096;
constexpr int64_t FED_ROWS = 16384;  // above it, blocks prefetch inputs into L2 and store outputs as evict-first
constexpr int ANY_THREADS = 256;
// with up to so many packets per thread, weight and bias are loaded with the row
constexpr int EARLY_COUNT = RESIDUAL_LAYERNORM_V02_EARLY;
}  // namespace

template <bool STREAMING, typename P, typename T>
__device__ __forceinline__ void put(const P& packet, T* to) {
  STREAMING ? packet.store_streaming(to) : packet.store(to);
}

// G threads per row have COUNT packets of WIDTH elements each: COUNT * G * WIDTH >= C. A block has ROWS rows.
template <typename T, int COUNT, int G, int ROWS, bool FED>
__global__ void __launch_bounds__(G* ROWS)
    residual_layernorm_v02_vector(const T* x, const T* y, const T* weight, const T* bias, T* residual, T* out, int rows,
                                  int columns, float eps, int ahead) {
  constexpr int WIDTH = 16 / sizeof(T);
  constexpr bool EARLY = COUNT <= EARLY_COUNT;
  let_next_start();
  const int lane = threadIdx.x % G;
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole warps return; no barrier spans two rows
  const int64_t start = static_cast<int64_t>(row) * columns;

  wait_for_previous();
  Packet<T, WIDTH> left[COUNT], right[COUNT], weights[COUNT], biases[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < columns) {
      left[k] = Packet<T, WIDTH>::load(x + start + column);
      right[k] = Packet<T, WIDTH>::load(y + start + column);
    }
    if (EARLY && column < columns) {
      weights[k] = Packet<T, WIDTH>::load(weight + column);
      biases[k] = Packet<T, WIDTH>::load(bias + column);
    }
  }
  if (FED && AHEAD_BYTES > 0 && lane == 0 && ahead < rows - row) {
    const int64_t later = static_cast<int64_t>(row + ahead) * columns;
    prefetch_l2(x + later, columns * static_cast<uint32_t>(sizeof(T)));
    prefetch_l2(y + later, columns * static_cast<uint32_t>(sizeof(T)));
  }

  float value[COUNT][WIDTH];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      value[k][j] = column < columns ? to_float(left[k].values[j]) + to_float(right[k].values[j]) : 0.0f;
    const auto sum = Packet<T, WIDTH>::scaled(value[k], 1.0f);
    if (column < columns) put<FED>(sum, residual + start + column);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[k][j] = to_float(sum.values[j]);  // normalise the rounded sum that is stored
  }
  const auto [mean, scale] = row_statistics<G, ROWS>(value, lane, columns, eps);

#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column >= columns) break;
    if (!EARLY) weights[k] = Packet<T, WIDTH>::load(weight + column), biases[k] = Packet<T, WIDTH>::load(bias + column);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      value[k][j] = (value[k][j] - mean) * scale * to_float(weights[k].values[j]) + to_float(biases[k].values[j]);
    put<FED>(Packet<T, WIDTH>::scaled(value[k], 1.0f), out + start + column);
  }
}

// Any length and alignment: one block per row, three passes. A thread reads only what it wrote itself.
template <typename T>
__global__ void __launch_bounds__(ANY_THREADS)
    residual_layernorm_v02_any(const T* x, const T* y, const T* weight, const T* bias, T* residual, T* out, int columns,
                               float eps) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int column = threadIdx.x; column < columns; column += ANY_THREADS) {
    const T added = from_float<T>(to_float(x[start + column]) + to_float(y[start + column]));
    residual[start + column] = added;
    sum += to_float(added);
  }
  const float mean = row_sum<ANY_THREADS, 1, 0>(sum) / columns;
  float squares = 0.0f;
  for (int column = threadIdx.x; column < columns; column += ANY_THREADS) {
    const float centred = to_float(residual[start + column]) - mean;
    squares += centred * centred;
  }
  const float scale = rsqrtf(row_sum<ANY_THREADS, 1, 1>(squares) / columns + eps);
  for (int column = threadIdx.x; column < columns; column += ANY_THREADS)
    out[start + column] = from_float<T>((to_float(residual[start + column]) - mean) * scale * to_float(weight[column]) +
                                        to_float(bias[column]));
}

template <typename T, int COUNT, int G, int ROWS, bool FED = false>
static cudaError_t launch_rows(const ResidualLayernormCall& call) {
  const int rows = static_cast<int>(call.rows);
  const auto kernel = residual_layernorm_v02_vector<T, COUNT, G, ROWS, FED>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status = launch_overlapped(
      kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.x),
      static_cast<const T*>(call.y), static_cast<const T*>(call.weight), static_cast<const T*>(call.bias),
      static_cast<T*>(call.residual), static_cast<T*>(call.out), rows, call.columns, call.eps,
      static_cast<int>(AHEAD_BYTES / (call.columns * static_cast<int64_t>(sizeof(T)))));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const ResidualLayernormCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.y) |
                         reinterpret_cast<uintptr_t>(call.weight) | reinterpret_cast<uintptr_t>(call.bias) |
                         reinterpret_cast<uintptr_t>(call.residual) | reinterpret_cast<uintptr_t>(call.out) |
                         (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (addresses % 16 == 0 && packets <= 1024) {
    if (packets <= 32) return launch_rows<T, 1, 32, TOGETHER>(call);
    // decode: few rows, where only the time of one row counts
    if (call.rows <= FEW_ROWS && packets <= 128) return launch_rows<T, 1, 128, 1>(call);
    if (call.rows <= FEW_ROWS && packets <= 256) return launch_rows<T, 1, 256, 1>(call);
    if (packets <= 64) return launch_rows<T, 2, 32, TOGETHER>(call);
    if (packets <= 96 && call.rows > FED_ROWS) return launch_rows<T, 3, 32, TOGETHER, true>(call);
    if (packets <= 96) return launch_rows<T, 3, 32, TOGETHER>(call);
    if (packets <= 128) return launch_rows<T, 4, 32, TOGETHER>(call);
    if (packets <= 192 && call.rows > MANY_ROWS) return launch_rows<T, 1, 192, 1>(call);
    if (packets <= 192) return launch_rows<T, 2, 96, 1>(call);
    if (packets <= 256) return launch_rows<T, 2, 128, 1>(call);
    if (packets <= 512) return launch_rows<T, 4, 128, 1>(call);
    return launch_rows<T, 4, 256, 1>(call);
  }
  residual_layernorm_v02_any<T><<<static_cast<unsigned>(call.rows), ANY_THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<const T*>(call.y), static_cast<const T*>(call.weight),
      static_cast<const T*>(call.bias), static_cast<T*>(call.residual), static_cast<T*>(call.out), call.columns,
      call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t residual_layernorm_v02_vector(const ResidualLayernormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
