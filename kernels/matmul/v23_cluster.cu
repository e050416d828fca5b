// matmul v23_cluster: two blocks share the weight's tile by multicast, and a tile waits in registers as bf16 to be written.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands, and a shape that it ends first; otherwise v21 runs
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v20: tiles of 128 x 256, which leave no registers for two sets of sums. A tile is rounded to 64 registers, for
//          which the tensor cores rest, and one piece of 64 columns is written in each of the next steps. Each block of a
//          cluster loads half of the weight's tile into both, so that L2 is asked for a third less.
// Source   the same as matmul_fp8 v08; CUTLASS uses clusters of 2 x 1 in the same way
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "cluster.cuh"

#ifndef MATMUL_V23_GROUP_ROWS
#define MATMUL_V23_GROUP_ROWS 8
#endif
#ifndef MATMUL_V23_STAGES
#define MATMUL_V23_STAGES 4
#endif
#ifndef MATMUL_V23_PEERS
#define MATMUL_V23_PEERS 2
#endif
#ifndef MATMUL_V23_PREFETCH
#define MATMUL_V23_PREFETCH 0
#endif
#ifndef MATMUL_V23_SKEW
#define MATMUL_V23_SKEW 0
#endif
#define FITTED_GROUP_ROWS MATMUL_V23_GROUP_ROWS
#define FITTED_STAGES MATMUL_V23_STAGES
#include "fitted_tile.cuh"

// These run what this rung does not take.
cudaError_t matmul_v21_transposed(const MatmulCall& call);
cudaError_t matmul_v21_transposed_workspace(const MatmulCall& call, size_t& bytes);

