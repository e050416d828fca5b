// rmsnorm v05_persistent: backward by as many blocks as the GPU holds; each keeps its sum for the weight in registers.
// Shapes   gradient, x, out (N, C) row-major; weight, of_weight (C,); workspace one row of C floats per block.
// Needs    nothing (rows that are no multiple of 16 bytes, or longer than 8192 elements, are v04's)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once; the blocks' sums stay in L2.
// Versus   v04: both operands are read once, in 16-byte packets, a row ahead of the arithmetic. A second launch adds the
//          blocks' sums, always in the same order.
// Source   the two stages of apex's layer_norm backward; Liger's rms_norm backward is persistent too
#include "check.cuh"
#include "overlap.cuh"
#include "reduce.cuh"
#include "rmsnorm.h"
#include "vec.cuh"

cudaError_t rmsnorm_v04_columns(const RmsnormCall& call);

#ifndef RMSNORM_V05_AHEAD
#define RMSNORM_V05_AHEAD 1
#endif

namespace {
constexpr int AHEAD = RMSNORM_V05_AHEAD;  // so many rows beyond those in registers go into L2; 0: no prefetch
constexpr int LANES = 32, QUADS = 8;      // of a block that adds the sums: rows side by side, packets of four columns

// Two blocks per SM with one packet a thread; more packets need the registers of both.
template <int COUNT>
constexpr int BLOCKS = COUNT == 1 ? 2 : 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <int COUNT>
constexpr int FIT = 1;  // two would spill there
#else
template <int COUNT>
constexpr int FIT = BLOCKS<COUNT>;
#endif

// The sums of two values over the G threads of a row, for each of them. `turn` alternates between 0 and 1: a warp
// overwrites what it wrote two rows ago, which all have read before the barrier of the row in between.
template <int G, int ROWS>
__device__ __forceinline__ float2 row_sums(float first, float second, int turn) {
  first = warp_sum(first), second = warp_sum(second);
  if constexpr (G > 32) {
    __shared__ float2 partial[2][ROWS][G / 32];
    float2* own = partial[turn][threadIdx.x / G];
    if (threadIdx.x % 32 == 0) own[threadIdx.x % G / 32] = {first, second};
    join_row<G, ROWS>();
    first = second = 0.0f;
#pragma unroll
    for (int warp = 0; warp < G / 32; ++warp) first += own[warp].x, second += own[warp].y;
  }
  return {first, second};
}
}  // namespace

// G threads per row have COUNT packets of WIDTH elements each: COUNT * G * WIDTH >= C. A block has ROWS rows at a time.
template <typename T, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS, FIT<COUNT>)
    rmsnorm_v05_persistent(const T* gradient, const T* x, const T* weight, T* out, float* sums, int rows, int columns,
                           float eps) {
  constexpr int WIDTH = 16 / sizeof(T);
  using Part = Packet<T, WIDTH>;
  let_next_start();
  const int lane = threadIdx.x % G, step = gridDim.x * ROWS;
  wait_for_previous();
  const auto load_row = [&](const T* from, int row, Part(&part)[COUNT]) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const int column = (k * G + lane) * WIDTH;
      if (column < columns) part[k] = Part::load(from + static_cast<int64_t>(row) * columns + column);
    }
  };
  Part weights[COUNT], values[COUNT], gradients[COUNT], next_values[COUNT], next_gradients[COUNT];
  float sum[COUNT][WIDTH];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    weights[k].raw = values[k].raw = gradients[k].raw = next_values[k].raw = next_gradients[k].raw = {};
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum[k][j] = 0.0f;
  }

  int row = blockIdx.x * ROWS + threadIdx.x / G;
  load_row(weight, 0, weights);
  if (row < rows) load_row(x, row, values), load_row(gradient, row, gradients);
  for (int turn = 0; row < rows; row += step, turn ^= 1) {
    if (step < rows - row) load_row(x, row + step, next_values), load_row(gradient, row + step, next_gradients);
    const int64_t later = row + (1 + AHEAD) * static_cast<int64_t>(step);
    if (AHEAD > 0 && lane == 0 && later < rows) {
      prefetch_l2(x + later * columns, columns * static_cast<uint32_t>(sizeof(T)));
      prefetch_l2(gradient + later * columns, columns * static_cast<uint32_t>(sizeof(T)));
    }
    float squares = 0.0f, products = 0.0f;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        const float value = to_float(values[k].values[j]);
        squares += value * value;
        products += value * (to_float(gradients[k].values[j]) * to_float(weights[k].values[j]));
      }
    const float2 both = row_sums<G, ROWS>(squares, products, turn);
    const float scale = rsqrtf(both.x / columns + eps), mean = both.y * scale / columns;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const int column = (k * G + lane) * WIDTH;
      float result[WIDTH];
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        const float given = to_float(gradients[k].values[j]), z = to_float(values[k].values[j]) * scale;
        result[j] = scale * (given * to_float(weights[k].values[j]) - z * mean);
        sum[k][j] += given * z;
      }
      if (column < columns) Part::scaled(result, 1.0f).store(out + static_cast<int64_t>(row) * columns + column);
      values[k] = next_values[k], gradients[k] = next_gradients[k];
    }
  }

  float* to = sums + static_cast<int64_t>(blockIdx.x) * columns;
  if constexpr (ROWS > 1) {
    __shared__ float shared[ROWS][COUNT * G * WIDTH];
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) shared[threadIdx.x / G][(k * G + lane) * WIDTH + j] = sum[k][j];
    __syncthreads();
    for (int column = threadIdx.x; column < columns; column += G * ROWS) {
      float total = 0.0f;
#pragma unroll
      for (int place = 0; place < ROWS; ++place) total += shared[place][column];
      to[column] = total;
    }
  } else {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const int column = (k * G + lane) * WIDTH;
      if (column < columns)
#pragma unroll
        for (int j = 0; j < WIDTH; j += 4)
          *reinterpret_cast<float4*>(to + column + j) = {sum[k][j], sum[k][j + 1], sum[k][j + 2], sum[k][j + 3]};
    }
  }
}

