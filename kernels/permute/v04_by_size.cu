// permute v04_by_size: divisions prepared by the host; packets a thread, prefetch and stores chosen by the bytes moved.
// Shapes   split: qkv (B, T, 3 C) -> q, k, v (B, nh, T, hs); merge: (B, nh, T, hs) -> (B, T, C).
// Needs    < 2^32 packets (16-byte ones if a head of a token is a multiple of 16 bytes, otherwise smaller ones); more than
//          2^31 are v02's
// Moves    split 6 * B * T * C * sizeof(T) bytes, merge 2: every element once in, once out.
// Versus   v02: a packet's place costs multiplications and shifts, not divisions. Merging few bytes, a thread has eight
//          packets in flight, merging many only one. Heads of one token are already merged: a copy. Split prefetches
//          1 MB ahead in place of 3, and L2 evicts what it writes first where that is more than 128 MB.
// Source   v02_vector, into_cache
#include "check.cuh"
#include "divide.cuh"
#include "overlap.cuh"
#include "permute.h"
#include "vec.cuh"

cudaError_t permute_v02_split(const PermuteCall& call);
cudaError_t permute_v02_merge(const PermuteCall& call);

#ifndef PERMUTE_V04_AHEAD_MB
#define PERMUTE_V04_AHEAD_MB 1
#endif

namespace {
constexpr int SPLIT_THREADS = 256;                                    // a thread moves one packet each of q, k, v
constexpr int64_t AHEAD_BYTES = int64_t{PERMUTE_V04_AHEAD_MB} << 20;  // distance of split's prefetch into L2; 0: none
constexpr int64_t STREAMED_BYTES = int64_t{128} << 20;                // above it, split's results leave L2 first
constexpr int64_t SMALL_BYTES = int64_t{8} << 20, MEDIUM_BYTES = int64_t{128} << 20;  // of merge's input
}  // namespace

// Lengths are in packets.
struct Places {
  Divisor row;     // nh * head: one token
  Divisor head;    // one head of one token
  Divisor tokens;  // T
  uint32_t heads;  // nh

  // The index in (B, nh, T, hs) of packet `at` of token `token`; tokens are counted over all sequences.
  __device__ __forceinline__ int64_t by_heads(uint32_t token, uint32_t at) const {
    const uint32_t which = head.quotient(at), sequence = tokens.quotient(token);
    const int64_t line = static_cast<int64_t>(sequence * heads + which) * tokens.by + (token - sequence * tokens.by);
    return line * head.by + (at - which * head.by);
  }
};

template <typename Raw, bool STREAMED>
__global__ void __launch_bounds__(SPLIT_THREADS)
    permute_v04_split(const Raw* qkv, Raw* q, Raw* k, Raw* v, uint32_t items, Places places, uint32_t ahead) {
  let_next_start();
  const uint32_t item = blockIdx.x * SPLIT_THREADS + threadIdx.x;
  if (item >= items) return;
  const uint32_t token = places.row.quotient(item), at = item - token * places.row.by;
  const Raw* from = qkv + static_cast<int64_t>(token) * 3 * places.row.by + at;
  wait_for_previous();
  const Raw parts[3] = {from[0], from[places.row.by], from[2 * places.row.by]};
  // the prefetches of all blocks cover the input once, though no block reads exactly what one of them prefetched
  if (AHEAD_BYTES > 0 && sizeof(Raw) == 16 && threadIdx.x == 0 && items - item > ahead + SPLIT_THREADS)
    prefetch_l2(qkv + 3 * static_cast<int64_t>(item + ahead), 3 * SPLIT_THREADS * 16);
  const int64_t to = places.by_heads(token, at);
  Raw* const results[3] = {q, k, v};
#pragma unroll
  for (int part = 0; part < 3; ++part)
    STREAMED ? __stcs(results[part] + to, parts[part]) : static_cast<void>(results[part][to] = parts[part]);
}

// A thread moves COUNT packets. COPY: every sequence has one token, so the heads are merged already.
template <typename Raw, int COUNT, int THREADS, bool COPY>
__global__ void __launch_bounds__(THREADS) permute_v04_merge(const Raw* from, Raw* to, uint32_t items, Places places) {
  let_next_start();
  const uint32_t first = blockIdx.x * (COUNT * THREADS) + threadIdx.x;
  wait_for_previous();
  Raw loaded[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t item = first + k * THREADS;
    if (item >= items) break;
    const uint32_t token = COPY ? 0 : places.row.quotient(item);
    loaded[k] = from[COPY ? item : places.by_heads(token, item - token * places.row.by)];
  }
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
    if (first + k * THREADS < items) to[first + k * THREADS] = loaded[k];
}

