// A product by the tensor cores (mma.sync through wmma) with tiles of 64 x 64 in shared memory, for the fixed twins.
#pragma once

#include <mma.h>

#include "specimen.cuh"

namespace specimens {

// c (m, n) = a (m, k) times b, which is (k, n), or (n, k) if TURNED; 128 threads a block, a grid of (n / 64, m / 64).
template <class T, class Sum, bool TURNED>
__device__ __forceinline__ void tensor_product(const T* a, const T* b, Sum* c, int n, int k) {
  using namespace nvcuda;
  constexpr int STEP = 64 / sizeof(T), VECTOR = 16 / sizeof(T), PITCH = STEP + VECTOR;
  constexpr int B_ROWS = TURNED ? 64 : STEP, B_COLUMNS = TURNED ? STEP : 64, B_PITCH = B_COLUMNS + VECTOR;
  using Layout = std::conditional_t<TURNED, wmma::col_major, wmma::row_major>;
  __shared__ __align__(32) T as[64 * PITCH], bs[B_ROWS * B_PITCH];
  const int warp = threadIdx.x / 32, row = blockIdx.y * 64, column = blockIdx.x * 64;
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> sums[2][2];
  for (auto& line : sums)
    for (auto& sum : line) wmma::fill_fragment(sum, Sum(0));
  for (int k0 = 0; k0 < k; k0 += STEP) {
#pragma unroll
    for (int i = threadIdx.x * VECTOR; i < 64 * STEP; i += 128 * VECTOR) {
      *reinterpret_cast<uint4*>(as + i / STEP * PITCH + i % STEP) =
          *reinterpret_cast<const uint4*>(a + static_cast<int64_t>(row + i / STEP) * k + k0 + i % STEP);
      const int r = i / B_COLUMNS, s = i % B_COLUMNS;
      const T* from = TURNED ? b + static_cast<int64_t>(column + r) * k + k0 + s
                             : b + static_cast<int64_t>(k0 + r) * n + column + s;
      *reinterpret_cast<uint4*>(bs + r * B_PITCH + s) = *reinterpret_cast<const uint4*>(from);
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < STEP; kk += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> left[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, T, Layout> right[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(left[i], as + (warp_row + i * 16) * PITCH + kk, PITCH);
        const int place = warp_column + i * 16;
        wmma::load_matrix_sync(right[i], bs + (TURNED ? place * B_PITCH + kk : kk * B_PITCH + place), B_PITCH);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(c + static_cast<int64_t>(row + warp_row + i * 16) * n + column + warp_column + j * 16,
                              sums[i][j], n, wmma::mem_row_major);
}

// The same, without shared memory: each warp reads its fragments of one 16 x 16 output from global memory.
template <class T, class Sum, bool TURNED>
__device__ __forceinline__ void starved_product(const T* a, const T* b, Sum* c, int n, int k) {
  using namespace nvcuda;
  using Layout = std::conditional_t<TURNED, wmma::col_major, wmma::row_major>;
  const int row = blockIdx.y * 16, column = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> sum;
  wmma::fill_fragment(sum, Sum(0));
#pragma unroll 1
  for (int kk = 0; kk < k; kk += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, Layout> right;
    wmma::load_matrix_sync(left, a + static_cast<int64_t>(row) * k + kk, k);
    wmma::load_matrix_sync(
        right, TURNED ? b + static_cast<int64_t>(column) * k + kk : b + static_cast<int64_t>(kk) * n + column,
        TURNED ? k : n);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + static_cast<int64_t>(row) * n + column, sum, n, wmma::mem_row_major);
}

// The same by FP32 units: 256 threads a block, tiles of 128 x 128, 8 x 8 outputs a thread, a grid of (n / 128, m / 128).
template <class T, bool TURNED>
__device__ __forceinline__ void scalar_product(const T* a, const T* b, float* c, int n, int k) {
  __shared__ float as[8][132], bs[8][132];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, row = blockIdx.y * 128, column = blockIdx.x * 128;
  float sum[8][8] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    for (int i = threadIdx.x; i < 128 * 8; i += 256) {
      as[i % 8][i / 8] = number(a[static_cast<int64_t>(row + i / 8) * k + k0 + i % 8]);
      if (TURNED)
        bs[i % 8][i / 8] = number(b[static_cast<int64_t>(column + i / 8) * k + k0 + i % 8]);
      else
        bs[i / 128][i % 128] = number(b[static_cast<int64_t>(k0 + i / 128) * n + column + i % 128]);
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 8; ++kk) {
      float l[8], r[8];
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *reinterpret_cast<float4*>(l + i) = *reinterpret_cast<const float4*>(&as[kk][i * 16 + ty * 4]);
        *reinterpret_cast<float4*>(r + i) = *reinterpret_cast<const float4*>(&bs[kk][i * 16 + tx * 4]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += l[i] * r[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
      c[static_cast<int64_t>(row + i / 4 * 64 + ty * 4 + i % 4) * n + column + j / 4 * 64 + tx * 4 + j % 4] = sum[i][j];
}

}  // namespace specimens
