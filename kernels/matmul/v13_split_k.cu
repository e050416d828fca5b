// matmul v13_split_k: v12 with the same number of K steps on every SM, across tiles.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    as v12, otherwise v09 runs; a workspace, see matmul_v13_split_k_workspace()
// Moves    as v12, and 256 KB through L2 for every part of a tile: 128 KB written, 128 KB read.
// Versus   v12: the last wave is never half empty. The steps of the tiles that do not fill a wave, and of one wave
//          more, are cut into equal pieces. Blocks leave their parts of tiles in the workspace. Then each block of a
//          tile sums an equal share of it, always in the same order.
// Source   Osama et al. 2023, "Stream-K", arXiv:2301.03598
#ifndef MATMUL_V13_DEPTH
#define MATMUL_V13_DEPTH 32
#endif
#ifndef MATMUL_V13_STAGES
#define MATMUL_V13_STAGES 4
#endif
#define RING_DEPTH MATMUL_V13_DEPTH
#define RING_STAGES MATMUL_V13_STAGES
#include "split_k.cuh"

template <typename T>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v13_split_k(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                       const T* __restrict__ bias, T* __restrict__ out, float4* partial, int* ready, int m, int n,
                       const Deal deal) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  ring_product(&a_map, &weight_map, bias, out, partial, ready, m, n, deal, static_cast<int>(blockIdx.x));
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v13_split_k_workspace(const MatmulCall& call, size_t& bytes) {
  return split_k_workspace(call, bytes);
}

cudaError_t matmul_v13_split_k(const MatmulCall& call) {
  return launch_split_k(call, as_they_are(call), matmul_v13_split_k<float>, [] { return cudaSuccess; });
}
