// attention v05_wgmma: bf16 on Hopper's warpgroup instructions; one thread loads tiles, three warpgroups compute.
// Shapes   q, k, v, out (batch_heads, tokens, 64) bf16, sums in fp32; any number of tokens, any window.
// Needs    sm_90a, 16-byte aligned operands
// Moves    q, k, v and out once through DRAM; k and v through L2 once for each tile of 192 queries.
// Versus   v04: TMA loads operands, and the tensor cores read them from shared memory, not from
//          registers. While a quarter of a tile's weights multiplies its values, the exponentials of the next quarter
//          are computed. Sums are scaled only when a largest score has grown by more than 2^8. A warpgroup skips the
//          half of a tile that none of its queries sees. A block works on several tiles, longest first.
// Source   Shah et al., "FlashAttention-3", arXiv:2407.08608; PTX ISA, "Asynchronous Warpgroup Level Matrix
//          Instructions"; FlashAttention-4 scales sums when needed, too
#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "attention.h"
#include "check.cuh"
#include "exact_row.cuh"
#include "tiles.cuh"

#ifndef ATTENTION_V05_PIECES
#define ATTENTION_V05_PIECES 4
#endif
namespace {
constexpr int GROUPS = 3;  // warpgroups that compute, 64 queries each: one computes exponentials while others multiply
constexpr int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
constexpr int KEYS = 128, STAGES = 4;  // keys of a tile; tiles in flight or in use
// TILE_BYTES: the keys or the values of a tile. PART_BYTES: a warpgroup's queries, kept twice, or its output.
constexpr uint32_t TILE_BYTES = KEYS * 128, PART_BYTES = 64 * 128;
constexpr uint32_t SHARED_BYTES = 1024 + 2 * STAGES * TILE_BYTES + 3 * GROUPS * PART_BYTES + 8 * (4 * STAGES + 4);
}  // namespace

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// How many pieces of a tile's weights multiply its values one after another. At T 8192 four are faster than two, and two
// are faster than one (README.md).
constexpr int PIECES = ATTENTION_V05_PIECES;
constexpr float GROWTH = 8.0f;  // sums are scaled when a row's largest score grows by more, in log 2
static_assert(PIECES == 1 || PIECES == 2 || PIECES == 4, "a tile is cut into one, two or four pieces");

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// raise_largest(), unless no row of a warp has grown by more than GROWTH: then all stays, and weights above 1 are
// divided by a total that has them too.
template <int N>
__device__ __forceinline__ void raise_when_needed(const float (&scores)[N], float to_log2, float (&largest)[2],
                                                  float (&total)[2], float (&sums)[32], float (&base)[2]) {
  float now[2];
  bool grows = false;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float most = scores[row * 2], also = scores[row * 2 + 1];
#pragma unroll
    for (int i = 4 + row * 2; i < N; i += 4) most = max_or_nan(most, scores[i]), also = max_or_nan(also, scores[i + 1]);
    most = max_or_nan(most, also);
    most = max_or_nan(most, __shfl_xor_sync(0xffffffffU, most, 1));
    most = max_or_nan(most, __shfl_xor_sync(0xffffffffU, most, 2));
    now[row] = max_or_nan(largest[row], most);
    grows |= !(fabsf((now[row] - largest[row]) * to_log2) <= GROWTH);
  }
  if (__any_sync(0xffffffffU, grows)) {
    float factor[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      factor[row] = exp2_fast((largest[row] - now[row]) * to_log2);
      total[row] *= factor[row];
      largest[row] = now[row];
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i] *= factor[i / 2 % 2];
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) base[row] = largest[row] * to_log2;
}
#endif

// Queries `row` to `row` + ROWS of a head, and the tiles of keys that they see, from `last` down to `first`.
struct Work {
  int head, row, first, last;
};

