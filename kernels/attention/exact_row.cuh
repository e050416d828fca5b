// Computes one row of attention again, key by key, where a tiled kernel's result holds a NaN or an infinity.
//
// A tile multiplies the weight 0 of a key that a row does not see by that key's value, and 0 * inf is NaN. Scores far
// beyond 2^31 may leave the range of an exponential that is shifted by a rounded maximum. Both are rare, and both give
// a result that is not finite. So the kernel tests its result once, and repairs it here.
#pragma once

#include "attention.h"
#include "reduce.cuh"
#include "vec.cuh"

// Call it with a whole warp. q_row and out_row are (64), k and v (tokens, 64). The row sees keys `first` to `last`,
// both included. The output is NaN if the row sees a NaN, a score of +inf, or only scores of -inf.
template <typename T>
__device__ __noinline__ void attention_exact_row(const T* q_row, const T* k, const T* v, T* out_row, int first,
                                                 int last, float scale) {
  static_assert(ATTENTION_HEAD_SIZE == 64, "two elements a lane");
  const int lane = threadIdx.x % 32;
  const float q0 = to_float(q_row[lane]), q1 = to_float(q_row[lane + 32]);
  const auto score = [&](int key) {
    const T* row = k + static_cast<int64_t>(key) * ATTENTION_HEAD_SIZE;
    return scale * warp_sum(q0 * to_float(row[lane]) + q1 * to_float(row[lane + 32]));
  };
  float largest = -INFINITY;
  for (int key = first; key <= last; ++key) largest = fmaxf(largest, score(key));
  float sum = 0.0f, out0 = 0.0f, out1 = 0.0f;
  for (int key = first; key <= last; ++key) {
    const T* row = v + static_cast<int64_t>(key) * ATTENTION_HEAD_SIZE;
    const float weight = exp_fast(score(key) - largest);
    sum += weight;
    out0 += weight * to_float(row[lane]);
    out1 += weight * to_float(row[lane + 32]);
  }
  out_row[lane] = from_float<T>(out0 / sum);
  out_row[lane + 32] = from_float<T>(out1 / sum);
}
