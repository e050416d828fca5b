// matmul v24_edges: v15 without a tile row or column for a few outputs behind the last whole tile, and without cuts in K
// for a few idle SMs.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    sm_90a, and one of three: operands that v15 copies; at most 4 rows behind whole tiles of 128 rows and at most 4
//          columns behind those of 256, and not none of both; a last wave that is nearly full. Otherwise v22 runs. A
//          workspace, see matmul_v24_edges_workspace()
// Moves    as v15, and once more the weight for the last rows, and `a` for the last columns.
// Versus   v15: at 1793 a tile row has one row of outputs, and a tile column one column, so that 120 tiles are computed
//          instead of 98. Here the kernel that copies the operands to rows of whole packets also computes those outputs.
//          And v15 cuts tiles along K even if that gives idle SMs less work than adding up the parts takes.
#ifndef MATMUL_V24_DEPTH
#define MATMUL_V24_DEPTH 32
#endif
#ifndef MATMUL_V24_STAGES
#define MATMUL_V24_STAGES 4
#endif
#define RING_DEPTH MATMUL_V24_DEPTH
#define RING_STAGES MATMUL_V24_STAGES
#define RING_ANY_OUT 1
#include <algorithm>

#include "any_rows.cuh"
#include "split_k.cuh"

// These run what this rung does not take, and aligned operands without cuts.
cudaError_t matmul_v22_wide_wave(const MatmulCall& call);
cudaError_t matmul_v22_wide_wave_workspace(const MatmulCall& call, size_t& bytes);
cudaError_t matmul_v12_ring(const MatmulCall& call);

namespace {

constexpr int MOST = 4;         // rows or columns that are no tile
constexpr int MOST_IDLE = 150;  // K times the share of idle SMs in the last wave, for which tiles are not cut
constexpr int ROW_PART = 16;    // outputs of a block in the last rows
constexpr int ROWS_A_WARP = 4;  // of the last columns
constexpr int DEPTH = 2048;     // of a column of the weight in shared memory

// The outputs that are no tile: the last `rows` rows, and the last `columns` columns of the others.
struct Edges {
  const float *a, *weight, *bias;
  float* out;
  int m, n, k, rows, columns;

  __host__ __device__ unsigned row_blocks() const { return rows ? (n + ROW_PART - 1) / ROW_PART : 0; }
  __host__ __device__ unsigned blocks() const {
    return row_blocks() + (columns ? (m - rows + ROWS_A_WARP * COPY_ROWS - 1) / (ROWS_A_WARP * COPY_ROWS) : 0);
  }
};

struct Plan {
  bool takes = false, as_v12 = false;
  Copy<float> a, weight;
  Deal deal;
  Edges edges;
  size_t bytes = 0;  // of the workspace
};

cudaError_t make_plan(const MatmulCall& call, Plan& plan) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaSuccess;
  int rows = call.m % BM, columns = call.n % BN;
  if (rows > MOST || columns > MOST || call.m < BM || call.n < BN) rows = columns = 0;
  MatmulCall tiled = call;
  tiled.m -= rows, tiled.n -= columns;
  const Deal whole = tiles_of(tiled);
  const int64_t tiles = static_cast<int64_t>(whole.rows) * whole.columns;
  const int64_t idle = (tiles + sm_count - 1) / sm_count * sm_count - tiles;
  const bool nearly_full = idle * call.k < static_cast<int64_t>(MOST_IDLE) * sm_count;
  plan.as_v12 = nearly_full && rows + columns == 0 && rows_aligned(as_they_are(call));
  plan.takes = !plan.as_v12 && (rows + columns > 0 || !rows_aligned(as_they_are(call)));
  if (!plan.takes) return cudaSuccess;
  plan.deal = shared_deal(tiled, sm_count);
  if (nearly_full) plan.deal.shared = 0, plan.deal.blocks = static_cast<int>(std::min<int64_t>(tiles, sm_count));
  if (plan.deal.shared) plan.bytes = plan.deal.blocks * 2 * (BM * BN * sizeof(float) + sizeof(int));
  plan.a = Copy<float>::plan(call.a, call.m, call.k, 16, call.workspace, plan.bytes);
  plan.weight = Copy<float>::plan(call.weight, call.k, call.n, 16, call.workspace, plan.bytes);
  plan.edges = {static_cast<const float*>(call.a),
                static_cast<const float*>(call.weight),
                static_cast<const float*>(call.bias),
                static_cast<float*>(call.out),
                call.m,
                call.n,
                call.k,
                rows,
                columns};
  return cudaSuccess;
}

// Computes ROW_PART outputs of each of the last rows. Half warps share the depth.
__device__ __forceinline__ void last_rows(const Edges& edges, int block) {
  __shared__ float parts[COPY_ROWS * 2][MOST][ROW_PART];
  const int mine = threadIdx.x % ROW_PART, part = threadIdx.x / ROW_PART, column = block * ROW_PART + mine;
  const float* a = edges.a + static_cast<int64_t>(edges.m - edges.rows) * edges.k;
  const float* weight = edges.weight + min(column, edges.n - 1);
  float sums[MOST] = {};
#pragma unroll 16
  for (int deep = part; deep < edges.k; deep += COPY_ROWS * 2) {
    const float right = __ldg(weight + static_cast<int64_t>(deep) * edges.n);
#pragma unroll
    for (int row = 0; row < MOST; ++row)
      if (row < edges.rows) sums[row] = fmaf(__ldg(a + static_cast<int64_t>(row) * edges.k + deep), right, sums[row]);
  }
#pragma unroll
  for (int row = 0; row < MOST; ++row) parts[part][row][mine] = sums[row];
  __syncthreads();
  if (part >= edges.rows || column >= edges.n) return;
  float sum = edges.bias[column];
#pragma unroll
  for (int other = 0; other < COPY_ROWS * 2; ++other) sum += parts[other][part][mine];
  edges.out[static_cast<int64_t>(edges.m - edges.rows + part) * edges.n + column] = sum;
}

