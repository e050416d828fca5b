// Launchers of the matmul kernels, free of torch: out (M, N) = a (M, K) x weight (K, N) + bias (N), all row-major.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct MatmulCall {
  const void* a;
  const void* weight;
  const void* bias;
  void* out;
  int m;  // each 1 or more
  int n;
  int k;
  cudaStream_t stream;
  void* workspace = nullptr;  // v13, v15 and v16: matmul_v13_workspace() bytes and so on; others none
};

// Whether 16-byte accesses may start at every operand.
inline bool aligned(const MatmulCall& call) {
  return (reinterpret_cast<uintptr_t>(call.a) | reinterpret_cast<uintptr_t>(call.weight) |
          reinterpret_cast<uintptr_t>(call.bias) | reinterpret_cast<uintptr_t>(call.out)) %
             16 ==
         0;
}

// Each returns cudaErrorInvalidValue for sizes, cudaErrorMisalignedAddress for bases and cudaErrorNotSupported for a
// GPU that it does not take; see "Needs" in its source. float32
cudaError_t matmul_v01_naive(const MatmulCall& call);
cudaError_t matmul_v02_restrict(const MatmulCall& call);
cudaError_t matmul_v03_unroll4(const MatmulCall& call);
cudaError_t matmul_v04_constant_bias(const MatmulCall& call);
cudaError_t matmul_v05_coalesced(const MatmulCall& call);
cudaError_t matmul_v06_shared_tile(const MatmulCall& call);
cudaError_t matmul_v07_float4(const MatmulCall& call);
cudaError_t matmul_v08_register_tile(const MatmulCall& call);
cudaError_t matmul_v09_warp_tile(const MatmulCall& call);
cudaError_t matmul_v12_ring(const MatmulCall& call);
cudaError_t matmul_v13_split_k(const MatmulCall& call);
cudaError_t matmul_v13_workspace(const MatmulCall& call, size_t& bytes);
cudaError_t matmul_v15_padded(const MatmulCall& call);
cudaError_t matmul_v15_workspace(const MatmulCall& call, size_t& bytes);
// bfloat16
cudaError_t matmul_v10_mma(const MatmulCall& call);
cudaError_t matmul_v11_wgmma(const MatmulCall& call);
cudaError_t matmul_v14_fitted_tile(const MatmulCall& call);
cudaError_t matmul_v16_any_rows(const MatmulCall& call);
cudaError_t matmul_v16_workspace(const MatmulCall& call, size_t& bytes);
