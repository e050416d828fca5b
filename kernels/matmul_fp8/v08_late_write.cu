// matmul_fp8 v08_late_write: v04, whose tiles wait in registers as bf16 and are written during the next one's products.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 256) + N*K * ceil(M / 128)) bytes through L2.
// Versus   v04: there the tensor cores rest while a warpgroup writes its tile. Here they rest while it rounds its 128
//          sums to 64 registers. One piece of 64 columns is written in each of the next four steps.
// Source   the same idea as matmul v20, which keeps the sums of two tiles
#ifndef MATMUL_FP8_V08_GROUP_ROWS
#define MATMUL_FP8_V08_GROUP_ROWS 32
#endif
#ifndef MATMUL_FP8_V08_PEERS
#define MATMUL_FP8_V08_PEERS 1
#endif
#ifndef MATMUL_FP8_V08_STAGES
#define MATMUL_FP8_V08_STAGES 4
#endif
#ifndef MATMUL_FP8_V08_EARLY
#define MATMUL_FP8_V08_EARLY 0
#endif
#define RING_ACROSS 0
#define RING_MINE 64
#define RING_COLUMNS 256
#define RING_BUFFERS 2
#define RING_PEERS MATMUL_FP8_V08_PEERS
#define RING_EARLY MATMUL_FP8_V08_EARLY
#define RING_GROUP_ROWS MATMUL_FP8_V08_GROUP_ROWS
#define RING_STAGES MATMUL_FP8_V08_STAGES
#include "fp8_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

constexpr int PIECES = BN / 64;

// Adds up all of K in the tensor cores, and writes each tile during the next one.
struct LateWrite {
  const CUtensorMap* out;
  const float *scale_a, *scale_weight;
  int m, n;

  __device__ __forceinline__ void operator()(RingTiles at) const {
    const float scale = *scale_a * *scale_weight;
    float sums[BN / 2];
    uint32_t rounded[BN / 4] = {};  // the outputs of the tile before
    int old_row = m, old_column = 0;
    const auto write = [&](int piece) {
      write_piece<BUFFERS>(out, at.staged, rounded + piece * 16, piece, old_row, old_column, m, n);
    };
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      uint32_t before = 0;
#pragma unroll
      for (int step = 0; step < PIECES; ++step) {
        if (step < at.steps) {
          at.start_step(sums, step > 0, before);
          at.end_step(before);
        }
        if (old_row < m) write(step);
      }
#pragma unroll 1
      for (int step = PIECES; step < at.steps; ++step) {
        at.start_step(sums, true, before);
        at.end_step(before);
      }
      at.end_tile(before);
#pragma unroll
      for (int i = 0; i < BN / 4; ++i) rounded[i] = pack(sums[2 * i] * scale, sums[2 * i + 1] * scale);
      old_row = row, old_column = column;
    }
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) write(piece);
  }
};

}  // namespace
#endif

RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v08_late_write(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                              const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring(maps, m, n, k, LateWrite{&maps.out, scale_a, scale_weight, m, n});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v08_late_write(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v08_late_write, grid, SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}
