// Launchers of the gemv kernels, without torch: out (N) = weight (N, K) x x (K) + bias (N), weight row-major.
#pragma once

#include <cuda_runtime.h>

#include "dtype.h"

struct GemvCall {
  const void* weight;
  const void* x;
  const void* bias;
  void* out;
  int n;  // n and k are 1 or more
  int k;
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "argmax.h"
#include "binding.h"

using Launcher = cudaError_t (*)(const GemvCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& weight, const torch::Tensor& x, const torch::Tensor& bias) {
  const DType dtype = check_operands("gemv", weight, {x, bias});
  TORCH_CHECK(weight.dim() == 2 && x.dim() == 1 && bias.dim() == 1 && weight.size(1) == x.size(0) &&
                  weight.size(0) == bias.size(0),
              "gemv takes weight (N, K), x (K) and bias (N)");
  constexpr int64_t limit = 1 << 28;
  TORCH_CHECK(weight.size(0) <= limit && weight.size(1) <= limit, "gemv takes sizes up to 2^28");
  const c10::cuda::CUDAGuard guard(weight.device());
  torch::Tensor out = torch::empty_like(bias);
  if (out.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({weight.const_data_ptr(), x.const_data_ptr(), bias.const_data_ptr(), out.mutable_data_ptr(),
                         static_cast<int>(weight.size(0)), static_cast<int>(weight.size(1)), dtype, current_stream()}));
  return out;
}

// Writes the position of the largest value of each row of `values` (B, N) to `out` (B).
inline void argmax(const torch::Tensor& values, const torch::Tensor& out) {
  const DType dtype = check_operands("argmax", values, {});
  TORCH_CHECK(values.dim() == 2 && values.size(1) >= 1 && out.dim() == 1 && out.size(0) == values.size(0) &&
                  out.is_contiguous() && out.device() == values.device() && out.scalar_type() == at::kLong,
              "argmax takes values (B, N) and an int64 out (B) on one GPU");
  const int64_t rows = count_rows("argmax", values);
  if (rows == 0) return;
  const c10::cuda::CUDAGuard guard(values.device());
  C10_CUDA_CHECK(gemv_argmax({values.const_data_ptr(), out.mutable_data_ptr(), static_cast<int>(rows),
                              static_cast<int>(values.size(1)), dtype, current_stream()}));
}
#endif
