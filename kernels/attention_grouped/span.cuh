// What the rungs share: the keys that a query sees, and exact_row(), which computes one row again, key by key.
#pragma once

#include "attention_grouped.h"
#include "reduce.cuh"
#include "vec.cuh"

// The operands as kernels take them.
template <typename T>
struct Grouped {
  const T* q;
  const T* k;
  const T* v;
  T* out;
  const int* spans;
  GroupedStrides q_strides;
  GroupedStrides k_strides;
  GroupedStrides v_strides;
  int heads;
  int key_heads;
  int queries;
  int keys;
  float scale;
};

template <typename T>
inline Grouped<T> grouped(const AttentionGroupedCall& call) {
  return {static_cast<const T*>(call.q),
          static_cast<const T*>(call.k),
          static_cast<const T*>(call.v),
          static_cast<T*>(call.out),
          call.spans,
          call.q_strides,
          call.k_strides,
          call.v_strides,
          call.heads,
          call.key_heads,
          call.queries,
          call.keys,
          call.scale};
}

// The keys of one sequence. `end` is never beyond the tensor, so a wrong span reads nothing outside of it.
struct Span {
  int first;
  int end;
  int window;

  __device__ __forceinline__ Span(const int* spans, int batch, int keys) {
    first = spans ? max(spans[batch * 3], 0) : 0;
    end = spans ? min(spans[batch * 3 + 1], keys) : keys;
    window = spans ? spans[batch * 3 + 2] : 1 << 30;
  }

  // The first key that a query at place `at` sees; the last one is `at`.
  __device__ __forceinline__ int from(int at) const { return max(first, at - window + 1); }
};

// Computes one row of attention with a whole warp, for a row that a tiled kernel ends with a NaN or an infinity. A tile
// multiplies the weight 0 of a key that a row does not see by that key's value, and 0 * inf is NaN. q_row and out_row
// are (D); the row sees keys `first` to `last`, both included. The output is 0 if there are none.
template <typename T, int D>
__device__ __noinline__ void exact_row(const T* q_row, const T* k, const T* v, int64_t k_token, int64_t v_token,
                                       T* out_row, int first, int last, float scale) {
  constexpr int EACH = D / 32;
  const int lane = threadIdx.x % 32;
  float q[EACH], out[EACH] = {}, largest = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < EACH; ++i) q[i] = to_float(q_row[lane + i * 32]);
  const auto score = [&](int key) {
    float products = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) products += q[i] * to_float(k[key * k_token + lane + i * 32]);
    return scale * warp_sum(products);
  };
  for (int key = first; key <= last; ++key) largest = fmaxf(largest, score(key));
  for (int key = first; key <= last; ++key) {
    const float weight = exp_fast(score(key) - largest);
    sum += weight;
#pragma unroll
    for (int i = 0; i < EACH; ++i) out[i] += weight * to_float(v[key * v_token + lane + i * 32]);
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) out_row[lane + i * 32] = from_float<T>(first > last ? 0.0f : out[i] / sum);
}
