// matmul v14_fitted_tile: v11 with the tile width, of four, that minimises the work of the busiest SM.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v11: its widths are three, and its bias is loaded word by word with the output, which took a part of its
//          time at 1024 x 2304 x 768. Here the bias is loaded while products are computed, and blocks start while the
//          previous launch drains.
// Source   PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"
#ifndef MATMUL_V14_GROUP_ROWS
#define MATMUL_V14_GROUP_ROWS 16
#endif
#ifndef MATMUL_V14_STAGES
#define MATMUL_V14_STAGES 8
#endif
#define FITTED_GROUP_ROWS MATMUL_V14_GROUP_ROWS
#define FITTED_STAGES MATMUL_V14_STAGES
#include "fitted_tile.cuh"

template <int BN>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_v14_fitted_tile(const __grid_constant__ FittedMaps maps, const __nv_bfloat16* __restrict__ bias, int m,
                           int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  fitted_product<BN, false>(maps, bias, nullptr, m, n, k);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v14_fitted_tile(const MatmulCall& call) {
  // in the order of CHOICES
  return launch_fitted(call, {matmul_v14_fitted_tile<256>, matmul_v14_fitted_tile<192>, matmul_v14_fitted_tile<144>,
                              matmul_v14_fitted_tile<64>});
}
