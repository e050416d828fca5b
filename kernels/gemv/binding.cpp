// The only torch headers of kernels/gemv: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "gemv.h"

namespace {

using Launcher = cudaError_t (*)(const GemvCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& weight, const torch::Tensor& x, const torch::Tensor& bias) {
  const DType dtype = check_operands("gemv", weight, {x, bias});
  TORCH_CHECK(weight.dim() == 2 && x.dim() == 1 && bias.dim() == 1 && weight.size(1) == x.size(0) &&
                  weight.size(0) == bias.size(0),
              "gemv takes weight (N, K), x (K) and bias (N)");
  constexpr int64_t limit = 1 << 28;
  TORCH_CHECK(weight.size(0) <= limit && weight.size(1) <= limit, "gemv takes sizes up to 2^28");
  const c10::cuda::CUDAGuard guard(weight.device());
  torch::Tensor out = torch::empty_like(bias);
  if (out.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({weight.const_data_ptr(), x.const_data_ptr(), bias.const_data_ptr(), out.mutable_data_ptr(),
                         static_cast<int>(weight.size(0)), static_cast<int>(weight.size(1)), dtype, current_stream()}));
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_naive", run<gemv_v01_naive>);
  module.def("v02_warp", run<gemv_v02_warp>);
  module.def("v04_early", run<gemv_v04_early>);
  module.def("v05_straight", run<gemv_v05_straight>);
}
