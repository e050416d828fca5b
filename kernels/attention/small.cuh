// What v06 and merged.cu share: attention of blocks of 64 queries. With two GROUPS, two warpgroups split the keys. The
// including file defines SMALL_STAGES.
#pragma once

#include <cfloat>
#include <cstdint>

#include "attention.h"
#include "check.cuh"
#include "exact_row.cuh"
#include "overlap_shared.cuh"
#include "tiles.cuh"

namespace {
constexpr int STAGES = SMALL_STAGES;              // tiles of keys and values of a warpgroup, in flight or in use
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
// Blocks per SM: up to VERY_FEW, a block has its SM to itself. Up to FEW, two warpgroups split the keys.
constexpr int VERY_FEW = 2, FEW = 4;
}  // namespace

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Computes 64 rows of a head. With MERGED, the heads of a sequence, of which there are `together`, are side by
// side in `out`: (B, tokens, together, 64). Otherwise `out` has the shape of q.
template <typename T, int GROUPS, bool MERGED>
__device__ __forceinline__ void attend_small(const CUtensorMap& q_map, const CUtensorMap& k_map,
                                             const CUtensorMap& v_map, const T* q, const T* k, const T* v, T* out,
                                             int heads, int tokens, float scale, int together) {
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
    const int pitch = (MERGED ? together : 1) * ATTENTION_HEAD_SIZE;  // of output rows of the head
    T* const to = MERGED ? out + (static_cast<int64_t>(head / together * tokens + row) * together + head % together) *
                                     ATTENTION_HEAD_SIZE
                         : out + start + static_cast<int64_t>(row) * ATTENTION_HEAD_SIZE;
    if (row + at < tokens && (bad >> (lane & 24) & 255) == 0)
      *reinterpret_cast<uint4*>(to + at * pitch + column) =
          make_uint4(pack(merged[0], merged[1]), pack(merged[2], merged[3]), pack(merged[4], merged[5]),
                     pack(merged[6], merged[7]));
    while (bad) {
      const int in_warp = (__ffs(bad) - 1) / 8, again = (item - lane) / 8 + in_warp;
      bad &= ~(255U << in_warp * 8);
      if (row + again < tokens)
        attention_exact_row(q + (MERGED ? start + static_cast<int64_t>(row) * ATTENTION_HEAD_SIZE : to - out) +
                                again * ATTENTION_HEAD_SIZE,
                            k + start, v + start, to + again * pitch, 0, row + again, scale);
    }
  }
}

#endif

// The number of blocks of a call.
inline int64_t small_blocks(const AttentionCall& call) {
  return (static_cast<int64_t>(call.tokens) + ROWS - 1) / ROWS * call.batch_heads;
}

// The warpgroups of each block, and its shared memory, for a launch of so many blocks.
struct SmallShape {
  int groups;
  uint32_t bytes;
};

inline SmallShape small_shape(int64_t blocks, int sm_count) {
  const int groups = blocks <= FEW * sm_count ? 2 : 1;
  return {groups, blocks <= VERY_FEW * sm_count ? ALONE_BYTES : shared_bytes(groups)};
}

// Makes the tensor maps. Returns false if the driver refuses.
inline bool map_operands(CUtensorMap& q, CUtensorMap& k, CUtensorMap& v, const AttentionCall& call) {
  return map_heads(q, call.q, call, ROWS) && map_heads(k, call.k, call, KEYS) && map_heads(v, call.v, call, KEYS);
}
