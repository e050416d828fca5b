// matmul v11_wgmma: bf16 on Hopper's warpgroup instructions; TMA loads tiles.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v10: the tensor cores read operands from shared memory, not from registers, and one thread feeds a ring of
//          stages.
// Source   PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; tile order after Triton's matmul tutorial
#include <cuda_bf16.h>

#include <cstdint>

#include "check.cuh"
#include "hopper.cuh"
#include "matmul.h"
#include "ring_steps.cuh"
#include "tile_order.cuh"

#ifndef MATMUL_V11_GROUP_ROWS
#define MATMUL_V11_GROUP_ROWS 16
#endif
#ifndef MATMUL_V11_STAGES
#define MATMUL_V11_STAGES 4
#endif

namespace {
constexpr int BM = 128, BK = 64;
constexpr int CONSUMERS = 2;  // warpgroups, 64 rows of the tile each
constexpr int THREADS = 128 * (CONSUMERS + 1);
[[maybe_unused]] constexpr int GROUP_ROWS = MATMUL_V11_GROUP_ROWS;  // tile rows that stay together in L2
constexpr uint32_t A_BYTES = BM * BK * 2;

// Constants that follow from the width of a block's tile.
template <int BN>
struct Tile {
  static constexpr uint32_t STAGE_BYTES = A_BYTES + BN * BK * 2;
  static constexpr int STAGES = BN == 256 ? MATMUL_V11_STAGES : BN == 128 ? 6 : 8;
  static constexpr int OUT_COLUMNS = BN < 128 ? BN : 128;  // columns that a consumer stages for one store
  static constexpr uint32_t OUT_BYTES = 64 * OUT_COLUMNS * 2;
  static constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + CONSUMERS * OUT_BYTES;
};
}  // namespace

template <int BN>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_v11_wgmma(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                     const __grid_constant__ CUtensorMap out_map, const __nv_bfloat16* __restrict__ bias, int m, int n,
                     int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int STAGES = Tile<BN>::STAGES, OUT_COLUMNS = Tile<BN>::OUT_COLUMNS;
  constexpr uint32_t STAGE_BYTES = Tile<BN>::STAGE_BYTES, OUT_BYTES = Tile<BN>::OUT_BYTES;
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES;
  const uint32_t full = staged + CONSUMERS * OUT_BYTES, empty = full + 8 * STAGES;
  const TileOrder<GROUP_ROWS> order{(m + BM - 1) / BM, (n + BN - 1) / BN};
  const int tiles = order.rows * order.columns, steps = (k + BK - 1) / BK;
  const int group = threadIdx.x / 128;

  if (threadIdx.x == 0) init_ring<STAGES>(full, empty, CONSUMERS);
  __syncthreads();

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % 128 == 0) {
      const auto load = [&](uint32_t to, uint32_t barrier, int row, int column, int step) {
        load_box(to, &a_map, barrier, step * BK, row * BM);
#pragma unroll
        for (int box = 0; box < BN / BOX; ++box)
          load_box(to + A_BYTES + box * BK * BOX * 2, &weight_map, barrier, column * BN + box * BOX, step * BK);
      };
      feed_tiles<STAGES, STAGE_BYTES>(order, tiles, steps, stages, full, empty, load);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t mine = staged + group * OUT_BYTES;
    float sums[BN / 2];
    Ring<STAGES> ring;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      int row, column;
      order.place(tile, row, column);
      multiply_steps(ring, steps, full, empty, thread == 0, [&](int step, int stage) {
        const uint32_t a = stages + stage * STAGE_BYTES + group * 64 * BK * 2;
        const uint32_t b = stages + stage * STAGE_BYTES + A_BYTES;
#pragma unroll
        for (int part = 0; part < BK / 16; ++part)
          multiply<true>(sums, descriptor(a + part * 32, 16, 1024), descriptor(b + part * 2048, BK * BOX * 2, 1024),
                         step > 0 || part > 0);
      });

      // Writes the output: accumulators as bf16 to shared memory, swizzled as TMA expects, from there to
      // `out`.
#pragma unroll
      for (int part = 0; part < BN / OUT_COLUMNS; ++part) {
        if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        join_named(1 + group);
#pragma unroll
        for (int j = 0; j < OUT_COLUMNS / 16; ++j) {  // 16 columns: one stmatrix of four 8 x 8 matrices
          const int first = (part * OUT_COLUMNS + j * 16) / 2;
          const int at = column * BN + part * OUT_COLUMNS + j * 16 + lane % 4 * 2;
          uint32_t packed[4];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float low = 0.0f, high = 0.0f;
            if (at + half * 8 < n) {  // N is even: both or neither
              const __nv_bfloat162 pair = *reinterpret_cast<const __nv_bfloat162*>(bias + at + half * 8);
              low = __low2float(pair), high = __high2float(pair);
            }
            const float* from = sums + first + half * 4;
            packed[half * 2] = pack(from[0] + low, from[1] + high);
            packed[half * 2 + 1] = pack(from[2] + low, from[3] + high);
          }
          // matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
          const int in_row = warp * 16 + lane % 8 + lane / 8 % 2 * 8;
          store_matrices(mine + j / 4 * 64 * 128 + swizzled<128>(in_row, j % 4 * 2 + lane / 16), packed[0], packed[1],
                         packed[2], packed[3]);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        join_named(1 + group);
        if (thread == 0) {
#pragma unroll
          for (int box = 0; box < OUT_COLUMNS / BOX; ++box) {
            const int at = column * BN + part * OUT_COLUMNS + box * BOX;
            if (at < n) store_box(&out_map, mine + box * 64 * 128, at, row * BM + group * 64);
          }
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
      }
    }
    if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <int BN>
cudaError_t launch(const MatmulCall& call, int sm_count) {
  CUtensorMap a, weight, out;
  if (!make_map(a, call.a, call.m, call.k, call.k, BM, BOX) ||
      !make_map(weight, call.weight, call.k, call.n, call.n, BK, BOX) ||
      !make_map(out, call.out, call.m, call.n, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  constexpr uint32_t bytes = Tile<BN>::SHARED_BYTES;
  if (const cudaError_t status =
          cudaFuncSetAttribute(matmul_v11_wgmma<BN>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return status;
  const int tiles = (call.m + BM - 1) / BM * ((call.n + BN - 1) / BN);
  const int blocks = tiles < sm_count ? tiles : sm_count;
  matmul_v11_wgmma<BN><<<blocks, THREADS, bytes, call.stream>>>(
      a, weight, out, static_cast<const __nv_bfloat16*>(call.bias), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

// The columns that the busiest SM computes; 32 more per tile stand for its other costs.
int64_t work(const MatmulCall& call, int sm_count, int columns) {
  const int64_t tiles = static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + columns - 1) / columns);
  return (tiles + sm_count - 1) / sm_count * (columns + 32);
}

}  // namespace

cudaError_t matmul_v11_wgmma(const MatmulCall& call) {
  if (call.n % 8 || call.k % 8) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  const int64_t wide = work(call, sm_count, 256), middle = work(call, sm_count, 128), narrow = work(call, sm_count, 64);
  if (wide <= middle && wide <= narrow) return launch<256>(call, sm_count);
  return middle <= narrow ? launch<128>(call, sm_count) : launch<64>(call, sm_count);
}
