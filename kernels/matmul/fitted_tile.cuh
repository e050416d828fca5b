// What v14, v16 and gelu.cu share: bf16 products with the tile width, of four, that minimises the work of the busiest SM. The
// including file defines FITTED_GROUP_ROWS and FITTED_STAGES.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "any_rows.cuh"
#include "check.cuh"
#include "hopper.cuh"
#include "matmul.h"
#include "overlap_shared.cuh"
#include "ring_steps.cuh"
#include "tile_order.cuh"

constexpr int BM = 128, BK = 64;
constexpr int CONSUMERS = 2;  // warpgroups, 64 rows of the tile each
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Tile rows of a group where a block has several tiles: a group's operands stay in L2.
[[maybe_unused]] constexpr int GROUP_ROWS = FITTED_GROUP_ROWS;
constexpr uint32_t A_BYTES = BM * BK * 2;
constexpr uint32_t MOST_SHARED = 227 * 1024;
constexpr int MOST_STAGES = FITTED_STAGES;
static_assert(MOST_STAGES >= 2, "a stage is given back when the products of the next one are issued");

// Constants that follow from the width of a block's tile.
template <int BN>
struct Tile {
  static constexpr int TAIL = BN % BOX;  // columns after the whole boxes, in swizzled rows of 32 bytes
  static constexpr int MAIN = BN - TAIL;
  static_assert(TAIL == 0 || TAIL == 16, "rows behind the boxes have 32 bytes");
  static constexpr uint32_t TAIL_AT = A_BYTES + MAIN * BK * 2, STAGE_BYTES = TAIL_AT + TAIL * BK * 2;
  static constexpr int OUT_COLUMNS = BN == 256 ? 128 : BN;  // columns that a consumer stages before the first store
  // rows of a store: a warp's, or the consumer's. The widest tiles are for many tiles a block, where the latter is faster.
  static constexpr int OUT_ROWS = BN == 256 ? 64 : 16;
  static constexpr uint32_t OUT_BYTES = 64 * OUT_COLUMNS * 2, BIAS_BYTES = BN * 2;  // per consumer
  static constexpr uint32_t FIXED_BYTES = 1024 + CONSUMERS * (OUT_BYTES + BIAS_BYTES);
  static constexpr int FIT = (MOST_SHARED - FIXED_BYTES) / (STAGE_BYTES + 16),
                       STAGES = FIT < MOST_STAGES ? FIT : MOST_STAGES;
  static constexpr uint32_t SHARED_BYTES = FIXED_BYTES + STAGES * (STAGE_BYTES + 16);
};

struct FittedMaps {
  CUtensorMap a, weight, out, weight_tail, out_tail;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The matrix descriptor of swizzled rows of 32 bytes.
__device__ __forceinline__ uint64_t narrow_descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(8 * 32 >> 4) << 32 | 3ULL << 62;
}

// The offset in bytes of an element that a warpgroup has staged for `out`.
template <int BN>
__device__ __forceinline__ uint32_t staged_at(int row, int column) {
  const int box = column / BOX, chunk = column % BOX / 8;
  const bool tail = Tile<BN>::TAIL > 0 && box == Tile<BN>::MAIN / BOX;
  return box * 64 * 128 + (tail ? swizzled<32>(row, chunk % 2) : swizzled<128>(row, chunk)) + column % 8 * 2;
}

// Stores the word if `at` < `end`. With an `if`, the compiler would compute the address again for every store.
__device__ __forceinline__ void store_before(uint16_t* to, uint32_t word, int at, int end) {
  asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p st.global.b32 [%0], %1; }" ::"l"(to), "r"(word), "r"(at),
               "r"(end)
               : "memory");
}

