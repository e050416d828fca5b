// Launchers of the encoder (token plus position embedding), without torch: contiguous tensors.
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

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const EncoderCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& ids, const torch::Tensor& tokens, const torch::Tensor& positions) {
  const DType dtype = check_operands("encoder", tokens, {positions});
  TORCH_CHECK(
      ids.device() == tokens.device() && ids.is_contiguous() && ids.dim() == 2 && ids.scalar_type() == at::kLong,
      "encoder takes contiguous int64 ids (B, T) on the GPU of the embeddings");
  TORCH_CHECK(tokens.dim() == 2 && positions.dim() == 2 && positions.size(0) == ids.size(1) &&
                  positions.size(1) == tokens.size(1),
              "encoder takes tokens (V, C) and positions (T, C)");
  const c10::cuda::CUDAGuard guard(ids.device());
  torch::Tensor out = torch::empty({ids.size(0), ids.size(1), tokens.size(1)}, tokens.options());
  if (out.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({ids.const_data_ptr<int64_t>(), tokens.const_data_ptr(), positions.const_data_ptr(),
                         out.mutable_data_ptr(), count_rows("encoder", out), tokens.size(0),
                         static_cast<int>(ids.size(1)), static_cast<int>(tokens.size(1)), dtype, current_stream()}));
  return out;
}
#endif
