// matmul v15_padded: v13 for rows of any length and address, first copied to rows that TMA takes.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    sm_90a, otherwise v09 runs; a workspace, see matmul_v15_padded_workspace(). v13 runs what it takes.
// Moves    as v13, and twice more each operand whose rows are no multiple of 16 bytes, or not 16-byte aligned.
// Versus   v13: such an operand is first copied into rows a multiple of 16 bytes apart. That moves M*K + K*N words at
//          most, for a product of M*K*N operations. Outputs change lanes in shared memory, so that a warp writes whole
//          sectors of rows that start at any element.
// Source   CUDA driver API, "cuTensorMapEncodeTiled", for what TMA takes
#ifndef MATMUL_V15_DEPTH
#define MATMUL_V15_DEPTH 32
#endif
#ifndef MATMUL_V15_STAGES
#define MATMUL_V15_STAGES 4
#endif
#define RING_DEPTH MATMUL_V15_DEPTH
#define RING_STAGES MATMUL_V15_STAGES
#define RING_ANY_OUT 1
#include "any_rows.cuh"
#include "split_k.cuh"

cudaError_t matmul_v13_split_k(const MatmulCall& call);  // runs if rows are aligned
cudaError_t matmul_v13_split_k_workspace(const MatmulCall& call, size_t& bytes);

namespace {

// The copies of the operands. They are in the workspace, after what the product keeps there.
struct Plan {
  Copy<float> a, weight;
  size_t bytes;  // of the workspace
};

cudaError_t make_plan(const MatmulCall& call, Plan& plan) {
  if (const cudaError_t status = split_k_workspace(call, plan.bytes)) return status;
  plan.a = Copy<float>::plan(call.a, call.m, call.k, 16, call.workspace, plan.bytes);
  plan.weight = Copy<float>::plan(call.weight, call.k, call.n, 16, call.workspace, plan.bytes);
  return cudaSuccess;
}

}  // namespace

__global__ void __launch_bounds__(COPY_THREADS) matmul_v15_pad(const Copy<float> a, const Copy<float> weight) {
  const bool of_a = blockIdx.x < a.blocks();
  const Copy<float> copy = of_a ? a : weight;
  copy_rows(copy, blockIdx.x - (of_a ? 0 : a.blocks()));
}

template <typename T>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v15_padded(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                      const T* __restrict__ bias, T* __restrict__ out, float4* partial, int* ready, int m, int n,
                      const Deal deal) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  ring_product(&a_map, &weight_map, bias, out, partial, ready, m, n, deal, static_cast<int>(blockIdx.x));
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v15_padded_workspace(const MatmulCall& call, size_t& bytes) {
  if (rows_aligned(as_they_are(call))) return matmul_v13_split_k_workspace(call, bytes);
  Plan plan;
  const cudaError_t status = make_plan(call, plan);
  bytes = plan.bytes;
  return status;
}

cudaError_t matmul_v15_padded(const MatmulCall& call) {
  if (rows_aligned(as_they_are(call))) return matmul_v13_split_k(call);
  Plan plan;
  if (const cudaError_t status = make_plan(call, plan)) return status;
  const RingOperands operands = {plan.a.operand(), plan.weight.operand(), plan.a.pitch, plan.weight.pitch};
  return launch_split_k(call, operands, matmul_v15_padded<float>, [&] {
    matmul_v15_pad<<<plan.a.blocks() + plan.weight.blocks(), COPY_THREADS, 0, call.stream>>>(plan.a, plan.weight);
    return cudaGetLastError();
  });
}
