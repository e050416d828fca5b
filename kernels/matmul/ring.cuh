// What v12, v13 and v15 share: fp32 products of 128 x 256 tiles, which TMA feeds through a ring of
// stages. If the including file sets RING_ANY_OUT to 1, rows of `out` may start at any element, as they do if N is no
// multiple of 4.
#pragma once

#include <cstdint>

#include "check.cuh"
#include "ffma.cuh"
#include "hopper.cuh"
#include "matmul.h"
#include "tile_order.cuh"

#ifndef RING_ANY_OUT
#define RING_ANY_OUT 0
#endif

constexpr int WARP_TILE = 64;  // outputs of a warp, in both directions: 8 x 4 lanes of 8 x 16
constexpr int WARP_ROWS = 2, WARP_COLUMNS = 4;
constexpr int BM = WARP_TILE * WARP_ROWS, BN = WARP_TILE * WARP_COLUMNS;
constexpr int WARPS = WARP_ROWS * WARP_COLUMNS, THREADS = 32 * WARPS;  // warps and threads that compute
constexpr int ALL_THREADS = THREADS + 128;            // and a warpgroup, of which one thread feeds the ring
constexpr int BK = RING_DEPTH, STAGES = RING_STAGES;  // the including file defines these
static_assert(BK == 8 || BK == 16 || BK == 32, "rows of the left tile are swizzled: 32, 64 or 128 bytes");
constexpr int UNROLL = 8;       // steps in K: the loop must fit into the instruction cache
constexpr int TM = 8, TN = 16;  // outputs of a lane
constexpr int GROUP_ROWS = 16;  // tile rows that stay together in L2
constexpr uint32_t A_BYTES = BM * BK * 4, STAGE_BYTES = A_BYTES + BK * BN * 4;
constexpr uint32_t OUT_PITCH = (WARP_TILE + 16) * 4;  // of staged output rows: stores of two rows have no bank conflict
constexpr uint32_t OUT_BYTES = RING_ANY_OUT * 8 * OUT_PITCH;  // per warp
constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + WARPS * OUT_BYTES;

// How blocks share the tiles. The K steps of the first `shared` tiles, one tile after another, are cut into equal
// pieces, one per block; cuts may fall inside a tile. Blocks take the other tiles whole, in turn.
struct Deal {
  int rows, columns;  // of tiles
  int steps;          // steps of a tile, BK deep
  int shared;         // tiles whose steps are cut into pieces
  int blocks;

