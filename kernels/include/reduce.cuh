// Maximum and sum over a warp by shuffles, where every lane gets the result; the barrier of a row's threads; e^x.
#pragma once

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Waits for the G threads of one row; the rows of a block do not wait for each other.
template <int G, int ROWS>
__device__ __forceinline__ void join_row() {
  if constexpr (ROWS == 1) {
    __syncthreads();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(threadIdx.x) / G + 1), "n"(G) : "memory");
  }
}

// e^x in one instruction, with a relative error of 2^-22. Results below 2^-126 and of -inf are 0, of NaN NaN.
__device__ __forceinline__ float exp_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
  return result;
}
