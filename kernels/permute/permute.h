// Launchers of the permutations, free of torch: they move elements of 2 or 4 bytes and do not look at them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct PermuteCall {
  const void* from;  // split: (B, T, 3, nh, hs); merge: (B, nh, T, hs)
  void* to[3];       // split: q, k, v of (B, nh, T, hs); merge: one (B, T, nh, hs)
  int64_t elements;  // B * T * nh * hs, 1 or more
  int tokens;
  int heads;
  int head_size;
  int element_bytes;
  cudaStream_t stream;
};

cudaError_t permute_v01_split(const PermuteCall& call);
cudaError_t permute_v01_merge(const PermuteCall& call);
cudaError_t permute_v02_split(const PermuteCall& call);
cudaError_t permute_v02_merge(const PermuteCall& call);
