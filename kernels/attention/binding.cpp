// The only torch headers of kernels/attention: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "attention.h"

namespace {

using Launcher = cudaError_t (*)(const AttentionCall&);

torch::Tensor run(Launcher launch, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                  int64_t window, bool needs_workspace = false) {
  const DType dtype = check_operands("attention", q, {k, v});
  constexpr int64_t limit = std::numeric_limits<int>::max();
  TORCH_CHECK(q.dim() == 4 && q.size(3) == ATTENTION_HEAD_SIZE && k.sizes() == q.sizes() && v.sizes() == q.sizes(),
              "attention takes q, k and v of one shape (B, nh, T, 64)");
  const int64_t heads = q.size(0) * q.size(1), tokens = q.size(2);
  TORCH_CHECK(heads <= limit && tokens <= limit, "attention takes at most 2^31 heads");
  const c10::cuda::CUDAGuard guard(q.device());
  torch::Tensor out = torch::empty_like(q), workspace;
  if (out.numel() == 0) return out;
  if (needs_workspace) workspace = torch::empty({heads * tokens * tokens}, q.options().dtype(at::kFloat));
  const cudaError_t status =
      launch({q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), out.mutable_data_ptr(),
              needs_workspace ? workspace.mutable_data_ptr<float>() : nullptr, static_cast<int>(heads),
              static_cast<int>(tokens), static_cast<int>(std::min(window, tokens)), 0.125f, dtype, current_stream()});
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorNotSupported, "this attention does not run on this GPU: use v01_separate or torch.");
  TORCH_CHECK(status != cudaErrorMisalignedAddress,
              "this attention takes 16-byte aligned operands: clone them, or use v01_separate or torch.");
  TORCH_CHECK(status != cudaErrorInvalidValue,
              "this attention does not take these sizes or this dtype: use v03_tiled or torch.");
  C10_CUDA_CHECK(status);
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

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_separate", causal<attention_v01_separate, true>);
  module.def("v02_per_query", causal<attention_v02_per_query>);
  module.def("v03_tiled", causal<attention_v03_tiled>);
  module.def("v04_mma", causal<attention_v04_mma>);
  module.def("v05_wgmma", causal<attention_v05_wgmma>);
  module.def("v06_small", causal<attention_v06_small>);
  module.def("windowed_v03_tiled", windowed<attention_v03_tiled>);
  module.def("windowed_v04_mma", windowed<attention_v04_mma>);
  module.def("windowed_v05_wgmma", windowed<attention_v05_wgmma>);
}
