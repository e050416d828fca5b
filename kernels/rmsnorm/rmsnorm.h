// Launchers of the rmsnorm kernels, without torch: contiguous (rows, columns) elements, forward and backward.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct RmsnormCall {
  const void* gradient;  // of the output; backward alone
  const void* x;
  const void* weight;  // `columns` elements
  void* out;           // forward: the normalised rows; backward: the gradient of x
  void* of_weight;     // backward alone: the gradient of the weight
  float* workspace;    // backward alone: partial_rows * columns floats, and no less than `rows`
  int partial_rows;
  int64_t rows;  // 1 to 2^31 - 1
  int columns;   // 1 or more
  float eps;
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include <algorithm>
#include <tuple>

#include "binding.h"

using Launcher = cudaError_t (*)(const RmsnormCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
  const DType dtype = check_operands("rmsnorm", x, {weight});
  TORCH_CHECK(weight.numel() == x.size(-1), "rmsnorm takes a weight of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({nullptr, x.const_data_ptr(), weight.const_data_ptr(), out.mutable_data_ptr(), nullptr, nullptr,
                         0, count_rows("rmsnorm", x), static_cast<int>(x.size(-1)), static_cast<float>(eps), dtype,
                         current_stream()}));
  return out;
}

template <Launcher LAUNCH>
std::tuple<torch::Tensor, torch::Tensor> run_backward(const torch::Tensor& gradient, const torch::Tensor& x,
                                                      const torch::Tensor& weight, double eps) {
  const DType dtype = check_operands("rmsnorm_backward", x, {gradient, weight});
  TORCH_CHECK(weight.numel() == x.size(-1) && gradient.sizes() == x.sizes(),
              "rmsnorm_backward takes a gradient of the shape of x, and a weight of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x), of_weight = torch::empty_like(weight);
  const int64_t rows = count_rows("rmsnorm_backward", x), columns = x.size(-1);
  if (x.numel() == 0) return {out, of_weight.zero_()};
  const int partial_rows = 2 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  torch::Tensor workspace = torch::empty({std::max(partial_rows * columns, rows)}, x.options().dtype(at::kFloat));
  C10_CUDA_CHECK(LAUNCH({gradient.const_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(), out.mutable_data_ptr(),
                         of_weight.mutable_data_ptr(), workspace.mutable_data_ptr<float>(), partial_rows, rows,
                         static_cast<int>(columns), static_cast<float>(eps), dtype, current_stream()}));
  return {out, of_weight};
}
#endif
