// matmul_fp8 v03_wgmma: warpgroup instructions, a tile of 128 x 128 for each block, two blocks an SM.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 128) + N*K * ceil(M / 128)) bytes through L2.
// Versus   v02: the tensor cores read e4m3 from shared memory, where TMA puts it. All warps wait for each other in each
//          step, and the other block of the SM fills the gap.
// Source   PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"
#ifndef MATMUL_FP8_V03_STAGES
#define MATMUL_FP8_V03_STAGES 3
#endif
#include "fp8_tile.cuh"

namespace {
[[maybe_unused]] constexpr int GROUP_ROWS = 8;  // tile rows that stay together in L2
constexpr int CONSUMERS = 2;                    // warpgroups, 64 rows of the tile each
constexpr int BM = 64 * CONSUMERS, BN = 128, STAGES = MATMUL_FP8_V03_STAGES, THREADS = 128 * CONSUMERS;
constexpr uint32_t A_BYTES = BM * BK, STAGE_BYTES = A_BYTES + BN * BK;
constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 8);
static_assert(BM * BN * 2 <= STAGES * STAGE_BYTES, "the outputs take the place of the operands");

struct Maps {
  CUtensorMap a, weight, out;
};
}  // namespace

__global__ void __launch_bounds__(THREADS, 2)
    matmul_fp8_v03_wgmma(const __grid_constant__ Maps maps, const float* __restrict__ scale_a,
                         const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t full = stages + STAGES * STAGE_BYTES;
  const int thread = threadIdx.x, group = thread / 128, steps = (k + BK - 1) / BK;
  const TileOrder<GROUP_ROWS, BM, BN> order{(m + BM - 1) / BM, (n + BN - 1) / BN};
  int row, column;
  order.place(blockIdx.x, row, column);

  let_next_start();
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init_barrier(full + 8 * stage, 1);
    publish_barriers();
  }
  __syncthreads();
  wait_for_previous();
  const auto fetch = [&](int step, int stage) {  // in one thread
    const uint32_t to = stages + stage * STAGE_BYTES, barrier = full + 8 * stage;
    expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
    load_box(to, &maps.a, barrier, step * BOX, row);
    load_box(to + A_BYTES, &maps.weight, barrier, step * BOX, column);
  };
  if (thread == 0)
    for (int step = 0; step < STAGES && step < steps; ++step) fetch(step, step);

  float sums[BN / 2];
  Ring<STAGES> ring;
  for (int step = 0; step < steps; ++step) {
    wait_barrier(full + 8 * ring.stage, ring.phase);
    const uint32_t at = stages + ring.stage * STAGE_BYTES;
    begin_multiply();
    multiply_step(sums, rows_at(at + group * 64 * BK), rows_at(at + A_BYTES), step > 0);
    commit_multiply();
    wait_multiply<0>();
    __syncthreads();
    if (thread == 0 && step + STAGES < steps) fetch(step + STAGES, ring.stage);
    ring.advance();
  }
  write_tile<BN, BN / 64>(&maps.out, stages + group * 64 * BN * 2, sums, *scale_a * *scale_weight, row + group * 64,
                          column, m, n);
  if (thread % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_fp8_v03_wgmma(const MatmulFp8Call& call) {
  if (const cudaError_t status = refused(call)) return status;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  Maps maps;
  if (!make_fp8_map(maps.a, call.a, call.m, call.k, BM) ||
      !make_fp8_map(maps.weight, call.weight, call.n, call.k, BN) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  const int tiles = (call.m + BM - 1) / BM * ((call.n + BN - 1) / BN);
  return launch_overlapped(matmul_fp8_v03_wgmma, {tiles, THREADS}, SHARED_BYTES, call.stream, maps, call.scale_a,
                           call.scale_weight, call.m, call.n, call.k);
}
