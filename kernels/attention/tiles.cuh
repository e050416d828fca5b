// Tiles of attention on Hopper's warpgroup instructions: what v05 and v06 share.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <utility>

#include "attention.h"
#include "hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr float LOG2_E = 1.4426950408889634f;

// Descriptor of a swizzled tile by its address in units of 16 bytes: what comes before it is the same for all.
__device__ __forceinline__ uint64_t tile_at(uint32_t address) {
  return static_cast<uint64_t>(address + (64U << 16)) | static_cast<uint64_t>(64U | 1U << 30) << 32;
}

// The compiler keeps what is computed before and after apart: it knows nothing of instructions that run on.
template <int N>
__device__ __forceinline__ void hold(float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float max_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

#endif

// Boxes of `box_rows` x 64 of (heads, tokens, 64), 128-byte swizzled in shared memory, that end with their head.
inline bool make_map(EncodeTensorMap encode, CUtensorMap& map, const void* operand, int heads, int tokens,
                     uint32_t box_rows) {
  const cuuint64_t sizes[] = {ATTENTION_HEAD_SIZE, static_cast<cuuint64_t>(tokens), static_cast<cuuint64_t>(heads)};
  const cuuint64_t strides[] = {ATTENTION_HEAD_SIZE * 2, static_cast<cuuint64_t>(tokens) * ATTENTION_HEAD_SIZE * 2};
  const cuuint32_t box[] = {BOX, box_rows, 1}, steps[] = {1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(operand), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Multiprocessors of the GPU at hand if it runs instructions of sm_90a, else 0.
inline cudaError_t hopper_multiprocessors(int& sm_count) {
  int device = 0, major = 0, minor = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  for (const auto& [to, what] :
       {std::pair{&sm_count, cudaDevAttrMultiProcessorCount}, std::pair{&major, cudaDevAttrComputeCapabilityMajor},
        std::pair{&minor, cudaDevAttrComputeCapabilityMinor}})
    if (const cudaError_t status = cudaDeviceGetAttribute(to, what, device)) return status;
  if (major != 9 || minor != 0) sm_count = 0;
  return cudaSuccess;
}
