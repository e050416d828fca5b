// What v03 and v07 share: the softmax of a block's queries over tiles of keys, 8 x 4 sums per thread. The including file
// defines TILED_ROWS and TILED_UNROLL.
#pragma once

#include <cfloat>
#include <cstdint>

#include "attention.h"
#include "exact_row.cuh"
#include "vec.cuh"

namespace {
constexpr int D = ATTENTION_HEAD_SIZE, ROWS = TILED_ROWS, KEYS = 64;
constexpr int UNROLL = TILED_UNROLL;                             // of the products, in steps of 4 along the summed axis
constexpr int SIDE = 16, MY_ROWS = 8, MY_COLUMNS = KEYS / SIDE;  // SIDE threads cover the keys of a tile
constexpr int TOGETHER = ROWS / MY_ROWS, THREADS = TOGETHER * SIDE;  // TOGETHER: rows that a block reads at a time
constexpr int SHARED_BYTES = (D * ROWS + D * KEYS + KEYS * D + KEYS * ROWS) * 4;
constexpr int BLOCKS = 228 * 1024 / (SHARED_BYTES + 1024);  // blocks whose shared memory fits into an SM of Hopper
constexpr float LOG2_E = 1.4426950408889634f;
static_assert(MY_COLUMNS == 4 && D == KEYS, "two float4 of one operand, one of the other");
static_assert(ROWS == 32 || ROWS == 64 || ROWS == 128 || ROWS == 256, "groups of rows are found by xor");

// Offset of element (line, four * 4 + one) in a swizzled matrix. Each line permutes its groups of 4 elements, which
// avoids bank conflicts along lines and along columns. Group four ^ g is at the offset xor 4 * g.
__device__ __forceinline__ unsigned place(unsigned line, unsigned four, unsigned one, unsigned width) {
  return line * width + ((four ^ line / 4 % 8) << 2) + one;
}

__device__ __forceinline__ float4 read4(const float* from) { return *reinterpret_cast<const float4*>(from); }

// sums[8][4] += 8 values of the left operand (`low`, `high`) times 4 of the right one
__device__ __forceinline__ void add_products(float (&sums)[MY_ROWS][MY_COLUMNS], const float4& low, const float4& high,
                                             const float4& right) {
  const float a[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const float b[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] += a[i] * b[j];
}

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
}  // namespace

// Goes through the visible tiles of keys number `first`, `first` + `step`, ... of the block's ROWS queries from
// `first_query` on. The head begins at element `base`. Then calls finish(sums, largest, weight_sums): this thread's 8 queries by
// 4 columns, relative to the largest scores, and its part of the sums of weights. Without a visible key all are 0, and
// the largest score is -FLT_MAX.
template <typename T, typename Finish>
__device__ __forceinline__ void attend_tiles(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                             int heads, unsigned block, unsigned blocks, int tokens, int window,
                                             float scale, int first, int step, Finish finish) {
  extern __shared__ __align__(16) float memory[];
  float* const queries = memory;             // [64][ROWS], transposed
  float* const keys = queries + D * ROWS;    // [64][64], transposed
  float* const values = keys + D * KEYS;     // [64][64]
  float* const weights = values + KEYS * D;  // [64][ROWS], transposed
  const int head = block % heads, first_query = (blocks / heads - 1 - block / heads) * ROWS;
  const int64_t base = static_cast<int64_t>(head) * tokens * D;
  const int my_row = threadIdx.x / SIDE, my_column = threadIdx.x % SIDE;  // groups of 8 rows and of 4 columns
  const int query = first_query + my_row * MY_ROWS;
  const int warp_query = first_query + threadIdx.x / 32 * 2 * MY_ROWS, warp_last = warp_query + 2 * MY_ROWS - 1;

  const auto read = [&](const T* from, int row) {  // 4 elements of a row, in this thread's columns
    const int four = threadIdx.x % 16;
    float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < tokens) {
      const auto packet = Packet<T, 4>::load(from + base + row * D + four * 4);
      result = make_float4(to_float(packet.values[0]), to_float(packet.values[1]), to_float(packet.values[2]),
                           to_float(packet.values[3]));
    }
    return result;
  };
  // a turn of TOGETHER rows is one of TOGETHER / 4 groups
  const unsigned line = threadIdx.x % 16 * 4, row = threadIdx.x / 16;
  const auto transpose = [&](float* to, unsigned width, int turn, const float4& from) {
    to += place(line, row / 4, row % 4, width) ^ turn * TOGETHER;
    to[0] = from.x, to[width] = from.y, to[2 * width] = from.z, to[3 * width] = from.w;
  };
#pragma unroll
  for (int i = 0; i < ROWS / TOGETHER; ++i) transpose(queries, ROWS, i, read(q, first_query + row + i * TOGETHER));

