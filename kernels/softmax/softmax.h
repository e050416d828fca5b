// Launchers of the softmax kernels, free of torch: contiguous (rows, Tk) scores, rows = B * nh * Tq.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct SoftmaxCall {
  const void* scores;
  void* out;
  float* workspace;  // v01 only: rows * Tk + 2 * rows floats
  int64_t rows;      // 1 to 2^31 - 1
  int tq;
  int tk;
  float scale;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t softmax_v01_separate(const SoftmaxCall& call);
cudaError_t softmax_v02_fused(const SoftmaxCall& call);
cudaError_t softmax_v03_causal(const SoftmaxCall& call);
cudaError_t softmax_v05_early(const SoftmaxCall& call);
cudaError_t softmax_v06_block(const SoftmaxCall& call);  // cudaErrorInvalidValue: rows too long for shared memory
cudaError_t softmax_v07_warp(const SoftmaxCall& call);
