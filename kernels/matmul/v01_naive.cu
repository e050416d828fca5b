// matmul v01_naive: one thread per output, neighbouring threads in neighbouring rows: what one writes first.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    nothing
// Moves    (M*K + K*N + N + M*N) * 4 bytes if caches kept everything.
// Versus   nothing: this is the first rung.
// Why      a warp's load of `a` touches 16 rows, its load of `weight` 2 columns: 8.5 sectors per load request.
// Source   the first kernel of every course
#include <cstdint>

#include "check.cuh"
#include "matmul.h"

#ifndef MATMUL_V01_TILE
#define MATMUL_V01_TILE 16
#endif

namespace {
constexpr int TILE = MATMUL_V01_TILE;
}

template <typename T>
__global__ void __launch_bounds__(TILE* TILE)
    matmul_v01_naive(const T* a, const T* weight, const T* bias, T* out, int m, int n, int k) {
  const int row = blockIdx.x * TILE + threadIdx.x, column = blockIdx.y * TILE + threadIdx.y;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < k; ++i)
    sum += a[static_cast<int64_t>(row) * k + i] * weight[static_cast<int64_t>(i) * n + column];
  out[static_cast<int64_t>(row) * n + column] = sum + bias[column];
}

cudaError_t matmul_v01_naive(const MatmulCall& call) {
  const dim3 grid((call.m + TILE - 1) / TILE, (call.n + TILE - 1) / TILE);
  matmul_v01_naive<float><<<grid, dim3(TILE, TILE), 0, call.stream>>>(
      static_cast<const float*>(call.a), static_cast<const float*>(call.weight), static_cast<const float*>(call.bias),
      static_cast<float*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