  const float to_log2 = scale * LOG2_E;
  float sums[MY_ROWS][MY_COLUMNS] = {}, largest[MY_ROWS], weight_sums[MY_ROWS] = {};
#pragma unroll
  for (int i = 0; i < MY_ROWS; ++i) largest[i] = -FLT_MAX;

  const int last_tile = (min(first_query + ROWS, tokens) - 1) / KEYS;
  for (int tile = max(0, first_query - window + 1) / KEYS + first; tile <= last_tile; tile += step) {
    const int first_key = tile * KEYS;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < KEYS / TOGETHER; ++i) {
      transpose(keys, KEYS, i, read(k, first_key + row + i * TOGETHER));
      *reinterpret_cast<float4*>(values + (threadIdx.x + i * THREADS) * 4) = read(v, first_key + row + i * TOGETHER);
    }
    __syncthreads();
    // no query of this warp sees a key of this tile
    if (first_key > warp_last || first_key + KEYS - 1 <= warp_query - window) continue;

    float scores[MY_ROWS][MY_COLUMNS] = {};
#pragma unroll UNROLL
    for (int deep = 0; deep < D; deep += 4) {
      const unsigned left = place(deep, my_row * 2, 0, ROWS), right = place(deep, my_column, 0, KEYS);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        add_products(scores, read4(queries + left + i * ROWS), read4(queries + (left ^ 4) + i * ROWS),
                     read4(keys + right + i * KEYS));
    }
    if (first_key + KEYS - 1 > warp_query || first_key <= warp_last - window) {
      const int ahead = first_key + my_column * MY_COLUMNS - query;  // the thread's first key minus its first query
#pragma unroll
      for (int i = 0; i < MY_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS; ++j)
          if (ahead > i - j || ahead + window <= i - j) scores[i][j] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < MY_ROWS; ++i) {
      float most = fmaxf(fmaxf(scores[i][0], scores[i][1]), fmaxf(scores[i][2], scores[i][3]));
#pragma unroll
      for (int lane = 1; lane < SIDE; lane *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
      most = fmaxf(most, largest[i]);
      const float factor = exp2_fast((largest[i] - most) * to_log2), shift = most * to_log2;
      largest[i] = most;
      weight_sums[i] *= factor;
#pragma unroll
      for (int j = 0; j < MY_COLUMNS; ++j) {
        sums[i][j] *= factor;
        scores[i][j] = exp2_fast(scores[i][j] * to_log2 - shift);
        weight_sums[i] += scores[i][j];
      }
    }
    // a warp reads only the weights that it wrote, so it needs no barrier of the block
    __syncwarp();
#pragma unroll
    for (int j = 0; j < MY_COLUMNS; ++j)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        *reinterpret_cast<float4*>(weights + (place(my_column * 4, my_row * 2, 0, ROWS) ^ high * 4) + j * ROWS) =
            make_float4(scores[high * 4][j], scores[high * 4 + 1][j], scores[high * 4 + 2][j], scores[high * 4 + 3][j]);
    __syncwarp();
#pragma unroll UNROLL
    for (int deep = 0; deep < KEYS; deep += 4) {
      const unsigned left = place(deep, my_row * 2, 0, ROWS);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        add_products(sums, read4(weights + left + i * ROWS), read4(weights + (left ^ 4) + i * ROWS),
                     read4(values + (deep + i) * D + my_column * 4));
    }
  }
  finish(base, query, warp_query, sums, largest, weight_sums);
}