namespace {

constexpr int STAGES = MATMUL_V23_STAGES;
[[maybe_unused]] constexpr int PREFETCHED =
    MATMUL_V23_PREFETCH;  // steps of the first tile whose lines all threads ask L2 for
[[maybe_unused]] constexpr bool SKEW = MATMUL_V23_SKEW != 0;  // the second warpgroup starts a step after the first
constexpr int BUFFERS = 2;                                    // pieces of a warp that are being copied
constexpr uint32_t PIECE_BYTES = 16 * 128;                    // 64 columns of a warp's 16 rows
[[maybe_unused]] constexpr int BOTH = 3, LATER = 4,
                               WORKERS = 256;  // named barriers of both warpgroups, and their threads

// What depends on the columns of a tile.
template <int BN>
struct Wide {
  static constexpr int BOXES = (BN + BOX - 1) / BOX, LAST = BN - (BOXES - 1) * BOX;  // columns of the last box
  static constexpr int PIECES = BOXES;
  static constexpr uint32_t STAGE_BYTES = A_BYTES + BOXES * BK * BOX * 2;
  static constexpr uint32_t LOADED = A_BYTES + BN * BK * 2;  // a narrow last box leaves the rest of its rows as it is
  static constexpr uint32_t BIAS_BYTES = BN * 2;
  static constexpr uint32_t PIECES_BYTES = CONSUMERS * 4 * BUFFERS * PIECE_BYTES;
  static constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + PIECES_BYTES + CONSUMERS * BIAS_BYTES;
  static_assert(SHARED_BYTES <= MOST_SHARED);
};

struct Maps {
  CUtensorMap a, weight, weight_last, out;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_20(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12), SUMS_4(i + 16)
// multiply() of hopper.cuh for 200 columns.
template <bool B_BY_ROWS>
__device__ __forceinline__ void multiply(float (&d)[100], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %102, 0; wgmma.mma_async.sync.aligned.m64n200k16.f32.bf16.bf16 {%0, %1, %2, %3, "
      "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, "
      "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, "
      "%71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, "
      "%93, %94, %95, %96, %97, %98, %99}, %100, %101, p, 1, 1, 0, %103; }"
      : SUMS_20(0), SUMS_20(20), SUMS_20(40), SUMS_20(60), SUMS_20(80)
      : "l"(a), "l"(b), "r"(keep), "n"(B_BY_ROWS));
}
#undef SUMS_20
#undef SUMS_4

// The first column of piece `piece` of a tile. Of a width that 64 does not divide, the last two pieces overlap.
template <int BN>
constexpr __device__ int piece_column(int piece) {
  return piece * BOX + BOX <= BN ? piece * BOX : BN - BOX;
}

#endif
}  // namespace

template <int BN, int PEERS>
CLUSTER_OF(PEERS)
__global__ void __launch_bounds__(THREADS, 1)
    matmul_v23_cluster(const __grid_constant__ Maps maps, const __nv_bfloat16* __restrict__ a,
                       const __nv_bfloat16* __restrict__ weight, const __nv_bfloat16* __restrict__ bias, int m, int n,
                       int k, int group_rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using W = Wide<BN>;
  constexpr uint32_t STAGE_BYTES = W::STAGE_BYTES;
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES, biases = staged + W::PIECES_BYTES;
  const uint32_t full = biases + CONSUMERS * W::BIAS_BYTES, empty = full + 8 * STAGES;
  const int rank = peer_rank<PEERS>(), clusters = gridDim.x / PEERS, first = blockIdx.x / PEERS;
  const AnyOrder<BM * PEERS, BN> order{(m + BM * PEERS - 1) / (BM * PEERS), (n + BN - 1) / BN, group_rows};
  const int tiles = order.rows * order.columns, steps = (k + BK - 1) / BK;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) init_ring<STAGES>(full, empty, CONSUMERS * PEERS);
  if constexpr (PREFETCHED > 0) {  // the lines of the first steps come to L2 while the tensor maps are fetched
    int row, column;
    order.place(first, row, column);
    row += rank * BM;
    const int mine = threadIdx.x, deep = (mine - BM) / 4, at = column + (mine - BM) % 4 * BOX;
#pragma unroll
    for (int step = 0; step < PREFETCHED; ++step) {
      const __nv_bfloat16* from = nullptr;
      if (mine < BM && row + mine < m && step * BK < k) from = a + static_cast<int64_t>(row + mine) * k + step * BK;
      if (mine >= BM && step * BK + deep < k && at < n) from = weight + static_cast<int64_t>(step * BK + deep) * n + at;
      if (from) asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
    }
  }
  join_peers<PEERS>();

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % 128 == 0) {
      wait_for_previous();
      constexpr int DEPTH = BK / PEERS;  // rows of the weight that a block loads
      Ring<STAGES> ring = {0, 1};        // all stages start empty
      for (int tile = first; tile < tiles; tile += clusters) {
        int row, column;
        order.place(tile, row, column);
        for (int step = 0; step < steps; ++step) {
          wait_barrier(empty + 8 * ring.stage, ring.phase);  // of all blocks of the cluster
          const uint32_t barrier = full + 8 * ring.stage, to = stages + ring.stage * STAGE_BYTES;
          expect_bytes(barrier, W::LOADED);  // boxes beyond the edge are filled with zeros and counted in full
          load_box(to, &maps.a, barrier, step * BK, row + rank * BM);
          const int deep = step * BK + rank * DEPTH;
#pragma unroll
          for (int box = 0; box < W::BOXES; ++box)
            load_box_for_all<PEERS>(to + A_BYTES + box * BK * BOX * 2 + rank * DEPTH * 128,
                                    W::LAST < BOX && box == W::BOXES - 1 ? &maps.weight_last : &maps.weight, barrier,
                                    column + box * BOX, deep);
          ring.advance();
        }
      }
      // a block that ended could no longer be written to: all blocks of the cluster have given back its stages
      for (int stage = 0; PEERS > 1 && stage < STAGES; ++stage, ring.advance())
        wait_barrier(empty + 8 * ring.stage, ring.phase);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_previous();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t mine = staged + (group * 4 + warp) * BUFFERS * PIECE_BYTES;
    const uint32_t bias_mine = biases + group * W::BIAS_BYTES;
    const int my_row = rank * BM + group * 64;
    Ring<STAGES> ring;
    uint32_t before = 0;       // the barrier of the stage whose products may still run
    uint32_t rounded[BN / 4];  // the outputs of the tile before
    int old_row = m, old_column = 0;
    float sums[BN / 2];

    const auto give_back = [&](uint32_t barrier) {
      if constexpr (PEERS == 1) {
        if (thread == 0) arrive(barrier);
      } else {
        if (thread < PEERS) arrive_at(barrier, thread);
      }
    };
    const auto multiply_step = [&](bool keep) {
      wait_barrier(full + 8 * ring.stage, ring.phase);
      begin_multiply();
      const uint32_t at = stages + ring.stage * STAGE_BYTES;
#pragma unroll
      for (int part = 0; part < BK / 16; ++part)
        multiply<true>(sums, descriptor(at + group * 64 * BK * 2 + part * 32, 16, 1024),
                       descriptor(at + A_BYTES + part * 2048, BK * BOX * 2, 1024), keep || part > 0);
      commit_multiply();
      wait_multiply<1>();  // the step before has ended: its stage may be filled again
      if (before) give_back(before);
      before = empty + 8 * ring.stage;
      ring.advance();
    };
    // Rounds a pair of sums of a row and the same pair eight rows below. The first four of BN / 8 such are 32 columns.
    const auto round = [&](int j, uint32_t* to) {
      uint32_t word;  // the bias of this lane's columns
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(bias_mine + (j * 8 + lane % 4 * 2) * 2) : "memory");
      const float2 shift = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(word));
      to[0] = pack(sums[j * 4] + shift.x, sums[j * 4 + 1] + shift.y);
      to[1] = pack(sums[j * 4 + 2] + shift.x, sums[j * 4 + 3] + shift.y);
    };
    // Writes a warp's rows of 64 columns: to shared memory at `to`, swizzled as TMA expects, from there to `out`.
    const auto write = [&](const uint32_t* words, int from, uint32_t to) {
#pragma unroll
      for (int j = 0; j < 4; ++j)  // 16 columns. Matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
        store_matrices(to + swizzled<128>(lane % 8 + lane / 8 % 2 * 8, j * 2 + lane / 16), words[j * 4],
                       words[j * 4 + 1], words[j * 4 + 2], words[j * 4 + 3]);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0) {
        if (old_row < m && old_column + from < n) store_box(&maps.out, to, old_column + from, old_row + warp * 16);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    };

    if (SKEW && group == 1) join_named(LATER, WORKERS);
    for (int tile = first; tile < tiles; tile += clusters) {
      int row, column;
      order.place(tile, row, column);
#pragma unroll
      for (int step = 0; step < W::PIECES; ++step) {
        if (step < steps) multiply_step(step > 0);
        if (tile != first) {
          if (lane == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(BUFFERS - 1) : "memory");
          __syncwarp();
          const int from = piece_column<BN>(step);
          write(rounded + from / 4, from, mine + step % BUFFERS * PIECE_BYTES);
        }
        if (SKEW && tile == first && step == 1 && group == 0)
          asm volatile("bar.arrive %0, %1;" ::"n"(LATER), "n"(WORKERS) : "memory");
        if (step == 0) {
          join_named(1 + group);                           // all threads have read the bias of the tile before
          if (thread < BN / 8 && column + thread * 8 < n)  // each of the first threads copies 16 bytes
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(bias_mine + thread * 16),
                         "l"(bias + column + thread * 8)
                         : "memory");
        }
      }
