// attention_grouped v07_wgmma: bf16 on Hopper's warpgroup instructions; three warpgroups of a block share the keys of
// one key head, each with 64 queries of one query head.
// Shapes   q (B, nh, Tq, hs), k, v (B, nkv, Tk, hs) bf16 with any strides of batch, head and token, out (B, Tq, nh, hs).
// Needs    sm_90a, hs 64 or 128, 16-byte aligned tokens; elsewhere v02 runs
// Moves    q and out once, visible keys and values once through DRAM; through L2 once for each three pairs of a head
//          and 64 queries.
// Versus   v02: one instruction multiplies 64 x 64 x 16 with its second operand in shared memory, which four warps
//          read once. Query heads that share keys also share their tiles. The product with the values still runs when
//          the scores of the next tile begin.
// Source   attention/v05_wgmma.cu; Shah et al., "FlashAttention-3", arXiv:2407.08608
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "../attention/tiles.cuh"
#include "check.cuh"
#include "span.cuh"

cudaError_t attention_grouped_v02_mma(const AttentionGroupedCall& call);  // runs what this rung does not take

namespace {
constexpr int GROUPS = 3, THREADS = GROUPS * 128, ROWS = 64;  // warpgroups; queries of each
constexpr int KEYS = 64, STAGES = 4;                          // keys of a tile; tiles in flight or in use
constexpr float LEAST = -1e30f;                               // stands for no score yet; finite after any scaling
constexpr uint32_t BOX_BYTES = 64 * 128;                      // 64 rows of 64 columns, swizzled

template <int D>
constexpr uint32_t SHARED_BYTES = 1024 + (GROUPS + 2 * STAGES) * (D / 64) * BOX_BYTES;
}  // namespace

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 1) attention_grouped_v07_wgmma(Grouped<T> in, int pairs) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int BOXES = D / 64, CHUNKS = D / 8;
  constexpr uint32_t PART = BOXES * BOX_BYTES;  // queries of a warpgroup; keys or values of a tile
  extern __shared__ uint8_t memory[];
  const uint32_t queries = (shared_address(memory) + 1023) & ~1023U, stages = queries + GROUPS * PART;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0), warp = threadIdx.x % 128 / 32,
            lane = threadIdx.x % 32;
  const int batch = blockIdx.x % pairs / in.key_heads, key_head = blockIdx.x % pairs % in.key_heads;
  const int sharing = in.heads / in.key_heads, tiles = (in.queries - 1) / ROWS + 1;
  const Span span(in.spans, batch, in.keys);
  const int ahead = span.end - in.queries;  // the place of query 0
  // units of one head and 64 queries, those with the most keys first; a block has three
  const int first_unit = blockIdx.x / pairs * GROUPS, last_unit = min(first_unit + GROUPS, tiles * sharing) - 1;
  const auto query_of = [&](int unit) { return (tiles - 1 - unit / sharing) * ROWS; };
  const auto last_place = [&](int unit) { return min(ahead + min(query_of(unit) + ROWS, in.queries), span.end) - 1; };
  const int unit = min(first_unit + group, last_unit), first_query = query_of(unit);
  const bool works = first_unit + group <= last_unit;
  const int head = key_head * sharing + unit % sharing;
  const T* const q = in.q + batch * in.q_strides.batch + head * in.q_strides.head;
  const T* const k = in.k + batch * in.k_strides.batch + key_head * in.k_strides.head;
  const T* const v = in.v + batch * in.v_strides.batch + key_head * in.v_strides.head;
  const int first_tile = max(span.from(ahead + query_of(last_unit)), 0) / KEYS, last_key = last_place(first_unit);
  const int last_tile = last_key < 0 ? first_tile - 1 : last_key / KEYS;

  // copies 64 rows of a tensor by a block or, as `of` says, by a warpgroup; rows outside [from, end) become zeros
  const auto fetch = [&](auto of, uint32_t to, const T* tensor, int64_t token, int first_row, int from, int end) {
    constexpr int STEP = decltype(of)::value / CHUNKS;  // a multiple of 8, so that a swizzled chunk stays in its place
    const int thread = threadIdx.x % decltype(of)::value, row = thread / CHUNKS, chunk = thread % CHUNKS;
    to += chunk / 8 * BOX_BYTES + swizzled<128>(row, chunk % 8);
    tensor += chunk * 8;
#pragma unroll
    for (int i = 0; i < 64; i += STEP) {
      const int at = first_row + row + i;
      const bool there = at >= from && at < end;
      if (i + STEP <= 64 || row + i < 64)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + i * 128),
                     "l"(tensor + (there ? at * token : 0)), "r"(there ? 16 : 0)
                     : "memory");
    }
  };
  const std::integral_constant<int, THREADS> block;
  const std::integral_constant<int, 128> warpgroup;
  const auto fetch_tile = [&](int tile) {
    if (tile <= last_tile) {
      const uint32_t to = stages + tile % STAGES * 2 * PART;
      fetch(block, to, k, in.k_strides.token, tile * KEYS, span.first, span.end);
      fetch(block, to + PART, v, in.v_strides.token, tile * KEYS, span.first, span.end);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps wait_group's count right
  };
  const uint32_t mine = queries + group * PART;
  fetch(warpgroup, mine, q, in.q_strides.token, first_query, 0, in.queries);
  fetch_tile(first_tile);
  fetch_tile(first_tile + 1);

  const float to_log2 = in.scale * LOG2_E;
  const int top = ahead + first_query, bottom = works ? last_place(unit) : -1;  // places of the first and last query
  const int begin = span.from(top);                                             // the first key that a query sees
  const int place = top + warp * 16 + lane / 4;  // of the lane's first row; its second is 8 later
  float sums[BOXES][32] = {}, scores[32], largest[2] = {LEAST, LEAST}, total[2] = {};
  uint32_t weights[16];
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the tensor cores read what cp.async wrote
    __syncthreads();
    const int first_key = tile * KEYS;
    if (first_key > bottom || first_key + KEYS - 1 < begin) {  // the warpgroup sees nothing of this tile
      fetch_tile(tile + 2);
      wait_multiply<0>();
#pragma unroll
      for (int box = 0; box < BOXES; ++box) hold(sums[box]);
      continue;
    }
    const uint32_t keys = (stages + tile % STAGES * 2 * PART) / 16, values = keys + PART / 16;
    begin_multiply();
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      const uint32_t at = step / 4 * (BOX_BYTES / 16) + step % 4 * 2;
      multiply<false>(scores, tile_at(mine / 16 + at), tile_at(keys + at), step > 0);
    }
    commit_multiply();
    fetch_tile(tile + 2);  // into the stage of the tile before the last one, whose products have ended
    wait_multiply<0>();
    hold(scores);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) hold(sums[box]);

    if (first_key + KEYS - 1 > top || first_key < span.from(top + ROWS - 1)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2, at = place + i / 2 % 2 * 8;
        if (key > at || key < span.from(at)) scores[i] = -INFINITY;
      }
    }
    float factor[2], base[2];
    bool grown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = fmaxf(scores[half * 2], scores[half * 2 + 1]);
