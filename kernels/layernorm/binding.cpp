// The only torch headers of kernels/layernorm: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "layernorm.h"

namespace {

using Launcher = cudaError_t (*)(const LayernormCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
  const DType dtype = check_operands("layernorm", x, {weight, bias});
  TORCH_CHECK(weight.numel() == x.size(-1) && bias.numel() == x.size(-1),
              "layernorm takes weight and bias of the last axis");
  const c10::cuda::CUDAGuard guard(x.device());
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({x.const_data_ptr(), weight.const_data_ptr(), bias.const_data_ptr(), out.mutable_data_ptr(),
                         count_rows("layernorm", x), static_cast<int>(x.size(-1)), static_cast<float>(eps), dtype,
                         current_stream()}));
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_thread", run<layernorm_v01_thread>);
  module.def("v02_shared", run<layernorm_v02_shared>);
  module.def("v03_shuffle", run<layernorm_v03_shuffle>);
  module.def("v04_constant", run<layernorm_v04_constant>);
  module.def("v05_vector", run<layernorm_v05_vector>);
}
