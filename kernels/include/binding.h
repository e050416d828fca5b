// For the part of <op>.h that binds, the only place of the torch headers: checks of operands, the current stream.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include <limits>

#include "dtype.h"

inline cudaStream_t current_stream() { return at::cuda::getCurrentCUDAStream().stream(); }

// Throws where CUDA itself refused a launch, and not our launcher its operands. CUDA keeps such an error, and a later call
// would be blamed for it.
inline void check_accepted(cudaError_t status) {
  TORCH_CHECK(cudaGetLastError() == cudaSuccess || status == cudaSuccess, "CUDA refused a launch (",
              cudaGetErrorString(status),
              "): a block may want more shared memory, registers or threads than this GPU has.");
}

// Every operand lies contiguous on the GPU of `first`, in its dtype; returns that dtype.
inline DType check_operands(const char* op, const torch::Tensor& first, std::initializer_list<torch::Tensor> others) {
  const auto type = first.scalar_type();
  TORCH_CHECK(first.is_cuda() && first.is_contiguous() && first.dim() >= 1, op, " takes contiguous CUDA tensors");
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, op, " takes float32 or bfloat16");
  for (const torch::Tensor& other : others)
    TORCH_CHECK(other.is_contiguous() && other.device() == first.device() && other.scalar_type() == type, op,
                " takes contiguous operands on one GPU, of one dtype");
  return type == at::kFloat ? DType::float32 : DType::bfloat16;
}

// Rows of (..., C): at most 2^31 - 1 of them.
inline int64_t count_rows(const char* op, const torch::Tensor& tensor) {
  constexpr int64_t limit = std::numeric_limits<int>::max();
  const int64_t columns = tensor.size(-1), rows = columns ? tensor.numel() / columns : 0;
  TORCH_CHECK(rows <= limit && columns <= limit / 8, op, " takes at most 2^31 rows of 2^28 columns");
  return rows;
}
