// attention_grouped v08_ring: bf16 on Hopper; one thread loads tiles by TMA into a ring, warpgroups of 64 queries each
// compute, and a block goes on to further tiles of queries.
// Shapes   q (B, nh, Tq, hs), k, v (B, nkv, Tk, hs) bf16 with any strides of batch, head and token, out (B, Tq, nh, hs).
// Needs    sm_90a, hs 64 or 128, 16-byte aligned tokens; elsewhere, and for an axis of stride 0, v02 runs
// Moves    q and out once, visible keys and values once through DRAM; through L2 once for each head and 192 queries (hs
//          64) or 128 (hs 128).
// Versus   v02: TMA loads tiles of 128 keys, and the tensor cores read them from shared memory. The queries of the next
//          tile arrive while this one ends. With heads of 128 the scores of the next keys are multiplied while this
//          tile's weights multiply its values; with heads of 64 a quarter of the weights does so at a time. Tiles with
//          the most keys go first, and every second round goes through the blocks in reverse.
// Source   attention/v05_wgmma.cu; Shah et al., "FlashAttention-3", arXiv:2407.08608
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../attention/tiles.cuh"
#include "check.cuh"
#include "overlap_shared.cuh"
#include "span.cuh"

cudaError_t attention_grouped_v02_mma(const AttentionGroupedCall& call);  // runs what this rung does not take

#ifndef ATTENTION_GROUPED_V08_AHEAD
#define ATTENTION_GROUPED_V08_AHEAD 128
#endif
namespace {
constexpr int KEYS = 128;                                       // of a tile
constexpr int AHEAD = ATTENTION_GROUPED_V08_AHEAD;              // heads from this size on compute scores one tile ahead
constexpr float LEAST = -1e30f;                                 // stands for no score yet; finite after any scaling
constexpr uint32_t KEY_BOX = KEYS * 128, QUERY_BOX = 64 * 128;  // bytes of boxes of 64 columns

template <int D>
struct Sizes {
  // Warpgroups that compute, with 64 queries each, and tiles of keys (and of values) in flight or in use.
  static constexpr int GROUPS = D == 64 ? 3 : 2, STAGES = D == 64 ? 4 : 2;
  static constexpr int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1), BOXES = D / 64;
  static constexpr int REGISTERS = D == 64 ? 160 : 240, PRODUCER_REGISTERS = D == 64 ? 32 : 24;
  // PART: a warpgroup's queries, kept twice, or its output
  static constexpr uint32_t TILE = BOXES * KEY_BOX, PART = BOXES * QUERY_BOX;
  static constexpr uint32_t SHARED = 1024 + 2 * STAGES * TILE + 3 * GROUPS * PART + 8 * (4 * STAGES + 4);
};
}  // namespace

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {
// The matrix descriptor of 16 keys of a tile of values (keys x D). `address` is in units of 16 bytes.
template <int D>
__device__ __forceinline__ uint64_t values_at(uint32_t address) {
  constexpr uint32_t NEXT_COLUMNS = D == 64 ? 64 : KEY_BOX / 16;
  return static_cast<uint64_t>(address | NEXT_COLUMNS << 16) | static_cast<uint64_t>(64U | 1U << 30) << 32;
}

// d (64 x 128) += a (64 x 16) x b (16 x 128, its rows along N): a in registers, b in shared memory.
__device__ __forceinline__ void multiply_values(float (&d)[64], const uint32_t* a, uint64_t b, int keep) {
#define EIGHT(i)                                                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, "
      "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, "
      "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, "
      "1; }"
      : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48), EIGHT(56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
#undef EIGHT
}
__device__ __forceinline__ void multiply_values(float (&d)[32], const uint32_t* a, uint64_t b, int keep) {
  multiply<true>(d, a, b, keep);
}

// Keeps ptxas from moving a wait before the code that computes `sum`, a sum of exponentials: it would loop if that were
// negative.
__device__ __forceinline__ void stay(float sum) {
  asm volatile(
      "{\n"
      ".reg .pred below;\n"
      "STAY:\n"
      "setp.lt.f32 below, %0, 0f00000000;\n"
      "@!below bra GO;\n"
      "nanosleep.u32 32;\n"
      "bra STAY;\n"
      "GO:\n"
      "}\n" ::"f"(sum)
      : "memory");
}

__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int token,
                                         int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(token), "r"(head), "r"(batch)
      : "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap* map, uint32_t from, int column, int token, int head,
                                          int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(token), "r"(head), "r"(batch)
               : "memory");
}

