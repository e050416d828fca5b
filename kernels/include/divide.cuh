// Division of 32-bit numbers by a divisor that the host knows.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Divides numbers below 2^31 (Granlund and Montgomery 1994, "Division by Invariant Integers using Multiplication").
struct Divisor {
  uint32_t by, factor, shift;

  explicit Divisor(uint32_t divisor) : by(divisor), shift(0) {
    while ((uint64_t{1} << shift) < by) ++shift;
    factor = static_cast<uint32_t>((((uint64_t{1} << shift) - by) << 32) / by + 1);
  }

  __device__ __forceinline__ uint32_t quotient(uint32_t number) const {
    return (__umulhi(number, factor) + number) >> shift;
  }
};
