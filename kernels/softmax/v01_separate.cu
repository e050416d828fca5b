// softmax v01_separate: one launch per step: scale and mask, row maximum, exponentials, row sum, division.
// Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq; workspace N * Tk + 2 N floats.
// Needs    nothing
// Moves    8 element passes over DRAM (fp32): 2 + 1 + 2 + 1 + 2.
// Versus   the PyTorch chain: the same idea by hand, with each step of the softmax in its own kernel.
// Source   Milakov and Gimelshein 2018, arXiv:1805.02867, "safe softmax".
#include "check.cuh"
#include "reduce.cuh"
#include "softmax.h"
#include "vec.cuh"

#ifndef SOFTMAX_V01_THREADS
#define SOFTMAX_V01_THREADS 256
#endif

namespace {
constexpr int THREADS = SOFTMAX_V01_THREADS;
}

template <typename T>
__global__ void softmax_v01_scale_mask(const T* scores, float* work, int64_t elements, int tq, int tk, float scale) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= elements) return;
  const int64_t row = at / tk;
  const int column = static_cast<int>(at - row * tk);
  const bool visible = column <= row % tq + tk - tq;
  work[at] = visible ? to_float(scores[at]) * scale : -INFINITY;
}

// One warp per row. fmaxf ignores a NaN; the exponentials keep it.
__global__ void softmax_v01_row_max(const float* work, float* row_max, int64_t rows, int tk) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  float largest = -INFINITY;
  for (int column = threadIdx.x % 32; column < tk; column += 32) largest = fmaxf(largest, work[row * tk + column]);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) row_max[row] = largest;
}

__global__ void softmax_v01_exponentiate(float* work, const float* row_max, int64_t elements, int tk) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < elements) work[at] = exp_fast(work[at] - row_max[at / tk]);
}

__global__ void softmax_v01_row_sum(const float* work, float* row_sum, int64_t rows, int tk) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int column = threadIdx.x % 32; column < tk; column += 32) sum += work[row * tk + column];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) row_sum[row] = sum;
}

template <typename T>
__global__ void softmax_v01_divide(const float* work, const float* row_sum, T* out, int64_t elements, int tk) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < elements) out[at] = from_float<T>(work[at] / row_sum[at / tk]);
}

template <typename T>
static cudaError_t launch(const SoftmaxCall& call) {
  const int64_t elements = call.rows * call.tk;
  float* row_max = call.workspace + elements;
  float* row_sum = row_max + call.rows;
  const int64_t element_blocks = (elements + THREADS - 1) / THREADS;
  if (element_blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  const unsigned by_element = static_cast<unsigned>(element_blocks);
  const unsigned by_row = static_cast<unsigned>((call.rows + THREADS / 32 - 1) / (THREADS / 32));

  softmax_v01_scale_mask<T><<<by_element, THREADS, 0, call.stream>>>(static_cast<const T*>(call.scores), call.workspace,
                                                                     elements, call.tq, call.tk, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  softmax_v01_row_max<<<by_row, THREADS, 0, call.stream>>>(call.workspace, row_max, call.rows, call.tk);
  RETURN_IF_LAUNCH_FAILED();
  softmax_v01_exponentiate<<<by_element, THREADS, 0, call.stream>>>(call.workspace, row_max, elements, call.tk);
  RETURN_IF_LAUNCH_FAILED();
  softmax_v01_row_sum<<<by_row, THREADS, 0, call.stream>>>(call.workspace, row_sum, call.rows, call.tk);
  RETURN_IF_LAUNCH_FAILED();
  softmax_v01_divide<T>
      <<<by_element, THREADS, 0, call.stream>>>(call.workspace, row_sum, static_cast<T*>(call.out), elements, call.tk);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t softmax_v01_separate(const SoftmaxCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
