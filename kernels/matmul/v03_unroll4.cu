// matmul v03_unroll4: v02 with the loop over K unrolled by four, so that four pairs of loads are in flight.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    nothing
// Moves    as v01.
// Versus   v02: a quarter of the loop's branches, more loads in flight.
// Source   CUDA C++ Programming Guide, "#pragma unroll"
#include <cstdint>

#include "check.cuh"
#include "matmul.h"

#ifndef MATMUL_V03_TILE
#define MATMUL_V03_TILE 16
#endif

namespace {
constexpr int TILE = MATMUL_V03_TILE;
}

template <typename T>
__global__ void __launch_bounds__(TILE* TILE)
    matmul_v03_unroll4(const T* __restrict__ a, const T* __restrict__ weight, const T* __restrict__ bias,
                       T* __restrict__ out, int m, int n, int k) {
  const int row = blockIdx.x * TILE + threadIdx.x, column = blockIdx.y * TILE + threadIdx.y;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
#pragma unroll 4
  for (int i = 0; i < k; ++i)
    sum += a[static_cast<int64_t>(row) * k + i] * weight[static_cast<int64_t>(i) * n + column];
  out[static_cast<int64_t>(row) * n + column] = sum + bias[column];
}

cudaError_t matmul_v03_unroll4(const MatmulCall& call) {
  const dim3 grid((call.m + TILE - 1) / TILE, (call.n + TILE - 1) / TILE);
  matmul_v03_unroll4<float><<<grid, dim3(TILE, TILE), 0, call.stream>>>(
      static_cast<const float*>(call.a), static_cast<const float*>(call.weight), static_cast<const float*>(call.bias),
      static_cast<float*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
