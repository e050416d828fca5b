// Launchers of the layernorm kernels, without torch: contiguous (rows, columns) elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct LayernormCall {
  const void* x;
  const void* weight;  // weight and bias have `columns` elements
  const void* bias;
  void* out;
  int64_t rows;  // 1 to 2^31 - 1
  int columns;   // 1 or more
  float eps;
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const LayernormCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
  const DType dtype = check_operands("layernorm", x, {weight, bias});
  TORCH_CHECK(weight.numel() == x.size(-1) && bias.numel() == x.size(-1),
              "layernorm takes weight and bias of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({x.const_data_ptr(), weight.const_data_ptr(), bias.const_data_ptr(), out.mutable_data_ptr(),
                         count_rows("layernorm", x), static_cast<int>(x.size(-1)), static_cast<float>(eps), dtype,
                         current_stream()}));
  return out;
}
#endif
