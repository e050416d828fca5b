// attention v06_small: blocks of 64 queries, several per SM. If there are few blocks, two warpgroups split a tile's
// keys.
// Shapes   q, k, v, out (batch_heads, tokens, 64) bf16, sums in fp32; any number of tokens, no window.
// Needs    sm_90a, 16-byte aligned operands
// Moves    q, k, v and out once through DRAM; k and v through L2 once for each tile of 64 queries.
// Versus   v05: with up to 1024 tokens, a block of 192 queries has few tiles of keys behind which to hide its start and
//          its end. With few blocks, the one with the most keys sets the time. Here a block has a third of the queries,
//          and while one block starts or ends, the other blocks of the SM work on. Blocks start and prefetch their
//          operands into L2 while the previous kernel drains. Up to 4 blocks per SM, two warpgroups take the tiles of
//          keys in turn, and their sums are merged in shared memory, always in the same order. v05 runs above 12 blocks
//          per SM, and with more than 1024 tokens above 4 per SM: of many blocks, each of v05's costs less.
// Expect   time at most 0.95 times v05_wgmma's; time at most sdpa_cudnn's at b1_t1024. Refuted if not.
// Source   Dao et al., "Flash-Decoding for long-context inference", 2023; PTX ISA, griddepcontrol
#include <cfloat>
#include <cstdint>

#include "attention.h"
#include "check.cuh"
#include "exact_row.cuh"
#include "overlap_shared.cuh"
#include "tiles.cuh"

cudaError_t attention_v05_wgmma(const AttentionCall& call);  // runs what this rung does not take

#ifndef ATTENTION_V06_STAGES
#define ATTENTION_V06_STAGES 2
#endif
#ifndef ATTENTION_V06_CARVEOUT
#define ATTENTION_V06_CARVEOUT -1
#endif
namespace {
constexpr int STAGES = ATTENTION_V06_STAGES;      // tiles of keys and values of a warpgroup, in flight or in use
constexpr int CARVEOUT = ATTENTION_V06_CARVEOUT;  // percentage of L1 used as shared memory; -1: the driver chooses
constexpr int ROWS = 64, KEYS = 64, STRIDE = 72;  // floats per row of partial sums: four rows are in different banks
constexpr uint32_t Q_BYTES = ROWS * 128, TILE_BYTES = KEYS * 128, RING_BYTES = STAGES * 2 * TILE_BYTES;
static_assert(ROWS * STRIDE * 4 <= RING_BYTES,
              "partial sums take the place of a warpgroup's tiles: two stages or more");
struct Row {
  float largest, total;
};
constexpr uint32_t shared_bytes(int groups) {
  return 1024 + Q_BYTES + groups * (RING_BYTES + ROWS * sizeof(Row) + 16 * STAGES) + 8;
}
constexpr uint32_t ALONE_BYTES = 120 << 10;  // more than half of an SM's shared memory: one block per SM
// Blocks per SM: up to VERY_FEW, a block has its SM to itself. Up to FEW, two warpgroups split the keys. Up to SOME,
// this rung runs if there are at most SHORT tokens.
constexpr int VERY_FEW = 2, FEW = 4, SOME = 12, SHORT = 1024;
}  // namespace

