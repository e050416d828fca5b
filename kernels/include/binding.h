// Helpers for the bindings in <op>.h: checks of operands, the current stream. No other header includes torch's.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include <limits>

#include "dtype.h"

inline cudaStream_t current_stream() { return at::cuda::getCurrentCUDAStream().stream(); }

// Throws if CUDA itself refused a launch, as opposed to our launcher, which refuses operands. It clears CUDA's error,
// because CUDA would keep it and a later call would report it.
inline void check_accepted(cudaError_t status) {
  TORCH_CHECK(cudaGetLastError() == cudaSuccess || status == cudaSuccess, "CUDA refused a launch (",
              cudaGetErrorString(status),
              "): a block may want more shared memory, registers or threads than this GPU has.");
}

// Returns the dtype of `first`. Throws unless every operand is contiguous, on the same GPU and of this dtype.
inline DType check_operands(const char* op, const torch::Tensor& first, std::initializer_list<torch::Tensor> others) {
  const auto type = first.scalar_type();
  TORCH_CHECK(first.is_cuda() && first.is_contiguous() && first.dim() >= 1, op, " takes contiguous CUDA tensors");
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, op, " takes float32 or bfloat16");
  for (const torch::Tensor& other : others)
    TORCH_CHECK(other.is_contiguous() && other.device() == first.device() && other.scalar_type() == type, op,
                " takes contiguous operands on one GPU, of one dtype");
  return type == at::kFloat ? DType::float32 : DType::bfloat16;
}

// Returns the number of rows of (..., C). Throws if there are more than 2^31 - 1, or more than 2^28 - 1 columns.
inline int64_t count_rows(const char* op, const torch::Tensor& tensor) {
  constexpr int64_t limit = std::numeric_limits<int>::max();
  const int64_t columns = tensor.size(-1), rows = columns ? tensor.numel() / columns : 0;
  TORCH_CHECK(rows <= limit && columns <= limit / 8, op, " takes at most 2^31 rows of 2^28 columns");
  return rows;
}
