// The only torch headers of kernels/matmul: tensors in, raw pointers and the current stream out.
#include "binding.h"

#include "matmul.h"

namespace {

using Launcher = cudaError_t (*)(const MatmulCall&);

using Workspace = cudaError_t (*)(const MatmulCall&, size_t&);

template <Launcher LAUNCH, at::ScalarType TYPE, Workspace WORKSPACE = nullptr>
torch::Tensor run(const torch::Tensor& a, const torch::Tensor& weight, const torch::Tensor& bias) {
  check_operands("matmul", a, {weight, bias});
  TORCH_CHECK(a.scalar_type() == TYPE, "this matmul does not take this dtype");
  TORCH_CHECK(a.dim() == 2 && weight.dim() == 2 && bias.dim() == 1 && a.size(1) >= 1 && weight.size(0) == a.size(1) &&
                  bias.size(0) == weight.size(1),
              "matmul takes a (M, K), weight (K, N) and bias (N)");
  constexpr int64_t limit = 1 << 20;
  TORCH_CHECK(a.size(0) <= limit && a.size(1) <= limit && weight.size(1) <= limit, "matmul takes sizes up to 2^20");
  const c10::cuda::CUDAGuard guard(a.device());
  torch::Tensor out = torch::empty({a.size(0), weight.size(1)}, a.options());
  if (out.numel() == 0) return out;
  MatmulCall call = {a.const_data_ptr(),          weight.const_data_ptr(),
                     bias.const_data_ptr(),       out.mutable_data_ptr(),
                     static_cast<int>(a.size(0)), static_cast<int>(weight.size(1)),
                     static_cast<int>(a.size(1)), current_stream()};
  torch::Tensor workspace;
  if constexpr (WORKSPACE != nullptr) {
    size_t bytes = 0;
    C10_CUDA_CHECK(WORKSPACE(call, bytes));
    workspace = torch::empty({static_cast<int64_t>(bytes)}, a.options().dtype(at::kByte));
    call.workspace = workspace.mutable_data_ptr();
  }
  const cudaError_t status = LAUNCH(call);
  check_accepted(status);
  TORCH_CHECK(status != cudaErrorNotSupported,
              "this matmul needs a GPU of compute capability 9.0: use v09_warp_tile (fp32) or torch.");
  TORCH_CHECK(status != cudaErrorMisalignedAddress,
              "this matmul takes 16-byte aligned operands: clone them, or use v09_warp_tile (fp32) or torch.");
  TORCH_CHECK(status != cudaErrorInvalidValue,
              "this matmul does not take these sizes: use v09_warp_tile (fp32) or torch.");
  C10_CUDA_CHECK(status);
  return out;
}

constexpr at::ScalarType FP32 = at::kFloat, BF16 = at::kBFloat16;

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("v01_naive", run<matmul_v01_naive, FP32>);
  module.def("v02_restrict", run<matmul_v02_restrict, FP32>);
  module.def("v03_unroll4", run<matmul_v03_unroll4, FP32>);
  module.def("v04_constant_bias", run<matmul_v04_constant_bias, FP32>);
  module.def("v05_coalesced", run<matmul_v05_coalesced, FP32>);
  module.def("v06_shared_tile", run<matmul_v06_shared_tile, FP32>);
  module.def("v07_float4", run<matmul_v07_float4, FP32>);
  module.def("v08_register_tile", run<matmul_v08_register_tile, FP32>);
  module.def("v09_warp_tile", run<matmul_v09_warp_tile, FP32>);
  module.def("v10_mma", run<matmul_v10_mma, BF16>);
  module.def("v11_wgmma", run<matmul_v11_wgmma, BF16>);
  module.def("v12_ring", run<matmul_v12_ring, FP32>);
  module.def("v13_split_k", run<matmul_v13_split_k, FP32, matmul_v13_workspace>);
  module.def("v14_fitted_tile", run<matmul_v14_fitted_tile, BF16>);
  module.def("v15_padded", run<matmul_v15_padded, FP32, matmul_v15_workspace>);
  module.def("v16_any_rows", run<matmul_v16_any_rows, BF16, matmul_v16_workspace>);
}
