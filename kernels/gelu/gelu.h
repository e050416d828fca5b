// Launchers of the GELU kernels, free of torch: contiguous (rows, columns) elements, with or without a bias.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct GeluCall {
  const void* x;
  const void* bias;  // `columns` elements, or null: plain GELU
  void* out;
  int64_t elements;  // 1 or more
  int columns;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t gelu_v01_naive(const GeluCall& call);
cudaError_t gelu_v02_vector(const GeluCall& call);
