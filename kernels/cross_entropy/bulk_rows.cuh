// What the kernels share whose rows come by bulk copies: the copy, powers sent to a block of the cluster, sums of packets.
#pragma once

#include "hopper.cuh"
#include "online.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Copies 16-byte packets from global to shared memory; the barrier counts the bytes.
__device__ __forceinline__ void load_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Writes a warp's powers to block `rank` of the cluster, whose barrier counts the bytes. An arrival that releases would be a
// MEMBAR.ALL.GPU instead, which waits for all gradients that the warp has stored. st.async needs a launch with clusters.
__device__ __forceinline__ void send(uint32_t place, uint32_t barrier, int rank, Powers powers) {
  asm volatile(
      "{\n"
      ".reg .b32 there, bar;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 bar, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [bar];\n"
      "}\n" ::"r"(place),
      "r"(barrier), "r"(rank), "f"(powers.largest), "f"(powers.sum)
      : "memory");
}

__device__ __forceinline__ float largest_of(uint4 raw, float) {
  return fmaxf(fmaxf(__uint_as_float(raw.x), __uint_as_float(raw.y)),
               fmaxf(__uint_as_float(raw.z), __uint_as_float(raw.w)));
}

// bf16: two an instruction
__device__ __forceinline__ float largest_of(uint4 raw, __nv_bfloat16) {
  const auto pair = [](uint32_t word) { return reinterpret_cast<const __nv_bfloat162&>(word); };
  const float2 both = __bfloat1622float2(__hmax2(__hmax2(pair(raw.x), pair(raw.y)), __hmax2(pair(raw.z), pair(raw.w))));
  return fmaxf(both.x, both.y);
}

constexpr float LOG2_OF_E = 1.4426950408889634f;
// For |shift| < SMALL, a power of bf16 takes one instruction less: 2^(x * LOG2_OF_E - product). The product
// LOG2_OF_E * shift is rounded, by at most 6.1e-5. It is the same for all powers of a sum, so the sum makes up for it.
constexpr float SMALL = 1024.0f;
__device__ __forceinline__ float power(__nv_bfloat16 x, float product) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(fmaf(to_float(x), LOG2_OF_E, -product)));
  return result;
}

// Adds the elements of `COUNT` packets, as add() of online.cuh does, in two sums that do not wait for each other.
template <typename T, int COUNT>
__device__ __forceinline__ void add_packets(Powers& powers, const Packet<T, 16 / sizeof(T)> (&part)[COUNT]) {
  float largest = powers.largest;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) largest = fmaxf(largest, largest_of(part[k].raw, T()));
  const float shift = shift_of(largest);
  float sum[2] = {};
  const auto add_all = [&](auto power_of) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll
      for (int j = 0; j < 16 / static_cast<int>(sizeof(T)); ++j) sum[j % 2] += power_of(part[k].values[j]);
    return sum[0] + sum[1];
  };
  const auto exact = [&](T x) { return exp_fast(to_float(x) - shift); };
  float added;
  if constexpr (sizeof(T) == 4) {
    added = add_all(exact);
  } else if (fabsf(shift) < SMALL) {
    constexpr float LN_2 = 0.6931471805599453f;
    const float product = LOG2_OF_E * shift, lost = fmaf(LOG2_OF_E, shift, -product);
    added = add_all([&](T x) { return power(x, product); }) * fmaf(-LN_2, lost, 1.0f);
  } else {
    added = add_all(exact);
  }
  powers = {largest, fmaf(powers.sum, exp_fast(powers.largest - shift), added)};
}

__device__ __forceinline__ Powers merged_in_warp(Powers powers) {
  const float largest = warp_max(powers.largest);
  return {largest, warp_sum(powers.sum * exp_fast(powers.largest - shift_of(largest)))};
}
#endif