template <typename T, int GROUPS>
__global__ void __launch_bounds__(128 * GROUPS)
    attention_v06_small(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                        const __grid_constant__ CUtensorMap v_map, const T* q, const T* k, const T* v, T* out,
                        int heads, int tokens, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t queries = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  uint8_t* const rings = memory + (queries - shared_address(memory)) + Q_BYTES;
  Row(*const rows)[ROWS] = reinterpret_cast<Row(*)[ROWS]>(rings + GROUPS * RING_BYTES);
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const uint32_t ring = queries + Q_BYTES + group * RING_BYTES;
  const uint32_t q_full = queries + Q_BYTES + GROUPS * (RING_BYTES + ROWS * sizeof(Row));
  const uint32_t k_full = q_full + 8 + group * 16 * STAGES, v_full = k_full + 8 * STAGES;

  const int row = ((tokens - 1) / ROWS - static_cast<int>(blockIdx.x) / heads) * ROWS,
            head = blockIdx.x % heads;  // longest first
  const int last = (min(row + ROWS, tokens) - 1) / KEYS;
  const int64_t start = static_cast<int64_t>(head) * tokens * ATTENTION_HEAD_SIZE;

  let_next_start();
  if (threadIdx.x == 0) {  // together, the blocks of a head prefetch all of it
    const uint32_t bytes = min(ROWS, tokens - row) * ATTENTION_HEAD_SIZE * 2;
    for (const T* from : {q, k, v}) prefetch_l2(from + start + row * ATTENTION_HEAD_SIZE, bytes);
  }
  const auto bring = [&](int tile, int stage) {
    const uint32_t to = ring + stage * 2 * TILE_BYTES;
    expect_bytes(k_full + 8 * stage, TILE_BYTES);
    load_box(to, &k_map, k_full + 8 * stage, 0, tile * KEYS, head);
    expect_bytes(v_full + 8 * stage, TILE_BYTES);
    load_box(to + TILE_BYTES, &v_map, v_full + 8 * stage, 0, tile * KEYS, head);
  };
  if (thread == 0) {
    if (group == 0) init_barrier(q_full, 1);
    for (int stage = 0; stage < STAGES; ++stage)
      init_barrier(k_full + 8 * stage, 1), init_barrier(v_full + 8 * stage, 1);
    publish_barriers();
  }
  wait_for_previous();
  if (thread == 0) {
    if (group == 0) {
      expect_bytes(q_full, Q_BYTES);  // rows after the last are filled with zeros and counted in full
      load_box(queries, &q_map, q_full, 0, row, head);
    }
    for (int stage = 0; stage < STAGES && last - group - stage * GROUPS >= 0; ++stage)
      bring(last - group - stage * GROUPS, stage);
  }
  __syncthreads();

  const float to_log2 = scale * LOG2_E;
  // tiles.cuh says in which row and column value i of these is
  float scores[KEYS / 2], sums[32] = {}, largest[2] = {-FLT_MAX, -FLT_MAX}, total[2] = {0.0f, 0.0f};
  uint32_t weights[KEYS / 4];  // pairs of weights, as a register operand
  wait_barrier(q_full, 0);
  uint32_t phase = 0;
  int stage = 0;
  for (int tile = last - group; tile >= 0; tile -= GROUPS) {
    const uint32_t keys = ring + stage * 2 * TILE_BYTES, values = keys + TILE_BYTES;
    wait_barrier(k_full + 8 * stage, phase);
    multiply_keys(scores, queries / 16, keys / 16);
    wait_barrier(v_full + 8 * stage, phase);
    wait_multiply<0>();
    hold(scores);
    if (tile == last)  // the diagonal
      hide_ahead(scores, tile * KEYS + lane % 4 * 2 - (row + warp * 16 + lane / 4));
    float base[2];
    raise_largest(scores, to_log2, largest, total, sums, base);
    // while half of the weights multiplies its values, the exponentials of the other half are computed
    weigh_values<0, KEYS / 32>(scores, weights, total, sums, base, to_log2, values / 16, true);
    weigh_values<KEYS / 32, KEYS / 16>(scores, weights, total, sums, base, to_log2, values / 16, true);
    commit_multiply();
    wait_multiply<0>();
    hold(sums);
    const int next = tile - STAGES * GROUPS;
    if (thread == 0 && next >= 0) bring(next, stage);
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }

  // Partial sums overwrite the warpgroup's tiles.
  const auto partial = [&](int of, int at) { return reinterpret_cast<float*>(rings + of * RING_BYTES) + at * STRIDE; };
  join_named(1 + group);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(0xffffffffU, total[r], 1);
    total[r] += __shfl_xor_sync(0xffffffffU, total[r], 2);
    const int at = warp * 16 + lane / 4 + r * 8;
    if (lane % 4 == 0) rows[group][at] = {largest[r], total[r]};
    float2* const to = reinterpret_cast<float2*>(partial(group, at) + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i * 4] = make_float2(sums[i * 4 + r * 2], sums[i * 4 + r * 2 + 1]);
  }
  __syncthreads();
  // Eight lanes per row, eight columns each.
