// What v13 and v15 share: equal pieces of K for all blocks, the workspace and the launch. It builds on ring.cuh.
#pragma once

#include "ring.cuh"

cudaError_t matmul_v09_warp_tile(const MatmulCall& call);  // runs what these rungs do not take

constexpr int LEAST_STEPS = 64 / BK;  // of a piece, at least

static inline Deal shared_deal(const MatmulCall& call, int sm_count) {
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

static inline cudaError_t split_k_workspace(const MatmulCall& call, size_t& bytes) {
  int sm_count = 0;
  bytes = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaSuccess;  // v09 runs
  const Deal deal = shared_deal(call, sm_count);
  if (deal.shared) bytes = deal.blocks * 2 * (BM * BN * sizeof(float) + sizeof(int));
  return cudaSuccess;
}

// Launches blocks that wait for each other cooperatively, so that CUDA starts all of them or none. Otherwise two such
// kernels, on streams of different priority, could each hold some SMs and wait for the others for ever.
template <typename... Parameters>
static inline cudaError_t launch_ring(void (*kernel)(Parameters...), const Deal& deal, cudaStream_t stream,
                                      Parameters... arguments) {
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(deal.blocks));
  config.blockDim = dim3(ALL_THREADS);
  config.dynamicSmemBytes = SHARED_BYTES;
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = deal.shared ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Launches the ring, or v09 if the ring does not take the call. `before` launches what the kernel needs done first.
template <typename KERNEL, typename BEFORE>
static inline cudaError_t launch_split_k(const MatmulCall& call, const RingOperands& from, KERNEL kernel,
                                         BEFORE before) {
  int sm_count = 0;
  RingMaps maps;
  bool takes = false;
  if (const cudaError_t status = prepare_ring(call, from, sm_count, maps, takes)) return status;
  if (!takes) return matmul_v09_warp_tile(call);
  const Deal deal = shared_deal(call, sm_count);
  float4* partial = static_cast<float4*>(call.workspace);
  int* ready = reinterpret_cast<int*>(partial + static_cast<int64_t>(deal.blocks) * 2 * (BM * BN / 4));
  if (deal.shared)
    if (const cudaError_t status = cudaMemsetAsync(ready, 0, deal.blocks * 2 * sizeof(int), call.stream)) return status;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  if (const cudaError_t status = before()) return status;
  const cudaError_t status =
      launch_ring(kernel, deal, call.stream, maps.a, maps.weight, static_cast<const float*>(call.bias),
                  static_cast<float*>(call.out), partial, ready, call.m, call.n, deal);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
