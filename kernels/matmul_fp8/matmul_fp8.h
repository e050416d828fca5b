// Launchers of the FP8 products, without torch: out (M, N) = a (M, K) x weight (N, K)^T, times scales. Operands are
// row-major e4m3, so K is contiguous in both, as the matrix instructions for FP8 require. The output is bf16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

constexpr int SCALED = 128;  // elements along K that share a scale, and rows of the weight that do

struct MatmulFp8Call {
  const void* a;
  const void* weight;
  const float* scale_a;       // one; with block scales (K / 128, M), of 1 x 128 elements each
  const float* scale_weight;  // one; with block scales (N / 128, K / 128), of 128 x 128 elements each
  void* out;
  int m;  // 1 or more
  int n;  // a multiple of 16
  int k;  // a multiple of 16
  cudaStream_t stream;
};

// A launcher returns cudaErrorInvalidValue for sizes that it does not take, cudaErrorMisalignedAddress for operands
// that are not 16-byte aligned, and cudaErrorNotSupported on a GPU that it does not run on.
inline cudaError_t refused(const MatmulFp8Call& call) {
  if (call.n % 16 || call.k % 16) return cudaErrorInvalidValue;
  const auto addresses = reinterpret_cast<uintptr_t>(call.a) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.out);
  return addresses % 16 ? cudaErrorMisalignedAddress : cudaSuccess;
}

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const MatmulFp8Call&);

template <Launcher LAUNCH, bool BLOCKS = false>
torch::Tensor run(const torch::Tensor& a, const torch::Tensor& weight, const torch::Tensor& scale_a,
                  const torch::Tensor& scale_weight) {
  for (const torch::Tensor& operand : {a, weight})
    TORCH_CHECK(operand.is_cuda() && operand.is_contiguous() && operand.dim() == 2 &&
                    operand.scalar_type() == at::kFloat8_e4m3fn && operand.device() == a.device(),
                "matmul_fp8 takes contiguous e4m3 matrices on one GPU");
  const int64_t m = a.size(0), n = weight.size(0), k = a.size(1), blocks = (k + SCALED - 1) / SCALED;
  constexpr int64_t limit = 1 << 20;
  TORCH_CHECK(k >= 1 && weight.size(1) == k && m <= limit && n <= limit && k <= limit,
              "matmul_fp8 takes a (M, K) and weight (N, K), sizes up to 2^20");
  const int64_t counts[] = {BLOCKS ? blocks * m : 1, BLOCKS ? (n + SCALED - 1) / SCALED * blocks : 1};
  for (const auto& [scale, count] : {std::pair{scale_a, counts[0]}, std::pair{scale_weight, counts[1]}})
    TORCH_CHECK(scale.is_contiguous() && scale.scalar_type() == at::kFloat && scale.device() == a.device() &&
                    scale.numel() == count,
                "matmul_fp8 takes contiguous float32 scales on the same GPU, one for each block");
  const c10::cuda::CUDAGuard guard(a.device());
  torch::Tensor out = torch::empty({m, n}, a.options().dtype(at::kBFloat16));
  if (out.numel() == 0) return out;
  const cudaError_t status = LAUNCH({a.const_data_ptr(), weight.const_data_ptr(), scale_a.const_data_ptr<float>(),
                                     scale_weight.const_data_ptr<float>(), out.mutable_data_ptr(), static_cast<int>(m),
                                     static_cast<int>(n), static_cast<int>(k), current_stream()});
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorNotSupported, "this rung of matmul_fp8 does not run on this GPU: use torch.");
  TORCH_CHECK(status != cudaErrorMisalignedAddress, "matmul_fp8 takes 16-byte aligned operands: clone them.");
  TORCH_CHECK(status != cudaErrorInvalidValue, "matmul_fp8 takes multiples of 16 as N and K.");
  C10_CUDA_CHECK(status);
  return out;
}
#endif