// Queries `row` to `row` + ROWS of a head, and the tiles of keys that they see, from `last` down to `first`.
struct Work {
  int batch, head, row, first, last;
  Span span;
};

// Deals tiles of queries to blocks. Those with the most keys go first, and every second round goes through the blocks in
// reverse. So all blocks end at about the same time.
template <int ROWS>
struct Deal {
  const int* spans;
  int batches, heads, queries, keys;
  __device__ __forceinline__ bool take(int round, Work& work) const {
    const int tiles = (queries - 1) / ROWS + 1, pairs = batches * heads;
    const int index = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    if (index >= tiles * pairs) return false;
    work.row = (tiles - 1 - index / pairs) * ROWS;
    work.batch = index % pairs / heads, work.head = index % pairs % heads;
    work.span = Span(spans, work.batch, keys);
    const int ahead = work.span.end - queries;  // the place of query 0
    const int begin = work.span.from(ahead + work.row), end = ahead + min(work.row + ROWS, queries);
    work.first = begin / KEYS;
    work.last = end > begin ? (end - 1) / KEYS : work.first - 1;
    return true;
  }
};
}  // namespace
#endif

template <typename T, int D>
__global__ void __launch_bounds__(Sizes<D>::THREADS, 1)
    attention_grouped_v08_ring(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                               const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap out_map,
                               Grouped<T> in, int batches, int sharing) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int GROUPS = Sizes<D>::GROUPS, STAGES = Sizes<D>::STAGES, ROWS = Sizes<D>::ROWS, BOXES = Sizes<D>::BOXES;
  constexpr uint32_t TILE = Sizes<D>::TILE, PART = Sizes<D>::PART;
  extern __shared__ uint8_t memory[];
  const uint32_t keys = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t values = keys + STAGES * TILE, queries = values + STAGES * TILE;
  const uint32_t staged = queries + 2 * GROUPS * PART;
  const uint32_t k_full = staged + GROUPS * PART, k_empty = k_full + 8 * STAGES, v_full = k_empty + 8 * STAGES;
  const uint32_t v_empty = v_full + 8 * STAGES, q_full = v_empty + 8 * STAGES, q_empty = q_full + 8 * 2;
  const Deal<ROWS> deal{in.spans, batches, in.heads, in.queries, in.keys};
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
  let_next_start();
  wait_for_previous();

  if (group == GROUPS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Sizes<D>::PRODUCER_REGISTERS));
    if (threadIdx.x % 128 == 0) {
      Ring<STAGES> at;
      Work work{0, 0, 0, 0, 0, Span(nullptr, 0, 0)};
      for (int round = 0; deal.take(round, work); ++round) {
        const int half = round % 2, key_head = work.head / sharing;
        wait_barrier(q_empty + 8 * half, round / 2 % 2 ^ 1);  // both halves start empty
        expect_bytes(q_full + 8 * half, GROUPS * PART);
        for (int part = 0; part < GROUPS; ++part)  // rows after the last are filled with zeros and counted in full
          for (int box = 0; box < BOXES; ++box)
            load_box(queries + (half * GROUPS + part) * PART + box * QUERY_BOX, &q_map, q_full + 8 * half, box * 64,
                     work.row + part * 64, work.head, work.batch);
        for (int tile = work.last; tile >= work.first; --tile, at.advance()) {
          const uint32_t barrier = 8 * at.stage, to = at.stage * TILE;
          wait_barrier(k_empty + barrier, at.phase ^ 1);
          expect_bytes(k_full + barrier, TILE);
          for (int box = 0; box < BOXES; ++box)
            load_box(keys + to + box * KEY_BOX, &k_map, k_full + barrier, box * 64, tile * KEYS, key_head, work.batch);
          wait_barrier(v_empty + barrier, at.phase ^ 1);
          expect_bytes(v_full + barrier, TILE);
          for (int box = 0; box < BOXES; ++box)
            load_box(values + to + box * KEY_BOX, &v_map, v_full + barrier, box * 64, tile * KEYS, key_head,
                     work.batch);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Sizes<D>::REGISTERS));
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const bool leads = thread == 0;
    const float to_log2 = in.scale * LOG2_E;
    // tiles.cuh says in which row and column value i of these is
    float sums[D / 2] = {}, largest[2], total[2];
    Ring<STAGES> at;
    Work work{0, 0, 0, 0, 0, Span(nullptr, 0, 0)};
    int half = 0, top = 0;  // which queries; the place of the warpgroup's first one

    // Starts to multiply the queries and N keys of a stage, from its key `offset` on.
    const auto multiply_scores = [&](auto& scores, int stage, int offset) {
      const uint32_t q = (queries + (half * GROUPS + group) * PART) / 16, k = (keys + stage * TILE) / 16 + offset * 8;
      begin_multiply();
#pragma unroll
      for (int step = 0; step < D / 16; ++step)
        multiply<false>(scores, tile_at(q + step / 4 * (QUERY_BOX / 16) + step % 4 * 2),
                        tile_at(k + step / 4 * (KEY_BOX / 16) + step % 4 * 2), step > 0);
      commit_multiply();
    };
    // Sets the scores that no query sees to -inf; the first one is of key `key`.
    const auto hide = [&](auto& scores, int key) {
      constexpr int N = std::extent_v<std::remove_reference_t<decltype(scores)>> * 2;
      if (key + N - 1 <= top && key >= work.span.from(top + 63)) return;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int place = top + warp * 16 + lane / 4 + row * 8, mine = key + lane % 4 * 2;
        const int most = place - mine, least = work.span.from(place) - mine;
#pragma unroll
        for (int i = row * 2; i < N / 2; i += 4)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (i / 4 * 8 + j > most || i / 4 * 8 + j < least) scores[i + j] = -INFINITY;
      }
    };
    // Updates the largest score of each row. `base` returns it in units of log 2, `factor` by what sums shrink.
    const auto raise = [&](const auto& scores, float (&base)[2], float (&factor)[2]) {
      constexpr int N = std::extent_v<std::remove_reference_t<decltype(scores)>>;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float most = scores[row * 2], also = scores[row * 2 + 1];
#pragma unroll
        for (int i = row * 2 + 4; i < N; i += 4)
          most = max_or_nan(most, scores[i]), also = max_or_nan(also, scores[i + 1]);
        most = max_or_nan(most, also);
        most = max_or_nan(most, __shfl_xor_sync(0xffffffffU, most, 1));
        most = max_or_nan(most, __shfl_xor_sync(0xffffffffU, most, 2));
        const float before = largest[row];
        largest[row] = max_or_nan(before, most);
        base[row] = largest[row] * to_log2;
        factor[row] = exp2_fast((before - largest[row]) * to_log2);
        total[row] *= factor[row];
      }
    };
    const auto shrink = [&](const float (&factor)[2]) {
#pragma unroll
      for (int i = 0; i < D / 2; ++i) sums[i] *= factor[i / 2 % 2];
    };
    // Turns scores FIRST to END into weights.
    const auto weigh = [&](auto& scores, auto first, auto end, const float (&base)[2]) {
      float sum[2] = {0.0f, 0.0f};
#pragma unroll
      for (int i = decltype(first)::value; i < decltype(end)::value; ++i) {
        scores[i] = exp2_fast(scores[i] * to_log2 - base[i / 2 % 2]);
        sum[i / 2 % 2] += scores[i];
      }
      total[0] += sum[0], total[1] += sum[1];
    };
    // Processes N keys of this stage from `key` on: a tile or half of one. While a quarter of a tile's weights
    // multiplies its values, the exponentials of the next quarter are computed.
    const auto attend = [&](auto count, int key, bool fresh) {
      constexpr int N = decltype(count)::value, PIECES = N / 32;
      const int offset = N < KEYS ? key % KEYS : 0;
      float scores[N / 2], base[2], factor[2];
      uint32_t weights[N / 4];  // pairs of weights, as a register operand
      multiply_scores(scores, at.stage, offset);
      wait_barrier(v_full + 8 * at.stage, at.phase);
      wait_multiply<0>();
      hold(scores);
      if (leads) arrive(k_empty + 8 * at.stage);
      hide(scores, key);
      raise(scores, base, factor);
      shrink(factor);
      const uint32_t b = (values + at.stage * TILE) / 16 + offset * 8;
      const auto take = [&](auto piece) {
        constexpr int FIRST = decltype(piece)::value * 16;
        weigh(scores, std::integral_constant<int, FIRST>(), std::integral_constant<int, FIRST + 16>(), base);
#pragma unroll
        for (int i = FIRST / 2; i < FIRST / 2 + 8; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
        if (FIRST == 0) hold(sums);
        begin_multiply();
#pragma unroll
        for (int step = FIRST / 8; step < FIRST / 8 + 2; ++step)
          multiply_values(sums, weights + step * 4, values_at<D>(b + step * 128), step > 0 || !fresh);
      };
      take(std::integral_constant<int, 0>());
      take(std::integral_constant<int, 1>());
      if constexpr (PIECES > 2) take(std::integral_constant<int, 2>()), take(std::integral_constant<int, 3>());
      commit_multiply();
      wait_multiply<0>();
      hold(sums);
      if (leads) arrive(v_empty + 8 * at.stage);
      at.advance();
    };
    // Processes whole tiles from `tile` down to `end` + 1. The scores of a tile are multiplied before the values of
    // the tile before it, and become weights while those are.
    const auto attend_ahead = [&](int tile, int end, bool fresh) {
      float scores[KEYS / 2], base[2], factor[2];
      uint32_t weights[KEYS / 4];
      const auto all = std::integral_constant<int, KEYS / 2>();
      const auto none = std::integral_constant<int, 0>();
      const auto multiply_sums = [&](int stage, uint32_t phase) {
        wait_barrier(v_full + 8 * stage, phase);
        const uint32_t b = (values + stage * TILE) / 16;
        begin_multiply();
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step)
          multiply_values(sums, weights + step * 4, values_at<D>(b + step * 128), step > 0 || !fresh);
        commit_multiply();
        fresh = false;
      };
      wait_barrier(k_full + 8 * at.stage, at.phase);
      multiply_scores(scores, at.stage, 0);
      wait_multiply<0>();
      hold(scores);
      if (leads) arrive(k_empty + 8 * at.stage);
      hide(scores, tile * KEYS);
      raise(scores, base, factor);
      shrink(factor);
      weigh(scores, none, all, base);
#pragma unroll
      for (int i = 0; i < KEYS / 4; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
      hold(sums);
      while (--tile > end) {
        const int stage = at.stage;
        const uint32_t phase = at.phase;
        at.advance();
        wait_barrier(k_full + 8 * at.stage, at.phase);
        multiply_scores(scores, at.stage, 0);
        multiply_sums(stage, phase);
        wait_multiply<1>();
        hold(scores);
        if (leads) arrive(k_empty + 8 * at.stage);
        hide(scores, tile * KEYS);
        raise(scores, base, factor);
        weigh(scores, none, all, base);
        stay(total[0] + total[1]);
        wait_multiply<0>();
        hold(sums);
        if (leads) arrive(v_empty + 8 * stage);
        shrink(factor);
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
        hold(sums);
      }
      multiply_sums(at.stage, at.phase);
      wait_multiply<0>();
      hold(sums);
      if (leads) arrive(v_empty + 8 * at.stage);
      at.advance();
    };
    // Writes the output: sums / total as bf16, in shared memory swizzled as TMA expects, from there to DRAM.
    const auto finish = [&](int round) {
      deal.take(round, work);  // again, so that its registers are free until here
      const uint32_t mine = staged + group * PART;
      const int row = work.row + group * 64, place = top + warp * 16 + lane / 4;
      bool bad = false;
      float test[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float all = total[i];
        all += __shfl_xor_sync(0xffffffffU, all, 1);
        all += __shfl_xor_sync(0xffffffffU, all, 2);
        const bool sees = work.span.from(place + i * 8) <= place + i * 8;
        const float inverse = __fdividef(1.0f, all);
        test[i] = 0.0f;
#pragma unroll
        for (int x = i * 2; x < D / 2; x += 4)
#pragma unroll
          for (int j = x; j < x + 2; ++j) {
            sums[j] = sees ? sums[j] * inverse : 0.0f;
            test[i] += sums[j] * 0.0f;
          }
        bad |= test[i] != 0.0f;
      }
      if (leads) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      join_named(1 + group);
#pragma unroll
      for (int i = 0; i < D / 16; ++i)
        store_matrices(mine + i / 4 * QUERY_BOX + swizzled<128>(warp * 16 + lane % 16, i % 4 * 2 + lane / 16),
                       pack(sums[8 * i], sums[8 * i + 1]), pack(sums[8 * i + 2], sums[8 * i + 3]),
                       pack(sums[8 * i + 4], sums[8 * i + 5]), pack(sums[8 * i + 6], sums[8 * i + 7]));
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      // a row that is not finite may hold 0 * inf of a key that it does not see: compute it again, key by key
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
        for (int box = 0; box < BOXES; ++box)
          store_box(&out_map, mine + box * QUERY_BOX, box * 64, row, work.head, work.batch);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
      if (any) {
        if (leads) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        join_named(1 + group);
        const int64_t batch = work.batch, head = work.head, key_head = work.head / sharing;
        uint64_t rest = __ballot_sync(0xffffffffU, test[0] != 0.0f) |
                        static_cast<uint64_t>(__ballot_sync(0xffffffffU, test[1] != 0.0f)) << 32;
        while (rest) {
          const int in_warp = (__ffsll(rest) - 1) / 4, query = row + warp * 16 + in_warp;
          const int last = top + warp * 16 + in_warp;
          rest &= ~(15ULL << in_warp * 4);
          if (query < in.queries)
            exact_row<T, D>(in.q + batch * in.q_strides.batch + head * in.q_strides.head + query * in.q_strides.token,
                            in.k + batch * in.k_strides.batch + key_head * in.k_strides.head,
                            in.v + batch * in.v_strides.batch + key_head * in.v_strides.head, in.k_strides.token,
                            in.v_strides.token, in.out + ((batch * in.queries + query) * in.heads + head) * D,
                            work.span.from(last), last, in.scale);
        }
      }
    };

    for (int round = 0; deal.take(round, work); ++round) {
      half = round % 2;
      wait_barrier(q_full + 8 * half, round / 2 % 2);
      asm volatile("" : "+r"(half));  // or the barrier's address keeps a register until the end
      largest[0] = largest[1] = LEAST;
      total[0] = total[1] = 0.0f;
      const int row = work.row + group * 64;
      top = work.span.end - in.queries + row;
      // the first and the last key that a query sees; skip the tiles that only other warpgroups see
      const int begin = work.span.from(top), bottom = min(top + 63, work.span.end - 1);
      const bool sees = row < in.queries && begin <= bottom;
      const int last = sees ? bottom / KEYS : work.first - 1, first = sees ? begin / KEYS : work.first;
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
        attend(count, key, tile == last);
        --tile;
      };
      const auto part = std::integral_constant<int, KEYS / 2>();
      pass(last);
      // The warpgroup may see nothing of the second half of its last tile, or of the first half of its first tile. Both
      // cases are handled outside the loop: a branch inside it slows every tile.
      if (tile >= first && tile * KEYS + KEYS / 2 > bottom) step(part, tile * KEYS);
      const int end = first + (first * KEYS + KEYS / 2 <= begin);
      if constexpr (D >= AHEAD) {
        if (tile >= end) attend_ahead(tile, end - 1, tile == last), tile = end - 1;
      } else {
        while (tile >= end) step(std::integral_constant<int, KEYS>(), tile * KEYS);
      }
      if (tile >= first) step(part, tile * KEYS + KEYS / 2);
      pass(work.first - 1);
      if (leads) arrive(q_empty + 8 * half);
      if (row < in.queries) finish(round);
    }
    if (leads) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {
// Makes a tensor map of (batches, heads, tokens, size) with boxes of `box_rows` tokens x 64 columns. Returns false if
// the driver refuses, or an axis of more than one element has stride 0.
bool map_tokens(CUtensorMap& map, const void* data, GroupedStrides strides, int batches, int heads, int tokens,
                int size, uint32_t box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(size), static_cast<cuuint64_t>(tokens),
                              static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(batches)};
  cuuint64_t bytes[] = {static_cast<cuuint64_t>(strides.token) * 2, static_cast<cuuint64_t>(strides.head) * 2,
                        static_cast<cuuint64_t>(strides.batch) * 2};
  for (int i = 0; i < 3; ++i) {
    if (bytes[i] == 0 && sizes[i + 1] > 1) return false;
    if (bytes[i] == 0) bytes[i] = sizes[0] * 2;  // of one element: any stride
  }
  const cuuint32_t box[] = {64, box_rows, 1, 1}, ones[] = {1, 1, 1, 1};
  return tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(data), sizes, bytes, box,
                              ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <int D>
cudaError_t launch(const AttentionGroupedCall& call, int sm_count) {
  using T = __nv_bfloat16;
  const int64_t tiles = static_cast<int64_t>((call.queries - 1) / Sizes<D>::ROWS + 1) * call.heads * call.batch;
  const GroupedStrides to{static_cast<int64_t>(call.queries) * call.heads * D, D, static_cast<int64_t>(call.heads) * D};
  CUtensorMap q, k, v, out;
  if (tiles > 1 << 30 || !map_tokens(q, call.q, call.q_strides, call.batch, call.heads, call.queries, D, 64) ||
      !map_tokens(k, call.k, call.k_strides, call.batch, call.key_heads, call.keys, D, KEYS) ||
      !map_tokens(v, call.v, call.v_strides, call.batch, call.key_heads, call.keys, D, KEYS) ||
      !map_tokens(out, call.out, to, call.batch, call.heads, call.queries, D, 64))
    return attention_grouped_v02_mma(call);
  const Grid grid{static_cast<int>(std::min<int64_t>(tiles, sm_count)), Sizes<D>::THREADS};
  const cudaError_t status = launch_overlapped(attention_grouped_v08_ring<T, D>, grid, Sizes<D>::SHARED, call.stream, q,
                                               k, v, out, grouped<T>(call), call.batch, call.heads / call.key_heads);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
}  // namespace

cudaError_t attention_grouped_v08_ring(const AttentionGroupedCall& call) {
  if (call.dtype != DType::bfloat16 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return attention_grouped_v02_mma(call);
  return call.head_size == 64 ? launch<64>(call, sm_count) : launch<128>(call, sm_count);
}
