// A tile of consecutive elements in the registers of a block: loads, a scan by warp shuffles, stores.
#pragma once

#include <cstdint>

#include "vec.cuh"

// Whether packets of 16 bytes can be loaded and stored.
__device__ __forceinline__ bool aligned(const void* x, const void* out) {
  return (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(out)) % 16 == 0;
}

// THREADS threads hold PACKETS packets of four elements each. A warp holds consecutive packets: packet k of lane l is
// the 32 k + l th, so every load of a warp reads 512 consecutive bytes.
template <int THREADS, int PACKETS>
struct Tile {
  static constexpr int WARPS = THREADS / 32;
  static constexpr int SIZE = THREADS * PACKETS * 4;
  float value[PACKETS][4];

  __device__ __forceinline__ static int place(int packet) {
    return ((threadIdx.x / 32) * PACKETS + packet) * 128 + (threadIdx.x % 32) * 4;
  }

  // Elements from `left` on count as 0. `aligned`: x is a multiple of 16 bytes.
  __device__ __forceinline__ void load(const float* x, int64_t left, bool aligned) {
#pragma unroll
    for (int k = 0; k < PACKETS; ++k) {
      const int at = place(k);
      if (aligned && at + 4 <= left) {
        const auto packet = Packet<float, 4>::load(x + at);
#pragma unroll
        for (int j = 0; j < 4; ++j) value[k][j] = packet.values[j];
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) value[k][j] = at + j < left ? x[at + j] : 0.0f;
      }
    }
  }

  // Scans the elements of each warp, and returns the warp's total in every lane.
  __device__ __forceinline__ float scan_warp() {
    const int lane = threadIdx.x % 32;
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKETS; ++k) {
#pragma unroll
      for (int j = 1; j < 4; ++j) value[k][j] += value[k][j - 1];
      float sum = value[k][3];
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const float before = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += before;
      }
      const float before = __shfl_up_sync(0xffffffffu, sum, 1);
      const float add = total + (lane ? before : 0.0f);
#pragma unroll
      for (int j = 0; j < 4; ++j) value[k][j] += add;
      total += __shfl_sync(0xffffffffu, sum, 31);
    }
    return total;
  }

  // `sum` and the totals of the warps before this one.
  __device__ __forceinline__ static float with_warps_before(float sum, const float (&of_warp)[WARPS]) {
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += w < static_cast<int>(threadIdx.x) / 32 ? of_warp[w] : 0.0f;
    return sum;
  }

  __device__ __forceinline__ void store(float* out, float before, int64_t left, bool aligned) const {
#pragma unroll
    for (int k = 0; k < PACKETS; ++k) {
      const int at = place(k);
      if (aligned && at + 4 <= left) {
        Packet<float, 4> packet;
#pragma unroll
        for (int j = 0; j < 4; ++j) packet.values[j] = value[k][j] + before;
        packet.store(out + at);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (at + j < left) out[at + j] = value[k][j] + before;
      }
    }
  }
};

// The sum of `values` of the lanes before this one, and in `total` of all.
__device__ __forceinline__ float scan_lanes(float value, float& total) {
  const int lane = threadIdx.x % 32;
  float sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float before = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += before;
  }
  total = __shfl_sync(0xffffffffu, sum, 31);
  const float before = __shfl_up_sync(0xffffffffu, sum, 1);
  return lane ? before : 0.0f;
}
