// What v04 to v06, v08 and v09 of matmul_fp8 share: blocks that stay on their SM, a thread that feeds a ring of stages,
// and two warpgroups that multiply. Two blocks of a cluster can share a tile of an operand. The including file defines
// RING_MINE (64 or 128 rows), RING_STAGES, RING_BUFFERS, RING_GROUP_ROWS, RING_PEERS,
// RING_ACROSS, RING_EARLY, and RING_SCALES if a second warp copies the scales of each step into its stage.
#pragma once

#include <algorithm>

#include "cluster.cuh"
#include "fp8_tile.cuh"

constexpr int CONSUMERS = 2, MINE = RING_MINE;  // warpgroups, and the rows of the tile that are of each
constexpr int BM = MINE * CONSUMERS, STAGES = RING_STAGES;
constexpr int PEERS = RING_PEERS;                // blocks of a cluster
constexpr bool ACROSS = RING_ACROSS != 0;        // they share rows of `a`; else rows of the weight
constexpr int ROWS = ACROSS ? BM : BM * PEERS;   // of the tiles of a cluster
constexpr int A_BOX = ACROSS ? BM / PEERS : BM;  // rows that a block loads
constexpr int THREADS = 128 * (CONSUMERS + 1);
[[maybe_unused]] constexpr int GROUP_ROWS = RING_GROUP_ROWS;  // tile rows of a cluster that stay together in L2
constexpr bool SCALES = RING_SCALES != 0;
constexpr int FILLS = SCALES ? 1 + 32 : 1, WARPS_THAT_FREE = SCALES ? 4 : 1;  // arrivals that fill and free a stage
constexpr int LEFT = SCALES && MINE == 64 ? 56 : 40;  // registers of a thread that does not multiply
constexpr uint32_t A_BYTES = BM * BK;
static_assert(PEERS == 1 || PEERS == 2);

// What depends on the columns of a tile.
template <int BN>
struct Width {
  static constexpr int COLUMNS = ACROSS ? BN * PEERS : BN;     // of the tiles of a cluster
  static constexpr int WEIGHT_BOX = ACROSS ? BN : BN / PEERS;  // rows that a block loads
  // Of a step, a scale for each SHARE columns, which lie in one block of the weight.
  static constexpr int SHARE = BN % 64 ? 16 : 64, WEIGHT_SCALES = (BN / SHARE + 3) / 4 * 4;
  static constexpr uint32_t SCALE_BYTES = SCALES ? (BM + WEIGHT_SCALES) * 4 : 0;
  // pieces of 64 x 64 outputs that a warpgroup stages
  static constexpr int BUFFERS = SCALES && BN == 256 ? 1 : RING_BUFFERS;
  static constexpr uint32_t STAGE_BYTES = A_BYTES + BN * BK, OUT_BYTES = BUFFERS * 64 * 128;  // the latter per consumer
  static constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + SCALE_BYTES + 16) + CONSUMERS * OUT_BYTES;
  static_assert(SHARED_BYTES <= 227 * 1024);
};

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

// Whether the phase of a barrier has ended, for a whole warp.
__device__ __forceinline__ bool is_ready(uint32_t barrier, uint32_t parity) {
  uint32_t ready;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(ready)
               : "r"(barrier), "r"(parity)
               : "memory");
  return __all_sync(0xffffffffU, ready) != 0;
}

// Marks a stage as read in all blocks that fill it. Call it in a whole warpgroup. Each warp tells if it has read scales.
__device__ __forceinline__ void give_back(uint32_t empty) {
  const int thread = threadIdx.x % (128 / WARPS_THAT_FREE);
  if constexpr (PEERS == 1) {
    if (thread == 0) arrive(empty);
  } else {
    if (thread < PEERS) arrive_at(empty, thread);
  }
}

