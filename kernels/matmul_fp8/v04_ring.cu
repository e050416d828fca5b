// matmul_fp8 v04_ring: tiles of 128 x 256 for two warpgroups, fed by one thread through a ring of stages.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 256) + N*K * ceil(M / 128)) bytes through L2.
// Versus   v03: a step's products run while the next ones are issued, no step waits for all warps, and a tile reads a
//          quarter less of L2 for a product. Blocks stay on their SM, so a tile is loaded while the one before is
//          written.
// Source   CUTLASS, "KernelTmaWarpSpecializedCooperative"
#ifndef MATMUL_FP8_V04_GROUP_ROWS
#define MATMUL_FP8_V04_GROUP_ROWS 32
#endif
#ifndef MATMUL_FP8_V04_STAGES
#define MATMUL_FP8_V04_STAGES 4
#endif
#ifndef MATMUL_FP8_V04_EARLY
#define MATMUL_FP8_V04_EARLY 0
#endif
#define RING_SCALES 0
#define RING_ACROSS 0
#define RING_MINE 64
#define RING_BUFFERS 2
#define RING_PEERS 1
#define RING_EARLY MATMUL_FP8_V04_EARLY
#define RING_GROUP_ROWS MATMUL_FP8_V04_GROUP_ROWS
#define RING_STAGES MATMUL_FP8_V04_STAGES
#include "fp8_ring.cuh"

namespace {
constexpr int BN = 256;
}  // namespace

RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v04_ring(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                        const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring<BN>(maps, m, n, k, InTensorCores<BN>{&maps.out, scale_a, scale_weight, m, n});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v04_ring(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring<BN>(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v04_ring, grid, Width<BN>::SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}