// Computes the last columns of ROWS_A_WARP rows in each warp, whose lanes share the depth. The block keeps a column of the
// weight, whose elements lie in as many lines, in shared memory.
__device__ __forceinline__ void last_columns(const Edges& edges, int block) {
  __shared__ float right[DEPTH];
  const int lane = threadIdx.x % 32, first = (block * COPY_ROWS + threadIdx.x / 32) * ROWS_A_WARP;
  const int end = edges.m - edges.rows;
  const float* a[ROWS_A_WARP];
#pragma unroll
  for (int row = 0; row < ROWS_A_WARP; ++row)
    a[row] = edges.a + static_cast<int64_t>(min(first + row, end - 1)) * edges.k;
  for (int column = edges.n - edges.columns; column < edges.n; ++column) {
    float sums[ROWS_A_WARP] = {};
    for (int from = 0; from < edges.k; from += DEPTH) {
      const int depth = min(DEPTH, edges.k - from);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < DEPTH / COPY_THREADS; ++i) {
        const int deep = i * COPY_THREADS + threadIdx.x;
        if (deep < depth) right[deep] = __ldg(edges.weight + static_cast<int64_t>(from + deep) * edges.n + column);
      }
      __syncthreads();
#pragma unroll 4
      for (int deep = lane; deep < depth; deep += 32)
#pragma unroll
        for (int row = 0; row < ROWS_A_WARP; ++row)
          sums[row] = fmaf(__ldg(a[row] + from + deep), right[deep], sums[row]);
    }
#pragma unroll
    for (int row = 0; row < ROWS_A_WARP; ++row) {
      for (int apart = 16; apart; apart /= 2) sums[row] += __shfl_xor_sync(0xffffffffU, sums[row], apart);
      if (lane == row && first + row < end)
        edges.out[static_cast<int64_t>(first + row) * edges.n + column] = sums[row] + edges.bias[column];
    }
  }
}

}  // namespace

// The blocks of edges come first, because each takes longer than one that copies.
__global__ void __launch_bounds__(COPY_THREADS)
    matmul_v24_pad(const Copy<float> a, const Copy<float> weight, const Edges edges) {
  unsigned block = blockIdx.x;
  if (block < edges.row_blocks()) return last_rows(edges, block);
  if (block < edges.blocks()) return last_columns(edges, block - edges.row_blocks());
  block -= edges.blocks();
  const bool of_a = block < a.blocks();
  copy_rows(of_a ? a : weight, block - (of_a ? 0 : a.blocks()));
}

template <typename T>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v24_edges(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                     const T* __restrict__ bias, T* __restrict__ out, float4* partial, int* ready, int m, int n,
                     const Deal deal) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  ring_product(&a_map, &weight_map, bias, out, partial, ready, m, n, deal, static_cast<int>(blockIdx.x));
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v24_edges_workspace(const MatmulCall& call, size_t& bytes) {
  Plan plan;
  if (const cudaError_t status = make_plan(call, plan)) return status;
  if (!plan.takes && !plan.as_v12) return matmul_v22_wide_wave_workspace(call, bytes);
  bytes = plan.bytes;
  return cudaSuccess;
}

cudaError_t matmul_v24_edges(const MatmulCall& call) {
  Plan plan;
  if (const cudaError_t status = make_plan(call, plan)) return status;
  if (plan.as_v12) return matmul_v12_ring(call);
  if (!plan.takes) return matmul_v22_wide_wave(call);
  RingMaps maps;
  if (!make_maps(maps, call, {plan.a.operand(), plan.weight.operand(), plan.a.pitch, plan.weight.pitch}))
    return cudaErrorInvalidValue;
  const Deal& deal = plan.deal;
  float4* partial = static_cast<float4*>(call.workspace);
  int* ready = reinterpret_cast<int*>(partial + static_cast<int64_t>(deal.blocks) * 2 * (BM * BN / 4));
  const auto kernel = matmul_v24_edges<float>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  if (deal.shared)
    if (const cudaError_t status = cudaMemsetAsync(ready, 0, deal.blocks * 2 * sizeof(int), call.stream)) return status;
  if (const unsigned blocks = plan.edges.blocks() + plan.a.blocks() + plan.weight.blocks()) {
    matmul_v24_pad<<<blocks, COPY_THREADS, 0, call.stream>>>(plan.a, plan.weight, plan.edges);
    RETURN_IF_LAUNCH_FAILED();
  }
  // not by <<<blocks, threads, bytes, stream>>>: blocks that share tiles are launched cooperatively
  const cudaError_t status =
      launch_ring(kernel, deal, call.stream, maps.a, maps.weight, static_cast<const float*>(call.bias),
                  static_cast<float*>(call.out), partial, ready, call.m, call.n, deal);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
