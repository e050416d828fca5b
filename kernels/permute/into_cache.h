// The launcher that splits qkv by head and writes k and v into a KV cache, without torch. It is no rung of an op.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct IntoCacheCall {
  const void* qkv;   // (B, T, 3, nh, hs)
  void* q;           // (B, nh, T, hs)
  void* keys;        // (B, nh, capacity, hs), of which the call writes T rows of each head, from row `first` on
  void* values;      // as keys
  void* k;           // (B, nh, T, hs), a second copy of what goes into keys; null: the call writes none
  void* v;           // as k, of values; null where k is null
  int64_t elements;  // B * T * nh * hs, 1 or more
  int tokens;
  int heads;
  int head_size;
  int capacity;  // first + T or more
  int first;
  int element_bytes;
  cudaStream_t stream;
};

cudaError_t permute_into_cache(const IntoCacheCall& call);