#pragma unroll 1
      for (int step = W::PIECES; step < steps; ++step) multiply_step(true);
      asm volatile("cp.async.wait_all;" ::: "memory");  // the bias
      join_named(1 + group);
      wait_multiply<0>();
      give_back(before);
      before = 0;
      old_row = row + my_row, old_column = column;
      if (tile + clusters >= tiles) break;
#pragma unroll
      for (int j = 0; j < BN / 8; ++j) round(j, rounded + j * 2);
    }
    // The last tile: nothing is read or comes into the ring any more, which has room for all pieces.
    join_named(BOTH, WORKERS);
#pragma unroll
    for (int piece = 0; piece < W::PIECES; ++piece) {
      const int from = piece_column<BN>(piece);
      uint32_t words[16];
#pragma unroll
      for (int j = 0; j < 8; ++j) round(from / 8 + j, words + j * 2);
      write(words, from, stages + ((group * 4 + warp) * W::PIECES + piece) * PIECE_BYTES);
    }
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

// Makes a map of the weight for the last box of a tile's columns. Its rows lie 128 bytes apart, as those of whole boxes.
bool make_last_map(CUtensorMap& map, const MatmulCall& call, uint32_t rows, uint32_t columns) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(call.n), static_cast<cuuint64_t>(call.k)};
  const cuuint64_t pitch = call.n * sizeof(__nv_bfloat16);
  const cuuint32_t box[] = {columns, rows}, ones[] = {1, 1};
  return tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(call.weight), sizes, &pitch,
                              box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The clusters that run at once.
