// What v04 to v06, v08 and v09 of matmul_fp8 share: blocks that stay on their SM, a thread that feeds a ring of stages,
// and two warpgroups that multiply. Two blocks of a cluster can share a tile of an operand. The including file defines
// RING_MINE (64 or 128 rows), RING_COLUMNS (of a tile), RING_STAGES, RING_BUFFERS, RING_GROUP_ROWS, RING_PEERS,
// RING_ACROSS and RING_EARLY.
#pragma once

#include <algorithm>

#include "fp8_tile.cuh"

constexpr int CONSUMERS = 2, MINE = RING_MINE;  // warpgroups, and the rows of the tile that are of each
constexpr int BM = MINE * CONSUMERS, BN = RING_COLUMNS, STAGES = RING_STAGES;
constexpr int PEERS = RING_PEERS;          // blocks of a cluster
constexpr bool ACROSS = RING_ACROSS != 0;  // they share rows of `a`; else rows of the weight
constexpr int ROWS = ACROSS ? BM : BM * PEERS, COLUMNS = ACROSS ? BN * PEERS : BN;      // of the tiles of a cluster
constexpr int A_BOX = ACROSS ? BM / PEERS : BM, WEIGHT_BOX = ACROSS ? BN : BN / PEERS;  // rows that a block loads
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int BUFFERS = RING_BUFFERS;                         // pieces of 64 x 64 outputs that a warpgroup stages
[[maybe_unused]] constexpr int GROUP_ROWS = RING_GROUP_ROWS;  // tile rows of a cluster that stay together in L2
constexpr uint32_t A_BYTES = BM * BK, STAGE_BYTES = A_BYTES + BN * BK;
constexpr uint32_t OUT_BYTES = BUFFERS * 64 * 128;  // per consumer
constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + CONSUMERS * OUT_BYTES;
static_assert(SHARED_BYTES <= 227 * 1024 && (PEERS == 1 || PEERS == 2));
static_assert(BN / 64 % BUFFERS == 0, "the first piece of a tile has another place than the last of the one before");

// sm_90a alone compiles the size of a cluster.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RING_CLUSTER __cluster_dims__(RING_PEERS, 1, 1)
#else
#define RING_CLUSTER
#endif

struct RingMaps {
  CUtensorMap a, weight, out;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Waits for all threads of the cluster, or of the block if it is alone.
__device__ __forceinline__ void join_peers() {
  if constexpr (PEERS == 1)
    __syncthreads();
  else
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Which block of its cluster this one is.
__device__ __forceinline__ uint32_t peer_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Arrives at the same barrier of a block of the cluster.
__device__ __forceinline__ void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 "
      "_, "
      "[there]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// load_box() into every block of the cluster, at the same address and barrier.
__device__ __forceinline__ void load_box_for_all(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column,
                                                 int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(static_cast<uint16_t>((1 << PEERS) - 1))
      : "memory");
}

// Whether the phase of a barrier has ended, for a whole warp.
__device__ __forceinline__ bool is_ready(uint32_t barrier, uint32_t parity) {
  uint32_t ready;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(ready)
               : "r"(barrier), "r"(parity)
               : "memory");
  return __all_sync(0xffffffffU, ready) != 0;
}

// Marks a stage as read in all blocks that fill it. Call it in a whole warpgroup.
__device__ __forceinline__ void give_back(uint32_t empty) {
  const int thread = threadIdx.x % 128;
  if constexpr (PEERS == 1) {
    if (thread == 0) arrive(empty);
  } else {
    if (thread < PEERS) arrive_at(empty, thread);
  }
}

// What a warpgroup that multiplies knows: its tiles, the steps of each, and where in shared memory its data are.
struct RingTiles {
  TileOrder<GROUP_ROWS, ROWS, COLUMNS> order;
  int tiles, stride, steps, first_row, first_column;
  uint32_t a, weight, full, empty, staged;
  Ring<STAGES> ring;

  // The first of its rows of a tile, and the first column.
  __device__ __forceinline__ void place(int tile, int& row, int& column) const {
    order.place(tile, row, column);
    row += first_row;
    column += first_column;
  }

  // Waits for a stage and starts its products. If it is not there yet, the stage before, whose barrier is `before`, is
  // given back as soon as its products have ended.
  __device__ __forceinline__ void start_step(float (&sums)[BN / 2], bool keep, uint32_t& before) const {
    if (RING_EARLY && before && !is_ready(full + 8 * ring.stage, ring.phase)) {
      wait_multiply<0>();
      give_back(before);
      before = 0;
    }
    wait_barrier(full + 8 * ring.stage, ring.phase);
    begin_multiply();
    multiply_step(sums, a + ring.stage * STAGE_BYTES, weight + ring.stage * STAGE_BYTES, keep);
    commit_multiply();
  }

