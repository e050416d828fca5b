// float16, for the kernels that take it: a T4 has no bfloat16. Other kernels include vec.cuh alone.
#pragma once

#include <cuda_fp16.h>

#include "dtype.h"
#include "vec.cuh"

constexpr DType FLOAT16 = DType{2};  // after the types of dtype.h, which every op takes

__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

template <int WIDTH>
struct Packet<__half, WIDTH> {
  static_assert(WIDTH == 1 || WIDTH % 2 == 0, "pairs are converted together");
  using Raw = typename Bits<WIDTH * 2>::type;
  union {
    Raw raw;
    __half values[WIDTH];
  };

  __device__ __forceinline__ Packet() {}

  __device__ __forceinline__ static Packet load(const __half* from) {
    Packet packet;
    packet.raw = *reinterpret_cast<const Raw*>(from);
    return packet;
  }

  __device__ __forceinline__ static Packet scaled(const float (&powers)[WIDTH], float factor) {
    Packet packet;
    if constexpr (WIDTH % 2 == 0) {  // one by one, packets of four go through local memory
#pragma unroll
      for (int j = 0; j < WIDTH; j += 2)
        reinterpret_cast<__half2*>(packet.values)[j / 2] =
            __floats2half2_rn(powers[j] * factor, powers[j + 1] * factor);
    } else {
      packet.values[0] = __float2half_rn(powers[0] * factor);
    }
    return packet;
  }

  __device__ __forceinline__ void store(__half* to) const { *reinterpret_cast<Raw*>(to) = raw; }
};
