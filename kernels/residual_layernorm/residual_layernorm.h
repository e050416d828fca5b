// Launchers of the residual_layernorm kernels, free of torch: contiguous (rows, columns) elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct ResidualLayernormCall {
  const void* x;
  const void* y;
  const void* weight;  // `columns` elements, as bias
  const void* bias;
  void* residual;
  void* out;
  int64_t rows;  // 1 to 2^31 - 1
  int columns;   // 1 or more
  float eps;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t residual_layernorm_v01_shuffle(const ResidualLayernormCall& call);
cudaError_t residual_layernorm_v02_vector(const ResidualLayernormCall& call);
