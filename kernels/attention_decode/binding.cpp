// The only torch headers of kernels/attention_decode: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "attention_decode.h"

namespace {

using Launcher = cudaError_t (*)(const AttentionDecodeCall&);

// Of an axis with one element the stride is never used, and may be anything.
AttentionDecodeStrides strides_of(const torch::Tensor& tensor) {
  const auto of = [&](int64_t axis) { return tensor.size(axis) > 1 ? tensor.stride(axis) : 0; };
  return {of(0), of(1), of(2)};
}

template <Launcher LAUNCH, bool KEEPS_PARTS>
torch::Tensor run(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, double scale) {
  constexpr int64_t size = ATTENTION_DECODE_HEAD_SIZE, limit = 1 << 24;
  const auto type = q.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "attention_decode takes float32 or bfloat16");
  for (const torch::Tensor& tensor : {q, k, v})
    TORCH_CHECK(tensor.is_cuda() && tensor.device() == q.device() && tensor.scalar_type() == type &&
                    tensor.dim() == 4 && tensor.size(3) == size && tensor.stride(3) == 1,
                "attention_decode takes CUDA tensors (B, nh, T, 64) on one GPU, of one dtype, the 64 side by side");
  TORCH_CHECK(q.size(2) == 1 && k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(1) == q.size(1),
              "attention_decode takes q (B, nh, 1, 64), k and v (B, nh, Tk, 64)");
  TORCH_CHECK(q.size(0) * q.size(1) <= limit && k.size(2) >= 1 && k.size(2) <= limit,
              "attention_decode takes 1 to 2^24 keys, and as many heads");
  const c10::cuda::CUDAGuard guard(q.device());
  torch::Tensor out = torch::empty(q.sizes(), q.options());
  if (out.numel() == 0) return out;
  AttentionDecodeCall call{q.const_data_ptr(),
                           k.const_data_ptr(),
                           v.const_data_ptr(),
                           out.mutable_data_ptr(),
                           nullptr,
                           strides_of(q),
                           strides_of(k),
                           strides_of(v),
                           static_cast<int>(q.size(0)),
                           static_cast<int>(q.size(1)),
                           static_cast<int>(k.size(2)),
                           static_cast<float>(scale),
                           type == at::kFloat ? DType::float32 : DType::bfloat16,
                           current_stream()};
  torch::Tensor workspace;
  if (KEEPS_PARTS) {
    workspace = torch::empty({attention_decode_workspace(call)}, q.options().dtype(at::kFloat));
    call.workspace = workspace.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(LAUNCH(call));
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_row", run<attention_decode_v01_row, false>);
  module.def("v02_block", run<attention_decode_v02_block, false>);
  module.def("v03_split", run<attention_decode_v03_split, true>);
  module.def("v04_cluster", run<attention_decode_v04_cluster, true>);
}
