// Launchers of grouped attention, without torch: nh query heads share nkv key heads of 64 or 128. The cache stays in
// place.
//
//     out[b, i, h] = sum over j of softmax_j(scale * q[b, h, i] . k[b, h / (nh / nkv), j]) v[b, h / (nh / nkv), j]
//
// With (first, end, window) = spans[b], query i is at place p = end - queries + i. It sees the keys j with first <= j
// <= p and j > p - window. The output of a query that sees no key is 0.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

// Strides of batch, head and token, in elements. The elements of one token are contiguous.
struct GroupedStrides {
  int64_t batch;
  int64_t head;
  int64_t token;
};

struct AttentionGroupedCall {
  const void* q;
  const void* k;
  const void* v;
  void* out;         // contiguous (batch, queries, heads, head_size)
  const int* spans;  // (batch, 3) on the GPU; null means (0, keys, no window)
  float* workspace;  // v03_split only: attention_grouped_workspace() floats
  GroupedStrides q_strides;
  GroupedStrides k_strides;
  GroupedStrides v_strides;
  int batch;  // all sizes are 1 or more
  int heads;
  int key_heads;  // divides heads
  int queries;
  int keys;
  int head_size;  // 64 or 128
  float scale;    // above 0
  DType dtype;
  cudaStream_t stream;
};

// The number of floats that v03_split needs for partial results.
int64_t attention_grouped_workspace(const AttentionGroupedCall& call);

// Whether every token of q, k and v, and the output, allow 16-byte accesses.
inline bool aligned(const AttentionGroupedCall& call) {
  const int64_t size = call.dtype == DType::float32 ? 4 : 2;
  uint64_t bits = reinterpret_cast<uintptr_t>(call.q) | reinterpret_cast<uintptr_t>(call.k) |
                  reinterpret_cast<uintptr_t>(call.v) | reinterpret_cast<uintptr_t>(call.out);
  for (const auto& strides : {call.q_strides, call.k_strides, call.v_strides})
    bits |= static_cast<uint64_t>((strides.batch | strides.head | strides.token) * size);
  return bits % 16 == 0;
}

inline bool sizes_fit(const AttentionGroupedCall& call) {
  return call.batch >= 1 && call.key_heads >= 1 && call.heads % call.key_heads == 0 && call.queries >= 1 &&
         call.keys >= 1 && call.queries <= 1 << 24 && call.keys <= 1 << 24 &&
         (call.head_size == 64 || call.head_size == 128) && call.scale > 0.0f;
}

// A launcher returns cudaErrorInvalidValue for sizes or a dtype that it does not take. It returns
// cudaErrorMisalignedAddress for operands that are not 16-byte aligned, and cudaErrorNotSupported on a GPU that it does
// not run on. "Needs" in its source says what it takes.

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include <optional>

#include "binding.h"

using Launcher = cudaError_t (*)(const AttentionGroupedCall&);

// An axis with one element may have any stride, which is never used.
inline GroupedStrides strides_of(const torch::Tensor& tensor) {
  const auto of = [&](int64_t axis) { return tensor.size(axis) > 1 ? tensor.stride(axis) : 0; };
  return {of(0), of(1), of(2)};
}

template <Launcher LAUNCH, bool KEEPS_PARTS = false>
torch::Tensor run(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                  const std::optional<torch::Tensor>& spans, double scale) {
  constexpr int64_t limit = 1 << 24;
  const auto type = q.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "attention_grouped takes float32 or bfloat16");
  for (const torch::Tensor& tensor : {q, k, v})
    TORCH_CHECK(tensor.is_cuda() && tensor.device() == q.device() && tensor.scalar_type() == type &&
                    tensor.dim() == 4 && tensor.stride(3) == 1,
                "attention_grouped takes CUDA tensors (B, heads, T, hs) on one GPU, of one dtype, hs side by side");
  TORCH_CHECK(
      k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(3) == q.size(3) && k.size(1) >= 1 &&
          q.size(1) % k.size(1) == 0 && (q.size(3) == 64 || q.size(3) == 128),
      "attention_grouped takes q (B, nh, Tq, hs), k and v (B, nkv, Tk, hs), nh a multiple of nkv, hs 64 or 128");
  TORCH_CHECK(q.size(0) * q.size(1) <= limit && q.size(2) <= limit && k.size(2) >= 1 && k.size(2) <= limit,
              "attention_grouped takes 1 to 2^24 keys, and at most as many heads and queries");
  if (spans)
    TORCH_CHECK(spans->device() == q.device() && spans->scalar_type() == at::kInt && spans->is_contiguous() &&
                    spans->numel() == 3 * q.size(0),
                "attention_grouped takes spans of int32, (B, 3), contiguous, on the same GPU");
  const c10::cuda::CUDAGuard guard(q.device());
  torch::Tensor out = torch::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options());
  if (out.numel() == 0) return out;
  AttentionGroupedCall call{q.const_data_ptr(),
                            k.const_data_ptr(),
                            v.const_data_ptr(),
                            out.mutable_data_ptr(),
                            spans ? spans->const_data_ptr<int>() : nullptr,
                            nullptr,
                            strides_of(q),
                            strides_of(k),
                            strides_of(v),
                            static_cast<int>(q.size(0)),
                            static_cast<int>(q.size(1)),
                            static_cast<int>(k.size(1)),
                            static_cast<int>(q.size(2)),
                            static_cast<int>(k.size(2)),
                            static_cast<int>(q.size(3)),
                            static_cast<float>(scale),
                            type == at::kFloat ? DType::float32 : DType::bfloat16,
                            current_stream()};
  torch::Tensor workspace;
  if (KEEPS_PARTS) {
    workspace = torch::empty({attention_grouped_workspace(call)}, q.options().dtype(at::kFloat));
    call.workspace = workspace.mutable_data_ptr<float>();
  }
  const cudaError_t status = LAUNCH(call);
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorNotSupported, "this attention does not run on this GPU: use v01_tiled or torch.");
  TORCH_CHECK(status != cudaErrorMisalignedAddress, "this attention takes 16-byte aligned operands: clone them.");
  TORCH_CHECK(status != cudaErrorInvalidValue, "this attention does not take these sizes or this dtype.");
  C10_CUDA_CHECK(status);
  return out;
}
#endif
