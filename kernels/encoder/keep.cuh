// A load of positions that L2 keeps for the sequences that follow.
#pragma once

#include <cstdint>

// Loads a packet of positions that L2 evicts last. The callers limit such packets to a small share of L2.
template <typename P, typename T>
__device__ __forceinline__ P load_and_keep(const T* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(P) == 16) {
    P packet;
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(packet.raw.x), "=r"(packet.raw.y), "=r"(packet.raw.z), "=r"(packet.raw.w)
                 : "l"(from), "l"(policy));
    return packet;
  }
#endif
  return P::load(from);
}
