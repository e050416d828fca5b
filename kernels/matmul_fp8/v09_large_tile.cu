// matmul_fp8 v09_large_tile: tiles of 256 x 192, 128 rows for each warpgroup.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 192) + N*K * ceil(M / 256)) bytes through L2.
// Versus   v04: its SMs read 8.5 TB/s of L2 at 4096 cubed, no matter how fast their clock is. A larger tile reads a fifth
//          less for a product. The last wave of larger tiles leaves more SMs idle at some shapes.
// Source   CUTLASS, "KernelTmaWarpSpecializedCooperative"
#ifndef MATMUL_FP8_V09_GROUP_ROWS
#define MATMUL_FP8_V09_GROUP_ROWS 8
#endif
#define RING_MINE 128
#define RING_ACROSS 0
#define RING_COLUMNS 192
#define RING_BUFFERS 3
#define RING_PEERS 1
#define RING_EARLY 0
#define RING_GROUP_ROWS MATMUL_FP8_V09_GROUP_ROWS
#define RING_STAGES 3
#include "fp8_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// Adds up all of K in the tensor cores, 64 rows after 64 rows, and writes each tile before the next one.
struct TwoHalves {
  const CUtensorMap* out;
  const float *scale_a, *scale_weight;
  int m, n;

  __device__ __forceinline__ void operator()(RingTiles at) const {
    const float scale = *scale_a * *scale_weight;
    for (int tile = blockIdx.x; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      float sums[2][BN / 2];
      uint32_t before = 0;
      for (int step = 0; step < at.steps; ++step) {
        wait_barrier(at.full + 8 * at.ring.stage, at.ring.phase);
        begin_multiply();
        const uint32_t stage = at.ring.stage * STAGE_BYTES;
#pragma unroll
        for (int half = 0; half < 2; ++half)
          multiply_step(sums[half], at.a + stage + half * 64 * BK, at.weight + stage, step > 0);
        commit_multiply();
        at.end_step(before);
      }
      at.end_tile(before);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        write_tile<BN / 64, BUFFERS>(out, at.staged, sums[half], scale, row + half * 64, column, m, n);
    }
  }
};

}  // namespace
#endif

RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v09_large_tile(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                              const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring(maps, m, n, k, TwoHalves{&maps.out, scale_a, scale_weight, m, n});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v09_large_tile(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v09_large_tile, grid, SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}
