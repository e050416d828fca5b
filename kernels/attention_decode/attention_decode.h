// Launchers of the attention_decode kernels, free of torch: one query a (batch, head) against the keys of a cache.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

constexpr int ATTENTION_DECODE_HEAD_SIZE = 64;

// Where the elements of (batch, head, token) start, in elements; the 64 of one token lie side by side.
struct AttentionDecodeStrides {
  int64_t batch;
  int64_t head;
  int64_t token;
};

struct AttentionDecodeCall {
  const void* q;  // its token stride is not used
  const void* k;
  const void* v;
  void* out;         // contiguous (batch, heads, 64)
  float* workspace;  // floats: attention_decode_workspace()
  AttentionDecodeStrides q_strides;
  AttentionDecodeStrides k_strides;
  AttentionDecodeStrides v_strides;
  int batch;  // each 1 or more, batch * heads at most 2^24
  int heads;
  int keys;
  float scale;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t attention_decode_v01_row(const AttentionDecodeCall& call);
cudaError_t attention_decode_v02_block(const AttentionDecodeCall& call);
cudaError_t attention_decode_v03_split(const AttentionDecodeCall& call);
cudaError_t attention_decode_v04_cluster(const AttentionDecodeCall& call);

// Floats that v03, and v04 where it runs as v03, keeps of its partial results.
int64_t attention_decode_workspace(const AttentionDecodeCall& call);
