// matmul v13_split_k: v12, and every multiprocessor computes as many steps in K as any other, across tiles.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    as v12, elsewhere v09 runs; a workspace, see matmul_v13_workspace()
// Moves    as v12, and 256 KB through L2 for every part of a tile, written and read.
// Versus   v12: the last wave is never half empty. The steps of the tiles that do not fill a wave, and of one wave more,
//          are cut into equal pieces; who has a part of a tile leaves it in the workspace, and sums up as much of the
//          tile as any other who has one, in the same order every time.
// Expect   at most 0.8 of v12's time at 1024 x 768 x 3072 and 1024 x 2304 x 768; at least 95 % of cuBLAS everywhere.
// Refuted if   more, or below.
// Source   Osama et al. 2023, "Stream-K", arXiv:2301.03598
#ifndef MATMUL_V13_DEPTH
#define MATMUL_V13_DEPTH 32
#endif
#ifndef MATMUL_V13_STAGES
#define MATMUL_V13_STAGES 4
#endif
#define RING_DEPTH MATMUL_V13_DEPTH
#define RING_STAGES MATMUL_V13_STAGES
#include "ring.cuh"

namespace {
constexpr int LEAST_STEPS = 64 / BK;  // of a piece

Deal shared_deal(const MatmulCall& call, int sm_count) {
  Deal deal = tiles_of(call);
  const int tiles = deal.rows * deal.columns;
  deal.blocks = tiles < sm_count ? tiles : sm_count;
  if (tiles % sm_count == 0) return deal;
  const int shared = tiles < sm_count ? tiles : tiles % sm_count + sm_count;
  const int64_t pieces = static_cast<int64_t>(shared) * deal.steps / LEAST_STEPS;
  if (pieces < deal.blocks) return deal;
  deal.shared = shared;
  deal.blocks = pieces < sm_count ? static_cast<int>(pieces) : sm_count;
  return deal;
}
}  // namespace

template <typename T>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v13_split_k(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                       const T* __restrict__ bias, T* __restrict__ out, float4* partial, int* ready, int m, int n,
                       const Deal deal) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  ring_product(&a_map, &weight_map, bias, out, partial, ready, m, n, deal, static_cast<int>(blockIdx.x));
#else
  __trap();  // built without the instructions of sm_90a
#endif
}

cudaError_t matmul_v13_workspace(const MatmulCall& call, size_t& bytes) {
  int device = 0, sm_count = 0;
  bytes = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device))
    return status;
  const Deal deal = shared_deal(call, sm_count);
  if (deal.shared) bytes = deal.blocks * 2 * (BM * BN * sizeof(float) + sizeof(int));
  return cudaSuccess;
}

cudaError_t matmul_v13_split_k(const MatmulCall& call) {
  int sm_count = 0;
  RingMaps maps;
  bool takes = false;
  if (const cudaError_t status = prepare_ring(call, sm_count, maps, takes)) return status;
  if (!takes) return matmul_v09_warp_tile(call);
  const Deal deal = shared_deal(call, sm_count);
  float4* partial = static_cast<float4*>(call.workspace);
  int* ready = reinterpret_cast<int*>(partial + static_cast<int64_t>(deal.blocks) * 2 * (BM * BN / 4));
  if (deal.shared)
    if (const cudaError_t status = cudaMemsetAsync(ready, 0, deal.blocks * 2 * sizeof(int), call.stream)) return status;
  if (const cudaError_t status =
          cudaFuncSetAttribute(matmul_v13_split_k<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  matmul_v13_split_k<float><<<deal.blocks, ALL_THREADS, SHARED_BYTES, call.stream>>>(
      maps.a, maps.weight, static_cast<const float*>(call.bias), static_cast<float*>(call.out), partial, ready, call.m,
      call.n, deal);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
