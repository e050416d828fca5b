// matmul_fp8 v06_blocks: v04 with scales of 1 x 128 and 128 x 128 elements, sums promoted to fp32 registers every 128.
// Shapes   a (M, K), weight (N, K) e4m3, scale_a (K / 128, M), scale_weight (N / 128, K / 128) fp32, out (M, N) bf16.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 192) + N*K * ceil(M / 128)) bytes through L2, and the scales.
// Versus   v04: the tensor cores add up 128 of K, and the FMA units add the scaled sum to the total while the tensor
//          cores work for the other warpgroup. So what the tensor cores lose of a sum does not add up over all of K.
// Source   DeepSeek-V3 (arXiv 2412.19437), section 3.3.2, "Increasing Accumulation Precision"; DeepGEMM
#ifndef MATMUL_FP8_V06_GROUP_ROWS
#define MATMUL_FP8_V06_GROUP_ROWS 16
#endif
#ifndef MATMUL_FP8_V06_STAGES
#define MATMUL_FP8_V06_STAGES 5
#endif
#ifndef MATMUL_FP8_V06_TAIL
#define MATMUL_FP8_V06_TAIL 0
#endif
#ifndef MATMUL_FP8_V06_BUFFERS
#define MATMUL_FP8_V06_BUFFERS 1
#endif
#ifndef MATMUL_FP8_V06_PEERS
#define MATMUL_FP8_V06_PEERS 1
#endif
#define RING_ACROSS 0
#define RING_MINE 64
#define RING_COLUMNS 192
#define RING_BUFFERS MATMUL_FP8_V06_BUFFERS
#define RING_PEERS MATMUL_FP8_V06_PEERS
#define RING_EARLY 0
#define RING_GROUP_ROWS MATMUL_FP8_V06_GROUP_ROWS
#define RING_STAGES MATMUL_FP8_V06_STAGES
#include "fp8_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// With 1 to 3, a warpgroup starts its products when so many of the other's four have not ended; with 0, at any time.
constexpr int TAIL = MATMUL_FP8_V06_TAIL;

// Waits for the turn of warpgroup `group`, which the other one gives.
__device__ __forceinline__ void wait_for_turn(int group) {
  if constexpr (TAIL > 0) join_named(3 + group, 256);
}

__device__ __forceinline__ void give_turn(int group) {
  if constexpr (TAIL > 0) asm volatile("bar.arrive %0, 256;" ::"r"(3 + group) : "memory");
}

// Promotes sums every 128 of K, and writes each tile before the next one.
struct Promoted {
  const CUtensorMap* out;
  const float *scale_a, *scale_weight;
  int m, n, k;

  __device__ __forceinline__ void operator()(RingTiles at) const {
    const int lane = threadIdx.x % 32, my_row = threadIdx.x % 128 / 32 * 16 + lane / 4, last = (n - 1) / SCALED;
    const int group = threadIdx.x / 128;
    if (group == 1) give_turn(0);
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      // what lies beyond the edges is computed with the last scale, and not written
      const float* of_rows[2] = {scale_a + min(row + my_row, m - 1), scale_a + min(row + my_row + 8, m - 1)};
      // two blocks of the weight have the tile's columns: two of its three pieces of 64 are in one of them
      const int block = column / SCALED;
      const bool middle_in_first = column % SCALED == 0;
      const float* of_columns[2] = {scale_weight + static_cast<int64_t>(min(block, last)) * at.steps,
                                    scale_weight + static_cast<int64_t>(min(block + 1, last)) * at.steps};
      float rows[2], columns[2];
      const auto fetch = [&](int step) {  // the scales of a step
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          rows[i] = __ldg(of_rows[i] + static_cast<int64_t>(step) * m);
          columns[i] = __ldg(of_columns[i] + step);
        }
      };
      fetch(0);
      float sums[BN / 2];
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) sums[i] = 0.0f;
#pragma unroll 1
      for (int step = 0; step < at.steps; ++step) {
        wait_barrier(at.full + 8 * at.ring.stage, at.ring.phase);
        const uint32_t stage = at.ring.stage * STAGE_BYTES;
        float part[BN / 2];
        wait_for_turn(group);
        begin_multiply();
        multiply_step<0, 4 - TAIL>(part, at.a + stage, at.weight + stage, false);
        commit_multiply();
        if constexpr (TAIL > 0) {
          multiply_step<4 - TAIL, 4>(part, at.a + stage, at.weight + stage, true);
          commit_multiply();
        }
        const float middle = middle_in_first ? columns[0] : columns[1];
        float factors[3][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          factors[0][i] = rows[i] * columns[0];
          factors[1][i] = rows[i] * middle;
          factors[2][i] = rows[i] * columns[1];
        }
        if (step + 1 < at.steps) fetch(step + 1);
        if constexpr (TAIL > 0) {
          wait_multiply<1>();
          if (group == 0 || step + 1 < at.steps || tile + at.stride < at.tiles) give_turn(1 - group);
        }
        wait_multiply<0>();
        give_back(at.empty + 8 * at.ring.stage);
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) sums[i] = fmaf(part[i], factors[i / 32][i / 2 % 2], sums[i]);
        at.ring.advance();
      }
      write_tile<BN / 64, BUFFERS>(out, at.staged, sums, 1.0f, row, column, m, n);
    }
  }
};

}  // namespace
#endif

RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v06_blocks(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                          const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring(maps, m, n, k, Promoted{&maps.out, scale_a, scale_weight, m, n, k});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v06_blocks(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v06_blocks, grid, SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}
