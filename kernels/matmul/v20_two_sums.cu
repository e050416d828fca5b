// matmul v20_two_sums: v14 with two sets of sums: while a tile's first products are computed, the tile before is written.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 64 == 0, K % 8 == 0, 16-byte aligned operands, K above 384, and so many tiles of 128 x 192 that
//          they end first by the table of measured steps; otherwise v18 runs
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v18: its two warpgroups take tiles of 128 x 128 in turn, which read a fifth more of L2 for a product than
//          these. Here both work on one tile, and keep its sums in registers until the next tile's products run. Then a
//          warp writes 32 columns for each step in K.
// Source   CUTLASS, "KernelTmaWarpSpecializedCooperative", with the epilogue overlapped as on later GPUs
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#ifndef MATMUL_V20_GROUP_ROWS
#define MATMUL_V20_GROUP_ROWS 8
#endif
#ifndef MATMUL_V20_STAGES
#define MATMUL_V20_STAGES 5
#endif
#define FITTED_GROUP_ROWS MATMUL_V20_GROUP_ROWS
#define FITTED_STAGES MATMUL_V20_STAGES
#include "fitted_tile.cuh"

// These run what this rung does not take.
cudaError_t matmul_v18_ping_pong(const MatmulCall& call);
cudaError_t matmul_v18_ping_pong_workspace(const MatmulCall& call, size_t& bytes);

namespace {
constexpr int BN = 192, STAGES = MATMUL_V20_STAGES;
constexpr int64_t WEIGHT_IN_L2 = 25 << 20;  // half of L2; no weight between 5 and 73 MB was tried
constexpr int PIECES = BN / 32;             // a step in K writes one of them: 32 columns
constexpr int BUFFERS = 3;                  // pieces of a warp that are being copied
constexpr uint32_t STAGE_BYTES = A_BYTES + BN * BK * 2, PIECE_BYTES = 16 * 64, BIAS_BYTES = BN * 2;
constexpr uint32_t PIECES_BYTES = CONSUMERS * 4 * BUFFERS * PIECE_BYTES;
constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + PIECES_BYTES + CONSUMERS * 2 * BIAS_BYTES;
static_assert(SHARED_BYTES <= MOST_SHARED);

struct Maps {
  CUtensorMap a, weight, out;
};
}  // namespace

__global__ void __launch_bounds__(THREADS, 1)
    matmul_v20_two_sums(const __grid_constant__ Maps maps, const __nv_bfloat16* __restrict__ bias, int m, int n, int k,
                        int group_rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES, biases = staged + PIECES_BYTES;
  const uint32_t full = biases + CONSUMERS * 2 * BIAS_BYTES, empty = full + 8 * STAGES;
  const AnyOrder<BM, BN> order{(m + BM - 1) / BM, (n + BN - 1) / BN, group_rows};
  const int tiles = order.rows * order.columns, steps = (k + BK - 1) / BK;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) init_ring<STAGES>(full, empty, CONSUMERS);
  __syncthreads();

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
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
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    wait_for_previous();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t mine = staged + (group * 4 + warp) * BUFFERS * PIECE_BYTES;
    const uint32_t bias_mine = biases + group * 2 * BIAS_BYTES;  // of two tiles
    Ring<STAGES> ring;
    uint32_t before = 0;                                 // the barrier of the stage whose products may still run
    int tile = blockIdx.x, old_row = 0, old_column = n;  // of the tile before; at first there is none

    const auto multiply_step = [&](float (&sums)[BN / 2], int step) {
      wait_barrier(full + 8 * ring.stage, ring.phase);
      begin_multiply();
      const uint32_t at = stages + ring.stage * STAGE_BYTES;
#pragma unroll
      for (int part = 0; part < BK / 16; ++part)
        multiply<true>(sums, descriptor(at + group * 64 * BK * 2 + part * 32, 16, 1024),
                       descriptor(at + A_BYTES + part * 2048, BK * BOX * 2, 1024), step > 0 || part > 0);
      commit_multiply();
    };
    // Waits until the step before has ended, whose stage may then be filled again.
    const auto end_step = [&] {
      wait_multiply<1>();
      if (thread == 0 && before) arrive(before);
      before = empty + 8 * ring.stage;
      ring.advance();
    };
    // Writes a piece of the tile before: as bf16 to shared memory, swizzled as TMA expects, from there to `out`.
    const auto write = [&](const float (&sums)[BN / 2], int piece, uint32_t bias_at) {
      const uint32_t to = mine + piece % BUFFERS * PIECE_BYTES;
      if (lane == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(BUFFERS - 1) : "memory");
      __syncwarp();
#pragma unroll
      for (int j = 0; j < 2; ++j) {  // 16 columns: one stmatrix of four 8 x 8 matrices
        uint32_t packed[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t word;  // the bias of this lane's columns
          asm volatile("ld.shared.b32 %0, [%1];"
                       : "=r"(word)
                       : "r"(bias_at + (piece * 32 + j * 16 + half * 8 + lane % 4 * 2) * 2)
                       : "memory");
          const float2 shift = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(word));
          const float* from = sums + piece * 16 + j * 8 + half * 4;
          packed[half * 2] = pack(from[0] + shift.x, from[1] + shift.y);
          packed[half * 2 + 1] = pack(from[2] + shift.x, from[3] + shift.y);
        }
        // matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
        store_matrices(to + swizzled<64>(lane % 8 + lane / 8 % 2 * 8, j * 2 + lane / 16), packed[0], packed[1],
                       packed[2], packed[3]);
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0) {
        if (old_column + piece * 32 < n)
          store_box(&maps.out, to, old_column + piece * 32, old_row + group * 64 + warp * 16);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    };
    // Computes a tile, and writes the one before, whose sums are `old`. Tiles take the two places for a bias in turn.
    const auto run = [&](float (&sums)[BN / 2], const float (&old)[BN / 2], int parity) {
      int row, column;
      order.place(tile, row, column);
      multiply_step(sums, 0);
      end_step();                                       // the sums of the tile before are complete
      asm volatile("cp.async.wait_all;" ::: "memory");  // and its bias is here
      join_named(1 + group);
      if (thread < BN / 8 && column + thread * 8 < n)  // each of the first threads copies 16 bytes
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(bias_mine + parity * BIAS_BYTES + thread * 16),
                     "l"(bias + column + thread * 8)
                     : "memory");