  __device__ __forceinline__ int cut(int block) const {
    return static_cast<int>(static_cast<int64_t>(shared) * steps * block / blocks);
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Goes through a block's tiles and parts of tiles, one after another.
struct Walk {
  int at, end;  // what is left of the block's piece of the shared steps
  int whole;    // the next tile that is taken whole
  int tile, first_step, last_step;

  __device__ __forceinline__ Walk(const Deal& deal, int block)
      : at(deal.cut(block)),
        end(deal.cut(block + 1)),
        whole(deal.shared + block),
        tile(0),
        first_step(0),
        last_step(0) {}

  __device__ __forceinline__ int total_steps(const Deal& deal) const {
    const int left = deal.rows * deal.columns - whole;
    return end - at + (left > 0 ? (left - 1) / deal.blocks + 1 : 0) * deal.steps;
  }

  // Goes to the next tile or part. Returns false at the end.
  __device__ __forceinline__ bool next(const Deal& deal) {
    if (at < end) {
      tile = at / deal.steps;
      first_step = at - tile * deal.steps;
      last_step = min(deal.steps, first_step + end - at);
      at += last_step - first_step;
      return true;
    }
    if (whole >= deal.rows * deal.columns) return false;
    tile = whole, whole += deal.blocks;
    first_step = 0, last_step = deal.steps;
    return true;
  }
};

// Row and column of a tile's first output.
__device__ __forceinline__ void place(const Deal& deal, int tile, int& row, int& column) {
  TileOrder<GROUP_ROWS, BM, BN>{deal.rows, deal.columns}.place(tile, row, column);
}

// Computes every tile of block `block` in `deal`. If steps are shared, sums of parts of tiles go through `partial` (two
// tiles per block) and `ready` (two words per block, 0 before the launch). Blocks then wait for each other, which works
// because all of them are resident at once.
__device__ __forceinline__ void ring_product(const CUtensorMap* a_map, const CUtensorMap* weight_map,
                                             const float* __restrict__ bias, float* __restrict__ out, float4* partial,
                                             int* ready, int m, int n, const Deal& deal, int block) {
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t full = stages + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  Walk walk(deal, block), ahead = walk;
  const int total = walk.total_steps(deal);

  if (thread == 0) init_ring<STAGES>(full, empty, WARPS);
  __syncthreads();

  // One thread starts the copy of the walk's next step into the stage of index `stage`.
  int fetched = 0, fetch_step = 0, fetch_row = 0, fetch_column = 0;
  const auto fetch = [&](uint32_t stage) {
    if (fetch_step == ahead.last_step) {
      ahead.next(deal);
      fetch_step = ahead.first_step;
      place(deal, ahead.tile, fetch_row, fetch_column);
    }
    const uint32_t to = stages + stage * STAGE_BYTES, barrier = full + 8 * stage;
    const int deep = fetch_step * BK;
    expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
    load_box(to, a_map, barrier, deep, fetch_row);
    load_box(to + A_BYTES, weight_map, barrier, fetch_column, deep);
    ++fetch_step, ++fetched;
  };
  if (warp >= WARPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (thread == THREADS) {
      uint32_t stage = 0, phase = 1;  // all stages start empty
      while (fetched < total) {
        wait_barrier(empty + 8 * stage, phase);
        fetch(stage);
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");

  const int my_row = warp / WARP_COLUMNS * WARP_TILE + lane / 4;
  const int my_column = warp % WARP_COLUMNS * WARP_TILE + lane % 4 * 4;
  const uint32_t a_mine = my_row * BK * 4 + twist<BK>(my_row), weight_mine = A_BYTES + my_column * 4;
  float left[TM][4];  // four steps in K at a time
  float right[2][TN / 4][4];
  uint32_t a_from = stages + a_mine, weight_from = stages + weight_mine;  // of the current UNROLL steps in K
  const auto read_left = [&](int chunk, int y) { read_shared(left[y], (a_from ^ (chunk * 16)) + y * 8 * BK * 4); };
  const auto read_right = [&](int into, int deep) {
#pragma unroll
    for (int x = 0; x < TN / 4; ++x) read_shared(right[into][x], weight_from + deep * BN * 4 + x * 64);
  };

  uint32_t stage = 0, phase = 0;
  if (total > 0) wait_barrier(full, 0);
#pragma unroll
  for (int y = 0; y < TM; ++y) read_left(0, y);
  read_right(0, 0);

  const bool packets = n % 4 == 0 && (reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(bias)) % 16 == 0;
  const auto write = [&](int row, int column, float4 words) {
    if (row >= m || column >= n) return;
    float* to = out + static_cast<int64_t>(row) * n + column;
    if (packets) {
      const float4 shift = *reinterpret_cast<const float4*>(bias + column);
      *reinterpret_cast<float4*>(to) =
          make_float4(words.x + shift.x, words.y + shift.y, words.z + shift.z, words.w + shift.w);
    } else {
      to[0] = words.x + bias[column];
      if (column + 1 < n) to[1] = words.y + bias[column + 1];
      if (column + 2 < n) to[2] = words.z + bias[column + 2];
      if (column + 3 < n) to[3] = words.w + bias[column + 3];
    }
  };

  // For rows that start at any element: writes eight of the warp's rows, of which a lane has four packets, those of its
  // sums `y`. The packets change lanes in shared memory, so that a warp writes whole sectors of 32 bytes, except the
  // first and the last of a row: L2 reads a partly written sector from DRAM. The row length is hidden from the
  // compiler, which would otherwise keep multiples of it. The loop below has no registers for them.
  const auto write_rows = [&](int row, int column, int y, const float4* words) {
    int pitch = n, mine = lane;
    uint32_t staged = empty + 8 * STAGES;
    asm volatile("" : "+r"(pitch), "+r"(mine), "+r"(staged));
    staged += warp * OUT_BYTES;
    __syncwarp();
#pragma unroll
    for (int x = 0; x < TN / 4; ++x)
      asm volatile(
          "st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(staged + mine / 4 * OUT_PITCH + x * 64 + mine % 4 * 16),
          "f"(words[x].x), "f"(words[x].y), "f"(words[x].z), "f"(words[x].w)
          : "memory");
    __syncwarp();
    row += warp / WARP_COLUMNS * WARP_TILE + y * 8;
    column += warp % WARP_COLUMNS * WARP_TILE;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float* to = out + static_cast<int64_t>(row + i) * pitch + column;
      const int first = static_cast<int>(-(reinterpret_cast<uintptr_t>(to) / 4) % 8);  // first word of a whole sector
#pragma unroll
      for (int j = 0; j < WARP_TILE / 32; ++j) {
        const int at = (first + j * 32 + mine) % WARP_TILE;
        float word;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(word) : "r"(staged + i * OUT_PITCH + at * 4) : "memory");
        if (row + i < m && column + at < n) to[at] = word;
      }
    }
  };
  // The bias of a lane's columns, zero beyond the edge.
  const auto read_bias = [&](int column, float4(&shifts)[TN / 4]) {
#pragma unroll
    for (int x = 0; x < TN / 4; ++x) {
      const int at = column + my_column + x * 16;
      shifts[x] = make_float4(at < n ? bias[at] : 0.0f, at + 1 < n ? bias[at + 1] : 0.0f,
                              at + 2 < n ? bias[at + 2] : 0.0f, at + 3 < n ? bias[at + 3] : 0.0f);
    }
  };
  const auto add = [](float4 one, float4 other) {
    return make_float4(one.x + other.x, one.y + other.y, one.z + other.z, one.w + other.w);
  };

  int done = 0, head = -1, tail = -1;  // tiles of which the block has the beginning, or another part
  while (walk.next(deal)) {
    float sums[TM][TN];
#pragma unroll
    for (int y = 0; y < TM; ++y)
#pragma unroll
      for (int x = 0; x < TN; ++x) sums[y][x] = 0.0f;
    const int pieces = (walk.last_step - walk.first_step) * (BK / UNROLL);
#pragma unroll 1
    for (int piece = 1; piece <= pieces; ++piece) {
#pragma unroll
      for (int deep = 0; deep < UNROLL; ++deep) {
        const int now = deep % 2;
        const bool last = deep == UNROLL - 1;
        if (last) {
          if (BK > UNROLL && piece % (BK / UNROLL)) {
            const uint32_t bytes = piece % (BK / UNROLL) * UNROLL * 4;  // of a row of the left tile
            a_from = (stages + stage * STAGE_BYTES + a_mine) ^ bytes;
            weight_from += UNROLL * BN * 4;
          } else {  // the whole stage is in registers: go to the next one, whose first operands are read below
            __syncwarp();
            if (lane == 0) arrive(empty + 8 * stage);
            ++done;
            if (++stage == STAGES) stage = 0, phase ^= 1;
            a_from = stages + stage * STAGE_BYTES + a_mine;
            weight_from = stages + stage * STAGE_BYTES + weight_mine;
            if (done < total) wait_barrier(full + 8 * stage, phase);
          }
        }
        read_right(1 - now, last ? 0 : deep + 1);
        keep_order();
#pragma unroll
        for (int y = 0; y < TM; ++y) {
          multiply_row(sums[y], left[y][deep % 4], right[now], y, now);
          if (deep % 4 == 3) read_left(last ? 0 : deep / 4 + 1, y);
        }
      }
    }

    if (walk.last_step - walk.first_step < deal.steps) {
      // Part of a tile: store it where the other blocks of this tile find it. Adding a zero that the compiler does not
      // know leaves it free to choose registers for the sums.
      const float zero = __uint_as_float(blockDim.y - 1);
      const int slot = 2 * block + (walk.first_step == 0);
      float4* to = partial + static_cast<int64_t>(slot) * (BM * BN / 4) + thread;
#pragma unroll
      for (int y = 0; y < TM; ++y)
#pragma unroll
        for (int x = 0; x < TN; x += 4)
          __stcg(to + (y * TN + x) / 4 * THREADS,
                 make_float4(sums[y][x] + zero, sums[y][x + 1] + zero, sums[y][x + 2] + zero, sums[y][x + 3] + zero));
      __threadfence();
      join_named(1, THREADS);
      if (thread == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(ready + slot) : "memory");
      (walk.first_step == 0 ? head : tail) = walk.tile;
      continue;
    }
    int row, column;
    place(deal, walk.tile, row, column);
    if constexpr (RING_ANY_OUT) {
      float4 shifts[TN / 4];
      read_bias(column, shifts);
#pragma unroll
      for (int y = 0; y < TM; ++y) {
        float4 words[TN / 4];
#pragma unroll
        for (int x = 0; x < TN; x += 4)
          words[x / 4] = add(make_float4(sums[y][x], sums[y][x + 1], sums[y][x + 2], sums[y][x + 3]), shifts[x / 4]);
        write_rows(row, column, y, words);
      }
    } else {
#pragma unroll
      for (int x = 0; x < TN; x += 4)
#pragma unroll
        for (int y = 0; y < TM; ++y)
          write(row + my_row + y * 8, column + my_column + x * 4,
                make_float4(sums[y][x], sums[y][x + 1], sums[y][x + 2], sums[y][x + 3]));
    }
  }

  // Tiles that several blocks have parts of: each block sums an equal share of the tile, always in the same order.
#pragma unroll 1
  for (int which = 0; which < 2; ++which) {
    const int tile = which ? head : tail;
    if (tile < 0) continue;
    int first = block, last = block;
    while (deal.cut(first) > tile * deal.steps) --first;
    while (last + 1 < deal.blocks && deal.cut(last + 1) < (tile + 1) * deal.steps) ++last;
    const auto slot_of = [&](int other) { return 2 * other + (other == first); };
    for (int other = first + thread; other <= last; other += THREADS) {
      int is_ready = 0;
      while (!is_ready)
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(is_ready) : "l"(ready + slot_of(other)) : "memory");
    }
    join_named(1, THREADS);
    constexpr int PACKETS = TM * TN / 4, TOGETHER = 8;
    const int count = last - first + 1;
    constexpr int UNIT = RING_ANY_OUT ? TN / 4 : 1;  // packets that are written together
    const int start = PACKETS / UNIT * (block - first) / count * UNIT;
    const int end = PACKETS / UNIT * (block - first + 1) / count * UNIT;
    int row, column;
    place(deal, tile, row, column);
    float4 shifts[TN / 4];
    if constexpr (RING_ANY_OUT) read_bias(column, shifts);
#pragma unroll 1
    for (int packet = start; packet < end; packet += TOGETHER) {
      float4 sums[TOGETHER] = {};
#pragma unroll 2
      for (int other = first; other <= last; ++other) {
        const float4* from = partial + static_cast<int64_t>(slot_of(other)) * (BM * BN / 4) + thread;
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)
          if (packet + i < end) {
            const float4 part = __ldcg(from + (packet + i) * THREADS);
            sums[i].x += part.x, sums[i].y += part.y, sums[i].z += part.z, sums[i].w += part.w;
          }
      }
      if constexpr (RING_ANY_OUT) {
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) sums[i] = add(sums[i], shifts[i % (TN / 4)]);
#pragma unroll
        for (int i = 0; i < TOGETHER; i += TN / 4)
          if (packet + i < end) write_rows(row, column, (packet + i) / (TN / 4), sums + i);
      } else {
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)
          if (packet + i < end) {
            const int y = (packet + i) / (TN / 4), x = (packet + i) % (TN / 4);
            write(row + my_row + y * 8, column + my_column + x * 16, sums[i]);
          }
      }
    }
  }
}

