// Launchers of the residual addition, without torch: contiguous elements.
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

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const ResidualCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& x, const torch::Tensor& y) {
  const DType dtype = check_operands("residual", x, {y});
  TORCH_CHECK(x.sizes() == y.sizes(), "residual adds tensors of one shape");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  C10_CUDA_CHECK(
      LAUNCH({x.const_data_ptr(), y.const_data_ptr(), out.mutable_data_ptr(), x.numel(), dtype, current_stream()}));
  return out;
}
#endif
