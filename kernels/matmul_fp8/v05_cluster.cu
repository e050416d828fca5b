// matmul_fp8 v05_cluster: v04 in clusters of two blocks, which share the tile of the weight.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 256) + N*K * ceil(M / 256)) bytes through L2.
// Versus   v04: each block loads half of the weight's tile into both, so a block asks L2 for a third less. Until an
//          arrival at the other block's barrier lost its fence, it was a fifth slower than v04.
// Source   PTX ISA, "cp.async.bulk.tensor", multicast; CUTLASS uses clusters of 2 x 1 in the same way
#ifndef MATMUL_FP8_V05_GROUP_ROWS
#define MATMUL_FP8_V05_GROUP_ROWS 16
#endif
#ifndef MATMUL_FP8_V05_STAGES
#define MATMUL_FP8_V05_STAGES 4
#endif
#ifndef MATMUL_FP8_V05_EARLY
#define MATMUL_FP8_V05_EARLY 0
#endif
#ifndef MATMUL_FP8_V05_ACROSS
#define MATMUL_FP8_V05_ACROSS 0
#endif
#define RING_SCALES 0
#define RING_ACROSS MATMUL_FP8_V05_ACROSS
#define RING_MINE 64
#define RING_BUFFERS 2
#define RING_PEERS 2
#define RING_EARLY MATMUL_FP8_V05_EARLY
#define RING_GROUP_ROWS MATMUL_FP8_V05_GROUP_ROWS
#define RING_STAGES MATMUL_FP8_V05_STAGES
#include "fp8_ring.cuh"

namespace {
constexpr int BN = 256;
}  // namespace

RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v05_cluster(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                           const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring<BN>(maps, m, n, k, InTensorCores<BN>{&maps.out, scale_a, scale_weight, m, n});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v05_cluster(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring<BN>(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v05_cluster, grid, Width<BN>::SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}
