// matmul v09_warp_tile: each warp owns a tile, moved by 16-byte accesses, while the next tiles are in flight.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    nothing (word by word unless N % 4 == 0, K % 4 == 0 and operands are 16-byte aligned)
// Moves    (M*K * ceil(N / BN) + K*N * ceil(M / BM)) * 4 bytes through L2, BM x BN outputs per block.
// Versus   v08: for 2048 FMA, a warp of a 128 x 128 tile reads 256 + 128 bytes of shared memory, in contiguous pieces
//          without bank conflicts. Loads overlap the arithmetic. The tile is chosen by shape.
// Source   the tiling of NVIDIA's CUTLASS ("Efficient GEMM in CUDA"), written anew
#include <cstdint>

#include "check.cuh"
#include "matmul.h"

#ifndef MATMUL_V09_DEPTH
#define MATMUL_V09_DEPTH 16
#endif

namespace {

// Reads four words of row `row` from `column` on; words beyond the edges are zero.
template <bool ALIGNED>
__device__ __forceinline__ float4 load4(const float* matrix, int row, int column, int rows, int columns) {
  float4 words = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (row >= rows) return words;
  const float* from = matrix + static_cast<int64_t>(row) * columns + column;
  if constexpr (ALIGNED) {
    if (column < columns) words = *reinterpret_cast<const float4*>(from);
  } else {
    if (column < columns) words.x = from[0];
    if (column + 1 < columns) words.y = from[1];
    if (column + 2 < columns) words.z = from[2];
    if (column + 3 < columns) words.w = from[3];
  }
  return words;
}

// Copies the same four words to shared memory; if ALIGNED, asynchronously from sm_80 on.
template <bool ALIGNED>
__device__ __forceinline__ void copy4(float* to, const float* matrix, int row, int column, int rows, int columns) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (ALIGNED) {
    const bool inside = row < rows && column < columns;
    const float* from = inside ? matrix + static_cast<int64_t>(row) * columns + column : matrix;
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
        "l"(from), "r"(inside ? 16 : 0)
        : "memory");
    return;
  }
#endif
  *reinterpret_cast<float4*>(to) = load4<ALIGNED>(matrix, row, column, rows, columns);
}
__device__ __forceinline__ void await_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
}  // namespace

// A block has BM x BN outputs, BK deep. A warp has 8 x 4 lanes, a lane TM x TN outputs, in pieces of 4 x 4. These are
// 32 rows and 16 columns apart, so that the lanes of a warp read neighbouring packets.
template <int BM, int BN, int BK, int TM, int TN, int BLOCKS, bool ALIGNED>
__global__ void __launch_bounds__(BM / TM * BN / TN, BLOCKS)
    matmul_v09_warp_tile(const float* __restrict__ a, const float* __restrict__ weight, const float* __restrict__ bias,
                         float* __restrict__ out, int m, int n, int k) {
  constexpr int THREADS = BM / TM * BN / TN, WARP_ROWS = 8 * TM, WARP_COLUMNS = 4 * TN;
  constexpr int A_LOADS = BM * BK / 4 / THREADS, WEIGHT_LOADS = BK * BN / 4 / THREADS;
  constexpr int A_STRIDE = BM + 4;  // 16-byte aligned rows; transposing stores have two-way bank conflicts at most
  extern __shared__ __align__(16) float memory[];
  auto& a_tile = *reinterpret_cast<float (*)[2][BK][A_STRIDE]>(memory);
  auto& weight_tile = *reinterpret_cast<float (*)[2][BK][BN]>(memory + 2 * BK * A_STRIDE);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
  const int my_row = warp / (BN / WARP_COLUMNS) * WARP_ROWS + lane / 4 * 4;
  const int my_column = warp % (BN / WARP_COLUMNS) * WARP_COLUMNS + lane % 4 * 4;

  float4 a_next[A_LOADS];
  const auto fetch = [&](int first, int buffer) {
#pragma unroll
    for (int i = 0; i < A_LOADS; ++i) {
      const int at = thread + i * THREADS;
      a_next[i] = load4<ALIGNED>(a, first_row + at / (BK / 4), first + at % (BK / 4) * 4, m, k);
    }
#pragma unroll
    for (int i = 0; i < WEIGHT_LOADS; ++i) {
      const int at = thread + i * THREADS;
      const int deep = first + at / (BN / 4), column = first_column + at % (BN / 4) * 4;
      copy4<ALIGNED>(&weight_tile[buffer][at / (BN / 4)][at % (BN / 4) * 4], weight, deep, column, k, n);
    }
  };
  const auto keep = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < A_LOADS; ++i) {
      const int at = thread + i * THREADS, row = at / (BK / 4), deep = at % (BK / 4) * 4;
      a_tile[buffer][deep][row] = a_next[i].x;
      a_tile[buffer][deep + 1][row] = a_next[i].y;
      a_tile[buffer][deep + 2][row] = a_next[i].z;
      a_tile[buffer][deep + 3][row] = a_next[i].w;
    }
  };

  float left[2][TM], right[2][TN];
  const auto read = [&](int into, int buffer, int i) {
#pragma unroll
    for (int y = 0; y < TM; y += 4)
      *reinterpret_cast<float4*>(left[into] + y) = *reinterpret_cast<const float4*>(&a_tile[buffer][i][my_row + y * 8]);
#pragma unroll
    for (int x = 0; x < TN; x += 4)
      *reinterpret_cast<float4*>(right[into] + x) =
          *reinterpret_cast<const float4*>(&weight_tile[buffer][i][my_column + x * 4]);
  };

  float sums[TM][TN] = {};
  fetch(0, 0);
  keep(0);
  await_copies();
  __syncthreads();
  const int steps = (k + BK - 1) / BK;
  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    if (step + 1 < steps) fetch((step + 1) * BK, 1 - buffer);
    read(0, buffer, 0);
