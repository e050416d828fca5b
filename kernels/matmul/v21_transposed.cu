// matmul v21_transposed: tiles of 96 x 64, one for each SM, as products of the transposed operands.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands, at most as many tiles as SMs, and that they end
//          before those of v14 by the table of measured steps; otherwise v20 runs
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v14: its tiles of 128 x 64 leave a quarter of the SMs idle at 1024 x 768, and its SMs read 192 rows of 128
//          bytes for each step in K. A tile of 96 x 64 takes 160, on every SM. A warpgroup multiplies 64 rows at a time,
//          so the rows of its product are columns of the weight.
// Source   cuBLAS takes tiles of 96 x 64 for this product (nvjet_sm90_tst_96x64_64x8_1x2)
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#ifndef MATMUL_V21_GROUP_ROWS
#define MATMUL_V21_GROUP_ROWS 4
#endif
#ifndef MATMUL_V21_STAGES
#define MATMUL_V21_STAGES 8
#endif
#define FITTED_GROUP_ROWS 16  // for the table of v14 alone
#define FITTED_STAGES 8
#include "fitted_tile.cuh"

// These run what this rung does not take.
cudaError_t matmul_v20_two_sums(const MatmulCall& call);
cudaError_t matmul_v20_two_sums_workspace(const MatmulCall& call, size_t& bytes);

namespace {
constexpr int ROWS = 96, COLUMNS = 64, STAGES = MATMUL_V21_STAGES;
constexpr int ALL_THREADS = 128 + 32;  // a warpgroup that computes, and a warp of which one thread feeds the ring
constexpr int PIECE = 48;              // rows of a store, of the 16 columns of a warp
constexpr uint32_t LEFT_BYTES = ROWS * BK * 2, STAGE_BYTES = LEFT_BYTES + BK * COLUMNS * 2;
constexpr uint32_t OUT_BYTES = ROWS * COLUMNS * 2;
constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + OUT_BYTES;
static_assert(SHARED_BYTES <= MOST_SHARED && COLUMNS == BOX && ROWS % PIECE == 0);

struct Maps {
  CUtensorMap a, weight, out;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// d (64 x 96) += the transpose of w (16 x 64, rows along N) x the transpose of a (96 x 16, rows along K). Both are in
// shared memory. With `keep` 0, d = instead of d +=.
__device__ __forceinline__ void multiply_transposed(float (&d)[ROWS / 2], uint64_t w, uint64_t a, int keep) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %50, 0; wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, "
      "%4, "
      "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, "
      "p, 1, 1, 1, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
      : "l"(w), "l"(a), "r"(keep));
}

// store_matrices() of hopper.cuh that transposes each matrix.
__device__ __forceinline__ void store_transposed(uint32_t to, uint32_t first, uint32_t second, uint32_t third,
                                                 uint32_t fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(first),
               "r"(second), "r"(third), "r"(fourth)
               : "memory");
}

#endif
}  // namespace

