// What v02, v04 and v05 share: warps that multiply rows of a matrix by a vector, and the mapping of rows to warps.
#pragma once

#include <cstdint>

#include "gemv.h"
#include "reduce.cuh"
#include "vec.cuh"

constexpr int THREADS = ROWS_THREADS;  // the including file defines it
constexpr int MANY_ROWS = 16384;       // from so many rows on, a warp takes two rows: x is loaded once for both

// Multiplies ROWS rows from `first` on, with WARPS warps. Each thread loads COUNT packets of a row at a time.
template <typename T, int WARPS, int COUNT, int ROWS>
__device__ __forceinline__ void warp_rows(const T* weight, const T* x, const T* bias, T* out, int first, int n, int k) {
  constexpr int WIDTH = 16 / sizeof(T), G = 32 * WARPS;
  const int lane = threadIdx.x % G, group = threadIdx.x / G;
  float sum[ROWS] = {};
  for (int base = lane * WIDTH; base < k; base += COUNT * G * WIDTH) {
    Packet<T, WIDTH> loaded[ROWS][COUNT], shared[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int column = base + i * G * WIDTH;
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (column < k && first + r < n)
          loaded[r][i] = Packet<T, WIDTH>::load(weight + static_cast<int64_t>(first + r) * k + column);
      if (column < k) shared[i] = Packet<T, WIDTH>::load(x + column);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (base + i * G * WIDTH >= k) break;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        if (first + r >= n) break;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) sum[r] += to_float(loaded[r][i].values[j]) * to_float(shared[i].values[j]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) sum[r] = warp_sum(sum[r]);
  if constexpr (WARPS > 1) {
    __shared__ float parts[THREADS / 32][ROWS];
    if (threadIdx.x % 32 == 0)
      for (int r = 0; r < ROWS; ++r) parts[threadIdx.x / 32][r] = sum[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      sum[r] = 0.0f;
#pragma unroll
      for (int warp = 0; warp < WARPS; ++warp) sum[r] += parts[group * WARPS + warp][r];
    }
  }
  if (lane == 0)
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (first + r < n) out[first + r] = from_float<T>(sum[r] + to_float(bias[first + r]));
}

template <int WARPS_, int COUNT_, int ROWS_>
struct Mapping {
  static constexpr int WARPS = WARPS_, COUNT = COUNT_, ROWS = ROWS_, A_BLOCK = THREADS / (32 * WARPS_) * ROWS_;
};

// Whether every row, and x, start at a multiple of 16 bytes.
inline bool whole_packets(const GemvCall& call, size_t item_bytes) {
  return (reinterpret_cast<uintptr_t>(call.weight) | reinterpret_cast<uintptr_t>(call.x) | call.k * item_bytes) % 16 ==
         0;
}

// Calls `launch` with the Mapping of rows to warps for the number of 16-byte packets in a row.
template <typename Launch>
inline cudaError_t with_mapping(const GemvCall& call, size_t item_bytes, Launch launch) {
  const int64_t packets = static_cast<int64_t>(call.k * item_bytes) / 16;
  if (packets > 384) return launch(Mapping<4, 6, 1>());
  if (packets > 192) return launch(Mapping<4, 3, 1>());
  if (packets > 96) return call.n >= MANY_ROWS ? launch(Mapping<1, 6, 2>()) : launch(Mapping<1, 6, 1>());
  return call.n >= MANY_ROWS ? launch(Mapping<1, 3, 2>()) : launch(Mapping<1, 3, 1>());
}
