// matmul v16_any_rows: v14 for rows of any length and address.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a; a workspace, see matmul_v16_any_rows_workspace(). v14 runs what it takes.
// Moves    as v14, and twice more each operand whose rows are no multiple of 16 bytes, or not 16-byte aligned.
// Versus   v14: such an operand is first copied into rows a multiple of 128 bytes apart. If a row starts inside a word,
//          a shuffle assembles the words. Outputs go from shared memory to rows of any address in the same way. The
//          warps that computed them write them, not TMA.
// Source   CUDA driver API, "cuTensorMapEncodeTiled", for what TMA takes
#ifndef MATMUL_V16_GROUP_ROWS
#define MATMUL_V16_GROUP_ROWS 16
#endif
#ifndef MATMUL_V16_STAGES
#define MATMUL_V16_STAGES 8
#endif
#define FITTED_GROUP_ROWS MATMUL_V16_GROUP_ROWS
#define FITTED_STAGES MATMUL_V16_STAGES
#include "any_rows.cuh"
#include "fitted_tile.cuh"

cudaError_t matmul_v14_fitted_tile(const MatmulCall& call);  // runs if rows are aligned

namespace {

constexpr int UNIT = 128;  // bytes: the row of a box is a whole line of L2

// The copies of the operands, in the workspace. The bias is a matrix of one row.
struct Plan {
  Copy<__nv_bfloat16> a, weight, bias;
  size_t bytes;  // of the workspace
};

Plan make_plan(const MatmulCall& call) {
  Plan plan = {};
  const auto copy = [&](const void* from, int rows, int columns) {
    return Copy<__nv_bfloat16>::plan(from, rows, columns, UNIT, call.workspace, plan.bytes);
  };
  plan.a = copy(call.a, call.m, call.k);
  plan.weight = copy(call.weight, call.k, call.n);
  plan.bias = copy(call.bias, 1, call.n);
  return plan;
}

}  // namespace

__global__ void __launch_bounds__(COPY_THREADS)
    matmul_v16_pad(const Copy<__nv_bfloat16> a, const Copy<__nv_bfloat16> weight, const Copy<__nv_bfloat16> bias) {
  let_next_start();
  wait_for_previous();
  unsigned block = blockIdx.x;
  Copy<__nv_bfloat16> copy = a;
  if (block >= copy.blocks()) block -= copy.blocks(), copy = weight;
  if (block >= copy.blocks()) block -= copy.blocks(), copy = bias;
  copy_rows(copy, block);
}

template <int BN>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_v16_any_rows(const __grid_constant__ FittedMaps maps, const __nv_bfloat16* __restrict__ bias,
                        __nv_bfloat16* __restrict__ out, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  fitted_product<BN, true>(maps, bias, out, m, n, k);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

cudaError_t launch_pad(const MatmulCall& call, const Plan& plan) {
  const unsigned blocks = plan.a.blocks() + plan.weight.blocks() + plan.bias.blocks();
  return launch_overlapped(matmul_v16_pad, {static_cast<int>(blocks), COPY_THREADS}, 0, call.stream, plan.a,
                           plan.weight, plan.bias);
}

}  // namespace

cudaError_t matmul_v16_any_rows_workspace(const MatmulCall& call, size_t& bytes) {
  bytes = make_plan(call).bytes;
  return cudaSuccess;
}

cudaError_t matmul_v16_any_rows(const MatmulCall& call) {
  const Plan plan = make_plan(call);
  if (plan.bytes == 0 && reinterpret_cast<uintptr_t>(call.out) % 16 == 0) return matmul_v14_fitted_tile(call);
  Fitted fitted;
  const FittedOperands operands = {plan.a.operand(), plan.weight.operand(), plan.a.pitch, plan.weight.pitch};
  if (const cudaError_t status = fit(call, operands, fitted)) return status;
  if (plan.bytes)
    if (const cudaError_t status = launch_pad(call, plan)) return status;
  // in the order of CHOICES
  constexpr decltype(&matmul_v16_any_rows<256>) KERNELS[] = {matmul_v16_any_rows<256>, matmul_v16_any_rows<192>,
                                                             matmul_v16_any_rows<144>, matmul_v16_any_rows<64>};
  return launch_overlapped(KERNELS[fitted.place], fitted.grid, CHOICES[fitted.place].shared_bytes, call.stream,
                           fitted.maps, plan.bias.operand(), static_cast<__nv_bfloat16*>(call.out), call.m, call.n,
                           call.k);
}
