// Products whose tiles two warpgroups take in turn: one multiplies while the other writes its tile. What matmul v26 and
// matmul_fp8 v11 share. Two blocks of a cluster share rows of the weight.
#pragma once

#include <algorithm>

#include "cluster.cuh"
#include "overlap_shared.cuh"
#include "tile_order.cuh"

constexpr int THREADS = 384, PEERS = 2, BM = 128;
constexpr int HALVES = BM / 64;                        // rows of a tile, in those of an instruction
[[maybe_unused]] constexpr int LEFT = 40, MORE = 232;  // registers of a thread

// What depends on the columns of a tile. SIDE_BYTES are what each warpgroup keeps beside its outputs.
template <int BN_, int STAGES_, int BUFFERS_, int GROUP_ROWS_, uint32_t SIDE_BYTES_ = 0>
struct PingPong {
  static constexpr int BN = BN_, STAGES = STAGES_;
  static constexpr int BUFFERS = BUFFERS_;        // places for 64 x 64 outputs that a warpgroup has
  static constexpr int GROUP_ROWS = GROUP_ROWS_;  // tile rows of clusters that stay together in L2
  static constexpr int PIECES = (BN + 63) / 64;   // of 64 x 64 outputs, in 64 rows
  static constexpr uint32_t A_BYTES = BM * 128, WEIGHT_BYTES = BN * 128, BUFFER_BYTES = 64 * 128;
  static constexpr uint32_t SIDE_BYTES = SIDE_BYTES_, OWN_BYTES = BUFFERS * BUFFER_BYTES + SIDE_BYTES;
  static constexpr uint32_t BYTES = 1024 + STAGES * (A_BYTES + WEIGHT_BYTES + 16) + 2 * OWN_BYTES;
  static_assert(BYTES <= 227 * 1024 && HALVES * PIECES * BUFFER_BYTES <= STAGES * A_BYTES);

  // The first column of a piece. Of a width that 64 does not divide, the last two pieces overlap.
  static constexpr __host__ __device__ int piece_column(int piece) {
    return piece * 64 + 64 <= BN ? piece * 64 : BN - 64;
  }
};

// Tiles of clusters, BN columns wide; and those that the busiest cluster computes.
template <int BN>
int64_t cluster_tiles(int m, int n) {
  return static_cast<int64_t>((m - 1) / (BM * PEERS) + 1) * ((n - 1) / BN + 1);
}

template <int BN>
int64_t cluster_waves(int m, int n, int sm_count) {
  const int at_once = sm_count / PEERS;
  return (cluster_tiles<BN>(m, n) + at_once - 1) / at_once;
}

struct PingPongMaps {
  CUtensorMap a, weight, out;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A warpgroup waits for its turn to multiply, and gives it to the other one.
__device__ __forceinline__ void await_turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(3 + group) : "memory"); }

__device__ __forceinline__ void pass_turn(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(4 - group) : "memory");
}

// Marks a stage as read in both blocks that fill it.
__device__ __forceinline__ void give_back_to_peers(uint32_t barrier) {
  const int thread = threadIdx.x % 128;
  if (thread < PEERS) arrive_at(barrier, thread);
}

// Copies a thread's 16 pairs of bf16, of 64 columns of a warpgroup's 64 rows, to `to`, swizzled as TMA expects.
__device__ __forceinline__ void stage_outputs(uint32_t to, const uint32_t (&rounded)[16]) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 4; ++j)  // 16 columns. Matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
    store_matrices(to + swizzled<128>(warp * 16 + lane % 8 + lane / 8 % 2 * 8, j * 2 + lane / 16), rounded[j * 4],
                   rounded[j * 4 + 1], rounded[j * 4 + 2], rounded[j * 4 + 3]);
}