template <int BN, int PEERS>
int resident(int sm_count) {
  if (PEERS <= 2) return sm_count / PEERS;
  static const int found = [&] {
    const auto kernel = matmul_v23_cluster<BN, PEERS>;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(sm_count / PEERS * PEERS));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = Wide<BN>::SHARED_BYTES;
    int clusters = 0;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Wide<BN>::SHARED_BYTES);
    cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    return clusters;
  }();
  return found;
}

template <int BN, int PEERS>
int64_t tiles_of_clusters(const MatmulCall& call) {
  return static_cast<int64_t>((call.m + BM * PEERS - 1) / (BM * PEERS)) * ((call.n + BN - 1) / BN);
}

template <int BN, int PEERS>
cudaError_t launch(const MatmulCall& call, int sm_count, int group_rows) {
  using W = Wide<BN>;
  Maps maps;
  if (!make_map(maps.a, call.a, call.m, call.k, call.k, BM, BOX) ||
      !make_map(maps.weight, call.weight, call.k, call.n, call.n, BK / PEERS, BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 16, BOX))
    return cudaErrorInvalidValue;
  if (W::LAST < BOX && !make_last_map(maps.weight_last, call, BK / PEERS, W::LAST)) return cudaErrorInvalidValue;
  const int64_t clusters = std::min<int64_t>(tiles_of_clusters<BN, PEERS>(call), resident<BN, PEERS>(sm_count));
  return launch_overlapped(matmul_v23_cluster<BN, PEERS>, {static_cast<int>(clusters) * PEERS, THREADS},
                           W::SHARED_BYTES, call.stream, maps, static_cast<const __nv_bfloat16*>(call.a),
                           static_cast<const __nv_bfloat16*>(call.weight), static_cast<const __nv_bfloat16*>(call.bias),
                           call.m, call.n, call.k, group_rows);
}

// Times on an H200 in ns: a step in K of both widths, rounding a tile, and everything else. They are fitted to trials that
// were not kept.
constexpr int STEP_256 = 565, STEP_200 = 525, TILE = 700, REST = 1570;
constexpr int64_t WEIGHT_IN_L2 = 25 << 20;  // half of L2

template <int BN, int PEERS>
int64_t time_of(const MatmulCall& call, int sm_count, int step) {
  const int64_t tiles = tiles_of_clusters<BN, PEERS>(call), at_once = resident<BN, PEERS>(sm_count);
  return (tiles + at_once - 1) / at_once * ((call.k + BK - 1) / BK * step + TILE) + REST;
}

// The time of the rungs before, as they estimate it.
int64_t time_of_others(const MatmulCall& call, int sm_count) {
  const int64_t steps = (call.k + BK - 1) / BK, across = (call.n + 191) / 192, high = (call.m + BM - 1) / BM;
  int64_t least = INT64_MAX;
  for (const Choice& choice : CHOICES) least = std::min(least, nanoseconds(call, choice, sm_count));
  const int64_t waves = (high * across + sm_count - 1) / sm_count;
  if (waves > 1 && call.n % 64 == 0 && steps > 6) least = std::min(least, waves * steps * 500 + 2300);
  if (static_cast<int64_t>((call.m + 95) / 96) * ((call.n + 63) / 64) <= sm_count)
    least = std::min(least, steps * 190 + 450);
  return least;
}

}  // namespace

cudaError_t matmul_v23_cluster_workspace(const MatmulCall& call, size_t& bytes) {
  return matmul_v21_transposed_workspace(call, bytes);
}

cudaError_t matmul_v23_cluster(const MatmulCall& call) {
  constexpr int PEERS = MATMUL_V23_PEERS;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0 || call.n % 8 || call.k % 8 || !aligned(call)) return matmul_v21_transposed(call);
  const bool stays = static_cast<int64_t>(call.n) * call.k * 2 <= WEIGHT_IN_L2;
  const int64_t wide = time_of<256, PEERS>(call, sm_count, STEP_256),
                narrow = time_of<200, 2>(call, sm_count, STEP_200);
  // v20 is faster where K is short and DRAM feeds the weight
  if (std::min(wide, narrow) >= time_of_others(call, sm_count) || (!stays && call.k <= 1024))
    return matmul_v21_transposed(call);
  if (narrow < wide) return launch<200, 2>(call, sm_count, 2);
  return launch<256, PEERS>(call, sm_count, std::max(1, (stays ? PATCH_ROWS : 2 * GROUP_ROWS) / PEERS));
}