// Copies the scales of a step to `to`, in a whole warp: those of a tile's rows from `of_rows` on, then those of its
// columns, the first of which is column `first` of a block of the weight. Blocks' scales are `apart` elements from each
// other. At the edges the last ones are repeated. `barrier` counts an arrival of each lane when its copies are there.
template <int BN>
__device__ __forceinline__ void load_scales(uint32_t to, uint32_t barrier, const float* of_rows, int rows,
                                            const float* of_columns, int first, int64_t apart, int blocks) {
  const int lane = threadIdx.x % 32;
  const auto copy = [](uint32_t to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
  };
#pragma unroll 4
  for (int i = lane; i < BM; i += 32) copy(to + i * 4, of_rows + min(i, rows - 1));
  if (lane < Width<BN>::WEIGHT_SCALES)
    copy(to + (BM + lane) * 4, of_columns + min((first + lane * Width<BN>::SHARE) / SCALED, blocks - 1) * apart);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ float read_scale(uint32_t from) {
  float scale;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale) : "r"(from) : "memory");
  return scale;
}

__device__ __forceinline__ float4 read_scales(uint32_t from) {
  float4 scales;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(scales.x), "=f"(scales.y), "=f"(scales.z), "=f"(scales.w)
               : "r"(from)
               : "memory");
  return scales;
}

// What a warpgroup that multiplies knows: its tiles, the steps of each, and where in shared memory its data are.
template <int BN>
struct RingTiles {
  static constexpr uint32_t STAGE_BYTES = Width<BN>::STAGE_BYTES;
  TileOrder<GROUP_ROWS, ROWS, Width<BN>::COLUMNS> order;
  int tiles, stride, steps, first_row, first_column;
  uint64_t a, weight;  // in the first stage
  uint32_t full, empty, staged, scales, free;
  Ring<STAGES> ring;

  // Rows of the first stage in the present one.
  __device__ __forceinline__ uint64_t staged_rows(uint64_t rows) const {
    return advanced(rows, ring.stage * STAGE_BYTES);
  }

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
    multiply_step(sums, staged_rows(a), staged_rows(weight), keep);
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

  // Waits until both warpgroups are behind their last tile. Then nothing is read or comes into the ring any more: at `free`
  // it has a place for each piece of a tile.
  __device__ __forceinline__ void free_ring() const { join_named(1 + CONSUMERS, 128 * CONSUMERS); }

  // Writes a tile, the last one of the block through the ring.
  __device__ __forceinline__ void write(const CUtensorMap* out, const float (&sums)[BN / 2], float scale, bool last,
                                        int row, int column, int m, int n) const {
    if (last) {
      free_ring();
      write_tile<BN, PIECES<BN>, true>(out, free, sums, scale, row, column, m, n);
    } else {
      write_tile<BN, Width<BN>::BUFFERS>(out, staged, sums, scale, row, column, m, n);
    }
  }
};

