// Launchers of the gradients of softmax, layernorm and GELU, without torch: contiguous (rows, columns) elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct BackwardCall {
  const void* gradient;  // of the output
  const void* x;         // the input; of softmax the output
  const void* weight;    // layernorm alone: `columns` elements
  void* out;             // the gradient of the input
  void* of_weight;       // layernorm alone, as the rest of the pointers
  void* of_bias;
  float* workspace;  // 2 * partial_rows * columns floats, and no less than 2 * rows
  int partial_rows;
  int64_t rows;  // 1 to 2^31 - 1
  int columns;   // 1 or more
  int queries;   // softmax alone: rows of a head
  float number;  // softmax: the scale; layernorm: eps
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include <algorithm>
#include <tuple>

#include "binding.h"

using Launcher = cudaError_t (*)(const BackwardCall&);

// Checks the operands of `op`, and returns a call with its rows and an output that has the shape of x.
inline BackwardCall prepare(const char* op, const torch::Tensor& gradient, const torch::Tensor& x, torch::Tensor& out,
                            std::initializer_list<torch::Tensor> others = {}) {
  BackwardCall call = {};
  call.dtype = check_operands(op, x, {gradient});
  check_operands(op, x, others);
  TORCH_CHECK(gradient.sizes() == x.sizes(), op, " takes a gradient of the shape of the other operand");
  out = torch::empty_like(x);
  call.gradient = gradient.const_data_ptr(), call.x = x.const_data_ptr(), call.out = out.mutable_data_ptr();
  call.rows = count_rows(op, x), call.columns = static_cast<int>(x.size(-1)), call.stream = current_stream();
  return call;
}

template <Launcher LAUNCH>
torch::Tensor run_gelu(const torch::Tensor& gradient, const torch::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out;
  const BackwardCall call = prepare("gelu_backward", gradient, x, out);
  if (x.numel() > 0) C10_CUDA_CHECK(LAUNCH(call));
  return out;
}

template <Launcher LAUNCH>
torch::Tensor run_softmax(const torch::Tensor& gradient, const torch::Tensor& probabilities, double scale) {
  const c10::cuda::CUDAGuard guard(probabilities.device());
  torch::Tensor out;
  TORCH_CHECK(probabilities.dim() >= 2, "softmax_backward takes probabilities of shape (..., Tq, Tk)");
  BackwardCall call = prepare("softmax_backward", gradient, probabilities, out);
  call.queries = static_cast<int>(probabilities.size(-2)), call.number = static_cast<float>(scale);
  if (probabilities.numel() > 0) C10_CUDA_CHECK(LAUNCH(call));
  return out;
}

template <Launcher LAUNCH>
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> run_layernorm(const torch::Tensor& gradient,
                                                                      const torch::Tensor& x,
                                                                      const torch::Tensor& weight, double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out, of_weight = torch::empty_like(weight), of_bias = torch::empty_like(weight);
  BackwardCall call = prepare("layernorm_backward", gradient, x, out, {weight});
  TORCH_CHECK(weight.numel() == x.size(-1), "layernorm_backward takes a weight of the last axis");
  if (x.numel() == 0) return {out, of_weight.zero_(), of_bias.zero_()};
  call.partial_rows = 2 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  const int64_t floats = 2 * std::max(static_cast<int64_t>(call.partial_rows) * call.columns, call.rows);
  torch::Tensor workspace = torch::empty({floats}, x.options().dtype(at::kFloat));
  call.weight = weight.const_data_ptr(), call.workspace = workspace.mutable_data_ptr<float>();
  call.of_weight = of_weight.mutable_data_ptr(), call.of_bias = of_bias.mutable_data_ptr();
  call.number = static_cast<float>(eps);
  C10_CUDA_CHECK(LAUNCH(call));
  return {out, of_weight, of_bias};
}
#endif
