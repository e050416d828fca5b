// Launchers of the layernorm kernels, free of torch: contiguous (rows, columns) elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct LayernormCall {
  const void* x;
  const void* weight;  // `columns` elements, as bias
  const void* bias;
  void* out;
  int64_t rows;  // 1 to 2^31 - 1
  int columns;   // 1 or more
  float eps;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t layernorm_v01_thread(const LayernormCall& call);
cudaError_t layernorm_v02_shared(const LayernormCall& call);
cudaError_t layernorm_v03_shuffle(const LayernormCall& call);
cudaError_t layernorm_v04_constant(const LayernormCall& call);
cudaError_t layernorm_v05_vector(const LayernormCall& call);
