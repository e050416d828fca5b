// Launchers of the cross-entropy kernels, without torch: contiguous (rows, columns) logits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

constexpr int64_t CROSS_ENTROPY_IGNORED = -100;  // PyTorch's ignore_index: no loss, no gradient

struct CrossEntropyCall {
  const void* logits;
  const int64_t* target;  // a column for each row; outside the row, but for CROSS_ENTROPY_IGNORED, all results are NaN
  void* loss;             // one for each row
  void* gradient;         // of scale times the sum of all losses; may be `logits`; null: not wanted
  float scale;
  int64_t rows;  // 1 to 2^31 - 1
  int columns;   // 1 or more
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include <tuple>

#include "binding.h"

using Launcher = cudaError_t (*)(const CrossEntropyCall&);

inline CrossEntropyCall call_of(const torch::Tensor& logits, const torch::Tensor& target, torch::Tensor& loss) {
  const DType dtype = check_operands("cross_entropy", logits, {});
  TORCH_CHECK(logits.dim() == 2 && target.dim() == 1 && target.size(0) == logits.size(0) && target.is_contiguous() &&
                  target.device() == logits.device() && target.scalar_type() == at::kLong,
              "cross_entropy takes logits (N, V) and int64 targets (N,) on one GPU");
  loss = torch::empty({logits.size(0)}, logits.options());
  return {logits.const_data_ptr(),
          target.const_data_ptr<int64_t>(),
          loss.mutable_data_ptr(),
          nullptr,
          0.0f,
          count_rows("cross_entropy", logits),
          static_cast<int>(logits.size(1)),
          dtype,
          current_stream()};
}

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& logits, const torch::Tensor& target) {
  const c10::cuda::CUDAGuard guard(logits.device());
  torch::Tensor loss;
  const CrossEntropyCall call = call_of(logits, target, loss);
  if (logits.numel()) C10_CUDA_CHECK(LAUNCH(call));
  return loss;
}

template <Launcher LAUNCH, bool IN_PLACE>
std::tuple<torch::Tensor, torch::Tensor> run_gradient(const torch::Tensor& logits, const torch::Tensor& target,
                                                      double scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  torch::Tensor loss;
  CrossEntropyCall call = call_of(logits, target, loss);
  torch::Tensor gradient = IN_PLACE ? logits : torch::empty_like(logits);
  call.gradient = gradient.mutable_data_ptr();
  call.scale = static_cast<float>(scale);
  if (logits.numel()) C10_CUDA_CHECK(LAUNCH(call));
  return {gradient, loss};
}
#endif
