// Launchers of the attention_decode kernels, without torch: one query for each (batch, head), against a cache of keys.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

constexpr int ATTENTION_DECODE_HEAD_SIZE = 64;

// Strides of batch, head and token, in elements. The 64 elements of one token are contiguous.
struct AttentionDecodeStrides {
  int64_t batch;
  int64_t head;
  int64_t token;
};

struct AttentionDecodeCall {
  const void* q;  // q_strides.token is not used
  const void* k;
  const void* v;
  void* out;         // contiguous (batch, heads, 64)
  float* workspace;  // attention_decode_workspace() floats
  AttentionDecodeStrides q_strides;
  AttentionDecodeStrides k_strides;
  AttentionDecodeStrides v_strides;
  int batch;  // batch, heads and keys are 1 or more; batch * heads is at most 2^24
  int heads;
  int keys;
  float scale;
  DType dtype;
  cudaStream_t stream;
};

// The number of floats that v03 needs for partial results; v04 needs them too where it runs as v03.
int64_t attention_decode_workspace(const AttentionDecodeCall& call);

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const AttentionDecodeCall&);

// An axis with one element may have any stride, which is never used.
inline AttentionDecodeStrides strides_of(const torch::Tensor& tensor) {
  const auto of = [&](int64_t axis) { return tensor.size(axis) > 1 ? tensor.stride(axis) : 0; };
  return {of(0), of(1), of(2)};
}

template <Launcher LAUNCH, bool KEEPS_PARTS = false>
torch::Tensor run(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, double scale) {
  constexpr int64_t size = ATTENTION_DECODE_HEAD_SIZE, limit = 1 << 24;
  const auto type = q.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "attention_decode takes float32 or bfloat16");
  for (const torch::Tensor& tensor : {q, k, v})
    TORCH_CHECK(tensor.is_cuda() && tensor.device() == q.device() && tensor.scalar_type() == type &&
                    tensor.dim() == 4 && tensor.size(3) == size && tensor.stride(3) == 1,
                "attention_decode takes CUDA tensors (B, nh, T, 64) on one GPU, of one dtype, the 64 side by side");
  TORCH_CHECK(q.size(2) == 1 && k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(1) == q.size(1),
              "attention_decode takes q (B, nh, 1, 64), k and v (B, nh, Tk, 64)");
  TORCH_CHECK(q.size(0) * q.size(1) <= limit && k.size(2) >= 1 && k.size(2) <= limit,
              "attention_decode takes 1 to 2^24 keys, and as many heads");
  const c10::cuda::CUDAGuard guard(q.device());
  torch::Tensor out = torch::empty(q.sizes(), q.options());
  if (out.numel() == 0) return out;
  AttentionDecodeCall call{q.const_data_ptr(),
                           k.const_data_ptr(),
                           v.const_data_ptr(),
                           out.mutable_data_ptr(),
                           nullptr,
                           strides_of(q),
                           strides_of(k),
                           strides_of(v),
                           static_cast<int>(q.size(0)),
                           static_cast<int>(q.size(1)),
                           static_cast<int>(k.size(2)),
                           static_cast<float>(scale),
                           type == at::kFloat ? DType::float32 : DType::bfloat16,
                           current_stream()};
  torch::Tensor workspace;
  if (KEEPS_PARTS) {
    workspace = torch::empty({attention_decode_workspace(call)}, q.options().dtype(at::kFloat));
    call.workspace = workspace.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(LAUNCH(call));
  return out;
}
#endif
