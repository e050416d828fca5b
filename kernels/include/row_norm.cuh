// The statistics of a row in registers, for the kernels that normalise rows.
#pragma once

#include "reduce.cuh"

// Sums over the G threads of a row, and returns the sum to each. Every call in a kernel needs its own PLACE.
template <int G, int ROWS, int PLACE>
__device__ __forceinline__ float row_sum(float value) {
  value = warp_sum(value);
  if constexpr (G > 32) {
    __shared__ float partial[ROWS][G / 32];
    float* own = partial[threadIdx.x / G];
    if (threadIdx.x % 32 == 0) own[threadIdx.x % G / 32] = value;
    join_row<G, ROWS>();
    value = 0.0f;
#pragma unroll
    for (int warp = 0; warp < G / 32; ++warp) value += own[warp];
  }
  return value;
}

struct RowStatistics {
  float mean;
  float scale;  // 1 / sqrt(variance + eps)
};

// Mean and scale of `columns` values. Packet k of a thread has WIDTH values from column (k * G + lane) * WIDTH on;
// values past the end are 0. The variance is a sum over centred values, so a large mean costs no digits.
template <int G, int ROWS, int COUNT, int WIDTH>
__device__ __forceinline__ RowStatistics row_statistics(const float (&value)[COUNT][WIDTH], int lane, int columns,
                                                        float eps) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += value[k][j];
  const float mean = row_sum<G, ROWS, 0>(sum) / columns;
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
    if ((k * G + lane) * WIDTH < columns) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) squares += (value[k][j] - mean) * (value[k][j] - mean);
    }
  return {mean, rsqrtf(row_sum<G, ROWS, 1>(squares) / columns + eps)};
}
