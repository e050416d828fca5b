// The only torch headers of kernels/ceilings: byte tensors in, raw pointers and the current stream out.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include "ceilings.h"

namespace {

cudaStream_t stream() { return at::cuda::getCurrentCUDAStream().stream(); }

void check(const torch::Tensor& bytes) {
  TORCH_CHECK(bytes.is_cuda() && bytes.is_contiguous() && bytes.scalar_type() == at::kByte,
              "ceilings take contiguous CUDA tensors of bytes");
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.attr("FFMA_PER_STEP") = FFMA_PER_STEP;
  module.attr("L1_BYTES_PER_BLOCK") = L1_BYTES_PER_BLOCK;
  module.def("copy_known_bytes", [](const torch::Tensor& from, torch::Tensor& to) {
    check(from), check(to);
    TORCH_CHECK(from.numel() == to.numel(), "a copy needs two tensors of one size");
    const c10::cuda::CUDAGuard guard(from.device());
    C10_CUDA_CHECK(copy_known_bytes(from.const_data_ptr(), to.mutable_data_ptr(), from.numel(), stream()));
  });
  module.def("read_dram", [](const torch::Tensor& from, torch::Tensor& sink) {
    check(from), check(sink);
    const c10::cuda::CUDAGuard guard(from.device());
    C10_CUDA_CHECK(read_dram(from.const_data_ptr(), sink.mutable_data_ptr(), from.numel(), stream()));
  });
  module.def("read_l2", [](const torch::Tensor& from, torch::Tensor& sink, int passes, int blocks) {
    check(from), check(sink);
    const c10::cuda::CUDAGuard guard(from.device());
    C10_CUDA_CHECK(read_l2(from.const_data_ptr(), sink.mutable_data_ptr(), from.numel(), passes, blocks, stream()));
  });
  module.def("read_l1", [](const torch::Tensor& from, torch::Tensor& sink, int passes, int blocks) {
    check(from), check(sink);
    const c10::cuda::CUDAGuard guard(from.device());
    TORCH_CHECK(from.numel() >= static_cast<int64_t>(blocks) * L1_BYTES_PER_BLOCK, "every block reads its own bytes");
    C10_CUDA_CHECK(read_l1(from.const_data_ptr(), sink.mutable_data_ptr(), passes, blocks, stream()));
  });
  module.def("run_ffma", [](torch::Tensor& sink, double multiplier, double addend, int steps, int blocks) {
    check(sink);
    const c10::cuda::CUDAGuard guard(sink.device());
    C10_CUDA_CHECK(run_ffma(sink.mutable_data_ptr(), static_cast<float>(multiplier), static_cast<float>(addend), steps,
                            blocks, stream()));
  });
}
