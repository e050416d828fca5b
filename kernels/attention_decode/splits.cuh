// Into how many parts the keys of a head are split. Free of CUDA calls but for the count of multiprocessors.
#pragma once

#include <algorithm>

#include "attention_decode.h"

struct Splits {
  int count;
  int keys;  // of every split, but for the last
};

// Blocks that a multiprocessor is given, and of what the keys of a split are a multiple.
constexpr int SPLIT_BLOCKS = 3, SPLIT_STEP = 64;

// None is empty. op.py has the same rule, for its byte model.
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