// Runs a block of the product of a (m rows) and a weight (n columns), in steps of 128 bytes along K. `type` says how:
//   load_weight(to, map, barrier, column, step, rank)      a block's share of a step's weight, for both
//   start()                                                in a warpgroup that multiplies, before its first tile
//   begin_tile(side, column, n), end_tile(group)           before a tile's products, and when they have ended
//   multiply(sums, a, weight, keep)                        a step's products; both at shared addresses
//   round(sums, from, side, rounded)                       64 columns, from column `from` of the tile on, as bf16
template <typename P, int UNROLL, typename Type>
__device__ __forceinline__ void run_ping_pong(const PingPongMaps& maps, int m, int n, int steps, Type type) {
  constexpr int STAGES = P::STAGES, BN = P::BN;
  extern __shared__ uint8_t memory[];
  const uint32_t a = (shared_address(memory) + 1023) & ~1023U, weight = a + STAGES * P::A_BYTES;
  const uint32_t staged = weight + STAGES * P::WEIGHT_BYTES, sides = staged + 2 * P::BUFFERS * P::BUFFER_BYTES;
  const uint32_t full = sides + 2 * P::SIDE_BYTES, empty = full + 8 * STAGES;
  const int rank = peer_rank<PEERS>(), clusters = gridDim.x / PEERS, first = blockIdx.x / PEERS;
  const TileOrder<P::GROUP_ROWS, BM * PEERS, BN> order{(m + BM * PEERS - 1) / (BM * PEERS), (n + BN - 1) / BN};
  const int tiles = order.rows * order.columns;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) init_ring<STAGES>(full, empty, PEERS);
  if (threadIdx.x == 256) prefetch_map(&maps.a), prefetch_map(&maps.weight);
  join_peers<PEERS>();

  if (group == 2) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT));
    if (threadIdx.x != 256) return;
    wait_for_previous();
    Ring<STAGES> ring = {0, 1};  // all stages start empty
    for (int tile = first; tile < tiles; tile += clusters) {
      int row, column;
      order.place(tile, row, column);
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        wait_barrier(empty + 8 * ring.stage, ring.phase);  // of both blocks
        const uint32_t barrier = full + 8 * ring.stage;
        expect_bytes(barrier, P::A_BYTES + P::WEIGHT_BYTES);  // what is beyond the edge is zeros, counted in full
        load_box(a + ring.stage * P::A_BYTES, &maps.a, barrier, step * BOX, row + rank * BM);
        type.load_weight(weight + ring.stage * P::WEIGHT_BYTES, &maps.weight, barrier, column, step, rank);
        ring.advance();
      }
    }
    // a block that ended could no longer be written to: both have given back its stages
    for (int stage = 0; stage < STAGES; ++stage, ring.advance()) wait_barrier(empty + 8 * ring.stage, ring.phase);
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MORE));
  wait_for_previous();
  type.start();
  const bool leads = threadIdx.x % 128 == 0;
  const uint32_t own = staged + group * P::BUFFERS * P::BUFFER_BYTES, side = sides + group * P::SIDE_BYTES;
  float sums[HALVES][BN / 2];
  int64_t done = static_cast<int64_t>(group) * steps;  // steps of the block before this tile
  for (int tile = first + group * clusters; tile < tiles; tile += 2 * clusters, done += 2 * steps) {
    const bool last = tile + clusters >= tiles;
    int row, column;
    order.place(tile, row, column);
    row += rank * BM;
    type.begin_tile(side, column, n);
    // The other one has waited for all data of the tile before: barriers of stages tell even from odd rounds only.
    if (tile != first) await_turn(group);
    Ring<STAGES> ring = {static_cast<int>(done % STAGES), static_cast<uint32_t>(done / STAGES & 1)};
    uint32_t before = 0;  // the barrier of the stage whose products may still run
    const auto run_step = [&](bool keep) {
      wait_barrier(full + 8 * ring.stage, ring.phase);
      begin_multiply();
      type.multiply(sums, a + ring.stage * P::A_BYTES, weight + ring.stage * P::WEIGHT_BYTES, keep);
      commit_multiply();
      wait_multiply<1>();
      if (before) give_back_to_peers(before);
      before = empty + 8 * ring.stage;
      ring.advance();
    };
    run_step(false);
#pragma unroll UNROLL
    for (int step = 1; step < steps; ++step) run_step(true);
    if (!last) pass_turn(group);
    wait_multiply<0>();
    give_back_to_peers(before);
    type.end_tile(group);

    // Through the ring, if all of it was filled for this tile and for no later one. There, each piece has a place.
    const bool through_ring = last && steps >= STAGES;
#pragma unroll
    for (int piece = 0; piece < HALVES * P::PIECES; ++piece) {
      const int half = piece / P::PIECES, from = P::piece_column(piece % P::PIECES);
      const uint32_t to = through_ring ? a + piece * P::BUFFER_BYTES : own + piece % P::BUFFERS * P::BUFFER_BYTES;
      if (!through_ring) {
        if (leads) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(P::BUFFERS - 1) : "memory");
        join_named(1 + group);
      }
      uint32_t rounded[16];
      type.round(sums[half], from, side, rounded);
      stage_outputs(to, rounded);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      join_named(1 + group);
      if (leads) {
        if (row + half * 64 < m && column + from < n) store_box(&maps.out, to, column + from, row + half * 64);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
  }
  if (leads) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // shared memory ends with the block
}

#endif

// Launches such a kernel of P's tiles.
template <typename P, typename... Parameters>
inline cudaError_t launch_ping_pong(void (*kernel)(Parameters...), int m, int n, int sm_count, cudaStream_t stream,
                                    Parameters... arguments) {
  const int clusters = static_cast<int>(std::min<int64_t>(cluster_tiles<P::BN>(m, n), sm_count / PEERS));
  return launch_overlapped(kernel, {clusters * PEERS, THREADS}, P::BYTES, stream, arguments...);
}