// Writes a warp's 16 rows of what its warpgroup has staged for `out` from (row, column) on. Rows of `out` may start at
// any element. It writes the pairs of elements that form a word, then the elements at both ends of a row that are in no
// such pair.
template <int BN>
__device__ __forceinline__ void write_rows(uint32_t staged, __nv_bfloat16* out, int m, int n, int row, int column) {
  constexpr int TURNS = (Tile<BN>::OUT_COLUMNS + BOX - 1) / BOX;  // turns of 32 pairs
  constexpr int TOGETHER = 4;                                     // rows that are read before they are written
  const int lane = threadIdx.x % 32, mine = threadIdx.x % 128 / 32 * 16;
  const int rows = m - row - mine, columns = min(n - column, Tile<BN>::OUT_COLUMNS);
  uint16_t* const first = reinterpret_cast<uint16_t*>(out) + static_cast<int64_t>(row + mine) * n + column;
#pragma unroll 1
  for (int group = 0; group < 16; group += TOGETHER) {
    uint32_t words[TOGETHER][TURNS];
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
      for (int turn = 0; turn < TURNS; ++turn)
        asm volatile("ld.shared.b32 %0, [%1];"
                     : "=r"(words[i][turn])
                     : "r"(staged + staged_at<BN>(mine + group + i, turn * 64 + lane * 2))
                     : "memory");
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
      uint16_t* to = first + static_cast<int64_t>(group + i) * n;
      const int odd = starts_inside_a_word(to), left = group + i < rows ? columns : 0;
#pragma unroll
      for (int turn = 0; turn < TURNS; ++turn) {
        const uint32_t pair = shifted(words[i][turn], words[i][turn + 1 < TURNS ? turn + 1 : turn], odd);
        store_before(to + odd + lane * 2 + turn * 64, pair, turn * 64 + 1, left - odd - lane * 2);
      }
    }
  }
  const int left = lane / 2 < rows ? columns : 0, at = lane % 2 ? left - 1 : 0;
  uint16_t* to = first + static_cast<int64_t>(lane / 2) * n;
  const int odd = starts_inside_a_word(to);
  if (left > 0 && (lane % 2 ? (left - odd) % 2 != 0 : odd != 0)) {
    uint16_t element;
    asm volatile("ld.shared.b16 %0, [%1];"
                 : "=h"(element)
                 : "r"(staged + staged_at<BN>(mine + lane / 2, at))
                 : "memory");
    to[at] = element;
  }
}

// What becomes of an output before it is rounded.
struct Unchanged {
  __device__ __forceinline__ float operator()(float value) const { return value; }
};

// Computes every tile of a block. With ANY_OUT, rows of `out` may start at any element, and `maps` needs no map of it.
template <int BN, bool ANY_OUT, typename Finish = Unchanged>
__device__ __forceinline__ void fitted_product(const FittedMaps& maps, const __nv_bfloat16* __restrict__ bias,
                                               __nv_bfloat16* __restrict__ out, int m, int n, int k) {
  using T = Tile<BN>;
  constexpr int STAGES = T::STAGES, OUT_COLUMNS = T::OUT_COLUMNS, MAIN = T::MAIN, TAIL = T::TAIL;
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * T::STAGE_BYTES;
  const uint32_t biases = staged + CONSUMERS * T::OUT_BYTES, full = biases + CONSUMERS * T::BIAS_BYTES;
  const uint32_t empty = full + 8 * STAGES;
  const int rows = (m + BM - 1) / BM, columns = (n + BN - 1) / BN;
  const bool one_each = rows * columns == gridDim.x;  // all tiles are under way at once, in any order
  const AnyOrder<BM, BN> order{rows, columns, one_each ? PATCH_ROWS : GROUP_ROWS};
  const int tiles = order.rows * order.columns, steps = (k + BK - 1) / BK;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) init_ring<STAGES>(full, empty, CONSUMERS);
  __syncthreads();

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    if (threadIdx.x % 128 == 0) {
      wait_for_previous();
      const auto load = [&](uint32_t to, uint32_t barrier, int row, int column, int step) {
        load_box(to, &maps.a, barrier, step * BK, row);
#pragma unroll
        for (int box = 0; box < MAIN / BOX; ++box)
          load_box(to + A_BYTES + box * BK * BOX * 2, &maps.weight, barrier, column + box * BOX, step * BK);
        if (TAIL > 0) load_box(to + T::TAIL_AT, &maps.weight_tail, barrier, column + MAIN, step * BK);
      };
      feed_tiles<STAGES, T::STAGE_BYTES>(order, tiles, steps, stages, full, empty, load);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    wait_for_previous();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t mine = staged + group * T::OUT_BYTES, bias_mine = biases + group * T::BIAS_BYTES;
    constexpr bool BY_WARP = !ANY_OUT && T::OUT_ROWS == 16;
    const bool copies = !ANY_OUT && (BY_WARP ? lane : thread) == 0;  // this thread copies from shared memory to `out`
    Ring<STAGES> ring;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      int row, column;
      order.place(tile, row, column);
      if (BY_WARP && tile != blockIdx.x) join_named(1 + group);  // all warps have read the bias of the tile before
      // each of the first threads copies 16 bytes of the bias while products are computed
      if (thread < BN / 8 && column + thread * 8 < n) {
        const uint32_t to = bias_mine + thread * 16;
        const __nv_bfloat16* from = bias + column + thread * 8;
        const int columns = n - column - thread * 8;
        if (!ANY_OUT || columns >= 8) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
        } else {  // the bias ends inside these 16 bytes
          for (int i = 0; i < columns; ++i)
            asm volatile("st.shared.b16 [%0], %1;" ::"r"(to + i * 2), "h"(__bfloat16_as_ushort(from[i])) : "memory");
        }
      }
      float sums[BN / 2];
      multiply_steps(ring, steps, full, empty, thread == 0, [&](int step, int stage) {
        const uint32_t at = stages + stage * T::STAGE_BYTES;
#pragma unroll
        for (int part = 0; part < BK / 16; ++part) {
          const uint64_t a = descriptor(at + group * 64 * BK * 2 + part * 32, 16, 1024);
          multiply<true>(reinterpret_cast<float (&)[MAIN / 2]>(sums[0]), a,
                         descriptor(at + A_BYTES + part * 2048, BK * BOX * 2, 1024), step > 0 || part > 0);
          if constexpr (TAIL > 0)
            multiply<true>(reinterpret_cast<float (&)[TAIL / 2]>(sums[MAIN / 2]), a,
                           narrow_descriptor(at + T::TAIL_AT + part * 16 * TAIL * 2), step > 0 || part > 0);
        }
      });

      // Writes the output: accumulators as bf16 to shared memory, swizzled as TMA expects, from there to `out`. With
      // BY_WARP, a warp starts to copy its 16 rows of a box as soon as they are there, while it converts the next ones.
      asm volatile("cp.async.wait_all;" ::: "memory");  // the bias