#pragma unroll
    for (int i = 0; i < BK; ++i) {
      if (i + 1 < BK) read((i + 1) % 2, buffer, i + 1);  // while the products below are computed
#pragma unroll
      for (int y = 0; y < TM; ++y)
#pragma unroll
        for (int x = 0; x < TN; ++x) sums[y][x] += left[i % 2][y] * right[i % 2][x];
    }
    if (step + 1 < steps) {
      keep(1 - buffer);
      await_copies();
      __syncthreads();
    }
  }

#pragma unroll
  for (int x = 0; x < TN; x += 4) {
    const int column = first_column + my_column + x * 4;
    const float4 shift = load4<ALIGNED>(bias, 0, column, 1, n);
#pragma unroll
    for (int y = 0; y < TM; ++y) {
      const int row = first_row + my_row + y / 4 * 32 + y % 4;
      if (row >= m || column >= n) continue;
      const float4 words = make_float4(sums[y][x] + shift.x, sums[y][x + 1] + shift.y, sums[y][x + 2] + shift.z,
                                       sums[y][x + 3] + shift.w);
      float* to = out + static_cast<int64_t>(row) * n + column;
      if constexpr (ALIGNED) {
        *reinterpret_cast<float4*>(to) = words;
      } else {
        to[0] = words.x;
        if (column + 1 < n) to[1] = words.y;
        if (column + 2 < n) to[2] = words.z;
        if (column + 3 < n) to[3] = words.w;
      }
    }
  }
}

// A tile, and the outputs per second of a full SM at 4096 on an H200, in per cent of the fastest tile's.
template <int BM_, int BN_, int TM_, int TN_, int BLOCKS_, int SPEED_>
struct Tile {
  static constexpr int BM = BM_, BN = BN_, TM = TM_, TN = TN_, BLOCKS = BLOCKS_, BK = MATMUL_V09_DEPTH,
                       THREADS = BM / TM * BN / TN;
  static constexpr int SHARED_BYTES = 2 * BK * (BM + 4 + BN) * 4;

  // The time of the busiest SM, in arbitrary units.
  static double work(const MatmulCall& call, int sm_count) {
    const int64_t tiles = static_cast<int64_t>((call.m - 1) / BM + 1) * ((call.n - 1) / BN + 1);
    return static_cast<double>((tiles + sm_count - 1) / sm_count * BM * BN) / SPEED_;
  }
};
using Wide = Tile<128, 256, 8, 16, 1, 100>;
using Square = Tile<128, 128, 8, 8, 2, 94>;
using Narrow = Tile<64, 128, 8, 8, 3, 92>;
using Small = Tile<64, 64, 8, 8, 4, 84>;

template <typename TILE, bool ALIGNED>
static cudaError_t launch(const MatmulCall& call) {
  const dim3 grid((call.n - 1) / TILE::BN + 1, (call.m - 1) / TILE::BM + 1);
  const auto kernel = matmul_v09_warp_tile<TILE::BM, TILE::BN, TILE::BK, TILE::TM, TILE::TN, TILE::BLOCKS, ALIGNED>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, TILE::SHARED_BYTES))
    return status;
  kernel<<<grid, TILE::THREADS, TILE::SHARED_BYTES, call.stream>>>(
      static_cast<const float*>(call.a), static_cast<const float*>(call.weight), static_cast<const float*>(call.bias),
      static_cast<float*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t matmul_v09_warp_tile(const MatmulCall& call) {
  if (call.n % 4 || call.k % 4 || !aligned(call)) return launch<Square, false>(call);
  int device = 0, sm_count = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device))
    return status;
  const double wide = Wide::work(call, sm_count), square = Square::work(call, sm_count),
               narrow = Narrow::work(call, sm_count), small = Small::work(call, sm_count);
  if (wide <= square && wide <= narrow && wide <= small) return launch<Wide, true>(call);
  if (square <= narrow && square <= small) return launch<Square, true>(call);
  return narrow <= small ? launch<Narrow, true>(call) : launch<Small, true>(call);
}
