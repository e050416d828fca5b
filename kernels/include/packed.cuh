// 16-byte packets as four words: a load that leaves no line in L1, and sums word by word, of bf16 two an instruction.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// Loads a packet that no thread loads again: L1 keeps no line for it.
__device__ __forceinline__ uint4 load_once(const uint4* from) {
  uint4 raw;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "l"(from));
  return raw;
}

template <typename T>
__device__ __forceinline__ uint32_t sum_of_words(uint32_t left, uint32_t right);
template <>
__device__ __forceinline__ uint32_t sum_of_words<float>(uint32_t left, uint32_t right) {
  return __float_as_uint(__uint_as_float(left) + __uint_as_float(right));
}
template <>
__device__ __forceinline__ uint32_t sum_of_words<__nv_bfloat16>(uint32_t left, uint32_t right) {
  const __nv_bfloat162 sum =
      __hadd2(reinterpret_cast<const __nv_bfloat162&>(left), reinterpret_cast<const __nv_bfloat162&>(right));
  return reinterpret_cast<const uint32_t&>(sum);
}

template <typename T>
__device__ __forceinline__ uint4 sum_of_packets(uint4 left, uint4 right) {
  return {sum_of_words<T>(left.x, right.x), sum_of_words<T>(left.y, right.y), sum_of_words<T>(left.z, right.z),
          sum_of_words<T>(left.w, right.w)};
}