  // Waits for the products of the step before, and gives back its stage, whose barrier is `before`.
  __device__ __forceinline__ void end_step(uint32_t& before) {
    wait_multiply<1>();
    if (before) give_back(before);
    before = empty + 8 * ring.stage;
    ring.advance();
  }

  __device__ __forceinline__ void end_tile(uint32_t before) {
    wait_multiply<0>();
    give_back(before);
  }
};

// Runs a block: one thread feeds the ring, and `consume(tiles)` computes and writes the tiles of a warpgroup.
template <typename Consume>
__device__ __forceinline__ void run_ring(const RingMaps& maps, int m, int n, int k, const Consume& consume) {
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES, full = staged + CONSUMERS * OUT_BYTES;
  const uint32_t empty = full + 8 * STAGES;
  const int rank = PEERS == 1 ? 0 : peer_rank(), clusters = gridDim.x / PEERS;
  const TileOrder<GROUP_ROWS, ROWS, COLUMNS> order{(m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS};
  const int first_row = ACROSS ? 0 : rank * BM, first_column = ACROSS ? rank * BN : 0;
  const int tiles = order.rows * order.columns, steps = (k + BK - 1) / BK;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) init_ring<STAGES>(full, empty, CONSUMERS * PEERS);
  join_peers();

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x % 128 == 0) {
      wait_for_previous();
      Ring<STAGES> ring = {0, 1};  // all stages start empty
      for (int tile = blockIdx.x / PEERS; tile < tiles; tile += clusters) {
        int row, column;
        order.place(tile, row, column);
        for (int step = 0; step < steps; ++step) {
          wait_barrier(empty + 8 * ring.stage, ring.phase);  // of all blocks of the cluster
          const uint32_t barrier = full + 8 * ring.stage, to = stages + ring.stage * STAGE_BYTES;
          expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
          if constexpr (PEERS > 1 && ACROSS)
            load_box_for_all(to + rank * A_BOX * BK, &maps.a, barrier, step * BOX, row + rank * A_BOX);
          else
            load_box(to, &maps.a, barrier, step * BOX, row + first_row);
          if constexpr (PEERS > 1 && !ACROSS)
            load_box_for_all(to + A_BYTES + rank * WEIGHT_BOX * BK, &maps.weight, barrier, step * BOX,
                             column + rank * WEIGHT_BOX);
          else
            load_box(to + A_BYTES, &maps.weight, barrier, step * BOX, column + first_column);
          ring.advance();
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_previous();
    consume(RingTiles{order,
                      tiles,
                      clusters,
                      steps,
                      first_row + group * MINE,
                      first_column,
                      stages + group * MINE * BK,
                      stages + A_BYTES,
                      full,
                      empty,
                      staged + group * OUT_BYTES,
                      {}});
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  if constexpr (PEERS > 1) join_peers();  // a block that ended could no longer be written to
}

// Adds up all of K in the tensor cores, and writes each tile before the next one.
struct InTensorCores {
  const CUtensorMap* out;
  const float *scale_a, *scale_weight;
  int m, n;

  __device__ __forceinline__ void operator()(RingTiles at) const {
    const float scale = *scale_a * *scale_weight;
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      float sums[BN / 2];
      uint32_t before = 0;
      for (int step = 0; step < at.steps; ++step) {
        at.start_step(sums, step > 0, before);
        at.end_step(before);
      }
      at.end_tile(before);
      write_tile<BN / 64, BUFFERS>(out, at.staged, sums, scale, row, column, m, n);
    }
  }
};

#endif

// Sets `grid` and `maps` for a call. Returns cudaErrorNotSupported on another GPU than Hopper. It is static, because it
// differs between the including sources.
static inline cudaError_t prepare_ring(const MatmulFp8Call& call, RingMaps& maps, Grid& grid) {
  if (const cudaError_t status = refused(call)) return status;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  if (!make_fp8_map(maps.a, call.a, call.m, call.k, A_BOX) ||
      !make_fp8_map(maps.weight, call.weight, call.n, call.k, WEIGHT_BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  const int tiles = (call.m + ROWS - 1) / ROWS * ((call.n + COLUMNS - 1) / COLUMNS);
  grid = {std::min(tiles, sm_count / PEERS) * PEERS, THREADS};
  return cudaSuccess;
}