#pragma unroll
      for (int step = 1; step <= PIECES; ++step) {
        multiply_step(sums, step);
        write(old, step - 1, bias_mine + (1 - parity) * BIAS_BYTES);
        end_step();
      }
#pragma unroll 1
      for (int step = PIECES + 1; step < steps; ++step) {
        multiply_step(sums, step);
        end_step();
      }
      old_row = row, old_column = column;
      tile += gridDim.x;
    };
    const auto finish = [&](const float (&sums)[BN / 2], int parity) {
      wait_multiply<0>();
      asm volatile("cp.async.wait_all;" ::: "memory");
      join_named(1 + group);
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) write(sums, piece, bias_mine + parity * BIAS_BYTES);
    };
    float even[BN / 2], odd[BN / 2];
#pragma unroll 1
    while (true) {
      run(even, odd, 0);
      if (tile >= tiles) {
        finish(even, 0);
        break;
      }
      run(odd, even, 1);
      if (tile >= tiles) {
        finish(odd, 1);
        break;
      }
    }
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

// Whether the tiles of this rung end before those of v14. With two sets of sums, a tile costs its steps only; the times
// are of an H200, in ns.
bool ends_first(const MatmulCall& call, int sm_count) {
  const int64_t tiles = static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + BN - 1) / BN);
  const int64_t waves = (tiles + sm_count - 1) / sm_count, steps = (call.k + BK - 1) / BK;
  int64_t others = INT64_MAX;
  for (const Choice& choice : CHOICES) others = std::min(others, nanoseconds(call, choice, sm_count));
  return waves > 1 && waves * steps * 500 + 2300 < others;
}

}  // namespace

cudaError_t matmul_v20_two_sums_workspace(const MatmulCall& call, size_t& bytes) {
  return matmul_v18_ping_pong_workspace(call, bytes);
}

cudaError_t matmul_v20_two_sums(const MatmulCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0 || call.n % 64 || call.k % 8 || !aligned(call) || call.k <= PIECES * BK ||
      !ends_first(call, sm_count))
    return matmul_v18_ping_pong(call);
  Maps maps;
  if (!make_map(maps.a, call.a, call.m, call.k, call.k, BM, BOX) ||
      !make_map(maps.weight, call.weight, call.k, call.n, call.n, BK, BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 16, 32))
    return cudaErrorInvalidValue;
  const int64_t tiles = static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + BN - 1) / BN);
  // A larger weight is read again for every group of tile rows.
  const bool stays = static_cast<int64_t>(call.n) * call.k * 2 <= WEIGHT_IN_L2;
  return launch_overlapped(matmul_v20_two_sums, {static_cast<int>(std::min<int64_t>(tiles, sm_count)), THREADS},
                           SHARED_BYTES, call.stream, maps, static_cast<const __nv_bfloat16*>(call.bias), call.m,
                           call.n, call.k, stays ? PATCH_ROWS : GROUP_ROWS);
}
