// What v03, v05 and v08 share: one row of causal softmax in registers, and the mapping of rows to threads.
#pragma once

#include "overlap.cuh"
#include "reduce.cuh"
#include "softmax.h"
#include "vec.cuh"

// Distance of the prefetch of rows into L2, from the including file; 0: no prefetch. Best is about what all SMs hold at
// once: 3 to 6 MB (README.md).
constexpr int64_t AHEAD_BYTES = int64_t{ROW_AHEAD_MB} << 20;
constexpr int64_t FEW_ROWS = 256;
// Up to so many values per thread, branches around the diagonal pay.
constexpr int BRANCH_VALUES = 16;

__device__ __forceinline__ int visible_columns(int row, int tq, int tk) { return row % tq + 1 + tk - tq; }

// Prefetches into L2 the part of a row at or below the diagonal, in whole 16-byte packets.
template <typename T>
__device__ __forceinline__ void prefetch_visible(const T* scores, int row, int tq, int tk) {
  const int wanted = visible_columns(row, tq, tk);
  if (wanted > 0)
    prefetch_l2(scores + static_cast<int64_t>(row) * tk, (wanted * static_cast<uint32_t>(sizeof(T)) + 15) & ~15u);
}

// Computes one row with G threads, COUNT packets of WIDTH elements each: COUNT * G * WIDTH >= Tk. A block has ROWS
// rows, which only the barrier needs to know. `while_loading()` runs once the loads are issued.
template <typename T, int WIDTH, int COUNT, int G, int ROWS, typename WhileLoading>
__device__ __forceinline__ void causal_row(const T* from, T* to, int visible, int tk, float scale,
                                           WhileLoading while_loading) {
  const int lane = threadIdx.x % G;
  // Most values of a warp are on one side of the diagonal: below it they need no mask, above it no arithmetic. Branches
  // for this save time in bf16 at T 512. With more values per thread, or narrow packets, they cost more.
  constexpr bool BRANCHES = WIDTH * sizeof(T) == 16 && COUNT * WIDTH <= BRANCH_VALUES;
  const int warp_column = (lane & ~31) * WIDTH;
  const auto all_visible = [&](int k) { return BRANCHES && (k * G + 32) * WIDTH + warp_column <= visible; };
  const auto any_visible = [&](int k) { return !BRANCHES || k * G * WIDTH + warp_column < visible; };

  // all loads are issued before the first use; a packet with no visible score is not loaded
  Packet<T, WIDTH> loaded[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < visible) loaded[k] = Packet<T, WIDTH>::load(from + column);
  }
  while_loading();

  float value[COUNT][WIDTH];
  float largest = -INFINITY;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    if (all_visible(k)) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        value[k][j] = to_float(loaded[k].values[j]) * scale;
        largest = fmaxf(largest, value[k][j]);  // fmaxf ignores a NaN; the sum keeps it
      }
    } else if (any_visible(k)) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        const int column = (k * G + lane) * WIDTH + j;
        value[k][j] = column < visible ? to_float(loaded[k].values[j]) * scale : -INFINITY;
        largest = fmaxf(largest, value[k][j]);
      }
    }
  }
  largest = warp_max(largest);
  // with several warps per row, one of them may see only masked columns: -inf - -inf must not spoil its zeros
  const float base = G > 32 && largest == -INFINITY ? 0.0f : largest;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    if (any_visible(k)) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        value[k][j] = exp_fast(value[k][j] - base);
        sum += value[k][j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) value[k][j] = 0.0f;
    }
  }
  sum = warp_sum(sum);

  // NaN for a row that sees nothing, only -inf, a +inf or a NaN: from 0 * inf, or from a sum that is NaN
  float factor;
  if constexpr (G == 32) {
    factor = 1.0f / sum;
  } else {
    constexpr int WARPS = G / 32;
    __shared__ float shared_largest[ROWS][WARPS], shared_total[ROWS][WARPS];
    float* warp_largest = shared_largest[threadIdx.x / G];
    float* warp_total = shared_total[threadIdx.x / G];
    if (lane % 32 == 0) {
      warp_largest[lane / 32] = largest;
      warp_total[lane / 32] = sum;
    }
    join_row<G, ROWS>();
    float row_largest = -INFINITY, total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) row_largest = fmaxf(row_largest, warp_largest[warp]);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) total += warp_total[warp] * exp_fast(warp_largest[warp] - row_largest);
    factor = exp_fast(largest - row_largest) / total;
  }

  // the whole row is written at once, zeros included: writing the zeros early, during the loads, was slower
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < tk) Packet<T, WIDTH>::scaled(value[k], factor).store(to + column);
  }
}

template <int COUNT_, int G_, int ROWS_>
struct Mapping {
  static constexpr int COUNT = COUNT_, G = G_, ROWS = ROWS_;
};

// Calls `launch` with the Mapping of rows to threads for the packets in a row, or `too_long` if a row does not fit into
// registers. The mappings were measured on an H200 (README.md).
template <typename T, int WIDTH, typename Launch, typename TooLong>
inline cudaError_t with_mapping(const SoftmaxCall& call, Launch launch, TooLong too_long) {
  const int packets = (call.tk - 1) / WIDTH + 1;
  if (packets <= 32) return launch(Mapping<1, 32, 4>());
  // decode: few rows, where only the time of one row counts
  if (call.rows <= FEW_ROWS && packets <= 128) return launch(Mapping<1, 128, 1>());
  if (call.rows <= FEW_ROWS && packets <= 256) return launch(Mapping<1, 256, 1>());
  if (packets <= 64) return launch(Mapping<2, 32, 4>());
  if (packets <= 128) return launch(Mapping<4, 32, 4>());
  if constexpr (WIDTH * sizeof(T) == 16) {
    if (packets <= 256) {
      if constexpr (sizeof(T) == 4) return launch(Mapping<2, 128, 1>());
      if constexpr (sizeof(T) == 2) return launch(Mapping<8, 32, 4>());
    }
    if (packets <= 512) return launch(Mapping<8, 64, 2>());
    if (packets <= 1024) return launch(Mapping<8, 128, 1>());
  } else {
    if (packets <= 256) return launch(Mapping<4, 64, 1>());
    if (packets <= 512) return launch(Mapping<4, 128, 1>());
    if (packets <= 1024) return launch(Mapping<4, 256, 1>());
    if (packets <= 2048) return launch(Mapping<8, 256, 1>());
    if (packets <= 4096) return launch(Mapping<16, 256, 1>());
  }
  return too_long();
}

// The bits of the addresses and of the length of a row: every row starts at a multiple of the lowest bit that is set.
inline uintptr_t alignment_bits(const SoftmaxCall& call, size_t item_bytes) {
  return reinterpret_cast<uintptr_t>(call.scores) | reinterpret_cast<uintptr_t>(call.out) |
         (static_cast<uintptr_t>(call.tk) * item_bytes);
}
