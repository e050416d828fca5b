// residual_layernorm v04_one_exchange: one exchange between the threads of a row; with many rows, L2 fed 1 MB ahead.
// Shapes   x, y, residual, out (N, C) row-major; weight, bias (C,).
// Needs    nothing (rows of other than 64, 96, 128, 192 or 256 aligned packets of 16 bytes are v02's)
// Moves    4 * N * C * sizeof(T) bytes: x and y once in, residual and out once out; weight and bias from L1.
// Versus   v02: five shuffles one after the other in place of ten, one barrier in place of two. Inputs are prefetched
//          1 MB ahead in place of 3, from 4097 rows on in place of 16385, and in fp32 too.
// Source   v02_vector; layernorm v08_one_exchange
#include "check.cuh"
#include "overlap.cuh"
#include "residual_layernorm.h"
#include "row_exchange.cuh"
#include "vec.cuh"

cudaError_t residual_layernorm_v02_vector(const ResidualLayernormCall& call);

#ifndef RESIDUAL_LAYERNORM_V04_AHEAD_MB
#define RESIDUAL_LAYERNORM_V04_AHEAD_MB 1
#endif

namespace {
// distance of the prefetch into L2, of x and of y each
constexpr int64_t AHEAD_BYTES = int64_t{RESIDUAL_LAYERNORM_V04_AHEAD_MB} << 20;
constexpr int64_t FEW_ROWS = 256;
constexpr int64_t FED_ROWS = 4096;  // above it, blocks prefetch inputs into L2 and store outputs as evict-first
}  // namespace

template <bool STREAMING, typename P, typename T>
__device__ __forceinline__ void put(const P& packet, T* to) {
  STREAMING ? packet.store_streaming(to) : packet.store(to);
}

// G threads per row have COUNT packets of WIDTH elements each, which are all of the row. A block has ROWS rows.
template <typename T, int COUNT, int G, int ROWS, bool FED>
__global__ void __launch_bounds__(G* ROWS)
    residual_layernorm_v04_one_exchange(const T* x, const T* y, const T* weight, const T* bias, T* residual, T* out,
                                        int rows, float eps, int ahead) {
  constexpr int WIDTH = 16 / sizeof(T), COLUMNS = COUNT * G * WIDTH;
  let_next_start();
  const int lane = threadIdx.x % G;
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole warps return; no barrier spans two rows
  const int64_t start = static_cast<int64_t>(row) * COLUMNS;

  wait_for_previous();
  Packet<T, WIDTH> left[COUNT], right[COUNT], weights[COUNT], biases[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    left[k] = Packet<T, WIDTH>::load(x + start + column);
    right[k] = Packet<T, WIDTH>::load(y + start + column);
    weights[k] = Packet<T, WIDTH>::load(weight + column);
    biases[k] = Packet<T, WIDTH>::load(bias + column);
  }
  if (FED && AHEAD_BYTES > 0 && lane == 0 && ahead < rows - row) {
    const int64_t later = start + static_cast<int64_t>(ahead) * COLUMNS;
    prefetch_l2(x + later, COLUMNS * static_cast<uint32_t>(sizeof(T)));
    prefetch_l2(y + later, COLUMNS * static_cast<uint32_t>(sizeof(T)));
  }

  float value[COUNT][WIDTH];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[k][j] = to_float(left[k].values[j]) + to_float(right[k].values[j]);
    const auto sum = Packet<T, WIDTH>::scaled(value[k], 1.0f);
    put<FED>(sum, residual + start + (k * G + lane) * WIDTH);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[k][j] = to_float(sum.values[j]);  // normalise the rounded sum that is stored
  }
  const auto [mean, scale] = exchanged_statistics<G, ROWS>(value, eps);

#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      value[k][j] = (value[k][j] - mean) * scale * to_float(weights[k].values[j]) + to_float(biases[k].values[j]);
    put<FED>(Packet<T, WIDTH>::scaled(value[k], 1.0f), out + start + (k * G + lane) * WIDTH);
  }
}

template <typename T, int COUNT, int G, int ROWS, bool FED = false>
static cudaError_t launch_rows(const ResidualLayernormCall& call) {
  const int rows = static_cast<int>(call.rows);
  const auto kernel = residual_layernorm_v04_one_exchange<T, COUNT, G, ROWS, FED>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status = launch_overlapped(
      kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.x),
      static_cast<const T*>(call.y), static_cast<const T*>(call.weight), static_cast<const T*>(call.bias),
      static_cast<T*>(call.residual), static_cast<T*>(call.out), rows, call.eps,
      static_cast<int>(AHEAD_BYTES / (call.columns * static_cast<int64_t>(sizeof(T)))));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

// Up to FED_ROWS, a row has COUNT packets a thread; above, MANY.
template <typename T, int PACKETS, int COUNT, int ROWS, int MANY, int MANY_ROWS>
static cudaError_t launch(const ResidualLayernormCall& call) {
  // decode: few rows, where only the time of one row counts
  if (call.rows <= FEW_ROWS) return launch_rows<T, 1, PACKETS, 1>(call);
  if (call.rows <= FED_ROWS) return launch_rows<T, COUNT, PACKETS / COUNT, ROWS>(call);
  return launch_rows<T, MANY, PACKETS / MANY, MANY_ROWS, true>(call);
}

template <typename T>
static cudaError_t launch_packets(const ResidualLayernormCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.y) |
                         reinterpret_cast<uintptr_t>(call.weight) | reinterpret_cast<uintptr_t>(call.bias) |
                         reinterpret_cast<uintptr_t>(call.residual) | reinterpret_cast<uintptr_t>(call.out) |
                         (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (addresses % 16 == 0) {
    if (packets == 64) return launch<T, 64, 2, 4, 2, 4>(call);
    if (packets == 96) return launch<T, 96, 3, 4, 3, 4>(call);
    if (packets == 128) return launch<T, 128, 4, 4, 4, 4>(call);
    if (packets == 192) return launch<T, 192, 2, 1, 1, 1>(call);
    if (packets == 256) return launch<T, 256, 2, 1, 1, 1>(call);
  }
  return residual_layernorm_v02_vector(call);
}

cudaError_t residual_layernorm_v04_one_exchange(const ResidualLayernormCall& call) {
  return call.dtype == DType::float32 ? launch_packets<float>(call) : launch_packets<__nv_bfloat16>(call);
}
