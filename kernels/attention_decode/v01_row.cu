// attention_decode v01_row: one warp per head, one key after the other.
// Shapes   q (B, nh, 1, 64), k, v (B, nh, Tk, 64) with any strides of batch, head and token, out (B, nh, 1, 64).
// Needs    nothing
// Moves    2 * B*nh * (Tk + 1) * 64 * sizeof(T) bytes: every key and value once.
// Versus   nothing: this is the first rung. Its softmax is already the online one, so scores stay in registers.
// Source   Milakov and Gimelshein 2018, arXiv:1805.02867 (online softmax)
#include "check.cuh"
#include "decode.cuh"
#include "reduce.cuh"

#ifndef ATTENTION_DECODE_V01_UNROLL
#define ATTENTION_DECODE_V01_UNROLL 2
#endif

namespace {
constexpr int THREADS = 32, UNROLL = ATTENTION_DECODE_V01_UNROLL;  // keys; the compiler unrolls by two on its own
}

template <typename T>
__global__ void __launch_bounds__(THREADS) attention_decode_v01_row(Operands<T> in, T* out) {
  constexpr int OWN = HEAD_SIZE / THREADS;
  const int row = blockIdx.x, first = threadIdx.x * OWN;
  const T* q = start_of(in.q, in.q_strides, row, in.heads) + first;
  const T* k = start_of(in.k, in.k_strides, row, in.heads) + first;
  const T* v = start_of(in.v, in.v_strides, row, in.heads) + first;
  Partial<OWN> partial;
#pragma unroll UNROLL
  for (int key = 0; key < in.keys; ++key, k += in.k_strides.token, v += in.v_strides.token) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < OWN; ++j) sum += to_float(q[j]) * in.scale * to_float(k[j]);
    float score[] = {warp_sum(sum)};
    take_scores(partial, score);
#pragma unroll
    for (int j = 0; j < OWN; ++j) partial.value[j] += score[0] * to_float(v[j]);
  }
#pragma unroll
  for (int j = 0; j < OWN; ++j)
    out[static_cast<int64_t>(row) * HEAD_SIZE + first + j] = from_float<T>(partial.value[j] / partial.sum);
}

template <typename T>
static cudaError_t launch(const AttentionDecodeCall& call) {
  attention_decode_v01_row<T>
      <<<call.batch * call.heads, THREADS, 0, call.stream>>>(operands<T>(call), static_cast<T*>(call.out));
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_decode_v01_row(const AttentionDecodeCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
