// Launchers of the inclusive scan, without torch: contiguous float32 elements in one sequence.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct ScanCall {
  const float* x;
  float* out;
  float* workspace;  // scan_workspace_floats(elements)
  int64_t elements;  // 1 or more
  cudaStream_t stream;
};

namespace scan {
// Elements that share a total in the first three rungs; a tile of the others is larger.
constexpr int64_t CHUNK = 1024;

inline int64_t chunks(int64_t elements) { return (elements - 1) / CHUNK + 1; }
}  // namespace scan

// The totals of all levels, or 8 bytes a tile and a ticket of 16: every level is at most a 1023rd of the one before.
inline int64_t scan_workspace_floats(int64_t elements) { return 2 * (scan::chunks(elements) + 32) + 64; }

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const ScanCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& x) {
  TORCH_CHECK(check_operands("scan", x, {}) == DType::float32 && x.dim() == 1, "scan takes float32 of shape (N,)");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  torch::Tensor workspace = torch::empty({scan_workspace_floats(x.numel())}, x.options());
  const cudaError_t status = LAUNCH({x.const_data_ptr<float>(), out.mutable_data_ptr<float>(),
                                     workspace.mutable_data_ptr<float>(), x.numel(), current_stream()});
  C10_CUDA_CHECK(status);
  return out;
}
#endif
