// attention v01_separate: three launches that pass scores through a float32 workspace: scores, softmax, weighted
// values.
// Shapes   q, k, v, out (batch_heads, tokens, 64); workspace batch_heads * tokens * tokens floats.
// Needs    no window, batch_heads at most 65535
// Moves    7 times the visible scores in fp32, and q, k, v and out. The first launch writes the scores, the softmax
//          reads them three times and writes them twice, the last launch reads them.
// Versus   the PyTorch chain: the same idea, with one thread for each output.
// Source   Vaswani et al. 2017, arXiv:1706.03762, equation 1
#include "attention.h"
#include "check.cuh"
#include "vec.cuh"

#ifndef ATTENTION_V01_SIDE
#define ATTENTION_V01_SIDE 16
#endif
#ifndef ATTENTION_V01_THREADS
#define ATTENTION_V01_THREADS 128
#endif
#ifndef ATTENTION_V01_ROWS
#define ATTENTION_V01_ROWS 4
#endif

namespace {
constexpr int D = ATTENTION_HEAD_SIZE;
constexpr int SIDE = ATTENTION_V01_SIDE, THREADS = ATTENTION_V01_THREADS, ROWS = ATTENTION_V01_ROWS;
}  // namespace

// One thread computes one score.
template <typename T>
__global__ void attention_v01_scores(const T* q, const T* k, float* scores, int tokens, float scale) {
  const int key = blockIdx.x * SIDE + threadIdx.x, query = blockIdx.y * SIDE + threadIdx.y;
  if (query >= tokens || key > query) return;
  const int64_t first = static_cast<int64_t>(blockIdx.z) * tokens;
  float sum = 0.0f;
  for (int i = 0; i < D; ++i) sum += to_float(q[(first + query) * D + i]) * to_float(k[(first + key) * D + i]);
  scores[(first + query) * tokens + key] = scale * sum;
}

// One thread normalises one row.
__global__ void attention_v01_softmax(float* scores, int64_t rows, int tokens) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (row >= rows) return;
  float* mine = scores + row * tokens;
  const int seen = static_cast<int>(row % tokens) + 1;
  float largest = -INFINITY, sum = 0.0f;
  for (int key = 0; key < seen; ++key) largest = fmaxf(largest, mine[key]);
  for (int key = 0; key < seen; ++key) {
    mine[key] = expf(mine[key] - largest);
    sum += mine[key];
  }
  for (int key = 0; key < seen; ++key) mine[key] /= sum;
}

// One thread computes one output.
template <typename T>
__global__ void attention_v01_values(const float* weights, const T* v, T* out, int tokens) {
  const int query = blockIdx.x * ROWS + threadIdx.y;
  if (query >= tokens) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * tokens;
  const float* mine = weights + (first + query) * tokens;
  float sum = 0.0f;
  for (int key = 0; key <= query; ++key) sum += mine[key] * to_float(v[(first + key) * D + threadIdx.x]);
  out[(first + query) * D + threadIdx.x] = from_float<T>(sum);
}

template <typename T>
static cudaError_t launch(const AttentionCall& call) {
  const unsigned heads = call.batch_heads, side = (call.tokens + SIDE - 1) / SIDE;
  const int64_t rows = static_cast<int64_t>(call.batch_heads) * call.tokens;
  attention_v01_scores<T><<<dim3(side, side, heads), dim3(SIDE, SIDE), 0, call.stream>>>(
      static_cast<const T*>(call.q), static_cast<const T*>(call.k), call.workspace, call.tokens, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  attention_v01_softmax<<<static_cast<unsigned>((rows + THREADS - 1) / THREADS), THREADS, 0, call.stream>>>(
      call.workspace, rows, call.tokens);
  RETURN_IF_LAUNCH_FAILED();
  attention_v01_values<T><<<dim3((call.tokens + ROWS - 1) / ROWS, heads), dim3(D, ROWS), 0, call.stream>>>(
      call.workspace, static_cast<const T*>(call.v), static_cast<T*>(call.out), call.tokens);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_v01_separate(const AttentionCall& call) {
  if (!sizes_fit(call) || call.window || call.batch_heads > 65535) return cudaErrorInvalidValue;
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
