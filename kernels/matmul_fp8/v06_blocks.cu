// matmul_fp8 v06_blocks: v04 with scales of 1 x 128 and 128 x 128 elements, sums promoted to fp32 registers every 128.
// Shapes   a (M, K), weight (N, K) e4m3, scale_a (K / 128, M), scale_weight (N / 128, K / 128) fp32, out (M, N) bf16.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 192) + N*K * ceil(M / 256)) bytes through L2, and the scales; or another width than 192 that
//          leaves fewer SMs idle.
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
#include <iterator>

#include "fp8_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// Promotes sums every 128 of K, and writes each tile before the next one.
template <int BN>
struct Promoted {
  static constexpr int PARTS = BN == 256 ? 4 : 2;  // of the columns: while one is promoted, the next one's products run
  static constexpr int SUMS = BN / 2 / PARTS;      // of a thread, in a part
  static constexpr int SCALES = Width<BN>::WEIGHT_SCALES, OF_A_SCALE = Width<BN>::SHARE / 2;  // sums that share one
  const CUtensorMap* out;
  int m, n;

  // Multiplies and promotes a step. The compiler lets products and promotion overlap inside an iteration only.
  static __device__ __forceinline__ void run_step(RingTiles<BN>& at, float (&sums)[BN / 2], int my_row) {
    wait_barrier(at.full + 8 * at.ring.stage, at.ring.phase);
    const uint64_t a = at.staged_rows(at.a), weight = at.staged_rows(at.weight);
    const uint32_t scales = at.scales + at.ring.stage * Width<BN>::SCALE_BYTES;
    const float rows[2] = {read_scale(scales + my_row * 4), read_scale(scales + my_row * 4 + 32)};
    constexpr bool ONE_EACH = BN / PARTS == Width<BN>::SHARE;  // a part has one scale: no registers are needed for more
    float4 columns[SCALES / 4];
    float column = 0.0f;
#pragma unroll
    for (int i = 0; i < SCALES / 4; ++i)
      if (!ONE_EACH) columns[i] = read_scales(scales + (BM + i * 4) * 4);
    float part[2][SUMS];
#pragma unroll
    for (int turn = 0; turn <= PARTS; ++turn) {
      if (turn < PARTS) {
        const uint64_t mine = advanced(weight, turn * (BN / PARTS) * BK);
        begin_multiply();
        if constexpr (BN == 256) {
          multiply_step(part[turn % 2], a, mine, false);
        } else {
          multiply_fresh(part[turn % 2], a, mine);
          multiply_step<1>(part[turn % 2], a, mine, true);
        }
        commit_multiply();
      }
      if (turn == 0) continue;
      if (ONE_EACH) column = read_scale(scales + (BM + turn - 1) * 4);
      if (turn < PARTS)
        wait_multiply<1>();
      else
        wait_multiply<0>();
      // clang-format off
      float(&of_old)[SUMS] = part[(turn - 1) % 2];
      // clang-format on
      if (turn == PARTS) give_back(at.empty + 8 * at.ring.stage);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) asm volatile("" : "+f"(of_old[i])::"memory");  // not before the wait
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int to = (turn - 1) * SUMS + i, which = to / OF_A_SCALE;
        const float4& four = columns[which / 4];
        if (!ONE_EACH) column = which % 4 == 0 ? four.x : which % 4 == 1 ? four.y : which % 4 == 2 ? four.z : four.w;
        sums[to] = fmaf(of_old[i], rows[to / 2 % 2] * column, sums[to]);
      }
    }
    at.ring.advance();
  }

  __device__ __forceinline__ void operator()(RingTiles<BN> at) const {
    const int my_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      float sums[BN / 2];
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) sums[i] = 0.0f;
#pragma unroll 1
      for (int step = 0; step < at.steps; ++step) run_step(at, sums, my_row);
      at.write(out, sums, 1.0f, tile + at.stride >= at.tiles, row, column, m, n);
    }
  }
};

}  // namespace
#endif

template <int BN>
RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v06_blocks(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                          const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring<BN>(maps, m, n, k, Promoted<BN>{&maps.out, m, n}, scale_a, scale_weight);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <int BN>
cudaError_t launch(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring<BN>(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v06_blocks<BN>, grid, Width<BN>::SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}

// Tiles of a width: how they are launched, and their times on an H200 in ns, for a step in K and for the rest of a tile.
// They are fitted to trials that were not kept.
struct Choice {
  cudaError_t (*launch)(const MatmulFp8Call& call);
  int columns, step, rest;
};

constexpr Choice CHOICES[] = {
    {launch<256>, 256, 859, 1335},
    {launch<192>, 192, 587, 1003},
    {launch<176>, 176, 575, 1029},
};

}  // namespace

cudaError_t matmul_fp8_v06_blocks(const MatmulFp8Call& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  const auto time = [&](const Choice& choice) {
    const int64_t rows = (call.m + ROWS - 1) / ROWS, tiles = (call.n + choice.columns - 1) / choice.columns * rows;
    const int64_t at_once = sm_count / PEERS;
    return (tiles + at_once - 1) / at_once * (static_cast<int64_t>(call.k + BK - 1) / BK * choice.step + choice.rest);
  };
  return std::min_element(std::begin(CHOICES), std::end(CHOICES),
                          [&](const Choice& one, const Choice& other) { return time(one) < time(other); })
      ->launch(call);
}
