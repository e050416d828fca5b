// matmul v15_padded: v13 for rows of any length and address, copied to where the copy engine takes them.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    sm_90a, elsewhere v09 runs; a workspace, see matmul_v15_workspace(). What v13 takes, it runs.
// Moves    as v13, and an operand whose rows are no multiple of 16 bytes, or start at none, twice more.
// Versus   v13: such an operand is first copied into rows a multiple of 16 bytes apart. That costs M*K + K*N words, the
//          product M*K*N operations. Outputs change lanes in shared memory, so that a warp writes whole sectors of rows
//          that start anywhere.
// Expect   at 1024 x 50257 x 768 at most 0.95 of cuBLAS's time, and at least 95 % of cuBLAS at 1793 and 2049.
// Refuted if   more, or below.
// Source   CUDA driver API, "cuTensorMapEncodeTiled", for what the copy engine takes
#ifndef MATMUL_V15_DEPTH
#define MATMUL_V15_DEPTH 32
#endif
#ifndef MATMUL_V15_STAGES
#define MATMUL_V15_STAGES 4
#endif
#define RING_DEPTH MATMUL_V15_DEPTH
#define RING_STAGES MATMUL_V15_STAGES
#define RING_ANY_OUT 1
#include "split_k.cuh"

namespace {

constexpr int WORDS = 8, COPY_THREADS = 256, COPY_ROWS = COPY_THREADS / 32;  // of a lane, all on their way at once

// A matrix on its way to rows `pitch` words apart, a piece of a row by a warp; no rows where it stays where it is.
struct Copy {
  const float* from;
  float* to;
  int rows, columns, pitch;

  __host__ __device__ unsigned pieces() const { return (columns - 1) / (32 * WORDS) + 1; }
  __host__ __device__ unsigned blocks() const { return (rows + COPY_ROWS - 1) / COPY_ROWS * pieces(); }
};

// Copies go to the workspace, behind what the product keeps there.
struct Plan {
  Copy a, weight;
  size_t bytes;  // of the workspace

  Copy copy(const MatmulCall& call, const void* from, int rows, int columns) {
    Copy copy = {static_cast<const float*>(from), nullptr, 0, columns, columns};
    if (columns % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0) return copy;
    const size_t start = (bytes + 255) / 256 * 256;
    copy.to = reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(call.workspace) + start);
    copy.rows = rows, copy.pitch = (columns + 3) / 4 * 4;
    bytes = start + static_cast<size_t>(rows) * copy.pitch * sizeof(float);
    return copy;
  }
};

cudaError_t make_plan(const MatmulCall& call, Plan& plan) {
  if (const cudaError_t status = split_k_workspace(call, plan.bytes)) return status;
  plan.a = plan.copy(call, call.a, call.m, call.k);
  plan.weight = plan.copy(call, call.weight, call.k, call.n);
  return cudaSuccess;
}

}  // namespace

__global__ void __launch_bounds__(COPY_THREADS) matmul_v15_pad(const Copy a, const Copy weight) {
  const bool of_a = blockIdx.x < a.blocks();
  const Copy copy = of_a ? a : weight;
  const unsigned block = blockIdx.x - (of_a ? 0 : a.blocks()), pieces = copy.pieces();
  const int row = static_cast<int>(block / pieces * COPY_ROWS + threadIdx.x / 32);
  const int first = static_cast<int>(block % pieces * 32 * WORDS + threadIdx.x % 32);
  if (row >= copy.rows) return;
  const float* from = copy.from + static_cast<int64_t>(row) * copy.columns + first;
  float* to = copy.to + static_cast<int64_t>(row) * copy.pitch + first;
  float words[WORDS];
#pragma unroll
  for (int i = 0; i < WORDS; ++i)
    if (first + i * 32 < copy.columns) words[i] = from[i * 32];
#pragma unroll
  for (int i = 0; i < WORDS; ++i)
    if (first + i * 32 < copy.columns) to[i * 32] = words[i];
}

template <typename T>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v15_padded(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                      const T* __restrict__ bias, T* __restrict__ out, float4* partial, int* ready, int m, int n,
                      const Deal deal) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  ring_product(&a_map, &weight_map, bias, out, partial, ready, m, n, deal, static_cast<int>(blockIdx.x));
#else
  __trap();  // built without the instructions of sm_90a
#endif
}

cudaError_t matmul_v15_workspace(const MatmulCall& call, size_t& bytes) {
  if (rows_aligned(as_they_are(call))) return matmul_v13_workspace(call, bytes);
  Plan plan;
  const cudaError_t status = make_plan(call, plan);
  bytes = plan.bytes;
  return status;
}

cudaError_t matmul_v15_padded(const MatmulCall& call) {
  if (rows_aligned(as_they_are(call))) return matmul_v13_split_k(call);
  Plan plan;
  if (const cudaError_t status = make_plan(call, plan)) return status;
  const RingOperands operands = {plan.a.rows ? plan.a.to : call.a, plan.weight.rows ? plan.weight.to : call.weight,
                                 plan.a.pitch, plan.weight.pitch};
  return launch_split_k(call, operands, matmul_v15_padded<float>, [&] {
    matmul_v15_pad<<<plan.a.blocks() + plan.weight.blocks(), COPY_THREADS, 0, call.stream>>>(plan.a, plan.weight);
    return cudaGetLastError();
  });
}
