// The only torch headers of kernels/gelu: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "gelu.h"

namespace {

using Launcher = cudaError_t (*)(const GeluCall&);

torch::Tensor run(Launcher launch, const torch::Tensor& x, const std::optional<torch::Tensor>& bias) {
  const DType dtype = bias ? check_operands("bias_gelu", x, {*bias}) : check_operands("gelu", x, {});
  TORCH_CHECK(!bias || bias->numel() == x.size(-1), "bias_gelu takes a bias of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  count_rows("gelu", x);
  C10_CUDA_CHECK(launch({x.const_data_ptr(), bias ? bias->const_data_ptr() : nullptr, out.mutable_data_ptr(), x.numel(),
                         static_cast<int>(x.size(-1)), dtype, current_stream()}));
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("gelu_v01_naive", [](const torch::Tensor& x) { return run(gelu_v01_naive, x, std::nullopt); });
  module.def("gelu_v02_vector", [](const torch::Tensor& x) { return run(gelu_v02_vector, x, std::nullopt); });
  module.def("bias_gelu_v01_naive",
             [](const torch::Tensor& x, const torch::Tensor& bias) { return run(gelu_v01_naive, x, bias); });
  module.def("bias_gelu_v02_vector",
             [](const torch::Tensor& x, const torch::Tensor& bias) { return run(gelu_v02_vector, x, bias); });
}
