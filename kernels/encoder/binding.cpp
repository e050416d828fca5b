// The only torch headers of kernels/encoder: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "encoder.h"

namespace {

using Launcher = cudaError_t (*)(const EncoderCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& ids, const torch::Tensor& tokens, const torch::Tensor& positions) {
  const DType dtype = check_operands("encoder", tokens, {positions});
  TORCH_CHECK(
      ids.device() == tokens.device() && ids.is_contiguous() && ids.dim() == 2 && ids.scalar_type() == at::kLong,
      "encoder takes contiguous int64 ids (B, T) on the GPU of the embeddings");
  TORCH_CHECK(tokens.dim() == 2 && positions.dim() == 2 && positions.size(0) == ids.size(1) &&
                  positions.size(1) == tokens.size(1),
              "encoder takes tokens (V, C) and positions (T, C)");
  const c10::cuda::CUDAGuard guard(ids.device());
  torch::Tensor out = torch::empty({ids.size(0), ids.size(1), tokens.size(1)}, tokens.options());
  if (out.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({ids.const_data_ptr<int64_t>(), tokens.const_data_ptr(), positions.const_data_ptr(),
                         out.mutable_data_ptr(), count_rows("encoder", out), tokens.size(0),
                         static_cast<int>(ids.size(1)), static_cast<int>(tokens.size(1)), dtype, current_stream()}));
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_element", run<encoder_v01_element>);
  module.def("v02_vector", run<encoder_v02_vector>);
  module.def("v04_reuse", run<encoder_v04_reuse>);
}
