// matmul_fp8 v08_late_write: v04, whose tiles wait in registers as bf16 and are written during the next one's products.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 256) + N*K * ceil(M / 256)) bytes through L2; or 176 instead of the first 256, if tiles of
//          that width leave fewer SMs idle.
// Versus   v05: there the tensor cores rest while a warpgroup writes its tile. Here they rest while it rounds its 128
//          sums to 64 registers. One piece of 64 columns is written in each of the next four steps.
// Source   the same idea as matmul v20, which keeps the sums of two tiles
#ifndef MATMUL_FP8_V08_GROUP_ROWS
#define MATMUL_FP8_V08_GROUP_ROWS 8
#endif
#ifndef MATMUL_FP8_V08_PEERS
#define MATMUL_FP8_V08_PEERS 2
#endif
#ifndef MATMUL_FP8_V08_STAGES
#define MATMUL_FP8_V08_STAGES 4
#endif
#ifndef MATMUL_FP8_V08_EARLY
#define MATMUL_FP8_V08_EARLY 0
#endif
#define RING_SCALES 0
#define RING_ACROSS 0
#define RING_MINE 64
#define RING_BUFFERS 2
#define RING_PEERS MATMUL_FP8_V08_PEERS
#define RING_EARLY MATMUL_FP8_V08_EARLY
#define RING_GROUP_ROWS MATMUL_FP8_V08_GROUP_ROWS
#define RING_STAGES MATMUL_FP8_V08_STAGES
#include "fp8_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// Adds up all of K in the tensor cores, and writes each tile during the next one.
template <int BN>
struct LateWrite {
  const CUtensorMap* out;
  const float *scale_a, *scale_weight;
  int m, n;

  __device__ __forceinline__ void operator()(RingTiles<BN> at) const {
    const float scale = *scale_a * *scale_weight;
    float sums[BN / 2];
    uint32_t rounded[BN / 4] = {};  // the outputs of the tile before
    int old_row = m, old_column = 0;
    const auto write = [&](int piece) {
      const int from = piece_column<BN>(piece);
      write_piece<BN, Width<BN>::BUFFERS>(out, at.staged, rounded + from / 4, piece, old_row, old_column + from, m, n);
    };
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      uint32_t before = 0;
#pragma unroll
      for (int step = 0; step < PIECES<BN>; ++step) {
        if (step < at.steps) {
          at.start_step(sums, step > 0, before);
          at.end_step(before);
        }
        if (old_row < m) write(step);
      }
#pragma unroll 1
      for (int step = PIECES<BN>; step < at.steps; ++step) {
        at.start_step(sums, true, before);
        at.end_step(before);
      }
      at.end_tile(before);
#pragma unroll
      for (int i = 0; i < BN / 4; ++i) rounded[i] = pack(sums[2 * i] * scale, sums[2 * i + 1] * scale);
      old_row = row, old_column = column;
    }
    at.free_ring();
#pragma unroll
    for (int piece = 0; piece < PIECES<BN>; ++piece) {
      const int from = piece_column<BN>(piece);
      write_piece<BN, PIECES<BN>, true>(out, at.free, rounded + from / 4, piece, old_row, old_column + from, m, n);
    }
  }
};

}  // namespace
#endif

template <int BN>
RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v08_late_write(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                              const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring<BN>(maps, m, n, k, LateWrite<BN>{&maps.out, scale_a, scale_weight, m, n});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <int BN>
cudaError_t launch(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring<BN>(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v08_late_write<BN>, grid, Width<BN>::SHARED_BYTES, call.stream, maps,
                           call.scale_a, call.scale_weight, call.m, call.n, call.k);
}

// The columns that the busiest SM computes, in tiles of `width`.
int64_t columns_of_busiest(const MatmulFp8Call& call, int width, int sm_count) {
  const int64_t tiles = static_cast<int64_t>((call.m + ROWS - 1) / ROWS) * ((call.n + width - 1) / width);
  return (tiles + sm_count / PEERS - 1) / (sm_count / PEERS) * width;
}

}  // namespace

cudaError_t matmul_fp8_v08_late_write(const MatmulFp8Call& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  // narrow tiles read more of L2 for a product
  const bool narrow = columns_of_busiest(call, 176, sm_count) * 20 < columns_of_busiest(call, 256, sm_count) * 17;
  return narrow ? launch<176>(call) : launch<256>(call);
}
