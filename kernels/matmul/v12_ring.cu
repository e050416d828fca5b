// matmul v12_ring: TMA loads tiles; the order of FFMAs saves register reads.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    sm_90a, N % 4 == 0, K % 4 == 0, 16-byte aligned a and weight; otherwise v09 runs
// Moves    (M*K * ceil(N / 256) + K*N * ceil(M / 128)) * 4 bytes through L2.
// Versus   v09: warps load nothing from global memory and compute no addresses. They wait only for a stage of the ring,
//          not for each other. `a` is not transposed in shared memory. An FFMA seldom reads three registers, because
//          one operand stays in the reuse cache.
// Source   PTX ISA, "cp.async.bulk.tensor" and "mbarrier"; Jia et al. 2018, arXiv:1804.06826, for the reuse cache,
//          whose effect we measured again (README.md)
#ifndef MATMUL_V12_DEPTH
#define MATMUL_V12_DEPTH 32
#endif
#ifndef MATMUL_V12_STAGES
#define MATMUL_V12_STAGES 4
#endif
#define RING_DEPTH MATMUL_V12_DEPTH
#define RING_STAGES MATMUL_V12_STAGES
#include "ring.cuh"

cudaError_t matmul_v09_warp_tile(const MatmulCall& call);  // runs what this rung does not take

template <typename T>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v12_ring(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                    const T* __restrict__ bias, T* __restrict__ out, int m, int n, const Deal deal) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  ring_product(&a_map, &weight_map, bias, out, nullptr, nullptr, m, n, deal, static_cast<int>(blockIdx.x));
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v12_ring(const MatmulCall& call) {
  int sm_count = 0;
  RingMaps maps;
  bool takes = false;
  if (const cudaError_t status = prepare_ring(call, as_they_are(call), sm_count, maps, takes)) return status;
  if (!takes) return matmul_v09_warp_tile(call);
  Deal deal = tiles_of(call);
  deal.blocks = deal.rows * deal.columns < sm_count ? deal.rows * deal.columns : sm_count;
  if (const cudaError_t status =
          cudaFuncSetAttribute(matmul_v12_ring<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  matmul_v12_ring<float><<<deal.blocks, ALL_THREADS, SHARED_BYTES, call.stream>>>(
      maps.a, maps.weight, static_cast<const float*>(call.bias), static_cast<float*>(call.out), call.m, call.n, deal);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
