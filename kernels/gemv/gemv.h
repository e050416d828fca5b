// Launchers of the gemv kernels, free of torch: out (N) = weight (N, K) x x (K) + bias (N), weight row-major.
#pragma once

#include <cuda_runtime.h>

#include "dtype.h"

struct GemvCall {
  const void* weight;
  const void* x;
  const void* bias;
  void* out;
  int n;  // each 1 or more
  int k;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t gemv_v01_naive(const GemvCall& call);
cudaError_t gemv_v02_warp(const GemvCall& call);
cudaError_t gemv_v04_early(const GemvCall& call);
cudaError_t gemv_v05_straight(const GemvCall& call);
