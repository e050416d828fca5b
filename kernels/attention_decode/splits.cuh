// Into how many parts the keys of a head are split. Only count_multiprocessors() calls CUDA.
#pragma once

#include <algorithm>

#include "attention_decode.h"

struct Splits {
  int count;
  int keys;  // in every split but the last
};

// SPLIT_BLOCKS: blocks per SM. SPLIT_STEP: the keys of a split are a multiple of it.
constexpr int SPLIT_BLOCKS = 3, SPLIT_STEP = 64;

// Splits the keys of each of `rows` heads; no split is empty. op.py has the same rule for its byte model.
inline Splits split_keys(int rows, int keys, int multiprocessors) {
  const int steps = (keys - 1) / SPLIT_STEP + 1;
  const int most = std::clamp(SPLIT_BLOCKS * multiprocessors / rows, 1, steps);
  const int each = (steps - 1) / most + 1;
  return {(steps - 1) / each + 1, each * SPLIT_STEP};
}

inline cudaError_t count_multiprocessors(int& count) {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}
