// The only torch headers of kernels/permute: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "permute.h"

namespace {

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

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("split_v01_element", split<permute_v01_split>);
  module.def("split_v02_vector", split<permute_v02_split>);
  module.def("merge_v01_element", merge<permute_v01_merge>);
  module.def("merge_v02_vector", merge<permute_v02_merge>);
}
