// permute v02_vector: 16-byte packets of one head, several in flight, prefetches into L2, overlapped launches.
// Shapes   split: qkv (B, T, 3 C) -> q, k, v (B, nh, T, hs); merge: (B, nh, T, hs) -> (B, T, C).
// Needs    < 2^32 packets (16-byte ones if a head of a token is a multiple of 16 bytes, otherwise smaller ones)
// Moves    split 6 * B * T * C * sizeof(T) bytes, merge 2: every element once in, once out.
// Versus   v01: 16 bytes per access; divisions once per packet instead of once per element.
// Source   measured here, see README.md
#include "check.cuh"
#include "overlap.cuh"
#include "permute.h"
#include "place.cuh"
#include "vec.cuh"

#ifndef PERMUTE_V02_SPLIT_THREADS
#define PERMUTE_V02_SPLIT_THREADS 256
#endif
#ifndef PERMUTE_V02_AHEAD_MB
#define PERMUTE_V02_AHEAD_MB 3
#endif
#ifndef PERMUTE_V02_MERGE_THREADS
#define PERMUTE_V02_MERGE_THREADS 256
#endif
#ifndef PERMUTE_V02_MERGE_COUNT
#define PERMUTE_V02_MERGE_COUNT 2
#endif

namespace {
constexpr int SPLIT_THREADS = PERMUTE_V02_SPLIT_THREADS, MERGE_THREADS = PERMUTE_V02_MERGE_THREADS;
constexpr int MERGE_COUNT = PERMUTE_V02_MERGE_COUNT;  // packets per thread of merge; split: one each of q, k and v
constexpr int64_t AHEAD_BYTES = int64_t{PERMUTE_V02_AHEAD_MB} << 20;  // distance of split's prefetch into L2; 0: none
}  // namespace

template <typename Raw>
__global__ void __launch_bounds__(SPLIT_THREADS)
    permute_v02_split(const Raw* qkv, Raw* q, Raw* k, Raw* v, Layout layout, uint32_t ahead) {
  let_next_start();
  const uint32_t item = blockIdx.x * SPLIT_THREADS + threadIdx.x;
  if (item >= layout.items) return;
  const uint32_t token = item / layout.row, at = item - token * layout.row;
  const Raw* from = qkv + static_cast<int64_t>(token) * 3 * layout.row + at;
  wait_for_previous();
  const Raw left = from[0], middle = from[layout.row], right = from[2 * layout.row];
  // the prefetches of all blocks cover the input once, though no block reads exactly what one of them prefetched
  if (AHEAD_BYTES > 0 && sizeof(Raw) == 16 && threadIdx.x == 0 && layout.items - item > ahead + SPLIT_THREADS)
    prefetch_l2(qkv + 3 * static_cast<int64_t>(item + ahead), 3 * SPLIT_THREADS * 16);
  const int64_t to = layout.by_heads(token, at);
  q[to] = left;
  k[to] = middle;
  v[to] = right;
}

template <typename Raw>
__global__ void __launch_bounds__(MERGE_THREADS) permute_v02_merge(const Raw* from, Raw* to, Layout layout) {
  let_next_start();
  const uint32_t first = blockIdx.x * (MERGE_COUNT * MERGE_THREADS) + threadIdx.x;
  wait_for_previous();
  Raw loaded[MERGE_COUNT];
#pragma unroll
  for (int k = 0; k < MERGE_COUNT; ++k) {
    const uint32_t item = first + k * MERGE_THREADS;
    if (item >= layout.items) break;
    const uint32_t token = item / layout.row;
    loaded[k] = from[layout.by_heads(token, item - token * layout.row)];
  }
#pragma unroll
  for (int k = 0; k < MERGE_COUNT; ++k)
    if (first + k * MERGE_THREADS < layout.items) to[first + k * MERGE_THREADS] = loaded[k];
}

template <typename Raw, bool SPLIT>
static cudaError_t launch(const PermuteCall& call) {
  const int64_t items = call.elements * call.element_bytes / static_cast<int64_t>(sizeof(Raw));
  if (items > 0xfffff000) return cudaErrorInvalidConfiguration;
  const auto head = static_cast<uint32_t>(call.head_size * call.element_bytes / sizeof(Raw));
  const auto heads = static_cast<uint32_t>(call.heads);
  const Layout layout = {static_cast<uint32_t>(items), heads * head, head, static_cast<uint32_t>(call.tokens), heads};
  const Raw* from = static_cast<const Raw*>(call.from);
  constexpr int THREADS = SPLIT ? SPLIT_THREADS : MERGE_THREADS;
  constexpr int TILE = SPLIT ? THREADS : MERGE_COUNT * THREADS;
  const int blocks = static_cast<int>((items - 1) / TILE + 1);
  if constexpr (SPLIT) {
    static const bool waits = compiled_to_wait(permute_v02_split<Raw>);
    const cudaError_t status =
        launch_overlapped(permute_v02_split<Raw>, waits, blocks, THREADS, call.stream, from,
                          static_cast<Raw*>(call.to[0]), static_cast<Raw*>(call.to[1]), static_cast<Raw*>(call.to[2]),
                          layout, static_cast<uint32_t>(AHEAD_BYTES / (3 * sizeof(Raw))));
    RETURN_IF_LAUNCH_FAILED();
    return status;
  } else {
    static const bool waits = compiled_to_wait(permute_v02_merge<Raw>);
    const cudaError_t status = launch_overlapped(permute_v02_merge<Raw>, waits, blocks, THREADS, call.stream, from,
                                                 static_cast<Raw*>(call.to[0]), layout);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  }
}

// Launches with the widest packet that the addresses and the length of a head allow.
template <bool SPLIT>
static cudaError_t launch_widest(const PermuteCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.from) | reinterpret_cast<uintptr_t>(call.to[0]) |
                         reinterpret_cast<uintptr_t>(call.to[1]) | reinterpret_cast<uintptr_t>(call.to[2]) |
                         (static_cast<uintptr_t>(call.head_size) * call.element_bytes);
  if (addresses % 16 == 0) return launch<uint4, SPLIT>(call);
  if (addresses % 8 == 0) return launch<uint2, SPLIT>(call);
  if (addresses % 4 == 0) return launch<uint32_t, SPLIT>(call);
  if (addresses % 2 == 0) return launch<uint16_t, SPLIT>(call);
  return cudaErrorMisalignedAddress;
}

cudaError_t permute_v02_split(const PermuteCall& call) { return launch_widest<true>(call); }

cudaError_t permute_v02_merge(const PermuteCall& call) { return launch_widest<false>(call); }
