// Launchers of the residual_layernorm kernels, without torch: contiguous (rows, columns) elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct ResidualLayernormCall {
  const void* x;
  const void* y;
  const void* weight;  // weight and bias have `columns` elements
  const void* bias;
  void* residual;
  void* out;
  int64_t rows;  // 1 to 2^31 - 1
  int columns;   // 1 or more
  float eps;
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const ResidualLayernormCall&);

template <Launcher LAUNCH>
std::tuple<torch::Tensor, torch::Tensor> run(const torch::Tensor& x, const torch::Tensor& y,
                                             const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
  const DType dtype = check_operands("residual_layernorm", x, {y, weight, bias});
  TORCH_CHECK(x.sizes() == y.sizes(), "residual_layernorm adds tensors of one shape");
  TORCH_CHECK(weight.numel() == x.size(-1) && bias.numel() == x.size(-1),
              "residual_layernorm takes weight and bias of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor residual = torch::empty_like(x), out = torch::empty_like(x);
  if (x.numel() == 0) return {residual, out};
  C10_CUDA_CHECK(LAUNCH({x.const_data_ptr(), y.const_data_ptr(), weight.const_data_ptr(), bias.const_data_ptr(),
                         residual.mutable_data_ptr(), out.mutable_data_ptr(), count_rows("residual_layernorm", x),
                         static_cast<int>(x.size(-1)), static_cast<float>(eps), dtype, current_stream()}));
  return {residual, out};
}
#endif
