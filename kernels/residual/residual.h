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

#ifdef KERNEL_LEDGER_DRIVER  // the calls that run under the compute sanitizer
static void drive_residual(Rungs<ResidualCall>& rungs) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const auto& [rows, columns] : SHAPES_OF_ROWS) {
      const int64_t elements = static_cast<int64_t>(rows) * columns;
      const Buffer x(elements, size_of(dtype)), y(elements, size_of(dtype)), out(elements, size_of(dtype), false);
      rungs.run(dtype, {x, y, out, elements, dtype, nullptr});
    }
}
#endif
