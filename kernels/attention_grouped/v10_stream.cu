// attention_grouped v10_stream: v08_ring as one stream of tiles: the last product of a tile of queries overlaps the
// first product of the next one, and the warpgroups take turns at the tensor cores.
// Shapes   q (B, nh, Tq, hs), k, v (B, nkv, Tk, hs) bf16 with any strides of batch, head and token, out (B, Tq, nh, hs).
// Needs    sm_90a, hs 128, 16-byte aligned tokens; v08 runs what this rung does not take
// Moves    q and out once, visible keys and values once through DRAM; through L2 once for each head and 128 queries.
// Versus   v08: a warpgroup multiplies the scores of the next queries with their first keys while it ends these and
//          writes them. All warpgroups see the same tiles of keys, so each issues its products when another one has
//          issued its own (named barriers). An issue waits for the product before it, so the comparisons of scores are
//          between the issues of the values' products. Sums are scaled only when a row's largest score has grown by
//          more than 2^8. The producer deals tiles, so that blocks differ by one tile of keys at most, and posts them
//          in shared memory.
// Source   v08_ring.cu; Shah et al., "FlashAttention-3", arXiv:2407.08608, section 3.1; FlashAttention-4 scales sums
//          when needed, too
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../attention/tiles.cuh"
#include "check.cuh"
#include "overlap_shared.cuh"
#include "span.cuh"

cudaError_t attention_grouped_v08_ring(const AttentionGroupedCall& call);  // runs what this rung does not take

#ifndef ATTENTION_GROUPED_V10_TURNS
#define ATTENTION_GROUPED_V10_TURNS 1
#endif
#ifndef ATTENTION_GROUPED_V10_EARLY
#define ATTENTION_GROUPED_V10_EARLY 3
#endif
namespace {
[[maybe_unused]] constexpr bool TURNS =
    ATTENTION_GROUPED_V10_TURNS;  // whether the warpgroups take turns at the tensor cores
// Eighths of a tile's exponentials before the wait for the values' product. 8 puts nothing after the wait but the
// scaling of sums; 0 leaves the place to ptxas.
[[maybe_unused]] constexpr int BEFORE_WAIT = 2;
// Of the 8 products of a tile's values, how many are issued before the wait for scores. The rest is issued between the
// comparisons that find the largest score: an issue waits for the product before it.
[[maybe_unused]] constexpr int EARLY = ATTENTION_GROUPED_V10_EARLY;
// Sums are scaled when a row's largest score grows by more, in log 2; weights above 1 are divided by a total of such.
[[maybe_unused]] constexpr float GROWTH = 8.0f;
constexpr int KEYS = 128, POSTS = 4;                            // keys of a tile; descriptions of work in shared memory
[[maybe_unused]] constexpr float LEAST = -1e30f;                // stands for no score yet; finite after any scaling
constexpr uint32_t KEY_BOX = KEYS * 128, QUERY_BOX = 64 * 128;  // bytes of boxes of 64 columns

constexpr int SIZE = 128, BOXES = SIZE / 64;  // of a head; boxes of a tile
constexpr int GROUPS = 2;                     // warpgroups that compute, 64 queries each
constexpr int STAGES = 2;                     // tiles of keys and of values in flight or in use
constexpr int ROWS = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
// PART: a warpgroup's queries, kept twice, or its output
constexpr uint32_t TILE = BOXES * KEY_BOX, PART = BOXES * QUERY_BOX;
constexpr uint32_t SHARED = 1024 + 2 * STAGES * TILE + 3 * GROUPS * PART + 8 * (4 * STAGES + 4) + POSTS * 32;
}  // namespace

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {
// The matrix descriptor of 16 keys of a tile of values (keys x 128). `address` is in units of 16 bytes.
__device__ __forceinline__ uint64_t values_at(uint32_t address) {
  return static_cast<uint64_t>(address | KEY_BOX / 16 << 16) | static_cast<uint64_t>(64U | 1U << 30) << 32;
}

// d (64 x 128) += a (64 x 16) x b (16 x 128, its rows along N): a in registers, b in shared memory.
__device__ __forceinline__ void multiply_values(float (&d)[64], const uint32_t* a, uint32_t address, int keep) {
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
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(values_at(address)), "r"(keep));
#undef EIGHT
}

