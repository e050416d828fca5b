// matmul v18_ping_pong: v14 with tiles of 128 x 128 that two warpgroups take in turn.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands, K of 1024 or less, 5 tiles or more for two SMs;
//          otherwise v16 runs
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v14: its two warpgroups share a tile, so the tensor cores rest while both write it. Here one multiplies
//          while the other writes its own tile. Smaller tiles read more of L2 for a product, so a long K has no gain.
// Source   CUTLASS, "KernelTmaWarpSpecializedPingpong"
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "check.cuh"
#include "hopper.cuh"
#include "matmul.h"
#include "overlap_shared.cuh"
#include "ring_steps.cuh"
#include "tile_order.cuh"

#ifndef MATMUL_V18_GROUP_ROWS
#define MATMUL_V18_GROUP_ROWS 4
#endif
#ifndef MATMUL_V18_STAGES
#define MATMUL_V18_STAGES 5
#endif

// These run what this rung does not take.
cudaError_t matmul_v16_any_rows(const MatmulCall& call);
cudaError_t matmul_v16_any_rows_workspace(const MatmulCall& call, size_t& bytes);

namespace {
constexpr int BM = 128, BN = 128, BK = 64, STAGES = MATMUL_V18_STAGES;
constexpr int CONSUMERS = 2, THREADS = 128 * (CONSUMERS + 1);
constexpr int MOST_K = 1024;
[[maybe_unused]] constexpr int GROUP_ROWS = MATMUL_V18_GROUP_ROWS;  // tile rows that stay together in L2
constexpr uint32_t A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BK * BN * 2;
constexpr uint32_t OUT_BYTES = BM * BN * 2, BIAS_BYTES = BN * 2;  // per consumer
constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + CONSUMERS * (OUT_BYTES + BIAS_BYTES);
static_assert(SHARED_BYTES <= 227 * 1024);

struct Maps {
  CUtensorMap a, weight, out;
};
}  // namespace