#pragma unroll
  for (int item = threadIdx.x; item < ROWS * 8; item += 128 * GROUPS) {
    const int at = item / 8, column = item % 8 * 8;
    float most = rows[0][at].largest, all = 0.0f, merged[8] = {}, test = 0.0f;
#pragma unroll
    for (int of = 1; of < GROUPS; ++of) most = max_or_nan(most, rows[of][at].largest);
#pragma unroll
    for (int of = 0; of < GROUPS; ++of) {
      const float factor = exp2_fast((rows[of][at].largest - most) * to_log2);
      all += factor * rows[of][at].total;
      const float4* from = reinterpret_cast<const float4*>(partial(of, at) + column);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 four = from[i];
        merged[i * 4] += factor * four.x, merged[i * 4 + 1] += factor * four.y;
        merged[i * 4 + 2] += factor * four.z, merged[i * 4 + 3] += factor * four.w;
      }
    }
    const float inverse = __fdividef(1.0f, all);
#pragma unroll
    for (int i = 0; i < 8; ++i) merged[i] *= inverse, test += merged[i] * 0.0f;
    // a row that is not finite may hold 0 * inf of a key that it does not see: compute it again, key by key
    uint32_t bad = __ballot_sync(0xffffffffU, test != 0.0f);
    T* const to = out + start + static_cast<int64_t>(row) * ATTENTION_HEAD_SIZE;
    if (row + at < tokens && (bad >> (lane & 24) & 255) == 0)
      *reinterpret_cast<uint4*>(to + at * ATTENTION_HEAD_SIZE + column) =
          make_uint4(pack(merged[0], merged[1]), pack(merged[2], merged[3]), pack(merged[4], merged[5]),
                     pack(merged[6], merged[7]));
    while (bad) {
      const int in_warp = (__ffs(bad) - 1) / 8, again = (item - lane) / 8 + in_warp;
      bad &= ~(255U << in_warp * 8);
      if (row + again < tokens)
        attention_exact_row(q + (to - out) + again * ATTENTION_HEAD_SIZE, k + start, v + start,
                            to + again * ATTENTION_HEAD_SIZE, 0, row + again, scale);
    }
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <int GROUPS>
cudaError_t launch(const AttentionCall& call, int blocks, uint32_t bytes) {
  using T = __nv_bfloat16;
  CUtensorMap q, k, v;
  if (!map_heads(q, call.q, call, ROWS) || !map_heads(k, call.k, call, KEYS) || !map_heads(v, call.v, call, KEYS))
    return cudaErrorInvalidValue;
  if constexpr (CARVEOUT >= 0) {
    if (const cudaError_t status = cudaFuncSetAttribute(attention_v06_small<T, GROUPS>,
                                                        cudaFuncAttributePreferredSharedMemoryCarveout, CARVEOUT))
      return status;
  }
  const cudaError_t status =
      launch_overlapped(attention_v06_small<T, GROUPS>, {blocks, 128 * GROUPS}, bytes, call.stream, q, k, v,
                        static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
                        static_cast<T*>(call.out), call.batch_heads, call.tokens, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

}  // namespace

cudaError_t attention_v06_small(const AttentionCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const int64_t blocks = (static_cast<int64_t>(call.tokens) + ROWS - 1) / ROWS * call.batch_heads;
  const bool few = blocks <= FEW * sm_count, some = blocks <= SOME * sm_count && call.tokens <= SHORT;
  const bool takes = call.dtype == DType::bfloat16 && sizes_fit(call) && aligned(call) && sm_count > 0 &&
                     visible_window(call) == call.tokens;
  if (!takes || !(few || some)) return attention_v05_wgmma(call);  // returns the error for what it does not take
  if (!few) return launch<1>(call, static_cast<int>(blocks), shared_bytes(1));
  const bool alone = blocks <= VERY_FEW * sm_count;
  return launch<2>(call, static_cast<int>(blocks), alone ? ALONE_BYTES : shared_bytes(2));
}
