// The only torch headers of kernels/residual_layernorm: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "residual_layernorm.h"

namespace {

using Launcher = cudaError_t (*)(const ResidualLayernormCall&);

template <Launcher LAUNCH>
std::tuple<torch::Tensor, torch::Tensor> run(const torch::Tensor& x, const torch::Tensor& y,
                                             const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
  const DType dtype = check_operands("residual_layernorm", x, {y, weight, bias});
  TORCH_CHECK(x.sizes() == y.sizes(), "residual_layernorm adds tensors of one shape");
  TORCH_CHECK(weight.numel() == x.size(-1) && bias.numel() == x.size(-1),
              "residual_layernorm takes weight and bias of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor residual = torch::empty_like(x), out = torch::empty_like(x);
  if (x.numel() == 0) return {residual, out};
  C10_CUDA_CHECK(LAUNCH({x.const_data_ptr(), y.const_data_ptr(), weight.const_data_ptr(), bias.const_data_ptr(),
                         residual.mutable_data_ptr(), out.mutable_data_ptr(), count_rows("residual_layernorm", x),
                         static_cast<int>(x.size(-1)), static_cast<float>(eps), dtype, current_stream()}));
  return {residual, out};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_shuffle", run<residual_layernorm_v01_shuffle>);
  module.def("v02_vector", run<residual_layernorm_v02_vector>);
}
