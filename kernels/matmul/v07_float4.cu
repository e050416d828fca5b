// matmul v07_float4: four neighbouring columns per thread, moved by one 16-byte access; no tiles.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    N % 4 == 0, 16-byte aligned operands
// Moves    as v05.
// Versus   v05: a thread loads one word of `a` and one packet of `weight` for four FMA: 2 loads instead of 8.
// Source   CUDA C++ Programming Guide, "Device Memory Accesses"
#include <cstdint>

#include "check.cuh"
#include "matmul.h"

#ifndef MATMUL_V07_ROWS
#define MATMUL_V07_ROWS 8
#endif

namespace {
constexpr int ROWS = MATMUL_V07_ROWS, WIDTH = 4;
}

template <typename T>
__global__ void __launch_bounds__(32 * ROWS)
    matmul_v07_float4(const T* __restrict__ a, const T* __restrict__ weight, const T* __restrict__ bias,
                      T* __restrict__ out, int m, int n, int k) {
  const int row = blockIdx.y * ROWS + threadIdx.y, column = (blockIdx.x * 32 + threadIdx.x) * WIDTH;
  if (row >= m || column >= n) return;
  float4 sum = *reinterpret_cast<const float4*>(bias + column);
#pragma unroll 4
  for (int i = 0; i < k; ++i) {
    const float left = a[static_cast<int64_t>(row) * k + i];
    const float4 right = *reinterpret_cast<const float4*>(weight + static_cast<int64_t>(i) * n + column);
    sum.x += left * right.x;
    sum.y += left * right.y;
    sum.z += left * right.z;
    sum.w += left * right.w;
  }
  *reinterpret_cast<float4*>(out + static_cast<int64_t>(row) * n + column) = sum;
}

cudaError_t matmul_v07_float4(const MatmulCall& call) {
  if (call.n % WIDTH) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  const dim3 grid((call.n + 32 * WIDTH - 1) / (32 * WIDTH), (call.m + ROWS - 1) / ROWS);
  matmul_v07_float4<float><<<grid, dim3(32, ROWS), 0, call.stream>>>(
      static_cast<const float*>(call.a), static_cast<const float*>(call.weight), static_cast<const float*>(call.bias),
      static_cast<float*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