__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v21_transposed(const __grid_constant__ Maps maps, const __nv_bfloat16* __restrict__ bias, int m, int n,
                          int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES, full = staged + OUT_BYTES, empty = full + 8 * STAGES;
  const int steps = (k + BK - 1) / BK;
  int row, column;
  TileOrder<MATMUL_V21_GROUP_ROWS, ROWS, COLUMNS>{(m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS}.place(
      blockIdx.x, row, column);
  const int thread = threadIdx.x, warp = __shfl_sync(0xffffffffU, thread / 32, 0), lane = thread % 32;

  let_next_start();
  if (thread == 128) init_ring<STAGES>(full, empty, 1);
  __syncthreads();

  if (warp == 4) {  // the producer: one thread
    if (lane == 0) {
      wait_for_previous();
      Ring<STAGES> ring = {0, 1};  // all stages start empty
      for (int step = 0; step < steps; ++step) {
        const uint32_t barrier = full + 8 * ring.stage, to = stages + ring.stage * STAGE_BYTES;
        wait_barrier(empty + 8 * ring.stage, ring.phase);
        expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
        load_box(to, &maps.a, barrier, step * BK, row);
        load_box(to + LEFT_BYTES, &maps.weight, barrier, column, step * BK);
        ring.advance();
      }
    }
    return;
  }
  wait_for_previous();
  // a lane's sums are in rows lane / 4 and lane / 4 + 8 of the warp's 16, which are columns of `out`
  float shift[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = column + warp * 16 + half * 8 + lane / 4;
    shift[half] = at < n ? __bfloat162float(bias[at]) : 0.0f;
  }
  float sums[ROWS / 2];
  Ring<STAGES> ring;
  multiply_steps(ring, steps, full, empty, thread == 0, [&](int step, int stage) {
    const uint32_t at = stages + stage * STAGE_BYTES;
#pragma unroll
    for (int part = 0; part < BK / 16; ++part)
      multiply_transposed(sums, descriptor(at + LEFT_BYTES + part * 2048, BK * BOX * 2, 1024),
                          descriptor(at + part * 32, 16, 1024), step > 0 || part > 0);
  });

  // Writes the output: a warp's 16 columns as bf16 to shared memory, transposed, swizzled as TMA expects, from there to
  // `out`.
  const uint32_t mine = staged + warp * (ROWS * 32);
#pragma unroll
  for (int piece = 0; piece < ROWS; piece += PIECE) {
#pragma unroll
    for (int j = piece; j < piece + PIECE; j += 16) {  // 16 rows of `out`: one stmatrix of four 8 x 8 matrices
      uint32_t packed[4];
#pragma unroll
      for (int eight = 0; eight < 2; ++eight)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* from = sums + j / 2 + eight * 4 + half * 2;
          packed[eight * 2 + half] = pack(from[0] + shift[half], from[1] + shift[half]);
        }
      // matrices: rows 0-7 / 8-15 of these x columns 0-7 / 8-15 of the warp
      store_transposed(mine + swizzled<32>(j + lane / 16 * 8 + lane % 8, lane / 8 % 2), packed[0], packed[1], packed[2],
                       packed[3]);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane == 0 && column + warp * 16 < n) {
      store_box(&maps.out, mine + piece * 32, column + warp * 16, row + piece);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

// Whether one tile an SM ends before the tiles of v14. The times, in ns, are of trials that were not kept.
bool ends_first(const MatmulCall& call, int64_t tiles, int sm_count) {
  int64_t others = INT64_MAX;
  for (const Choice& choice : CHOICES) others = std::min(others, nanoseconds(call, choice, sm_count));
  return tiles <= sm_count && (call.k + BK - 1) / BK * 190 + 450 < others;
}

}  // namespace

cudaError_t matmul_v21_transposed_workspace(const MatmulCall& call, size_t& bytes) {
  return matmul_v20_two_sums_workspace(call, bytes);
}

cudaError_t matmul_v21_transposed(const MatmulCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const int64_t tiles = static_cast<int64_t>((call.m + ROWS - 1) / ROWS) * ((call.n + COLUMNS - 1) / COLUMNS);
  if (sm_count == 0 || call.n % 8 || call.k % 8 || !aligned(call) || !ends_first(call, tiles, sm_count))
    return matmul_v20_two_sums(call);
  Maps maps;
  if (!make_map(maps.a, call.a, call.m, call.k, call.k, ROWS, BOX) ||
      !make_map(maps.weight, call.weight, call.k, call.n, call.n, BK, BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, PIECE, 16))
    return cudaErrorInvalidValue;
  return launch_overlapped(matmul_v21_transposed, {static_cast<int>(tiles), ALL_THREADS}, SHARED_BYTES, call.stream,
                           maps, static_cast<const __nv_bfloat16*>(call.bias), call.m, call.n, call.k);
}
