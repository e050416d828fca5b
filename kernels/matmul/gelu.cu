// matmul gelu: v14 whose outputs go through GPT-2's GELU, as the activation behind an MLP's first projection.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands
// Moves    (M*K + K*N + N + M*N) * 2 bytes: the product is not written, read and written again.
// Versus   v14: an output is rounded once, after the GELU.
// Source   v14_fitted_tile; v02_vector of gelu
#include "gelu.cuh"
#include "gelu.h"
#define FITTED_GROUP_ROWS 16
#define FITTED_STAGES 8
#include "fitted_tile.cuh"

struct Gelu {
  __device__ __forceinline__ float operator()(float value) const { return gelu(value); }
};

template <int BN>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_gelu(const __grid_constant__ FittedMaps maps, const __nv_bfloat16* __restrict__ bias, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  fitted_product<BN, false, Gelu>(maps, bias, nullptr, m, n, k);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_gelu(const MatmulCall& call) {
  // in the order of CHOICES
  return launch_fitted(call, {matmul_gelu<256>, matmul_gelu<192>, matmul_gelu<144>, matmul_gelu<64>});
}