__global__ void __launch_bounds__(THREADS, 1)
    matmul_v18_ping_pong(const __grid_constant__ Maps maps, const __nv_bfloat16* __restrict__ bias, int m, int n,
                         int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES, biases = staged + CONSUMERS * OUT_BYTES;
  const uint32_t full = biases + CONSUMERS * BIAS_BYTES, empty = full + 8 * STAGES;
  const TileOrder<GROUP_ROWS, BM, BN> order{(m + BM - 1) / BM, (n + BN - 1) / BN};
  const int tiles = order.rows * order.columns, steps = (k + BK - 1) / BK;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) init_ring<STAGES>(full, empty, 1);
  __syncthreads();

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % 128 == 0) {
      wait_for_previous();
      const auto load = [&](uint32_t to, uint32_t barrier, int row, int column, int step) {
        load_box(to, &maps.a, barrier, step * BK, row);
#pragma unroll
        for (int box = 0; box < BN / BOX; ++box)
          load_box(to + A_BYTES + box * BK * BOX * 2, &maps.weight, barrier, column + box * BOX, step * BK);
      };
      feed_tiles<STAGES, STAGE_BYTES>(order, tiles, steps, stages, full, empty, load);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_previous();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t mine = staged + group * OUT_BYTES, bias_mine = biases + group * BIAS_BYTES;
    int place = group * steps;  // of the next step in the ring, counted from the start
    for (int tile = blockIdx.x + group * gridDim.x; tile < tiles; tile += CONSUMERS * gridDim.x) {
      int row, column;
      order.place(tile, row, column);
      // each of the first threads copies 16 bytes of the bias while products are computed
      if (thread < BN / 8 && column + thread * 8 < n)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(bias_mine + thread * 16),
                     "l"(bias + column + thread * 8)
                     : "memory");
      // The other warpgroup has waited for all data of the tile before: the barriers of stages tell even from odd turns only.
      if (tile != blockIdx.x) join_named(3 + group, 256);
      float sums[2][BN / 2];
      Ring<STAGES> ring = {place % STAGES, static_cast<uint32_t>(place / STAGES % 2)};
      uint32_t before = 0;
      for (int step = 0; step < steps; ++step) {
        wait_barrier(full + 8 * ring.stage, ring.phase);
        // the other warpgroup waits for this if it has a tile after this one
        if (step == steps - 1 && tile + gridDim.x < tiles)
          asm volatile("bar.arrive %0, 256;" ::"r"(4 - group) : "memory");
        begin_multiply();
        const uint32_t at = stages + ring.stage * STAGE_BYTES;
#pragma unroll
        for (int part = 0; part < BK / 16; ++part)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            multiply<true>(sums[half], descriptor(at + half * 64 * BK * 2 + part * 32, 16, 1024),
                           descriptor(at + A_BYTES + part * 2048, BK * BOX * 2, 1024), step > 0 || part > 0);
        commit_multiply();
        wait_multiply<1>();  // the step before has ended: its stage may be filled again
        if (step > 0 && thread == 0) arrive(before);
        before = empty + 8 * ring.stage;
        ring.advance();
      }
      wait_multiply<0>();
      if (thread == 0) arrive(before);
      place += CONSUMERS * steps;

      // Writes the output: accumulators as bf16 to shared memory, swizzled as TMA expects, from there to `out`.
      asm volatile("cp.async.wait_all;" ::: "memory");  // the bias
      if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      join_named(1 + group);
#pragma unroll
      for (int j = 0; j < BN / 16; ++j) {  // 16 columns: one stmatrix of four 8 x 8 matrices for each half
        float2 shift[2];                   // the bias of this lane's columns
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          uint32_t word;
          asm volatile("ld.shared.b32 %0, [%1];"
                       : "=r"(word)
                       : "r"(bias_mine + (j * 16 + pair * 8 + lane % 4 * 2) * 2)
                       : "memory");
          shift[pair] = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(word));
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t packed[4];
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            const float* from = sums[half] + j * 8 + pair * 4;
            packed[pair * 2] = pack(from[0] + shift[pair].x, from[1] + shift[pair].y);
            packed[pair * 2 + 1] = pack(from[2] + shift[pair].x, from[3] + shift[pair].y);
          }
          // matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
          const int in_row = half * 64 + warp * 16 + lane % 8 + lane / 8 % 2 * 8;
          store_matrices(mine + j / 4 * BM * 128 + swizzled<128>(in_row, j % 4 * 2 + lane / 16), packed[0], packed[1],
                         packed[2], packed[3]);
        }
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      join_named(1 + group);
      if (thread == 0) {
#pragma unroll
        for (int box = 0; box < BN / BOX; ++box)
          if (column + box * BOX < n) store_box(&maps.out, mine + box * BM * 128, column + box * BOX, row);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
    if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v18_ping_pong_workspace(const MatmulCall& call, size_t& bytes) {
  return matmul_v16_any_rows_workspace(call, bytes);
}

cudaError_t matmul_v18_ping_pong(const MatmulCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const int64_t tiles = static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + BN - 1) / BN);
  if (sm_count == 0 || call.n % 8 || call.k % 8 || !aligned(call) || call.k > MOST_K || 2 * tiles < 5 * sm_count)
    return matmul_v16_any_rows(call);
  Maps maps;
  if (!make_map(maps.a, call.a, call.m, call.k, call.k, BM, BOX) ||
      !make_map(maps.weight, call.weight, call.k, call.n, call.n, BK, BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, BM, BOX))
    return cudaErrorInvalidValue;
  return launch_overlapped(matmul_v18_ping_pong, {static_cast<int>(std::min<int64_t>(tiles, sm_count)), THREADS},
                           SHARED_BYTES, call.stream, maps, static_cast<const __nv_bfloat16*>(call.bias), call.m,
                           call.n, call.k);
}
