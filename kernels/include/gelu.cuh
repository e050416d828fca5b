// GPT-2's GELU with two special-function instructions.
#pragma once

#include "reduce.cuh"

__device__ __forceinline__ float reciprocal(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// For y far below 0 the power is infinite, and its reciprocal 0. -inf gives NaN, as 0.5 * y * (1 + tanh(u)) does.
__device__ __forceinline__ float gelu(float y) {
  constexpr float LINEAR = -1.5957691216057308f, CUBIC = -1.5957691216057308f * 0.044715f;  // -2 sqrt(2 / pi)
  return y * reciprocal(1.0f + exp_fast(y * fmaf(CUBIC, y * y, LINEAR)));
}
