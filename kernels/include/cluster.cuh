// Blocks of a cluster that share what one of them loads: what fp8_ring.cuh and matmul v23 use.
#pragma once

#include <cstdint>

#include "hopper.cuh"

// Before a kernel: it runs in clusters of `peers` blocks. sm_90a alone compiles their size.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CLUSTER_OF(peers) __cluster_dims__(peers, 1, 1)
#else
#define CLUSTER_OF(peers)
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Waits for all threads of the cluster, or of the block if it is alone. publish_barriers() has released what the other
// blocks need to see.
template <int PEERS>
__device__ __forceinline__ void join_peers() {
  if constexpr (PEERS == 1)
    __syncthreads();
  else
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Fetches a tensor map ahead of the first copy that needs it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Which block of its cluster this one is.
template <int PEERS>
__device__ __forceinline__ uint32_t peer_rank() {
  if constexpr (PEERS == 1) return 0;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Arrives at the same barrier of a block of the cluster, as CUTLASS does. The products that read the stage have ended,
// so nothing has to be released to the cluster: that would be a fence of the whole GPU (MEMBAR.ALL.GPU) in each step.
__device__ __forceinline__ void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::
          "r"(barrier),
      "r"(rank)
      : "memory");
}

// load_box() into every block of the cluster, at the same address and barrier.
template <int PEERS>
__device__ __forceinline__ void load_box_for_all(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column,
                                                 int row) {
  if constexpr (PEERS == 1)
    load_box(to, map, barrier, column, row);
  else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, "
        "{%3, %4}], [%2], %5;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(static_cast<uint16_t>((1 << PEERS) - 1))
        : "memory");
}

#endif