// Assigns tiles of queries to blocks. Tiles with the most keys go first, and every second round goes through the blocks
// in reverse. So all blocks end at about the same time.
struct Deal {
  int heads, tokens, window;
  __device__ __forceinline__ bool take(int round, Work& work) const {
    const int tiles = (tokens + ROWS - 1) / ROWS;
    const int index = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    if (index >= tiles * heads) return false;
    work.row = (tiles - 1 - index / heads) * ROWS;
    work.head = index % heads;
    work.first = max(work.row - window + 1, 0) / KEYS;
    work.last = (min(work.row + ROWS, tokens) - 1) / KEYS;
    return true;
  }
};

}  // namespace
#endif

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    attention_v05_wgmma(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                        const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap out_map,
                        const T* q, const T* k, const T* v, T* out, int heads, int tokens, int window, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t keys = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t values = keys + STAGES * TILE_BYTES, queries = values + STAGES * TILE_BYTES;
  const uint32_t staged = queries + 2 * GROUPS * PART_BYTES;
  const uint32_t k_full = staged + GROUPS * PART_BYTES, k_empty = k_full + 8 * STAGES, v_full = k_empty + 8 * STAGES;
  const uint32_t v_empty = v_full + 8 * STAGES, q_full = v_empty + 8 * STAGES, q_empty = q_full + 8 * 2;
  const Deal deal{heads, tokens, window};
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(k_full + 8 * stage, 1), init_barrier(k_empty + 8 * stage, GROUPS);
      init_barrier(v_full + 8 * stage, 1), init_barrier(v_empty + 8 * stage, GROUPS);
    }
    for (int half = 0; half < 2; ++half) init_barrier(q_full + 8 * half, 1), init_barrier(q_empty + 8 * half, GROUPS);
    publish_barriers();
  }
  __syncthreads();

  if (group == GROUPS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x % 128 == 0) {
      Ring<STAGES> at;
      Work work;
      for (int round = 0; deal.take(round, work); ++round) {
        const int half = round % 2;
        wait_barrier(q_empty + 8 * half, round / 2 % 2 ^ 1);  // both halves start empty
        expect_bytes(q_full + 8 * half, GROUPS * PART_BYTES);
        for (int part = 0; part < GROUPS; ++part)  // rows after the last are filled with zeros and counted in full
          load_box(queries + (half * GROUPS + part) * PART_BYTES, &q_map, q_full + 8 * half, 0, work.row + part * 64,
                   work.head);
        for (int tile = work.last; tile >= work.first; --tile, at.advance()) {
          const uint32_t barrier = 8 * at.stage, to = at.stage * TILE_BYTES;
          wait_barrier(k_empty + barrier, at.phase ^ 1);
          expect_bytes(k_full + barrier, TILE_BYTES);
          load_box(keys + to, &k_map, k_full + barrier, 0, tile * KEYS, work.head);
          wait_barrier(v_empty + barrier, at.phase ^ 1);
          expect_bytes(v_full + barrier, TILE_BYTES);
          load_box(values + to, &v_map, v_full + barrier, 0, tile * KEYS, work.head);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const bool leads = thread == 0;
    const float to_log2 = scale * LOG2_E;
    // tiles.cuh says in which row and column value i of these is
    float sums[32] = {}, largest[2], total[2];
    Ring<STAGES> at;
    int repair = 0;  // whether an output is not finite

    // Processes N keys from `key` on: a tile or half of one. Scores become weights piece by piece. While one piece
    // multiplies its values, the next piece is computed.
    const auto attend = [&](auto count, const Work& work, int half, int key, int stage, bool fresh) {
      constexpr int N = decltype(count)::value, PARTS = PIECES * N / KEYS > 0 ? PIECES * N / KEYS : 1;
      float scores[N / 2];
      uint32_t weights[N / 4];  // pairs of weights, as a register operand
      const uint32_t from = stage * (TILE_BYTES / 16) + (N < KEYS ? key % KEYS * 8 : 0);
      multiply_keys(scores, (queries + (half * GROUPS + group) * PART_BYTES) / 16, keys / 16 + from);
      wait_barrier(v_full + 8 * stage, at.phase);
      wait_multiply<0>();
      hold(scores);
      if (leads) arrive(k_empty + 8 * stage);
      const int top = work.row + group * 64, ahead = key + lane % 4 * 2 - (top + warp * 16 + lane / 4);
      if (key + N - 1 > top) hide_ahead(scores, ahead);  // the diagonal
      if (key <= top + 63 - window) {                    // the window's edge
#pragma unroll
        for (int i = 0; i < N / 2; ++i)
          if (ahead + window <= i / 2 % 2 * 8 - (i / 4 * 8 + i % 2)) scores[i] = -INFINITY;
      }
      float base[2];
      raise_when_needed(scores, to_log2, largest, total, sums, base);
      const uint32_t b = values / 16 + from;
      const auto take = [&](auto piece) {
        constexpr int FIRST = decltype(piece)::value * N / 16 / PARTS, END = FIRST + N / 16 / PARTS;
        weigh_values<FIRST, END>(scores, weights, total, sums, base, to_log2, b, !fresh);
      };
      take(std::integral_constant<int, 0>());
      if constexpr (PARTS > 1) take(std::integral_constant<int, 1 % PARTS>());
      if constexpr (PARTS > 2) take(std::integral_constant<int, 2 % PARTS>());
      if constexpr (PARTS > 3) take(std::integral_constant<int, 3 % PARTS>());
      commit_multiply();
      wait_multiply<0>();
      hold(sums);
    };
    // Writes the output: sums / total as bf16, in shared memory swizzled as TMA expects, from there to
    // DRAM.
    const auto finish = [&](const Work& work, const float (&totals)[2]) {
      const uint32_t mine = staged + group * PART_BYTES;
      float test[2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float all = totals[row];
        all += __shfl_xor_sync(0xffffffffU, all, 1);
        all += __shfl_xor_sync(0xffffffffU, all, 2);
        const float inverse = __fdividef(1.0f, all);
        test[row] = 0.0f;
#pragma unroll
        for (int i = row * 2; i < 32; i += 4)
#pragma unroll
          for (int j = i; j < i + 2; ++j) sums[j] *= inverse, test[row] += sums[j] * 0.0f;
      }
      if (leads) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      join_named(1 + group);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store_matrices(mine + swizzled<128>(warp * 16 + lane % 16, i * 2 + lane / 16),
                       pack(sums[8 * i], sums[8 * i + 1]), pack(sums[8 * i + 2], sums[8 * i + 3]),
                       pack(sums[8 * i + 4], sums[8 * i + 5]), pack(sums[8 * i + 6], sums[8 * i + 7]));
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      const int row = work.row + group * 64;
      const bool bad = !(test[0] == 0.0f && test[1] == 0.0f);
      int any;
      asm volatile(
          "{\n"
          ".reg .pred bad, any;\n"
          "setp.ne.b32 bad, %1, 0;\n"
          "barrier.cta.red.or.pred any, %2, 128, bad;\n"
          "selp.b32 %0, 1, 0, any;\n"
          "}\n"
          : "=r"(any)
          : "r"(static_cast<int>(bad)), "r"(1 + group)
          : "memory");
      if (leads) {
        store_box(&out_map, mine, 0, row, work.head);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
      repair |= any;
    };

    Work work;
    for (int round = 0; deal.take(round, work); ++round) {
      const int half = round % 2;
      wait_barrier(q_full + 8 * half, round / 2 % 2);
      largest[0] = largest[1] = -FLT_MAX;
      total[0] = total[1] = 0.0f;
      // skip the tiles of keys that only other warpgroups see; a warpgroup without rows skips all
      const int top = work.row + group * 64;
      const int last = top < tokens ? min(work.last, (top + 63) / KEYS) : work.first - 1;
      const int first = max(work.first, (top - window + 1) / KEYS);
      int tile = work.last;
      const auto pass = [&](int end) {
        for (; tile > end; --tile, at.advance()) {
          wait_barrier(k_full + 8 * at.stage, at.phase);
          wait_barrier(v_full + 8 * at.stage, at.phase);
          // no wgmma keeps the warps together here; a warp that falls a turn of the ring behind would wait for ever
          join_named(1 + group);
          if (leads) arrive(k_empty + 8 * at.stage), arrive(v_empty + 8 * at.stage);
        }
      };
      const auto step = [&](auto count, int key) {
        wait_barrier(k_full + 8 * at.stage, at.phase);
        attend(count, work, half, key, at.stage, tile == last);
        if (leads) arrive(v_empty + 8 * at.stage);
        --tile, at.advance();
      };
      const auto whole = std::integral_constant<int, KEYS>();
      const auto part = std::integral_constant<int, KEYS / 2>();
      pass(last);
      // The warpgroup's queries may see nothing of the second half of the last tile, or of the first half of the first
      // tile. Both cases are handled outside the loop: a branch inside it slows every tile (README.md).
      if (tile >= first && tile * KEYS + KEYS / 2 > top + 63) step(part, tile * KEYS);
      const bool behind = first * KEYS + KEYS / 2 <= top - window + 1;
      while (tile >= first + behind) step(whole, tile * KEYS);
      if (tile >= first) step(part, tile * KEYS + KEYS / 2);
      pass(work.first - 1);
      if (leads) arrive(q_empty + 8 * half);
      if (top < tokens) finish(work, total);
    }
    if (leads) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    // A row that is not finite may hold 0 * inf of a key that it does not see: compute it again, key by key. A call of a
    // function inside the loop above would take the uniform registers from it.
    if (repair) {
      join_named(1 + group);
      for (int round = 0; deal.take(round, work); ++round) {
        const int64_t base = static_cast<int64_t>(work.head) * tokens * ATTENTION_HEAD_SIZE;
        for (int i = 0; i < 16; ++i) {
          const int query = work.row + group * 64 + warp * 16 + i;
          if (query >= tokens) break;
          const int64_t at_query = base + query * ATTENTION_HEAD_SIZE;
          const float test = to_float(out[at_query + lane]) * 0.0f + to_float(out[at_query + lane + 32]) * 0.0f;
          if (__any_sync(0xffffffffU, test != 0.0f))
            attention_exact_row(q + at_query, k + base, v + base, out + at_query, max(0, query - window + 1), query,
                                scale);
        }
      }
    }
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t attention_v05_wgmma(const AttentionCall& call) {
  if (call.dtype != DType::bfloat16 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  using T = __nv_bfloat16;
  CUtensorMap q, k, v, out;
  const int heads = call.batch_heads, tokens = call.tokens;
  if (!map_heads(q, call.q, call, 64) || !map_heads(k, call.k, call, KEYS) || !map_heads(v, call.v, call, KEYS) ||
      !map_heads(out, call.out, call, 64))
    return cudaErrorInvalidValue;
  const auto kernel = attention_v05_wgmma<T>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  const int tiles = (tokens + ROWS - 1) / ROWS * heads;  // fits: more than one tile per head means 24 KiB of q for each
  kernel<<<std::min(tiles, sm_count), THREADS, SHARED_BYTES, call.stream>>>(
      q, k, v, out, static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
      static_cast<T*>(call.out), heads, tokens, visible_window(call), call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
