// What ring.cuh and v19 share: the inner product of fp32 tiles, whose FFMAs are in an order that saves register reads.
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The compiler moves no arithmetic across this instruction. In v19 it does nothing, which has let the next launch start
// already. Behind v12, v13 and v15 it lets a launch with programmatic dependent launch start early; all blocks are resident
// then, and such a launch waits before it reads or writes. A scheduler reads two registers
// per cycle and lane. So an FFMA, which has three, takes one and a half cycles unless it reuses an operand of the FFMA
// before. Free to reorder, the compiler loses this reuse so often that it costs a quarter of the cycles. In the order
// below, one operand serves sixteen FFMAs.
__device__ __forceinline__ void keep_order() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

__device__ __forceinline__ void multiply_add(float& sum, float left, float right) {
  asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sum) : "f"(left), "f"(right));
}

__device__ __forceinline__ void read_shared(float (&to)[4], uint32_t from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from));
}

// Adds left * right to row `y` of a lane's sums, in a step in K that is odd or even as `now`. Columns go forth and back, so
// that the right operand is reused at a turn. The turns are where the register of the next left operand, odd or even as
// the step is, has another bank than its sum.
template <int TN>
__device__ __forceinline__ void multiply_row(float (&sums)[TN], float left, const float (&right)[TN / 4][4], int y,
                                             int now) {
#pragma unroll
  for (int i = 0; i < TN; ++i) {
    const int walked = y % 2 ? TN - 1 - i : i;
    const int x = now == 0 ? (walked >= TN - 2 ? 2 * TN - 3 - walked : walked) : walked < 2 ? 1 - walked : walked;
    multiply_add(sums[x], left, right[x / 4][x % 4]);
  }
}

// The offset in bytes of a row's first 16-byte chunk in the left tile, as TMA swizzles rows of BK words.
// The other chunks are at the xor with their own offset.
template <int BK>
__device__ __forceinline__ constexpr uint32_t twist(int row) {
  return (BK == 8 ? row / 4 % 2 : BK == 16 ? row / 2 % 4 : row % 8) * 16;
}

#endif
