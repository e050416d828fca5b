// Launchers of the GELU kernels, without torch: contiguous (rows, columns) elements, with or without a bias.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct GeluCall {
  const void* x;
  const void* bias;  // `columns` elements; null: no bias
  void* out;
  int64_t elements;  // 1 or more
  int columns;
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const GeluCall&);

inline torch::Tensor run(Launcher launch, const torch::Tensor& x, const std::optional<torch::Tensor>& bias) {
  const DType dtype = bias ? check_operands("bias_gelu", x, {*bias}) : check_operands("gelu", x, {});
  TORCH_CHECK(!bias || bias->numel() == x.size(-1), "bias_gelu takes a bias of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  count_rows("gelu", x);
  C10_CUDA_CHECK(launch({x.const_data_ptr(), bias ? bias->const_data_ptr() : nullptr, out.mutable_data_ptr(), x.numel(),
                         static_cast<int>(x.size(-1)), dtype, current_stream()}));
  return out;
}

template <Launcher LAUNCH>
torch::Tensor gelu(const torch::Tensor& x) {
  return run(LAUNCH, x, std::nullopt);
}

template <Launcher LAUNCH>
torch::Tensor bias_gelu(const torch::Tensor& x, const torch::Tensor& bias) {
  return run(LAUNCH, x, bias);
}
#endif
