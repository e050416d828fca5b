// attention v02_per_query: a "flash attention" as students write it, kept because it is slow. One thread computes a
// query, one block a head. A thread keeps the weights of its row in an array of 1024 floats.
// Shapes   q, k, v, out (batch_heads, tokens, 64)
// Needs    at most 1024 tokens, no window
// Moves    q, k, v and out once. The array is in local memory (4 KB per thread): L1 and L2 carry visible pairs * 4
//          bytes, written twice and read 66 times.
// Versus   v01: one launch, and no workspace that the caller knows of.
// Why      One block per head makes 12 blocks at B 1, so 120 of 132 SMs do nothing. The stack frame has 4096 bytes. A
//          student's report claims an occupancy of 14.5 % and a branch efficiency of 55 %.
// Source   a student project's report
#include "attention.h"
#include "check.cuh"
#include "vec.cuh"

namespace {
constexpr int D = ATTENTION_HEAD_SIZE, MOST_TOKENS = 1024;
}

template <typename T>
__global__ void __launch_bounds__(MOST_TOKENS)
    attention_v02_per_query(const T* q, const T* k, const T* v, T* out, int tokens, float scale) {
  const int query = threadIdx.x;
  if (query >= tokens) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * tokens;
  float weights[MOST_TOKENS];
  float largest = -INFINITY;
  for (int key = 0; key <= query; ++key) {
    float sum = 0.0f;
#pragma unroll 4
    for (int i = 0; i < D; ++i) sum += to_float(q[(first + query) * D + i]) * to_float(k[(first + key) * D + i]);
    weights[key] = scale * sum;
    largest = fmaxf(largest, weights[key]);
  }
  float total = 0.0f;
  for (int key = 0; key <= query; ++key) {
    weights[key] = expf(weights[key] - largest);
    total += weights[key];
  }
  for (int i = 0; i < D; ++i) {
    float sum = 0.0f;
    for (int key = 0; key <= query; ++key) sum += weights[key] / total * to_float(v[(first + key) * D + i]);
    out[(first + query) * D + i] = from_float<T>(sum);
  }
}

template <typename T>
static cudaError_t launch(const AttentionCall& call) {
  attention_v02_per_query<T><<<call.batch_heads, MOST_TOKENS, 0, call.stream>>>(
      static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
      static_cast<T*>(call.out), call.tokens, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_v02_per_query(const AttentionCall& call) {
  if (!sizes_fit(call) || call.window || call.tokens > MOST_TOKENS) return cudaErrorInvalidValue;
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
