// matmul_fp8 v01_naive: one thread per output, sums in fp32 on the FMA units.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K*N/8 + N*K*M/32) bytes through L1.
// Versus   torch: every element is converted to fp32 for each product that it is in.
// Source   CUDA Math API, "FP8 Conversion and Data Movement"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "check.cuh"
#include "matmul_fp8.h"

#ifndef MATMUL_FP8_V01_ROWS
#define MATMUL_FP8_V01_ROWS 8
#endif

namespace {
constexpr int ROWS = MATMUL_FP8_V01_ROWS, COLUMNS = 32;

__device__ __forceinline__ float2 widened(uint16_t pair) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
}
}  // namespace

__global__ void __launch_bounds__(ROWS* COLUMNS)
    matmul_fp8_v01_naive(const uint4* __restrict__ a, const uint4* __restrict__ weight,
                         const float* __restrict__ scale_a, const float* __restrict__ scale_weight,
                         __nv_bfloat16* __restrict__ out, int m, int n, int k) {
  const int column = blockIdx.x * COLUMNS + threadIdx.x, row = blockIdx.y * ROWS + threadIdx.y;
  if (row >= m || column >= n) return;
  const uint4* left = a + static_cast<int64_t>(row) * (k / 16);
  const uint4* right = weight + static_cast<int64_t>(column) * (k / 16);
  float sum = 0.0f;
  for (int packet = 0; packet < k / 16; ++packet) {
    const uint4 x = left[packet], y = right[packet];
    const uint32_t xs[] = {x.x, x.y, x.z, x.w}, ys[] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 one = widened(xs[i / 2] >> i % 2 * 16), other = widened(ys[i / 2] >> i % 2 * 16);
      sum = fmaf(one.x, other.x, sum);
      sum = fmaf(one.y, other.y, sum);
    }
  }
  out[static_cast<int64_t>(row) * n + column] = __float2bfloat16(sum * (*scale_a * *scale_weight));
}

cudaError_t matmul_fp8_v01_naive(const MatmulFp8Call& call) {
  if (const cudaError_t status = refused(call)) return status;
  const dim3 grid((call.n + COLUMNS - 1) / COLUMNS, (call.m + ROWS - 1) / ROWS);
  if (grid.y > 65535) return cudaErrorInvalidValue;
  matmul_fp8_v01_naive<<<grid, dim3(COLUMNS, ROWS), 0, call.stream>>>(
      static_cast<const uint4*>(call.a), static_cast<const uint4*>(call.weight), call.scale_a, call.scale_weight,
      static_cast<__nv_bfloat16*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