#pragma unroll
      for (int part = 0; part < BN / OUT_COLUMNS; ++part) {
        if (copies) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        join_named(1 + group);
        uint32_t shift[OUT_COLUMNS / 8];  // the bias of this lane's columns, in pairs
#pragma unroll
        for (int j = 0; j < OUT_COLUMNS / 8; ++j)
          asm volatile("ld.shared.b32 %0, [%1];"
                       : "=r"(shift[j])
                       : "r"(bias_mine + (part * OUT_COLUMNS + j * 8 + lane % 4 * 2) * 2)
                       : "memory");
#pragma unroll
        for (int j = 0; j < OUT_COLUMNS / 16; ++j) {  // 16 columns: one stmatrix of four 8 x 8 matrices
          const int first = part * OUT_COLUMNS + j * 16;
          const bool tail = TAIL > 0 && j * 16 >= MAIN;
          uint32_t packed[4];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const __nv_bfloat162 pair = reinterpret_cast<const __nv_bfloat162&>(shift[j * 2 + half]);
            const float low = __low2float(pair), high = __high2float(pair);
            const float* from = sums + first / 2 + half * 4;
            const Finish finish;
            packed[half * 2] = pack(finish(from[0] + low), finish(from[1] + high));
            packed[half * 2 + 1] = pack(finish(from[2] + low), finish(from[3] + high));
          }
          // matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
          const int in_row = warp * 16 + lane % 8 + lane / 8 % 2 * 8;
          uint32_t to = mine;
          if (!tail)
            to += j / 4 * 64 * 128 + swizzled<128>(in_row, j % 4 * 2 + lane / 16);
          else
            to += MAIN * 128 + swizzled<32>(in_row, lane / 16);
          store_matrices(to, packed[0], packed[1], packed[2], packed[3]);
          if (BY_WARP && (tail || j % 4 == 3)) {
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            const int box = j / 4 * BOX;
            if (copies && column + box < n) {
              store_box(tail ? &maps.out_tail : &maps.out, mine + box * 128 + warp * 16 * (tail ? 32 : 128),
                        column + box, row + group * 64 + warp * 16);
              asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
          }
        }
        if (BY_WARP) continue;
        if (!ANY_OUT) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        join_named(1 + group);
        if constexpr (ANY_OUT) {
          write_rows<BN>(mine, out, m, n, row + group * 64, column + part * OUT_COLUMNS);
        } else if (copies) {
          static_assert(BY_WARP || TAIL == 0);
          const int to_row = row + group * 64, at = column + part * OUT_COLUMNS;
#pragma unroll
          for (int box = 0; box < OUT_COLUMNS / BOX; ++box)
            if (at + box * BOX < n) store_box(&maps.out, mine + box * 64 * 128, at + box * BOX, to_row);
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
      }
    }
    if (copies) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

