// matmul_fp8 v09_alternate: v06 with tiles of 256 x 128, whose warpgroups promote whole products, 64 rows at a time.
// Shapes   a (M, K), weight (N, K) e4m3, scale_a (K / 128, M), scale_weight (N / 128, K / 128) fp32, out (M, N) bf16.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 256) + N*K * ceil(M / 256)) bytes through L2, and the scales
// Versus   v06: a warpgroup multiplies all columns of a step at once, and promotes them while the other one's products
//          run. It asks for the next stage before it promotes. Blocks of a cluster share rows of `a`. A tile has one
//          scale of the weight, and is staged as a whole.
// Source   DeepGEMM has the same tiles
#ifndef MATMUL_FP8_V09_GROUP_ROWS
#define MATMUL_FP8_V09_GROUP_ROWS 8
#endif
#ifndef MATMUL_FP8_V09_ACROSS
#define MATMUL_FP8_V09_ACROSS 1
#endif
#define RING_SCALES 1
#define RING_ACROSS MATMUL_FP8_V09_ACROSS
#define RING_MINE 128
#define RING_BUFFERS 4  // a warpgroup's part of a tile
#define RING_PEERS 2
#define RING_EARLY 0
#define RING_GROUP_ROWS MATMUL_FP8_V09_GROUP_ROWS
#define RING_STAGES 3
#include "fp8_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

template <int BN>
struct Alternate {
  static_assert(BN == 128);  // one scale of the weight a step
  static constexpr int HALVES = MINE / 64;
  using Sums = float[HALVES][BN / 2];
  const CUtensorMap* out;
  int m, n;

  // What is known of a stage before its step begins: while the step before is promoted.
  struct Stage {
    uint64_t a, weight;
    uint32_t scales, full, empty, parity, ready;
  };

  static __device__ __forceinline__ Stage stage_of(const RingTiles<BN>& at) {
    Stage found = {at.staged_rows(at.a),
                   at.staged_rows(at.weight),
                   at.scales + at.ring.stage * Width<BN>::SCALE_BYTES,
                   at.full + 8 * at.ring.stage,
                   at.empty + 8 * at.ring.stage,
                   at.ring.phase,
                   0};
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(found.ready)
                 : "r"(found.full), "r"(found.parity)
                 : "memory");
    return found;
  }

  // Multiplies and promotes a step. Its halves take turns with one set of registers.
  static __device__ __forceinline__ void run_step(RingTiles<BN>& at, Stage& stage, Sums& sums, int my_row) {
    wait_unless(stage.ready, stage.full, stage.parity);
    const Stage now = stage;
    float part[BN / 2];
    float column = 0.0f;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      hold(part);
      begin_multiply();
      multiply_step(part, advanced(now.a, half * 64 * BK), now.weight, false);
      commit_multiply();
      if (half == 0) column = read_scale(now.scales + BM * 4);
      const uint32_t mine = now.scales + (my_row + half * 64) * 4;
      const float rows[2] = {read_scale(mine) * column, read_scale(mine + 32) * column};
      if (half == HALVES - 1) at.ring.advance();
      wait_multiply<0>();
      if (half == HALVES - 1) {
        give_back(now.empty);
        stage = stage_of(at);
      }
      hold(part);
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) sums[half][i] = fmaf(part[i], rows[i / 2 % 2], sums[half][i]);
      hold(sums[half]);
    }
  }

  // Nothing that reads or writes `values` moves across. The compiler would start the second half's products during the
  // first one's promotion, with registers that it does not have.
  static __device__ __forceinline__ void hold(float (&values)[BN / 2]) {
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(values[i])::"memory");
  }

  // Waits for a barrier that was not ready when it was asked. One block of assembly, for which no warp diverges.
  static __device__ __forceinline__ void wait_unless(uint32_t ready, uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "setp.ne.u32 done, %2, 0;\n"
        "@done bra READY;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra READY;\n"
        "bra AGAIN;\n"
        "READY:\n"
        "}\n" ::"r"(barrier),
        "r"(parity), "r"(ready)
        : "memory");
  }

  __device__ __forceinline__ void write(const Sums& sums, uint32_t staged, int row, int column) const {
    const int thread = threadIdx.x % 128, barrier = 1 + threadIdx.x / 128;
    if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    join_named(barrier);
#pragma unroll
    for (int piece = 0; piece < HALVES * PIECES<BN>; ++piece) {
      uint32_t rounded[16];
      const float* from = sums[piece / PIECES<BN>] + piece % PIECES<BN> * 32;
#pragma unroll
      for (int i = 0; i < 16; ++i) rounded[i] = pack(from[2 * i], from[2 * i + 1]);
      stage_piece(staged + piece * 64 * 128, rounded);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    join_named(barrier);
    if (thread == 0) {
#pragma unroll
      for (int piece = 0; piece < HALVES * PIECES<BN>; ++piece) {
        const int to_row = row + piece / PIECES<BN> * 64, to_column = column + piece % PIECES<BN> * 64;
        if (to_row < m && to_column < n) store_box(out, staged + piece * 64 * 128, to_column, to_row);
      }
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }

  __device__ __forceinline__ void operator()(RingTiles<BN> at) const {
    const int my_row = threadIdx.x / 128 * MINE + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      Stage stage = stage_of(at);
      Sums sums;
#pragma unroll
      for (int i = 0; i < BN; ++i) sums[i / (BN / 2)][i % (BN / 2)] = 0.0f;
#pragma unroll 1
      for (int step = 0; step < at.steps; ++step) run_step(at, stage, sums, my_row);
      write(sums, at.staged, row, column);
    }
  }
};

}  // namespace
#endif

template <int BN>
RING_CLUSTER __global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v09_alternate(const __grid_constant__ RingMaps maps, const float* __restrict__ scale_a,
                             const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ring<BN>(maps, m, n, k, Alternate<BN>{&maps.out, m, n}, scale_a, scale_weight);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v09_alternate(const MatmulFp8Call& call) {
  RingMaps maps;
  Grid grid;
  if (const cudaError_t status = prepare_ring<128>(call, maps, grid)) return status;
  return launch_overlapped(matmul_fp8_v09_alternate<128>, grid, Width<128>::SHARED_BYTES, call.stream, maps,
                           call.scale_a, call.scale_weight, call.m, call.n, call.k);
}