// Runs a block: one thread feeds the ring, and `consume(tiles)` computes and writes the tiles of a warpgroup.
// `scale_a` and `scale_weight` are those of blocks if RING_SCALES.
template <int BN, typename Consume>
__device__ __forceinline__ void run_ring(const RingMaps& maps, int m, int n, int k, const Consume& consume,
                                         const float* scale_a = nullptr, const float* scale_weight = nullptr) {
  constexpr int COLUMNS = Width<BN>::COLUMNS, WEIGHT_BOX = Width<BN>::WEIGHT_BOX;
  constexpr uint32_t STAGE_BYTES = Width<BN>::STAGE_BYTES, OUT_BYTES = Width<BN>::OUT_BYTES;
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES, full = staged + CONSUMERS * OUT_BYTES;
  const uint32_t empty = full + 8 * STAGES, scales = empty + 8 * STAGES;
  const int rank = peer_rank<PEERS>(), clusters = gridDim.x / PEERS;
  const TileOrder<GROUP_ROWS, ROWS, COLUMNS> order{(m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS};
  const int first_row = ACROSS ? 0 : rank * BM, first_column = ACROSS ? rank * BN : 0;
  const int tiles = order.rows * order.columns, steps = (k + BK - 1) / BK;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + 8 * stage, FILLS);
      init_barrier(empty + 8 * stage, CONSUMERS * PEERS * WARPS_THAT_FREE);
    }
    publish_barriers();
  }
  if (threadIdx.x == CONSUMERS * 128) prefetch_map(&maps.a), prefetch_map(&maps.weight);
  join_peers<PEERS>();

  if (group == CONSUMERS) {  // the producer: one thread, and a warp for scales
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT));
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
          if constexpr (ACROSS)
            load_box_for_all<PEERS>(to + rank * A_BOX * BK, &maps.a, barrier, step * BOX, row + rank * A_BOX);
          else
            load_box(to, &maps.a, barrier, step * BOX, row + first_row);
          if constexpr (!ACROSS)
            load_box_for_all<PEERS>(to + A_BYTES + rank * WEIGHT_BOX * BK, &maps.weight, barrier, step * BOX,
                                    column + rank * WEIGHT_BOX);
          else
            load_box(to + A_BYTES, &maps.weight, barrier, step * BOX, column + first_column);
          ring.advance();
        }
      }
      // a block that ended could no longer be written to: all blocks of the cluster have given back its stages
      for (int stage = 0; PEERS > 1 && stage < STAGES; ++stage, ring.advance())
        wait_barrier(empty + 8 * ring.stage, ring.phase);
    } else if (SCALES && threadIdx.x % 128 / 32 == 1) {
      wait_for_previous();
      Ring<STAGES> ring = {0, 1};
      for (int tile = blockIdx.x / PEERS; tile < tiles; tile += clusters) {
        int row, column;
        order.place(tile, row, column);
        row = min(row + first_row, m - 1), column = min(column + first_column, n - 1);
        const int block = column / SCALED, blocks = (n - 1) / SCALED + 1 - block;
        for (int step = 0; step < steps; ++step) {
          wait_barrier(empty + 8 * ring.stage, ring.phase);
          load_scales<BN>(scales + ring.stage * Width<BN>::SCALE_BYTES, full + 8 * ring.stage,
                          scale_a + static_cast<int64_t>(step) * m + row, m - row,
                          scale_weight + static_cast<int64_t>(block) * steps + step, column % SCALED, steps, blocks);
          ring.advance();
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((504 - LEFT) / 2));
    wait_for_previous();
    consume(RingTiles<BN>{order,
                          tiles,
                          clusters,
                          steps,
                          first_row + group * MINE,
                          first_column,
                          rows_at(stages + group * MINE * BK),
                          rows_at(stages + A_BYTES),
                          full,
                          empty,
                          staged + group * OUT_BYTES,
                          scales,
                          stages + group * PIECES<BN> * 64 * 128,
                          {}});
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

// Adds up all of K in the tensor cores, and writes each tile before the next one.
template <int BN>
struct InTensorCores {
  const CUtensorMap* out;
  const float *scale_a, *scale_weight;
  int m, n;

  __device__ __forceinline__ void operator()(RingTiles<BN> at) const {
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
      at.write(out, sums, scale, tile + at.stride >= at.tiles, row, column, m, n);
    }
  }
};

#endif

// Sets `grid` and `maps` for a call. Returns cudaErrorNotSupported on another GPU than Hopper. It is static, because it
// differs between the including sources.
template <int BN>
static inline cudaError_t prepare_ring(const MatmulFp8Call& call, RingMaps& maps, Grid& grid) {
  if (const cudaError_t status = refused(call)) return status;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  if (!make_fp8_map(maps.a, call.a, call.m, call.k, A_BOX) ||
      !make_fp8_map(maps.weight, call.weight, call.n, call.k, Width<BN>::WEIGHT_BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  constexpr int COLUMNS = Width<BN>::COLUMNS;
  const int tiles = (call.m + ROWS - 1) / ROWS * ((call.n + COLUMNS - 1) / COLUMNS);
  grid = {std::min(tiles, sm_count / PEERS) * PEERS, THREADS};
  return cudaSuccess;
}
