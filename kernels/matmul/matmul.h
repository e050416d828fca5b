// Launchers of the matmul kernels, without torch: out (M, N) = a (M, K) x weight (K, N) + bias (N), all row-major.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct MatmulCall {
  const void* a;
  const void* weight;
  const void* bias;
  void* out;
  int m;  // m, n and k are 1 or more
  int n;
  int k;
  cudaStream_t stream;
  void* workspace =
      nullptr;  // v13, v15, v16 and v18 to v26: matmul_v13_split_k_workspace() bytes and so on; others none
};

// Whether every operand starts at a multiple of 16 bytes.
inline bool aligned(const MatmulCall& call) {
  return (reinterpret_cast<uintptr_t>(call.a) | reinterpret_cast<uintptr_t>(call.weight) |
          reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.out)) %
             16 ==
         0;
}

// A launcher returns cudaErrorInvalidValue for sizes that it does not take, cudaErrorMisalignedAddress for operands
// that are not 16-byte aligned, and cudaErrorNotSupported on a GPU that it does not run on. "Needs" in its source says
// what it takes.

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"
#include "gelu.h"

using Launcher = cudaError_t (*)(const MatmulCall&);
using Workspace = cudaError_t (*)(const MatmulCall&, size_t&);

template <Launcher LAUNCH, at::ScalarType TYPE, Workspace WORKSPACE = nullptr>
torch::Tensor run(const torch::Tensor& a, const torch::Tensor& weight, const torch::Tensor& bias) {
  check_operands("matmul", a, {weight, bias});
  TORCH_CHECK(a.scalar_type() == TYPE, "this matmul does not take this dtype");
  TORCH_CHECK(a.dim() == 2 && weight.dim() == 2 && bias.dim() == 1 && a.size(1) >= 1 && weight.size(0) == a.size(1) &&
                  bias.size(0) == weight.size(1),
              "matmul takes a (M, K), weight (K, N) and bias (N)");
  constexpr int64_t limit = 1 << 20;
  TORCH_CHECK(a.size(0) <= limit && a.size(1) <= limit && weight.size(1) <= limit, "matmul takes sizes up to 2^20");
  const c10::cuda::CUDAGuard guard(a.device());
  torch::Tensor out = torch::empty({a.size(0), weight.size(1)}, a.options());
  if (out.numel() == 0) return out;
  MatmulCall call = {a.const_data_ptr(),          weight.const_data_ptr(),
                     bias.const_data_ptr(),       out.mutable_data_ptr(),
                     static_cast<int>(a.size(0)), static_cast<int>(weight.size(1)),
                     static_cast<int>(a.size(1)), current_stream()};
  torch::Tensor workspace;
  if constexpr (WORKSPACE != nullptr) {
    size_t bytes = 0;
    C10_CUDA_CHECK(WORKSPACE(call, bytes));
    workspace = torch::empty({static_cast<int64_t>(bytes)}, a.options().dtype(at::kByte));
    call.workspace = workspace.mutable_data_ptr();
  }
  const cudaError_t status = LAUNCH(call);
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorNotSupported,
              "this matmul needs a GPU of compute capability 9.0: use v09_warp_tile (fp32) or torch.");
  TORCH_CHECK(status != cudaErrorMisalignedAddress,
              "this matmul takes 16-byte aligned operands: clone them, or use v09_warp_tile (fp32) or torch.");
  TORCH_CHECK(status != cudaErrorInvalidValue,
              "this matmul does not take these sizes: use v09_warp_tile (fp32) or torch.");
  C10_CUDA_CHECK(status);
  return out;
}

constexpr at::ScalarType FP32 = at::kFloat, BF16 = at::kBFloat16;

// The product through GPT-2's GELU.
inline torch::Tensor gelu_of_product(const torch::Tensor& a, const torch::Tensor& weight, const torch::Tensor& bias) {
  return run<matmul_gelu, BF16>(a, weight, bias);
}
#endif
