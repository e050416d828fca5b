// Launchers of the top-k kernels, without torch: contiguous (rows, columns) values.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

constexpr int TOPK_MOST = 1024;  // what k may be

struct TopkCall {
  const void* x;
  void* values;      // (rows, k), from the largest on; NaN counts as largest, as in PyTorch
  int64_t* indices;  // (rows, k)
  int64_t rows;      // 1 to 2^31 - 1
  int columns;       // 1 or more
  int k;             // 1 to columns, at most TOPK_MOST
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include <tuple>

#include "binding.h"

using Launcher = cudaError_t (*)(const TopkCall&);

template <Launcher LAUNCH>
std::tuple<torch::Tensor, torch::Tensor> run(const torch::Tensor& x, int64_t k) {
  const DType dtype = check_operands("topk", x, {});
  TORCH_CHECK(x.dim() == 2 && k >= 1 && k <= x.size(1) && k <= TOPK_MOST,
              "topk takes x (N, V) and k from 1 to V, at most ", TOPK_MOST);
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor values = torch::empty({x.size(0), k}, x.options());
  torch::Tensor indices = torch::empty({x.size(0), k}, x.options().dtype(at::kLong));
  if (x.numel())
    C10_CUDA_CHECK(
        LAUNCH({x.const_data_ptr(), values.mutable_data_ptr(), indices.mutable_data_ptr<int64_t>(),
                count_rows("topk", x), static_cast<int>(x.size(1)), static_cast<int>(k), dtype, current_stream()}));
  return {values, indices};
}
#endif