// Keeps ptxas from moving a wait before the code that computes `sum`, a sum of exponentials: it would loop if that were
// negative. The vote tells ptxas that warps do not diverge here.
__device__ __forceinline__ void stay(float sum) {
  asm volatile(
      "{\n"
      ".reg .pred below, any;\n"
      "setp.lt.f32 below, %0, 0f00000000;\n"
      "vote.sync.any.pred any, below, 0xffffffff;\n"
      "STAY:\n"
      "@!any bra GO;\n"
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

__device__ __forceinline__ void arrive_named(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Tells the compiler that all threads of a warp have this value, so that it keeps it in a uniform register.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xffffffffU, value, 0); }

// Which stage a tile has, and the phase of its barriers: both from the number of tiles before it.
struct Turn {
  uint32_t count = 0;
  __device__ __forceinline__ uint32_t stage() const { return count % STAGES; }
  __device__ __forceinline__ uint32_t phase() const { return count / STAGES % 2; }
};

// Queries `row` to `row` + ROWS of a head, and the tiles of keys that they see, from `last` down to `first`: at least
// one tile, which may be hidden from all of them.
struct Work {
  int batch, head, row, first, last;
  Span span;
};

// The producer posts a tile of queries for the other warps in shared memory. A batch below 0 says that there is none.
__device__ __forceinline__ void post(uint32_t at, const Work& work) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(work.batch), "r"(work.head), "r"(work.row),
               "r"(work.first)
               : "memory");
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at + 16), "r"(work.last), "r"(work.span.first),
               "r"(work.span.end), "r"(work.span.window)
               : "memory");
}
__device__ __forceinline__ Work posted(uint32_t at) {
  Work work{0, 0, 0, 0, 0, Span(nullptr, 0, 0)};
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(work.batch), "=r"(work.head), "=r"(work.row), "=r"(work.first)
               : "r"(at)
               : "memory");
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(work.last), "=r"(work.span.first), "=r"(work.span.end), "=r"(work.span.window)
               : "r"(at + 16)
               : "memory");
  return work;
}

