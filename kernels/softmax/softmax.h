// Launchers of the softmax kernels, without torch: contiguous (rows, Tk) scores, rows = B * nh * Tq.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct SoftmaxCall {
  const void* scores;
  void* out;
  float* workspace;  // v01 only: rows * Tk + 2 * rows floats
  int64_t rows;      // 1 to 2^31 - 1
  int tq;
  int tk;
  float scale;
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const SoftmaxCall&);

template <Launcher LAUNCH, bool NEEDS_WORKSPACE = false>
torch::Tensor run(const torch::Tensor& scores, double scale) {
  TORCH_CHECK(scores.is_cuda() && scores.is_contiguous() && scores.dim() >= 2,
              "softmax takes contiguous CUDA scores of shape (..., Tq, Tk)");
  const auto type = scores.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
              "softmax takes float32, bfloat16 or float16");
  const int64_t tq = scores.size(-2), tk = scores.size(-1);
  const c10::cuda::CUDAGuard guard(scores.device());
  torch::Tensor out = torch::empty_like(scores);
  if (scores.numel() == 0) return out;
  const int64_t rows = scores.numel() / tk;
  constexpr int64_t limit = std::numeric_limits<int>::max();
  TORCH_CHECK(rows <= limit && tk <= limit / 2, "softmax takes at most 2^31 rows of 2^30 columns");
  torch::Tensor workspace;
  if (NEEDS_WORKSPACE) workspace = torch::empty({rows * tk + 2 * rows}, scores.options().dtype(at::kFloat));
  const cudaError_t status = LAUNCH(
      {scores.const_data_ptr(), out.mutable_data_ptr(), NEEDS_WORKSPACE ? workspace.mutable_data_ptr<float>() : nullptr,
       rows, static_cast<int>(tq), static_cast<int>(tk), static_cast<float>(scale),
       type == at::kFloat ? DType::float32 : DType{type == at::kHalf ? 2 : 1}, current_stream()});
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorInvalidValue, "this softmax does not take rows of this length, or this dtype.");
  C10_CUDA_CHECK(status);
  return out;
}
#endif
