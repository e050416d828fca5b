// Launchers of the encoder (token plus position embedding), free of torch: contiguous tensors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct EncoderCall {
  const int64_t* ids;     // (rows,)
  const void* tokens;     // (vocabulary, columns)
  const void* positions;  // (T, columns): row i of the output takes position i % T
  void* out;              // (rows, columns)
  int64_t rows;           // B * T, 1 to 2^31 - 1
  int64_t vocabulary;
  int length;  // T
  int columns;
  DType dtype;
  cudaStream_t stream;
};

cudaError_t encoder_v01_element(const EncoderCall& call);
cudaError_t encoder_v02_vector(const EncoderCall& call);
cudaError_t encoder_v04_reuse(const EncoderCall& call);