// Deals tiles of queries to blocks in rounds, those with the most keys first. All heads have tiles of the same few sizes.
// If a round has tiles of two sizes, the larger ones go to the blocks that got smaller ones the longest time ago. With
// fewer heads than blocks, a round has more sizes, and every second one goes through the blocks in reverse.
struct Deal {
  const int* spans;
  int batches, heads, queries, keys, round = 0, offset = 0;
  __device__ __forceinline__ bool take(Work& work) {
    const int tiles = (queries - 1) / ROWS + 1, pairs = batches * heads, blocks = gridDim.x;
    const int before = round * blocks;
    int index = before + blockIdx.x;
    if (pairs >= blocks) {
      index -= offset;
      if (index < before) index += blocks;
      const int larger = (pairs - before % pairs) % pairs;  // tiles before the next size
      if (larger < blocks) offset += larger;
      if (offset >= blocks) offset -= blocks;
    } else if (round % 2) {
      index = before + blocks - 1 - blockIdx.x;
    }
    ++round;
    if (index >= tiles * pairs) return false;
    work.row = (tiles - 1 - index / pairs) * ROWS;
    work.batch = index % pairs / heads, work.head = index % pairs % heads;
    work.span = Span(spans, work.batch, keys);
    const int ahead = work.span.end - queries;  // the place of query 0
    const int begin = work.span.from(ahead + work.row), end = ahead + min(work.row + ROWS, queries);
    work.first = begin / KEYS;
    work.last = end > begin ? (end - 1) / KEYS : work.first;
    return true;
  }
};
}  // namespace
#endif

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    attention_grouped_v10_stream(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                                 const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap out_map,
                                 Grouped<T> in, int batches, int sharing) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t keys = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t values = keys + STAGES * TILE, queries = values + STAGES * TILE;
  const uint32_t staged = queries + 2 * GROUPS * PART;
  const uint32_t k_full = staged + GROUPS * PART, k_empty = k_full + 8 * STAGES, v_full = k_empty + 8 * STAGES;
  const uint32_t v_empty = v_full + 8 * STAGES, q_full = v_empty + 8 * STAGES, q_empty = q_full + 8 * 2;
  const uint32_t posts = q_empty + 8 * 2;
  Deal deal{in.spans, batches, in.heads, in.queries, in.keys};
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
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x % 128 == 0) {
      Ring<STAGES> at, behind;  // stages of keys, and of values, which are one tile behind
      Work work{0, 0, 0, 0, 0, Span(nullptr, 0, 0)};
      int round = 0, tile_before = 0, head_before = 0, batch_before = 0;
      const auto load_values = [&] {
        const uint32_t barrier = 8 * behind.stage, to = behind.stage * TILE;
        wait_barrier(v_empty + barrier, behind.phase ^ 1);
        expect_bytes(v_full + barrier, TILE);
        for (int box = 0; box < BOXES; ++box)
          load_box(values + to + box * KEY_BOX, &v_map, v_full + barrier, box * 64, tile_before * KEYS, head_before,
                   batch_before);
        behind.advance();
      };
      for (; deal.take(work); ++round) {
        const int half = round % 2, key_head = work.head / sharing;
        wait_barrier(q_empty + 8 * half, round / 2 % 2 ^ 1);  // both halves start empty
        post(posts + round % POSTS * 32, work);
        expect_bytes(q_full + 8 * half, GROUPS * PART);
        for (int part = 0; part < GROUPS; ++part)  // rows after the last are filled with zeros and counted in full
          for (int box = 0; box < BOXES; ++box)
            load_box(queries + (half * GROUPS + part) * PART + box * QUERY_BOX, &q_map, q_full + 8 * half, box * 64,
                     work.row + part * 64, work.head, work.batch);
#pragma unroll 1
        for (int tile = work.last; tile >= work.first; --tile, at.advance()) {
          const uint32_t barrier = 8 * at.stage, to = at.stage * TILE;
          wait_barrier(k_empty + barrier, at.phase ^ 1);
          expect_bytes(k_full + barrier, TILE);
          for (int box = 0; box < BOXES; ++box)
            load_box(keys + to + box * KEY_BOX, &k_map, k_full + barrier, box * 64, tile * KEYS, key_head, work.batch);
          if (round > 0 || tile < work.last) load_values();
          tile_before = tile, head_before = key_head, batch_before = work.batch;
        }
      }
      load_values();
      wait_barrier(q_empty + 8 * (round % 2), round / 2 % 2 ^ 1);
      work.batch = -1;
      post(posts + round % POSTS * 32, work);
      arrive(q_full + 8 * (round % 2));
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const bool leads = thread == 0;
    const float to_log2 = in.scale * LOG2_E;
    // tiles.cuh says in which row and column value i of these is
    float sums[SIZE / 2] = {}, scores[KEYS / 2], largest[2], total[2], base[2], factor[2];
    uint32_t weights[32];              // pairs of weights, as a register operand
    Turn at;                           // the stage of `scores`' keys
    int round = 0, half = 0, top = 0;  // which queries; the place of the warpgroup's first one
    Work work{0, 0, 0, 0, 0, Span(nullptr, 0, 0)};

    const auto multiply_scores = [&] {
      const uint32_t q = (queries + (half * GROUPS + group) * PART) / 16, k = (keys + at.stage() * TILE) / 16;
      begin_multiply();
#pragma unroll
      for (int step = 0; step < SIZE / 16; ++step)
        multiply<false>(scores, tile_at(q + step / 4 * (QUERY_BOX / 16) + step % 4 * 2),
                        tile_at(k + step / 4 * (KEY_BOX / 16) + step % 4 * 2), step > 0);
      commit_multiply();
    };
    const auto multiply_step = [&](int step, uint32_t stage, bool fresh) {
      multiply_values(sums, weights + step * 4, (values + stage * TILE) / 16 + step * 128, step > 0 || !fresh);
    };
    // Waits for this warpgroup's turn at the tensor cores, and gives the turn to the next one.
    const auto take_turn = [&] {
      if (TURNS) join_named(1 + GROUPS + group, 2 * 128);
    };
    const auto give_turn = [&] {
      if (TURNS) arrive_named(1 + GROUPS + (group + 1) % GROUPS, 2 * 128);
    };
    // Sets the scores that no query sees to -inf; the first one is of key `key`.
    const auto hide = [&](int key) {
      const int mine = key + lane % 4 * 2, place = top + warp * 16 + lane / 4;
      if (key + KEYS - 1 > top) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i)
          if (i / 4 * 8 + i % 2 - i / 2 % 2 * 8 > place - mine) scores[i] = -INFINITY;
      }
      if (key < work.span.from(top + 63)) {
        const int least[2] = {work.span.from(place) - mine, work.span.from(place + 8) - mine};
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i)
          if (i / 4 * 8 + i % 2 < least[i / 2 % 2]) scores[i] = -INFINITY;
      }
    };
    float most[4];  // the largest of the scores at 4 * i + x
    const auto compare = [&](int first, int end) {
#pragma unroll
      for (int i = first; i < end; ++i)
#pragma unroll
        for (int x = 0; x < 4; ++x) most[x] = i > 0 ? max_or_nan(most[x], scores[4 * i + x]) : scores[x];
    };
    // Updates the largest score of each row, after compare(): `base` returns it in units of log 2, `factor` by what sums
    // shrink. A score may be larger than `largest`, by up to GROWTH in log 2. Returns whether sums have to shrink.
    const auto raise = [&] {
      float now[2];
      bool grows = false;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        now[row] = max_or_nan(most[row * 2], most[row * 2 + 1]);
        now[row] = max_or_nan(now[row], __shfl_xor_sync(0xffffffffU, now[row], 1));
        now[row] = max_or_nan(now[row], __shfl_xor_sync(0xffffffffU, now[row], 2));
        now[row] = max_or_nan(now[row], largest[row]);
        grows |= !(fabsf((now[row] - largest[row]) * to_log2) <= GROWTH);
      }
      grows = __any_sync(0xffffffffU, grows);
      if (grows) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          factor[row] = exp2_fast((largest[row] - now[row]) * to_log2);
          total[row] *= factor[row];
          largest[row] = now[row];
          base[row] = now[row] * to_log2;
        }
      }
      return grows;
    };
    // Turns scores FIRST to END into weights.
    const auto weigh = [&](auto first, auto end) {
      float sum[2] = {0.0f, 0.0f};
#pragma unroll
      for (int i = decltype(first)::value; i < decltype(end)::value; ++i) {
        scores[i] = exp2_fast(scores[i] * to_log2 - base[i / 2 % 2]);
        sum[i / 2 % 2] += scores[i];
      }
      total[0] += sum[0], total[1] += sum[1];
    };
    const auto pack_weights = [&] {
#pragma unroll
      for (int i = 0; i < 32; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
    };
    const auto none = std::integral_constant<int, 0>();
    const auto some = std::integral_constant<int, BEFORE_WAIT * 8>();
    const auto all = std::integral_constant<int, 64>();
    const auto begin_work = [&] {
      largest[0] = largest[1] = LEAST;
      base[0] = base[1] = LEAST * to_log2;
      total[0] = total[1] = 0.0f;
      top = work.span.end - in.queries + work.row + group * 64;
    };

    // Writes the output of queries `row` on: sums / total as bf16, in shared memory swizzled as TMA expects, from there
    // to DRAM. Meanwhile `scores` of the next queries are multiplied; returns whether all values are finite.
    const auto finish = [&](const Work& done) {
      const uint32_t mine = staged + group * PART;
      const int row = done.row + group * 64;
      const int place = done.span.end - in.queries + row + warp * 16 + lane / 4;
      float test[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = total[i];
        sum += __shfl_xor_sync(0xffffffffU, sum, 1);
        sum += __shfl_xor_sync(0xffffffffU, sum, 2);
        const bool sees = done.span.from(place + i * 8) <= place + i * 8;
        const float inverse = __fdividef(1.0f, sum);
        test[i] = 0.0f;
#pragma unroll
        for (int x = i * 2; x < SIZE / 2; x += 4)
#pragma unroll
          for (int j = x; j < x + 2; ++j) {
            sums[j] = sees ? sums[j] * inverse : 0.0f;
            test[i] += sums[j] * 0.0f;
          }
      }
      if (leads) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      join_named(1 + group);
#pragma unroll
      for (int i = 0; i < SIZE / 16; ++i)
        store_matrices(mine + i / 4 * QUERY_BOX + swizzled<128>(warp * 16 + lane % 16, i % 4 * 2 + lane / 16),
                       pack(sums[8 * i], sums[8 * i + 1]), pack(sums[8 * i + 2], sums[8 * i + 3]),
                       pack(sums[8 * i + 4], sums[8 * i + 5]), pack(sums[8 * i + 6], sums[8 * i + 7]));
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      int any;
      asm volatile(
          "{\n"
          ".reg .pred bad, any;\n"
          "setp.ne.b32 bad, %1, 0;\n"
          "barrier.cta.red.or.pred any, %2, 128, bad;\n"
          "selp.b32 %0, 1, 0, any;\n"
          "}\n"
          : "=r"(any)
          : "r"(static_cast<int>(test[0] != 0.0f || test[1] != 0.0f)), "r"(1 + group)
          : "memory");
      if (leads && row < in.queries) {
        for (int box = 0; box < BOXES; ++box)
          store_box(&out_map, mine + box * QUERY_BOX, box * 64, row, done.head, done.batch);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
      return any == 0;
    };
    const auto take = [&] {
      work = posted(posts + round % POSTS * 32);
      work.row = uniform(work.row), work.first = uniform(work.first), work.last = uniform(work.last);
      work.span.first = uniform(work.span.first), work.span.end = uniform(work.span.end);
      work.span.window = uniform(work.span.window);
      return uniform(work.batch) >= 0;
    };
    if (group == GROUPS - 1) give_turn();  // the first turn is that of warpgroup 0
    wait_barrier(q_full, 0);
    take();
    wait_barrier(k_full, 0);
    take_turn();
    multiply_scores();
    give_turn();
    wait_multiply<0>();
    hold(scores);
    bool repair = false;
    for (bool more = true; more;) {
      if (leads) arrive(k_empty + 8 * at.stage());
      begin_work();
      hide(work.last * KEYS);
      compare(0, KEYS / 8);
      raise();
      weigh(none, all);
      pack_weights();
      hold(sums);
      bool fresh = true;
#pragma unroll 1
      for (int tile = work.last - 1; tile >= work.first; --tile) {
        const uint32_t stage = at.stage();
        const uint32_t phase = at.phase();
        ++at.count;
        wait_barrier(k_full + 8 * at.stage(), at.phase());
        take_turn();
        multiply_scores();
        wait_barrier(v_full + 8 * stage, phase);
        begin_multiply();
#pragma unroll
        for (int step = 0; step < EARLY; ++step) multiply_step(step, stage, fresh);
        commit_multiply();
        if (EARLY == 8) give_turn();
        wait_multiply<1>();
        hold(scores);
        if (leads) arrive(k_empty + 8 * at.stage());
        hide(tile * KEYS);
        if constexpr (EARLY < 8) {
#pragma unroll
          for (int step = EARLY; step < 8; ++step) {
            multiply_step(step, stage, fresh);
            compare((step - EARLY) * 16 / (8 - EARLY), (step + 1 - EARLY) * 16 / (8 - EARLY));
#pragma unroll
            for (int x = 0; x < 4; ++x) asm volatile("" : "+f"(most[x])::"memory");
          }
          commit_multiply();
          give_turn();
        } else {
          compare(0, KEYS / 8);
        }
        fresh = false;
        const bool shrink = raise();
        if (BEFORE_WAIT > 0) {
          weigh(none, some);
          stay(total[0] + total[1]);
        }
        wait_multiply<0>();
        hold(sums);
        if (leads) arrive(v_empty + 8 * stage);
        if (shrink) {
#pragma unroll
          for (int i = 0; i < SIZE / 2; ++i) sums[i] *= factor[i / 2 % 2];
        }
        weigh(some, all);
        pack_weights();
        hold(sums);
      }
      // the values of this tile of queries' last keys, and the scores of the next tile's first keys
      const uint32_t stage = at.stage();
      const uint32_t phase = at.phase();
      ++at.count;
      if (leads) arrive(q_empty + 8 * half);
      ++round, half ^= 1;
      wait_barrier(q_full + 8 * half, round / 2 % 2);
      more = take();
      if (more) wait_barrier(k_full + 8 * at.stage(), at.phase());
      wait_barrier(v_full + 8 * stage, phase);
      take_turn();
      begin_multiply();
#pragma unroll
      for (int step = 0; step < 8; ++step) multiply_step(step, stage, fresh);
      commit_multiply();
      multiply_scores();  // of what is left in shared memory, and not used, if there is no next tile
      give_turn();
      wait_multiply<1>();
      hold(sums);
      if (leads) arrive(v_empty + 8 * stage);
      const bool finite = finish(posted(posts + (round - 1) % POSTS * 32));
      wait_multiply<0>();
      hold(scores);
      repair |= !finite;
    }
    if (leads) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    // A row that is not finite may hold 0 * inf of a key that it does not see: compute it again, key by key. A call of a
    // function inside the loop above would take the uniform registers from it.
    if (repair) {
      join_named(1 + group);
      while (deal.take(work))
        for (int i = 0; i < 16; ++i) {
          const int query = work.row + group * 64 + warp * 16 + i, last = work.span.end - in.queries + query;
          if (query >= in.queries) break;
          const int64_t batch = work.batch, head = work.head, key_head = work.head / sharing;
          T* const to = in.out + ((batch * in.queries + query) * in.heads + head) * SIZE;
          float test = 0.0f;
          for (int x = lane; x < SIZE; x += 32) test += to_float(to[x]) * 0.0f;
          if (__any_sync(0xffffffffU, test != 0.0f))
            exact_row<T, SIZE>(
                in.q + batch * in.q_strides.batch + head * in.q_strides.head + query * in.q_strides.token,
                in.k + batch * in.k_strides.batch + key_head * in.k_strides.head,
                in.v + batch * in.v_strides.batch + key_head * in.v_strides.head, in.k_strides.token,
                in.v_strides.token, to, work.span.from(last), last, in.scale);
        }
    }
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

}  // namespace

cudaError_t attention_grouped_v10_stream(const AttentionGroupedCall& call) {
  using T = __nv_bfloat16;
  if (call.dtype != DType::bfloat16 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  if (call.head_size != SIZE) return attention_grouped_v08_ring(call);
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const int64_t tiles = static_cast<int64_t>((call.queries - 1) / ROWS + 1) * call.heads * call.batch;
  const GroupedStrides to{static_cast<int64_t>(call.queries) * call.heads * SIZE, SIZE,
                          static_cast<int64_t>(call.heads) * SIZE};
  CUtensorMap q, k, v, out;
  if (sm_count == 0 || tiles > 1 << 30 ||
      !map_tokens(q, call.q, call.q_strides, call.batch, call.heads, call.queries, SIZE, 64) ||
      !map_tokens(k, call.k, call.k_strides, call.batch, call.key_heads, call.keys, SIZE, KEYS) ||
      !map_tokens(v, call.v, call.v_strides, call.batch, call.key_heads, call.keys, SIZE, KEYS) ||
      !map_tokens(out, call.out, to, call.batch, call.heads, call.queries, SIZE, 64))
    return attention_grouped_v08_ring(call);
  const Grid grid{static_cast<int>(std::min<int64_t>(tiles, sm_count)), THREADS};
  const cudaError_t status = launch_overlapped(attention_grouped_v10_stream<T>, grid, SHARED, call.stream, q, k, v, out,
                                               grouped<T>(call), call.batch, call.heads / call.key_heads);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