#endif

// Operands as TMA takes them: rows start at multiples of 16 bytes, `pitch` elements apart.
struct FittedOperands {
  const void *a, *weight;
  int a_pitch, weight_pitch;
};

// A tile width, and its times on an H200 in ns: `step` for each step in K, `rest` for everything else of a tile. They
// were fitted to runs whose samples were not kept, before tiles of one wave were in the order of patches.
struct Choice {
  int columns, tail, out_rows;
  uint32_t shared_bytes;
  int step, rest;
};

template <int BN>
constexpr Choice choice(int step, int rest) {
  return {BN, Tile<BN>::TAIL, Tile<BN>::OUT_ROWS, Tile<BN>::SHARED_BYTES, step, rest};
}

constexpr Choice CHOICES[] = {choice<256>(582, 2270), choice<192>(477, 2300), choice<144>(420, 1570),
                              choice<64>(220, 450)};

static inline int64_t tiles_of(const MatmulCall& call, const Choice& choice) {
  return static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + choice.columns - 1) / choice.columns);
}

// The time of the busiest SM, in ns.
static inline int64_t nanoseconds(const MatmulCall& call, const Choice& choice, int sm_count) {
  const int64_t steps = (call.k + BK - 1) / BK, waves = (tiles_of(call, choice) + sm_count - 1) / sm_count;
  return waves * (steps * choice.step + choice.rest);
}

// What a launch needs: the index of the choice in CHOICES, the grid, and the maps except those of `out`.
struct Fitted {
  int place;
  Grid grid;
  FittedMaps maps;
};

static inline cudaError_t fit(const MatmulCall& call, const FittedOperands& from, Fitted& fitted) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  const Choice* best =
      std::min_element(std::begin(CHOICES), std::end(CHOICES), [&](const Choice& one, const Choice& two) {
        return nanoseconds(call, one, sm_count) < nanoseconds(call, two, sm_count);
      });
  fitted = {static_cast<int>(best - CHOICES),
            {static_cast<int>(std::min<int64_t>(tiles_of(call, *best), sm_count)), THREADS},
            {}};
  FittedMaps& maps = fitted.maps;
  if (!make_map(maps.a, from.a, call.m, call.k, from.a_pitch, BM, BOX) ||
      !make_map(maps.weight, from.weight, call.k, call.n, from.weight_pitch, BK, BOX))
    return cudaErrorInvalidValue;
  if (best->tail && !make_map(maps.weight_tail, from.weight, call.k, call.n, from.weight_pitch, BK, best->tail))
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

using FittedKernel = void (*)(FittedMaps, const __nv_bfloat16*, int, int, int);

// Launches the kernel of the best choice, for operands and outputs as TMA takes them. `kernels` has one of each choice.
static inline cudaError_t launch_fitted(const MatmulCall& call, const FittedKernel (&kernels)[std::size(CHOICES)]) {
  if (call.n % 8 || call.k % 8) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  Fitted fitted;
  if (const cudaError_t status = fit(call, {call.a, call.weight, call.k, call.n}, fitted)) return status;
  const Choice& choice = CHOICES[fitted.place];
  if (!make_map(fitted.maps.out, call.out, call.m, call.n, call.n, choice.out_rows, BOX) ||
      (choice.tail && !make_map(fitted.maps.out_tail, call.out, call.m, call.n, call.n, choice.out_rows, choice.tail)))
    return cudaErrorInvalidValue;
  return launch_overlapped(kernels[fitted.place], fitted.grid, choice.shared_bytes, call.stream, fitted.maps,
                           static_cast<const __nv_bfloat16*>(call.bias), call.m, call.n, call.k);
}
