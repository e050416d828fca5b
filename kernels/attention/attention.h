// Launchers of the attention kernels, free of torch: q, k, v, out (batch_heads, tokens, 64), contiguous.
//
//     out[i] = sum over j of softmax_j(scale * q[i] . k[j]) v[j]        j <= i, and j > i - window where there is one
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

constexpr int ATTENTION_HEAD_SIZE = 64;

struct AttentionCall {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* workspace;  // v01 only: batch_heads * tokens * tokens floats
  int batch_heads;   // B * nh, 1 or more
  int tokens;        // 1 or more
  int window;        // keys that a query sees, itself included; 0: all before it and itself
  float scale;       // above 0
  DType dtype;
  cudaStream_t stream;
};

// Whether 16-byte accesses may start at every operand.
inline bool aligned(const AttentionCall& call) {
  return (reinterpret_cast<uintptr_t>(call.q) | reinterpret_cast<uintptr_t>(call.k) |
          reinterpret_cast<uintptr_t>(call.v) | reinterpret_cast<uintptr_t>(call.out)) %
             16 ==
         0;
}

// Whether every launcher takes these sizes: indices of a head stay below 2^31.
inline bool sizes_fit(const AttentionCall& call) {
  return call.batch_heads >= 1 && call.tokens >= 1 && call.tokens <= 1 << 24 && call.window >= 0 && call.scale > 0.0f;
}

// The window as a number of keys in every case.
inline int visible_window(const AttentionCall& call) {
  return call.window > 0 && call.window < call.tokens ? call.window : call.tokens;
}

// Each returns cudaErrorInvalidValue for sizes, a window or a dtype that it does not take, cudaErrorMisalignedAddress
// for bases that are not 16-byte aligned and cudaErrorNotSupported for a GPU that it does not run on; see "Needs" in
// its source.
cudaError_t attention_v01_separate(const AttentionCall& call);   // float32, bfloat16; no window
cudaError_t attention_v02_per_query(const AttentionCall& call);  // float32, bfloat16; no window, 1024 tokens at most
cudaError_t attention_v03_tiled(const AttentionCall& call);      // float32, bfloat16
cudaError_t attention_v04_mma(const AttentionCall& call);        // bfloat16
cudaError_t attention_v05_wgmma(const AttentionCall& call);      // bfloat16
cudaError_t attention_v06_small(const AttentionCall& call);      // bfloat16
