// Packets of 2 to 16 bytes, which one instruction loads or stores, and conversion to and from float. Accesses are
// plain: once rows are prefetched into L2, streaming and no-allocate hints hardly change a time.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

template <int BYTES>
struct Bits;
template <>
struct Bits<2> {
  using type = uint16_t;
};
template <>
struct Bits<4> {
  using type = uint32_t;
};
template <>
struct Bits<8> {
  using type = uint2;
};
template <>
struct Bits<16> {
  using type = uint4;
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// WIDTH elements of T, which one instruction moves. The address must be a multiple of the packet's size.
template <typename T, int WIDTH>
struct Packet {
  using Raw = typename Bits<WIDTH* static_cast<int>(sizeof(T))>::type;
  union {
    Raw raw;
    T values[WIDTH];
  };

  __device__ __forceinline__ Packet() {}

  __device__ __forceinline__ static Packet load(const T* from) {
    Packet packet;
    packet.raw = *reinterpret_cast<const Raw*>(from);
    return packet;
  }

  // powers[j] * factor. One instruction converts a pair to bf16, which is faster than one by one.
  __device__ __forceinline__ static Packet scaled(const float (&powers)[WIDTH], float factor) {
    Packet packet;
    if constexpr (sizeof(T) == 2 && WIDTH % 2 == 0) {
#pragma unroll
      for (int j = 0; j < WIDTH; j += 2)
        reinterpret_cast<__nv_bfloat162*>(packet.values)[j / 2] =
            __floats2bfloat162_rn(powers[j] * factor, powers[j + 1] * factor);
    } else {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) packet.values[j] = from_float<T>(powers[j] * factor);
    }
    return packet;
  }

  __device__ __forceinline__ void store(T* to) const { *reinterpret_cast<Raw*>(to) = raw; }
  // for data that is not read soon: L2 evicts it first
  __device__ __forceinline__ void store_streaming(T* to) const { __stcs(reinterpret_cast<Raw*>(to), raw); }
};

// Prefetches bytes into L2. Address and size must be multiples of 16. Does nothing below sm_90.
__device__ __forceinline__ void prefetch_l2(const void* from, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}
