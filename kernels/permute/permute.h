// Launchers of the permutations, without torch. They move elements of 2 or 4 bytes, whatever their values are.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct PermuteCall {
  const void* from;  // split: (B, T, 3, nh, hs); merge: (B, nh, T, hs)
  void* to[3];       // split: q, k, v of (B, nh, T, hs); merge: one (B, T, nh, hs)
  int64_t elements;  // B * T * nh * hs, 1 or more
  int tokens;
  int heads;
  int head_size;
  int element_bytes;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"
#include "into_cache.h"

using Launcher = cudaError_t (*)(const PermuteCall&);

template <Launcher LAUNCH>
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> split(const torch::Tensor& qkv, int64_t heads) {
  check_operands("split_permute", qkv, {});
  TORCH_CHECK(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
              "split_permute takes (B, T, 3 C) with C a multiple of the heads");
  const c10::cuda::CUDAGuard guard(qkv.device());
  const int64_t tokens = qkv.size(1), size = qkv.size(2) / (3 * heads);
  torch::Tensor parts[3];
  for (torch::Tensor& part : parts) part = torch::empty({qkv.size(0), heads, tokens, size}, qkv.options());
  if (qkv.numel() == 0) return {parts[0], parts[1], parts[2]};
  count_rows("split_permute", qkv);
  C10_CUDA_CHECK(LAUNCH({qkv.const_data_ptr(),
                         {parts[0].mutable_data_ptr(), parts[1].mutable_data_ptr(), parts[2].mutable_data_ptr()},
                         qkv.numel() / 3,
                         static_cast<int>(tokens),
                         static_cast<int>(heads),
                         static_cast<int>(size),
                         static_cast<int>(qkv.element_size()),
                         current_stream()}));
  return {parts[0], parts[1], parts[2]};
}

template <Launcher LAUNCH>
torch::Tensor merge(const torch::Tensor& by_heads) {
  check_operands("merge_heads", by_heads, {});
  TORCH_CHECK(by_heads.dim() == 4, "merge_heads takes (B, nh, T, hs)");
  const c10::cuda::CUDAGuard guard(by_heads.device());
  const int64_t heads = by_heads.size(1), tokens = by_heads.size(2), size = by_heads.size(3);
  torch::Tensor out = torch::empty({by_heads.size(0), tokens, heads * size}, by_heads.options());
  if (by_heads.numel() == 0) return out;
  count_rows("merge_heads", by_heads);
  C10_CUDA_CHECK(LAUNCH({by_heads.const_data_ptr(),
                         {out.mutable_data_ptr(), nullptr, nullptr},
                         by_heads.numel(),
                         static_cast<int>(tokens),
                         static_cast<int>(heads),
                         static_cast<int>(size),
                         static_cast<int>(by_heads.element_size()),
                         current_stream()}));
  return out;
}

// Splits qkv by head. Writes k and v into the rows of `keys` and `values` (B, nh, capacity, hs) from `first` on. Returns
// q, and with `copies` also k and v, all new and contiguous.
inline std::vector<torch::Tensor> split_into_cache(const torch::Tensor& qkv, const torch::Tensor& keys,
                                                   const torch::Tensor& values, int64_t first, bool copies) {
  check_operands("split_into_cache", qkv, {keys, values});
  TORCH_CHECK(qkv.dim() == 3 && keys.dim() == 4 && keys.sizes() == values.sizes() && qkv.size(0) == keys.size(0) &&
                  qkv.size(2) == 3 * keys.size(1) * keys.size(3),
              "split_into_cache takes qkv (B, T, 3 nh hs), and keys and values (B, nh, capacity, hs)");
  const int64_t tokens = qkv.size(1), heads = keys.size(1), capacity = keys.size(2), size = keys.size(3);
  TORCH_CHECK(first >= 0 && first + tokens <= capacity, "split_into_cache has no room for these rows in the cache");
  TORCH_CHECK(capacity <= std::numeric_limits<int>::max(), "split_into_cache takes caches of at most 2^31 rows");
  const c10::cuda::CUDAGuard guard(qkv.device());
  std::vector<torch::Tensor> made;
  for (int i = 0; i < (copies ? 3 : 1); ++i)
    made.push_back(torch::empty({qkv.size(0), heads, tokens, size}, qkv.options()));
  if (qkv.numel() == 0) return made;
  count_rows("split_into_cache", qkv);
  C10_CUDA_CHECK(permute_into_cache(
      {qkv.const_data_ptr(), made[0].mutable_data_ptr(), keys.mutable_data_ptr(), values.mutable_data_ptr(),
       copies ? made[1].mutable_data_ptr() : nullptr, copies ? made[2].mutable_data_ptr() : nullptr, qkv.numel() / 3,
       static_cast<int>(tokens), static_cast<int>(heads), static_cast<int>(size), static_cast<int>(capacity),
       static_cast<int>(first), static_cast<int>(qkv.element_size()), current_stream()}));
  return made;
}
#endif