#pragma unroll
      for (int i = half * 2 + 4; i < 32; i += 4) most = fmaxf(most, fmaxf(scores[i], scores[i + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
      const float before = largest[half];
      grown |= most > before;
      largest[half] = fmaxf(before, most);
      factor[half] = exp2_fast((before - largest[half]) * to_log2);
      base[half] = largest[half] * to_log2;
    }
    if (__any_sync(0xffffffffU, grown)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) total[half] *= factor[half];
#pragma unroll
      for (int box = 0; box < BOXES; ++box)
#pragma unroll
        for (int i = 0; i < 32; ++i) sums[box][i] *= factor[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      scores[i] = exp2_fast(scores[i] * to_log2 - base[i / 2 % 2]);
      total[i / 2 % 2] += scores[i];
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) hold(sums[box]);
    begin_multiply();
#pragma unroll
    for (int step = 0; step < KEYS / 16; ++step)
#pragma unroll
      for (int box = 0; box < BOXES; ++box)
        multiply<true>(sums[box], weights + step * 4, tile_at(values + box * (BOX_BYTES / 16) + step * 128), 1);
    commit_multiply();
  }
  wait_multiply<0>();
#pragma unroll
  for (int box = 0; box < BOXES; ++box) hold(sums[box]);
  asm volatile("cp.async.wait_all;" ::: "memory");  // needed even if the block sees no tile
  if (!works) return;

  unsigned bad[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = total[half];
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    sum += __shfl_xor_sync(0xffffffffU, sum, 2);
    const int query = first_query + warp * 16 + half * 8 + lane / 4, at = ahead + query;
    const bool sees = span.from(at) <= at;
    const float inverse = sees ? __fdividef(1.0f, sum) : 0.0f;
    float test = sum * 0.0f;
    T* const to = in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D + lane % 4 * 2;
#pragma unroll
    for (int x = 0; x < D / 8; ++x) {
      const float* const from = &sums[x / 8][x % 8 * 4 + half * 2];
      const float low = sees ? from[0] * inverse : 0.0f, high = sees ? from[1] * inverse : 0.0f;
      test += low * 0.0f + high * 0.0f;
      if (query < in.queries) *reinterpret_cast<uint32_t*>(to + x * 8) = pack(low, high);
    }
    bad[half] = __ballot_sync(0xffffffffU, sees && test != test);
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half)
    for (unsigned rest = bad[half]; rest;) {
      const int row = (__ffs(rest) - 1) / 4, query = first_query + warp * 16 + half * 8 + row, at = ahead + query;
      rest &= ~(0xfu << row * 4);
      if (query < in.queries)
        exact_row<T, D>(q + query * in.q_strides.token, k, v, in.k_strides.token, in.v_strides.token,
                        in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D,
                        span.from(at), at, in.scale);
    }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

template <int D>
static cudaError_t launch(const AttentionGroupedCall& call) {
  using T = __nv_bfloat16;
  const auto kernel = attention_grouped_v07_wgmma<T, D>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES<D>))
    return status;
  const int pairs = call.batch * call.key_heads;
  const int64_t units = static_cast<int64_t>((call.queries - 1) / ROWS + 1) * (call.heads / call.key_heads);
  const int64_t blocks = ((units - 1) / GROUPS + 1) * pairs;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  kernel<<<static_cast<unsigned>(blocks), THREADS, SHARED_BYTES<D>, call.stream>>>(grouped<T>(call), pairs);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_grouped_v07_wgmma(const AttentionGroupedCall& call) {
  if (call.dtype != DType::bfloat16 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return attention_grouped_v02_mma(call);
  return call.head_size == 64 ? launch<64>(call) : launch<128>(call);
}
