// Launchers of the attention kernels, without torch. q, k, v and out are contiguous (batch_heads, tokens, 64).
//
//     out[i] = sum over j of softmax_j(scale * q[i] . k[j]) v[j]        j <= i; with a window also j > i - window
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

constexpr int ATTENTION_HEAD_SIZE = 64;

struct AttentionCall {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* workspace;  // v01 only: batch_heads * tokens * tokens floats
  int batch_heads;   // B * nh, 1 or more
  int tokens;        // 1 or more
  int window;        // keys that a query sees, itself included; 0: no window
  float scale;       // above 0
  DType dtype;
  cudaStream_t stream;
};

// Whether every operand allows 16-byte accesses.
inline bool aligned(const AttentionCall& call) {
  return (reinterpret_cast<uintptr_t>(call.q) | reinterpret_cast<uintptr_t>(call.k) |
          reinterpret_cast<uintptr_t>(call.v) | reinterpret_cast<uintptr_t>(call.out)) %
             16 ==
         0;
}

// Whether the sizes are in the range that all launchers share. With at most 2^24 tokens, indices in a head fit an int.
inline bool sizes_fit(const AttentionCall& call) {
  return call.batch_heads >= 1 && call.tokens >= 1 && call.tokens <= 1 << 24 && call.window >= 0 && call.scale > 0.0f;
}

// The number of keys that a query may see, also for a call without a window.
inline int visible_window(const AttentionCall& call) {
  return call.window > 0 && call.window < call.tokens ? call.window : call.tokens;
}

// A launcher returns cudaErrorInvalidValue for sizes, a window or a dtype that it does not take. It returns
// cudaErrorMisalignedAddress for operands that are not 16-byte aligned, and cudaErrorNotSupported on a GPU that it does
// not run on. "Needs" in its source says what it takes.

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"
#include "merged.h"

using Launcher = cudaError_t (*)(const AttentionCall&);

// Throws unless q, k and v have one shape (B, nh, T, 64) that fits a call.
inline DType check_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  const DType dtype = check_operands("attention", q, {k, v});
  constexpr int64_t limit = std::numeric_limits<int>::max();
  TORCH_CHECK(q.dim() == 4 && q.size(3) == ATTENTION_HEAD_SIZE && k.sizes() == q.sizes() && v.sizes() == q.sizes(),
              "attention takes q, k and v of one shape (B, nh, T, 64)");
  TORCH_CHECK(q.size(0) * q.size(1) <= limit && q.size(2) <= limit, "attention takes at most 2^31 heads");
  return dtype;
}

inline void check_attended(cudaError_t status) {
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorNotSupported, "this attention does not run on this GPU: use v01_separate or torch.");
  TORCH_CHECK(status != cudaErrorMisalignedAddress,
              "this attention takes 16-byte aligned operands: clone them, or use v01_separate or torch.");
  TORCH_CHECK(status != cudaErrorInvalidValue,
              "this attention does not take these sizes or this dtype: use v03_tiled or torch.");
  C10_CUDA_CHECK(status);
}

inline torch::Tensor run(Launcher launch, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                         int64_t window, bool needs_workspace = false) {
  const DType dtype = check_attention(q, k, v);
  const int64_t heads = q.size(0) * q.size(1), tokens = q.size(2);
  const c10::cuda::CUDAGuard guard(q.device());
  torch::Tensor out = torch::empty_like(q), workspace;
  if (out.numel() == 0) return out;
  if (needs_workspace) workspace = torch::empty({heads * tokens * tokens}, q.options().dtype(at::kFloat));
  check_attended(
      launch({q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), out.mutable_data_ptr(),
              needs_workspace ? workspace.mutable_data_ptr<float>() : nullptr, static_cast<int>(heads),
              static_cast<int>(tokens), static_cast<int>(std::min(window, tokens)), 0.125f, dtype, current_stream()}));
  return out;
}

// Attention whose output is (B, T, nh * 64), as the projection behind it reads it.
inline torch::Tensor merged(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  const DType dtype = check_attention(q, k, v);
  const int64_t heads = q.size(1), tokens = q.size(2);
  const c10::cuda::CUDAGuard guard(q.device());
  torch::Tensor out = torch::empty({q.size(0), tokens, heads * ATTENTION_HEAD_SIZE}, q.options());
  if (out.numel() == 0) return out;
  check_attended(attention_merged(
      {{q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), out.mutable_data_ptr(), nullptr,
        static_cast<int>(q.size(0) * heads), static_cast<int>(tokens), 0, 0.125f, dtype, current_stream()},
       static_cast<int>(heads)}));
  return out;
}

template <Launcher LAUNCH, bool WORKSPACE = false>
torch::Tensor causal(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  return run(LAUNCH, q, k, v, 0, WORKSPACE);
}

template <Launcher LAUNCH>
torch::Tensor windowed(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int64_t window) {
  TORCH_CHECK(window >= 1, "attention takes a window of 1 key or more");
  return run(LAUNCH, q, k, v, window);
}
#endif
