// The statistics of a row in registers from one exchange between its threads, where row_norm.cuh takes two.
#pragma once

#include "reduce.cuh"
#include "row_norm.cuh"

// Mean and scale of the COUNT * WIDTH * G values of a row, all of which exist. Threads and warps combine their means and
// sums over values centred there (Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm for computing
// sample variances"). With a large mean the variance loses some digits, as the rounding of the parts' means enters it;
// in the result the rounding of the mean itself weighs more.
template <int G, int ROWS, int COUNT, int WIDTH>
__device__ __forceinline__ RowStatistics exchanged_statistics(const float (&value)[COUNT][WIDTH], float eps) {
  constexpr int OWN = COUNT * WIDTH;
  float mean = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) mean += value[k][j];
  mean *= 1.0f / OWN;
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) squares += (value[k][j] - mean) * (value[k][j] - mean);
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {  // both sides have OWN * lanes values
    const float other = __shfl_xor_sync(0xffffffff, mean, lanes);
    const float apart = other - mean, more = __shfl_xor_sync(0xffffffff, squares, lanes);
    squares = (squares + more) + apart * apart * (0.5f * OWN * lanes);
    mean = 0.5f * (mean + other);
  }
  if constexpr (G > 32) {
    constexpr int WARPS = G / 32;
    __shared__ float2 partial[ROWS][WARPS];
    float2* own = partial[threadIdx.x / G];
    if (threadIdx.x % 32 == 0) own[threadIdx.x % G / 32] = {mean, squares};
    join_row<G, ROWS>();
    mean = squares = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) mean += own[warp].x;
    mean *= 1.0f / WARPS;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp)
      squares += own[warp].y + (own[warp].x - mean) * (own[warp].x - mean) * (32.0f * OWN);
  }
  return {mean, rsqrtf(squares * (1.0f / (G * OWN)) + eps)};
}
