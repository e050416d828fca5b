// matmul_fp8 v06_blocks: v04 with scales of 1 x 128 and 128 x 128 elements, sums promoted to fp32 registers every 128.
// Shapes   a (M, K), weight (N, K) e4m3, scale_a (K / 128, M), scale_weight (N / 128, K / 128) fp32, out (M, N) bf16.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 192) + N*K * ceil(M / 256)) bytes through L2, and the scales.
// Versus   v05: the tensor cores add up 128 of K, and the FMA units add the scaled sum to the total while the tensor
//          cores work on. So what the tensor cores lose of a sum does not add up over all of K. A warp copies the
//          scales of a step into its stage: read from L2 by each thread, they were the pace of all steps.
// Source   DeepSeek-V3 (arXiv 2412.19437), section 3.3.2, "Increasing Accumulation Precision"; DeepGEMM
#ifndef MATMUL_FP8_V06_GROUP_ROWS
#define MATMUL_FP8_V06_GROUP_ROWS 8
#endif
#ifndef MATMUL_FP8_V06_STAGES
#define MATMUL_FP8_V06_STAGES 4
#endif
#ifndef MATMUL_FP8_V06_COLUMNS
#define MATMUL_FP8_V06_COLUMNS 192
#endif
#ifndef MATMUL_FP8_V06_PARTS
#define MATMUL_FP8_V06_PARTS 2
#endif
#ifndef MATMUL_FP8_V06_STEPS
#define MATMUL_FP8_V06_STEPS 1
#endif
#ifndef MATMUL_FP8_V06_BUFFERS
#define MATMUL_FP8_V06_BUFFERS 3
#endif
#ifndef MATMUL_FP8_V06_PEERS
#define MATMUL_FP8_V06_PEERS 2
#endif
#define RING_SCALES 1
#define RING_ACROSS 0
#define RING_MINE 64
#define RING_BUFFERS MATMUL_FP8_V06_BUFFERS
#define RING_PEERS MATMUL_FP8_V06_PEERS
#define RING_EARLY 0
#define RING_GROUP_ROWS MATMUL_FP8_V06_GROUP_ROWS
#define RING_STAGES MATMUL_FP8_V06_STAGES
#include "fp8_ring.cuh"

namespace {

constexpr int BN = MATMUL_FP8_V06_COLUMNS;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// With 2, the products of a half of the columns run while a warpgroup promotes the other half.
constexpr int PARTS = MATMUL_FP8_V06_PARTS;
// Steps whose products overlap the promotion of the one before. The compiler allows it inside an iteration only.
constexpr int STEPS = MATMUL_FP8_V06_STEPS;

// Promotes sums every 128 of K, and writes each tile before the next one.
struct Promoted {
  const CUtensorMap* out;
  int m, n;

  // Multiplies and promotes COUNT steps: while a part is promoted, the products of the next one run.
  template <int COUNT>
  static __device__ __forceinline__ void run_steps(RingTiles<BN>& at, float (&sums)[BN / 2], int my_row, int column) {
    constexpr int SHARE = BN / 2 / PARTS, TURNS = COUNT * PARTS;
    float part[2][SHARE], rows[2][2], columns[2][(BN + 63) / 64];
    uint32_t frees[2];
#pragma unroll
    for (int turn = 0; turn <= TURNS; ++turn) {
      const int step = turn / PARTS % 2, which = turn % PARTS;
      if (turn < TURNS) {
        const uint32_t scales = at.scales + at.ring.stage * SCALE_BYTES;
        if (which == 0) {
          wait_barrier(at.full + 8 * at.ring.stage, at.ring.phase);
          frees[step] = at.empty + 8 * at.ring.stage;
#pragma unroll
          for (int i = 0; i < 2; ++i) rows[step][i] = read_scale(scales + (my_row + i * 8) * 4);
#pragma unroll
          for (int i = 0; i < (BN + 63) / 64; ++i)  // of 64 columns, which lie in one block of the weight
            columns[step][i] = read_scale(scales + (BM + (column % SCALED + i * 64) / SCALED) * 4);
        }
        const uint32_t a = at.a + at.ring.stage * at.STAGE_BYTES;
        const uint32_t weight = at.weight + at.ring.stage * at.STAGE_BYTES + which * BN / PARTS * BK;
        begin_multiply();
        multiply_fresh(part[turn % 2], descriptor(a, 16, 1024), descriptor(weight, 16, 1024));
        multiply_step<1>(part[turn % 2], a, weight, true);
        commit_multiply();
        if (which == PARTS - 1) at.ring.advance();
      }
      if (turn == 0) continue;
      if (turn < TURNS)
        wait_multiply<1>();
      else
        wait_multiply<0>();
      const int old = (turn - 1) / PARTS % 2, old_which = (turn - 1) % PARTS;
      // clang-format off
      float(&of_old)[SHARE] = part[(turn - 1) % 2];
      // clang-format on
      if (old_which == PARTS - 1) give_back(frees[old]);
#pragma unroll
      for (int i = 0; i < SHARE; ++i) asm volatile("" : "+f"(of_old[i])::"memory");  // not before the wait
#pragma unroll
      for (int i = 0; i < SHARE; ++i) {
        const int to = old_which * SHARE + i;
        sums[to] = fmaf(of_old[i], rows[old][to / 2 % 2] * columns[old][to / 32], sums[to]);
      }
    }
  }

  __device__ __forceinline__ void operator()(RingTiles<BN> at) const {
    const int my_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      float sums[BN / 2];
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) sums[i] = 0.0f;
      int step = 0;
#pragma unroll 1
      for (; step + STEPS <= at.steps; step += STEPS) run_steps<STEPS>(at, sums, my_row, column);
      if constexpr (STEPS > 1) {
#pragma unroll 1
        for (; step < at.steps; ++step) run_steps<1>(at, sums, my_row, column);
      }
      write_tile<BN, BUFFERS>(out, at.staged, sums, 1.0f, row, column, m, n);
    }
  }
};

#endif
}  // namespace

RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v06_blocks(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                          const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring<BN>(maps, m, n, k, Promoted{&maps.out, m, n}, scale_a, scale_weight);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v06_blocks(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring<BN>(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v06_blocks, grid, Width<BN>::SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}
