// What v05 and v06 share: tiles of attention on Hopper's warpgroup instructions.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "attention.h"
#include "hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr float LOG2_E = 1.4426950408889634f;

// The matrix descriptor of a 128-byte swizzled tile, with leading and stride offsets of 1024 bytes. `address` is in
// units of 16 bytes.
__device__ __forceinline__ uint64_t tile_at(uint32_t address) {
  return static_cast<uint64_t>(address + (64U << 16)) | static_cast<uint64_t>(64U | 1U << 30) << 32;
}

// Keeps the compiler from moving uses of `values` across this point. It does not know that wgmma still works on them.
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

// The functions below work on the 64 queries of a warpgroup, 16 for each warp. Of these 16, a lane has rows lane / 4
// and lane / 4 + 8. Value i of an array is in row i / 2 % 2 of the two, in column i / 4 * 8 + lane % 4 * 2 + i % 2.

// Computes the scores of queries and keys. Both addresses are in units of 16 bytes.
template <int N>
__device__ __forceinline__ void multiply_keys(float (&scores)[N], uint32_t queries, uint32_t keys) {
  begin_multiply();
#pragma unroll
  for (int part = 0; part < 4; ++part)
    multiply<false>(scores, tile_at(queries + part * 2), tile_at(keys + part * 2), part > 0);
  commit_multiply();
}

// Sets the scores of keys after their query to -inf, in a tile on the diagonal. `ahead` is the lane's first key minus
// its first query.
template <int N>
__device__ __forceinline__ void hide_ahead(float (&scores)[N], int ahead) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (ahead > i / 2 % 2 * 8 - (i / 4 * 8 + i % 2)) scores[i] = -INFINITY;
}

// Updates the largest score of each row with new scores, and rescales `total` and `sums` to it. `base` returns the
// largest score in units of log 2, which weigh_values() subtracts from the exponents.
template <int N>
__device__ __forceinline__ void raise_largest(const float (&scores)[N], float to_log2, float (&largest)[2],
                                              float (&total)[2], float (&sums)[32], float (&base)[2]) {
  float factor[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float most = scores[row * 2], also = scores[row * 2 + 1];
#pragma unroll
    for (int i = row * 2 + 4; i < N; i += 4) most = max_or_nan(most, scores[i]), also = max_or_nan(also, scores[i + 1]);
    most = max_or_nan(most, also);
    most = max_or_nan(most, __shfl_xor_sync(0xffffffffU, most, 1));
    most = max_or_nan(most, __shfl_xor_sync(0xffffffffU, most, 2));
    const float before = largest[row];
    largest[row] = max_or_nan(before, most);
    base[row] = largest[row] * to_log2;
    factor[row] = exp2_fast((before - largest[row]) * to_log2);
    total[row] *= factor[row];
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) sums[i] *= factor[i / 2 % 2];
}

// Turns the scores of keys FIRST * 16 to END * 16 of a tile into weights, packed in pairs as a register operand. Then
// starts to multiply the tile's values by them. With `keep` false, the tile's first product overwrites `sums` instead
// of adding to it.
template <int FIRST, int END, int N>
__device__ __forceinline__ void weigh_values(float (&scores)[N], uint32_t (&weights)[N / 2], float (&total)[2],
                                             float (&sums)[32], const float (&base)[2], float to_log2, uint32_t values,
                                             bool keep) {
  float sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = FIRST * 8; i < END * 8; ++i) {
    scores[i] = exp2_fast(scores[i] * to_log2 - base[i / 2 % 2]);
    sum[i / 2 % 2] += scores[i];
  }
#pragma unroll
  for (int i = FIRST * 4; i < END * 4; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
  total[0] += sum[0], total[1] += sum[1];
  if (FIRST == 0) hold(sums);
  begin_multiply();
#pragma unroll
  for (int part = FIRST; part < END; ++part)
    multiply<true>(sums, weights + part * 4, tile_at(values + part * 128), part > 0 || keep);
}

#endif

// Makes a tensor map of `operand` (heads, tokens, 64) with boxes of `box_rows` x 64; no box crosses into the next head.
// Returns false if the driver refuses.
inline bool map_heads(CUtensorMap& map, const void* operand, const AttentionCall& call, uint32_t box_rows) {
  return make_map(map, operand, call.tokens, ATTENTION_HEAD_SIZE, ATTENTION_HEAD_SIZE, box_rows, BOX, call.batch_heads);
}
