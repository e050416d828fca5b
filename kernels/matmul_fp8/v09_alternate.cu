// matmul_fp8 v09_alternate: v06, whose warpgroups multiply all columns of a step at once and rest while they promote.
// Shapes   a (M, K), weight (N, K) e4m3, scale_a (K / 128, M), scale_weight (N / 128, K / 128) fp32, out (M, N) bf16.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 128) + N*K * ceil(M / 256)) bytes through L2, and the scales
// Versus   v06: a warpgroup multiplies all columns of a step at once, and promotes them while the other one's products
//          run. A tile is 128 columns wide, so fewer SMs idle at the end. It is written during the next one.
#ifndef MATMUL_FP8_V09_GROUP_ROWS
#define MATMUL_FP8_V09_GROUP_ROWS 8
#endif
#ifndef MATMUL_FP8_V09_STAGES
#define MATMUL_FP8_V09_STAGES 5
#endif
#ifndef MATMUL_FP8_V09_PEERS
#define MATMUL_FP8_V09_PEERS 2
#endif
#define RING_SCALES 1
#define RING_ACROSS 0
#define RING_MINE 64
#define RING_BUFFERS 2
#define RING_PEERS MATMUL_FP8_V09_PEERS
#define RING_EARLY 0
#define RING_GROUP_ROWS MATMUL_FP8_V09_GROUP_ROWS
#define RING_STAGES MATMUL_FP8_V09_STAGES
#include "fp8_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

template <int BN>
struct Alternate {
  static_assert(BN == 128);  // a tile has one column of scales of the weight
  const CUtensorMap* out;
  int m, n;

  // Multiplies a step, calls `meanwhile` as the products run, then promotes their sums.
  template <typename Meanwhile>
  static __device__ __forceinline__ void run_step(RingTiles<BN>& at, float (&sums)[BN / 2], int my_row,
                                                  const Meanwhile& meanwhile) {
    wait_barrier(at.full + 8 * at.ring.stage, at.ring.phase);
    const uint32_t a = at.a + at.ring.stage * at.STAGE_BYTES, weight = at.weight + at.ring.stage * at.STAGE_BYTES;
    const uint32_t scales = at.scales + at.ring.stage * Width<BN>::SCALE_BYTES;
    float part[BN / 2];
    begin_multiply();
    multiply_fresh(part, descriptor(a, 16, 1024), descriptor(weight, 16, 1024));
    multiply_step<1>(part, a, weight, true);
    commit_multiply();
    const float column = read_scale(scales + BM * 4);
    const float rows[2] = {read_scale(scales + my_row * 4) * column, read_scale(scales + my_row * 4 + 32) * column};
    meanwhile();
    wait_multiply<0>();
    give_back(at.empty + 8 * at.ring.stage);
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(part[i])::"memory");  // not before the wait
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) sums[i] = fmaf(part[i], rows[i / 2 % 2], sums[i]);
    at.ring.advance();
  }

  __device__ __forceinline__ void operator()(RingTiles<BN> at) const {
    const int my_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    uint32_t rounded[BN / 4] = {};  // the outputs of the tile before
    int old_row = m, old_column = 0;
    const auto write = [&](int piece) {
      const int from = piece_column<BN>(piece);
      write_piece<BN, Width<BN>::BUFFERS>(out, at.staged, rounded + from / 4, piece, old_row, old_column + from, m, n);
    };
    for (int tile = blockIdx.x / PEERS; tile < at.tiles; tile += at.stride) {
      int row, column;
      at.place(tile, row, column);
      float sums[BN / 2];
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) sums[i] = 0.0f;
#pragma unroll
      for (int step = 0; step < PIECES<BN>; ++step) {
        const auto late = [&] { if (old_row < m) write(step); };
        if (step < at.steps)
          run_step(at, sums, my_row, late);
        else
          late();
      }
#pragma unroll 1
      for (int step = PIECES<BN>; step < at.steps; ++step) run_step(at, sums, my_row, [] {});
#pragma unroll
      for (int i = 0; i < BN / 4; ++i) rounded[i] = pack(sums[2 * i], sums[2 * i + 1]);
      old_row = row, old_column = column;
    }
    at.free_ring();
#pragma unroll
    for (int piece = 0; piece < PIECES<BN>; ++piece) {
      const int from = piece_column<BN>(piece);
      write_piece<BN, PIECES<BN>, true>(out, at.free, rounded + from / 4, piece, old_row, old_column + from, m, n);
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