#endif

// Tensor maps of both operands. The functions below are static, because they differ between the including sources.
struct RingMaps {
  CUtensorMap a, weight;
};

// Both operands as TMA takes them: rows of whole packets at 16-byte aligned addresses, `pitch` words apart.
struct RingOperands {
  const void *a, *weight;
  int a_pitch, weight_pitch;
};

static inline RingOperands as_they_are(const MatmulCall& call) { return {call.a, call.weight, call.k, call.n}; }

static inline bool rows_aligned(const RingOperands& from) {
  const auto addresses = reinterpret_cast<uintptr_t>(from.a) | reinterpret_cast<uintptr_t>(from.weight);
  return addresses % 16 == 0 && from.a_pitch % 4 == 0 && from.weight_pitch % 4 == 0;
}

static inline bool make_maps(RingMaps& maps, const MatmulCall& call, const RingOperands& from) {
  return make_map<float>(maps.a, from.a, call.m, call.k, from.a_pitch, BM, BK) &&
         make_map<float>(maps.weight, from.weight, call.k, call.n, from.weight_pitch, BK, BN);
}

static inline Deal tiles_of(const MatmulCall& call) {
  return {(call.m - 1) / BM + 1, (call.n - 1) / BN + 1, (call.k - 1) / BK + 1, 0, 0};
}

// Sets `sm_count`; sets `takes` if this GPU and these operands suit the ring, and then also `maps`.
static inline cudaError_t prepare_ring(const MatmulCall& call, const RingOperands& from, int& sm_count, RingMaps& maps,
                                       bool& takes) {
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  takes = sm_count > 0 && rows_aligned(from) && make_maps(maps, call, from);
  return cudaSuccess;
}
