// matmul v05_coalesced: neighbouring threads in neighbouring columns, so that a warp reads and writes whole sectors.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    nothing
// Moves    as v01.
// Versus   v02: only threadIdx.x changes: it runs along the columns.
// Why      2.5 sectors per load request (one broadcast, one row of 4 sectors) instead of 8.5.
// Source   CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"
#include <cstdint>

#include "check.cuh"
#include "matmul.h"

#ifndef MATMUL_V05_TILE
#define MATMUL_V05_TILE 16
#endif

namespace {
constexpr int TILE = MATMUL_V05_TILE;
}

template <typename T>
__global__ void __launch_bounds__(32 * TILE)
    matmul_v05_coalesced(const T* __restrict__ a, const T* __restrict__ weight, const T* __restrict__ bias,
                         T* __restrict__ out, int m, int n, int k) {
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < k; ++i)
    sum += a[static_cast<int64_t>(row) * k + i] * weight[static_cast<int64_t>(i) * n + column];
  out[static_cast<int64_t>(row) * n + column] = sum + bias[column];
}

cudaError_t matmul_v05_coalesced(const MatmulCall& call) {
  const dim3 grid((call.n + 31) / 32, (call.m + TILE - 1) / TILE);
  matmul_v05_coalesced<float><<<grid, dim3(32, TILE), 0, call.stream>>>(
      static_cast<const float*>(call.a), static_cast<const float*>(call.weight), static_cast<const float*>(call.bias),
      static_cast<float*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
