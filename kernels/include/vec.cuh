// Packets of 2 to 16 bytes: streaming loads and stores, and their conversion to and from float.
// Streaming: each byte of these kernels is touched once, so nothing is kept in L1 and written lines leave L2 first.
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

// WIDTH elements of T moved by one instruction; the address must be a multiple of the packet's size.
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
    const Raw* address = reinterpret_cast<const Raw*>(from);
    if constexpr (sizeof(Raw) == 16) {
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(packet.raw.x), "=r"(packet.raw.y), "=r"(packet.raw.z), "=r"(packet.raw.w)
                   : "l"(address));
    } else {
      packet.raw = __ldcs(address);
    }
    return packet;
  }

  __device__ __forceinline__ void store(T* to) const { __stcs(reinterpret_cast<Raw*>(to), raw); }
};
