// Launchers of the residual addition, free of torch: contiguous elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct ResidualCall {
  const void* x;
  const void* y;
  void* out;
  int64_t elements;  // 1 or more
  DType dtype;
  cudaStream_t stream;
};

cudaError_t residual_v01_element(const ResidualCall& call);
cudaError_t residual_v02_vector(const ResidualCall& call);