static Places places_of(const PermuteCall& call, uint32_t head) {
  const auto heads = static_cast<uint32_t>(call.heads);
  return {Divisor(heads * head), Divisor(head), Divisor(static_cast<uint32_t>(call.tokens)), heads};
}

template <typename Raw>
struct Split {
  static constexpr auto older = permute_v02_split;

  template <bool STREAMED>
  static cudaError_t launch(const PermuteCall& call, uint32_t items, const Places& places) {
    const auto kernel = permute_v04_split<Raw, STREAMED>;
    static const bool waits = compiled_to_wait(kernel);
    const cudaError_t status = launch_overlapped(
        kernel, waits, static_cast<int>((items - 1) / SPLIT_THREADS + 1), SPLIT_THREADS, call.stream,
        static_cast<const Raw*>(call.from), static_cast<Raw*>(call.to[0]), static_cast<Raw*>(call.to[1]),
        static_cast<Raw*>(call.to[2]), items, places, static_cast<uint32_t>(AHEAD_BYTES / (3 * sizeof(Raw))));
    RETURN_IF_LAUNCH_FAILED();
    return status;
  }

  static cudaError_t choose(const PermuteCall& call, uint32_t items, const Places& places) {
    const int64_t written = 3 * call.elements * call.element_bytes;
    return written > STREAMED_BYTES ? launch<true>(call, items, places) : launch<false>(call, items, places);
  }
};

template <typename Raw>
struct Merge {
  static constexpr auto older = permute_v02_merge;

  template <int COUNT, int THREADS, bool COPY = false>
  static cudaError_t launch(const PermuteCall& call, uint32_t items, const Places& places) {
    const auto kernel = permute_v04_merge<Raw, COUNT, THREADS, COPY>;
    static const bool waits = compiled_to_wait(kernel);
    const cudaError_t status =
        launch_overlapped(kernel, waits, static_cast<int>((items - 1) / (COUNT * THREADS) + 1), THREADS, call.stream,
                          static_cast<const Raw*>(call.from), static_cast<Raw*>(call.to[0]), items, places);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  }

  static cudaError_t choose(const PermuteCall& call, uint32_t items, const Places& places) {
    const int64_t bytes = call.elements * call.element_bytes;
    if (call.tokens == 1) return launch<1, 256, true>(call, items, places);
    if (bytes <= SMALL_BYTES) return launch<8, 256>(call, items, places);
    if (bytes <= MEDIUM_BYTES) return launch<4, 256>(call, items, places);
    return launch<1, 512>(call, items, places);
  }
};

template <template <typename> class Which, typename Raw>
static cudaError_t launch_in(const PermuteCall& call) {
  const int64_t items = call.elements * call.element_bytes / static_cast<int64_t>(sizeof(Raw));
  if (items > 0x7ffff000) return Which<Raw>::older(call);  // beyond the divisions
  const auto head = static_cast<uint32_t>(call.head_size * call.element_bytes / sizeof(Raw));
  return Which<Raw>::choose(call, static_cast<uint32_t>(items), places_of(call, head));
}

// Launches with the widest packet that the addresses and the length of a head allow.
template <template <typename> class Which>
static cudaError_t launch_widest(const PermuteCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.from) | reinterpret_cast<uintptr_t>(call.to[0]) |
                         reinterpret_cast<uintptr_t>(call.to[1]) | reinterpret_cast<uintptr_t>(call.to[2]) |
                         (static_cast<uintptr_t>(call.head_size) * call.element_bytes);
  if (addresses % 16 == 0) return launch_in<Which, uint4>(call);
  if (addresses % 8 == 0) return launch_in<Which, uint2>(call);
  if (addresses % 4 == 0) return launch_in<Which, uint32_t>(call);
  if (addresses % 2 == 0) return launch_in<Which, uint16_t>(call);
  return cudaErrorMisalignedAddress;
}

cudaError_t permute_v04_split(const PermuteCall& call) { return launch_widest<Split>(call); }

cudaError_t permute_v04_merge(const PermuteCall& call) { return launch_widest<Merge>(call); }