// of_weight = the sum of `count` rows; a block has QUADS * 4 columns, and each of its LANES every LANESth row.
template <typename T>
__global__ void __launch_bounds__(LANES* QUADS)
    rmsnorm_v05_sum(const float* sums, T* of_weight, int count, int columns) {
  __shared__ float4 partial[LANES][QUADS];
  let_next_start();
  const int quad = threadIdx.x % QUADS, lane = threadIdx.x / QUADS;
  const int column = (blockIdx.x * QUADS + quad) * 4;
  float4 total = {};
  wait_for_previous();
  if (column < columns) {
#pragma unroll 4
    for (int row = lane; row < count; row += LANES) {
      const float4 more = *reinterpret_cast<const float4*>(sums + static_cast<int64_t>(row) * columns + column);
      total = {total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w};
    }
  }
  partial[lane][quad] = total;
  __syncthreads();
  const int own = blockIdx.x * QUADS * 4 + threadIdx.x;
  if (threadIdx.x >= QUADS * 4 || own >= columns) return;
  float result = 0.0f;
  for (int place = 0; place < LANES; ++place) result += reinterpret_cast<const float*>(partial[place])[threadIdx.x];
  of_weight[own] = from_float<T>(result);
}

template <typename T, int COUNT, int G, int ROWS>
static cudaError_t launch_rows(const RmsnormCall& call) {
  const int rows = static_cast<int>(call.rows), most = call.partial_rows / 2 * BLOCKS<COUNT>;
  const int blocks = (rows - 1) / ROWS + 1 < most ? (rows - 1) / ROWS + 1 : most;
  const auto kernel = rmsnorm_v05_persistent<T, COUNT, G, ROWS>;
  static const bool waits = compiled_to_wait(kernel);
  cudaError_t status = launch_overlapped(
      kernel, waits, blocks, G * ROWS, call.stream, static_cast<const T*>(call.gradient), static_cast<const T*>(call.x),
      static_cast<const T*>(call.weight), static_cast<T*>(call.out), call.workspace, rows, call.columns, call.eps);
  RETURN_IF_LAUNCH_FAILED();
  if (status != cudaSuccess) return status;
  status = launch_overlapped(rmsnorm_v05_sum<T>, waits, (call.columns - 1) / (QUADS * 4) + 1, LANES * QUADS,
                             call.stream, static_cast<const float*>(call.workspace), static_cast<T*>(call.of_weight),
                             blocks, call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const RmsnormCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.out) | reinterpret_cast<uintptr_t>(call.gradient) |
                         (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (addresses % 16 || packets > 2048) return rmsnorm_v04_columns(call);
  if (packets <= 128) return launch_rows<T, 1, 128, 4>(call);
  if (packets <= 256) return launch_rows<T, 1, 256, 2>(call);
  if (packets <= 512) return launch_rows<T, 1, 512, 1>(call);
  if (packets <= 1024) return launch_rows<T, 2, 512, 1>(call);
  if constexpr (sizeof(T) == 4) return launch_rows<T, 4, 512, 1>(call);
  return rmsnorm_v04_columns(call);
}

cudaError_t rmsnorm_v05_persistent(const RmsnormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
