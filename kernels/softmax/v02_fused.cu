// softmax v02_fused: one block per row; one pass computes maximum and sum online, a second pass over the row writes.
// Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.
// Needs    nothing
// Moves    2 * N * Tk * sizeof(T) bytes: every score once from DRAM (the second pass finds it in L1), every output
//          once.
// Versus   v01: one launch, no intermediate in memory.
// Source   Milakov and Gimelshein 2018, arXiv:1805.02867, "online softmax".
#include "check.cuh"
#include "reduce.cuh"
#include "softmax.h"
#include "vec.cuh"

#ifndef SOFTMAX_V02_THREADS
#define SOFTMAX_V02_THREADS 128
#endif

namespace {
constexpr int THREADS = SOFTMAX_V02_THREADS;
constexpr int WARPS = THREADS / 32;
}  // namespace

// Exponents are relative to `largest`; -inf (nothing seen yet) must not become -inf - -inf.
__device__ __forceinline__ float finite_base(float largest) { return largest == -INFINITY ? 0.0f : largest; }

template <typename T>
__global__ void __launch_bounds__(THREADS) softmax_v02_fused(const T* scores, T* out, int tq, int tk, float scale) {
  __shared__ float warp_largest[WARPS], warp_total[WARPS];
  const int64_t row = blockIdx.x;
  const int last = static_cast<int>(row % tq) + tk - tq;
  const T* from = scores + row * tk;
  T* to = out + row * tk;

  float largest = -INFINITY, sum = 0.0f;
  for (int column = threadIdx.x; column < tk; column += THREADS) {
    const float loaded = to_float(from[column]);  // dense: the masked part is read too
    const float score = column <= last ? loaded * scale : -INFINITY;
    const float larger = fmaxf(largest, score);
    const float base = finite_base(larger);
    sum = sum * exp_fast(largest - base) + exp_fast(score - base);
    largest = larger;
  }
  const float in_warp = warp_max(largest);
  sum = warp_sum(sum * exp_fast(largest - finite_base(in_warp)));
  if (threadIdx.x % 32 == 0) {
    warp_largest[threadIdx.x / 32] = in_warp;
    warp_total[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  largest = -INFINITY;
  for (int warp = 0; warp < WARPS; ++warp) largest = fmaxf(largest, warp_largest[warp]);
  float total = 0.0f;
  for (int warp = 0; warp < WARPS; ++warp)
    total += warp_total[warp] * exp_fast(warp_largest[warp] - finite_base(largest));

  // a row that sees nothing has total 0: 0 / 0 is NaN in every column, as in PyTorch
  const float base = finite_base(largest);
  for (int column = threadIdx.x; column < tk; column += THREADS) {
    const float score = column <= last ? to_float(from[column]) * scale : -INFINITY;
    to[column] = from_float<T>(exp_fast(score - base) / total);
  }
}

template <typename T>
static cudaError_t launch(const SoftmaxCall& call) {
  softmax_v02_fused<T><<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.scores), static_cast<T*>(call.out), call.tq, call.tk, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t softmax_v02_fused(const SoftmaxCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
