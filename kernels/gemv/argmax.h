// The launcher that finds the largest value of each row, without torch. It is no rung of an op.
#pragma once

#include <cuda_runtime.h>

#include "dtype.h"

struct ArgmaxCall {
  const void* values;  // (rows, n), contiguous
  void* out;           // (rows) int64
  int rows;            // 1 or more, as n
  int n;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t gemv_argmax(const ArgmaxCall& call);
