// permute v01_element: one thread per element; one launch splits q, k and v, another merges heads.
// Shapes   split: qkv (B, T, 3 C) -> q, k, v (B, nh, T, hs); merge: (B, nh, T, hs) -> (B, T, C).
// Needs    < 2^32 elements
// Moves    split 6 * B * T * C * sizeof(T) bytes, merge 2: every element once in, once out.
// Versus   PyTorch: split is one launch instead of three copies. The bytes are the same, so only launches are saved.
// Source   llm.c, dev/cuda/attention_forward.cu, permute_kernel (the idea)
#include "check.cuh"
#include "permute.h"
#include "place.cuh"

#ifndef PERMUTE_V01_SPLIT_THREADS
#define PERMUTE_V01_SPLIT_THREADS 256
#endif
#ifndef PERMUTE_V01_MERGE_THREADS
#define PERMUTE_V01_MERGE_THREADS 256
#endif

namespace {
constexpr int SPLIT_THREADS = PERMUTE_V01_SPLIT_THREADS, MERGE_THREADS = PERMUTE_V01_MERGE_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(SPLIT_THREADS) permute_v01_split(const T* qkv, T* q, T* k, T* v, Layout layout) {
  const uint32_t item = blockIdx.x * SPLIT_THREADS + threadIdx.x;
  if (item >= layout.items) return;
  const uint32_t token = item / layout.row, at = item - token * layout.row;
  const T* from = qkv + static_cast<int64_t>(token) * 3 * layout.row + at;
  const int64_t to = layout.by_heads(token, at);
  q[to] = from[0];
  k[to] = from[layout.row];
  v[to] = from[2 * layout.row];
}

template <typename T>
__global__ void __launch_bounds__(MERGE_THREADS) permute_v01_merge(const T* from, T* to, Layout layout) {
  const uint32_t item = blockIdx.x * MERGE_THREADS + threadIdx.x;
  if (item >= layout.items) return;
  const uint32_t token = item / layout.row;
  to[item] = from[layout.by_heads(token, item - token * layout.row)];
}

template <typename T, bool SPLIT>
static cudaError_t launch(const PermuteCall& call) {
  if (call.elements > 0xffffff00) return cudaErrorInvalidConfiguration;
  const auto heads = static_cast<uint32_t>(call.heads), size = static_cast<uint32_t>(call.head_size);
  const Layout layout = {static_cast<uint32_t>(call.elements), heads * size, size, static_cast<uint32_t>(call.tokens),
                         heads};
  constexpr int THREADS = SPLIT ? SPLIT_THREADS : MERGE_THREADS;
  const unsigned blocks = (layout.items - 1) / THREADS + 1;
  const T* from = static_cast<const T*>(call.from);
  if constexpr (SPLIT) {
    permute_v01_split<T><<<blocks, THREADS, 0, call.stream>>>(
        from, static_cast<T*>(call.to[0]), static_cast<T*>(call.to[1]), static_cast<T*>(call.to[2]), layout);
    RETURN_IF_LAUNCH_FAILED();
  } else {
    permute_v01_merge<T><<<blocks, THREADS, 0, call.stream>>>(from, static_cast<T*>(call.to[0]), layout);
    RETURN_IF_LAUNCH_FAILED();
  }
  return cudaSuccess;
}

cudaError_t permute_v01_split(const PermuteCall& call) {
  return call.element_bytes == 4 ? launch<uint32_t, true>(call) : launch<uint16_t, true>(call);
}

cudaError_t permute_v01_merge(const PermuteCall& call) {
  return call.element_bytes == 4 ? launch<uint32_t, false>(call) : launch<uint16_t, false>(call);
}
