// The only torch headers of kernels/softmax: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "softmax.h"

namespace {

using Launcher = cudaError_t (*)(const SoftmaxCall&);

torch::Tensor run(Launcher launch, const torch::Tensor& scores, double scale, bool needs_workspace) {
  TORCH_CHECK(scores.is_cuda() && scores.is_contiguous() && scores.dim() >= 2,
              "softmax takes contiguous CUDA scores of shape (..., Tq, Tk)");
  const auto type = scores.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "softmax takes float32 or bfloat16");
  const int64_t tq = scores.size(-2), tk = scores.size(-1);
  const c10::cuda::CUDAGuard guard(scores.device());
  torch::Tensor out = torch::empty_like(scores);
  if (scores.numel() == 0) return out;
  const int64_t rows = scores.numel() / tk;
  constexpr int64_t limit = std::numeric_limits<int>::max();
  TORCH_CHECK(rows <= limit && tk <= limit / 2, "softmax takes at most 2^31 rows of 2^30 columns");
  torch::Tensor workspace;
  if (needs_workspace) workspace = torch::empty({rows * tk + 2 * rows}, scores.options().dtype(at::kFloat));
  const cudaError_t status = launch({scores.const_data_ptr(), out.mutable_data_ptr(),
                                     needs_workspace ? workspace.mutable_data_ptr<float>() : nullptr, rows,
                                     static_cast<int>(tq), static_cast<int>(tk), static_cast<float>(scale),
                                     type == at::kFloat ? DType::float32 : DType::bfloat16, current_stream()});
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorInvalidValue, "this softmax does not take rows of this length: use v03_causal.");
  C10_CUDA_CHECK(status);
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_separate",
             [](const torch::Tensor& scores, double scale) { return run(softmax_v01_separate, scores, scale, true); });
  module.def("v02_fused",
             [](const torch::Tensor& scores, double scale) { return run(softmax_v02_fused, scores, scale, false); });
  module.def("v03_causal",
             [](const torch::Tensor& scores, double scale) { return run(softmax_v03_causal, scores, scale, false); });
  module.def("v05_early",
             [](const torch::Tensor& scores, double scale) { return run(softmax_v05_early, scores, scale, false); });
  module.def("v06_block",
             [](const torch::Tensor& scores, double scale) { return run(softmax_v06_block, scores, scale, false); });
  module.def("v07_warp",
             [](const torch::Tensor& scores, double scale) { return run(softmax_v07_warp, scores, scale, false); });
}
