// matmul_fp8 v10_scales_by_tma: v09, whose producer loads the scales and whose idle warps write the tiles.
// Shapes   a (M, K), weight (N, K) e4m3, scale_a (K / 128, M), scale_weight (N / 128, K / 128) fp32, out (M, N) bf16.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands. v06 runs if M % 4 != 0 or scale_a is not 16-byte aligned
// Moves    (M*K * ceil(N / 256) + N*K * ceil(M / 256)) bytes through L2, and the scales; with 256 x 128 tiles alone M*K twice
//          as often, with tiles of 128 x 192 M*K * ceil(N / 192)
// Versus   v09: the producer loads all scales, those of `a` by TMA; there, a warp copied them. The loop over the steps of
//          K is unrolled. Two warps beside the producer write the tiles. A warpgroup that multiplies therefore only
//          converts a tile, copies it to shared memory, and goes on. It has 64 of every 128 rows. Where tiles of
//          128 x 192 leave fewer SMs idle, the kernel has those. Where every tile has an SM, there are no clusters.
// Source   DeepGEMM has the same tiles, scales by TMA and an unrolled loop
#ifndef MATMUL_FP8_V10_UNROLL
#define MATMUL_FP8_V10_UNROLL 8
#endif
#include <algorithm>

#include "cluster.cuh"
#include "fp8_tile.cuh"

cudaError_t matmul_fp8_v06_blocks(const MatmulFp8Call& call);  // runs what this rung does not take

namespace {

constexpr int THREADS = 384;
[[maybe_unused]] constexpr int LEFT = 40, MORE = 232, GROUP = 8, UNROLL = MATMUL_FP8_V10_UNROLL;

// A tile of BM x BN outputs. The PEERS blocks of a cluster share rows of `a` (ON_A), or of the weight.
template <int BM_, int BN_, int STAGES_, bool ON_A_, int PEERS_>
struct Shape {
  static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_, PEERS = PEERS_;
  static constexpr bool ON_A = ON_A_;
  static constexpr int ROWS = ON_A ? BM : BM * PEERS, COLUMNS = ON_A ? BN * PEERS : BN;  // of a cluster
  static constexpr int A_BOX = ON_A ? BM / PEERS : BM, WEIGHT_BOX = ON_A ? BN : BN / PEERS;
  static constexpr uint32_t A_BYTES = BM * BK, WEIGHT_BYTES = BN * BK, SCALE_BYTES = BM * 4, OUT_BYTES = BM * BN * 2;
  // a stage has 16 bytes of scales of the weight, and two barriers. A warpgroup has two barriers
  static constexpr uint32_t BYTES = 1024 + OUT_BYTES + STAGES * (A_BYTES + WEIGHT_BYTES + SCALE_BYTES + 32) + 32;
  static_assert(BYTES <= 227 * 1024);
};

struct Maps {
  CUtensorMap a, weight, out, scales;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <typename S>
constexpr int HALVES = S::BM / 128;  // rows of a warpgroup, in 64
template <typename S>
constexpr int SHARES = S::BN % SCALED ? S::BN / 64 : 1;  // the weight has a scale for each

__device__ __forceinline__ float read_shared(uint32_t from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
  return value;
}

// Nothing that reads or writes `values` moves across.
template <int N>
__device__ __forceinline__ void hold(float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

template <typename S>
__device__ __forceinline__ void place(int tile, int rows, int columns, int& row, int& column) {
  if constexpr (S::ON_A)  // along the rows of `a` that a cluster shares, as DeepGEMM does
    place_in_group<S::COLUMNS, S::ROWS>(tile, GROUP, columns, rows, column, row);
  else
    place_in_group<S::ROWS, S::COLUMNS>(tile, GROUP, rows, columns, row, column);
}

// Puts 64 rows of a tile to `staged`, as bf16, and sets them to zero for the next tile.
template <typename S>
__device__ __forceinline__ void stage_rows(uint32_t staged, float (&sums)[S::BN / 2]) {
#pragma unroll
  for (int piece = 0; piece < S::BN / 64; ++piece) {
    uint32_t rounded[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) rounded[i] = pack(sums[piece * 32 + 2 * i], sums[piece * 32 + 2 * i + 1]);
    stage_piece(staged + piece * S::BM * 128, rounded);
#pragma unroll
    for (int i = 0; i < 32; ++i)  // here, where they cost nothing: the compiler would do it before the next tile
      asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sums[piece * 32 + i]));
  }
}

// What a warpgroup that multiplies knows.
template <typename S>
struct Worker {
  static constexpr int BN = S::BN, STAGES = S::STAGES;
  using Sums = float[HALVES<S>][BN / 2];
  uint64_t a, weight;  // in the first stage
  // `rows` and `columns` are the scales of the first stage, the former from this thread's first row on
  uint32_t full, empty, rows, columns;
  Ring<STAGES> ring;

  __device__ __forceinline__ void run_step(Sums& sums) {
    float part[BN / 2];
    const uint32_t of_rows = rows + ring.stage * S::SCALE_BYTES;
    const uint64_t of_a = advanced(a, ring.stage * S::A_BYTES),
                   of_weight = advanced(weight, ring.stage * S::WEIGHT_BYTES);
    wait_barrier(full + 8 * ring.stage, ring.phase);
    float of_columns[SHARES<S>];
#pragma unroll
    for (int share = 0; share < SHARES<S>; ++share)
      of_columns[share] = read_shared(columns + ring.stage * 16 + share * 4);
#pragma unroll
    for (int half = 0; half < HALVES<S>; ++half) {
      const float mine[2] = {read_shared(of_rows + half * 512), read_shared(of_rows + half * 512 + 32)};
      hold(part);
      begin_multiply();
      multiply_step(part, advanced(of_a, half * 128 * BK), of_weight, false);
      commit_multiply();
      hold(part);
      wait_multiply<0>();
      if (half == HALVES<S> - 1 && threadIdx.x % 32 < S::PEERS) arrive_at(empty + 8 * ring.stage, threadIdx.x % 32);
#pragma unroll
      for (int i = 0; i < BN / 2; ++i)
        sums[half][i] = fmaf(part[i], mine[i / 2 % 2] * of_columns[SHARES<S> == 1 ? 0 : i / 32], sums[half][i]);
    }
    ring.advance();
  }

  // Computes a tile, and stages it when barrier `free` says that the one before is written.
  __device__ __forceinline__ void run(Sums& sums, int steps, uint32_t staged, uint32_t free, uint32_t phase) {
#pragma unroll UNROLL
    for (int step = 0; step < steps; ++step) run_step(sums);
    wait_barrier(free, phase);
#pragma unroll
    for (int half = 0; half < HALVES<S>; ++half) stage_rows<S>(staged + half * 128 * 128, sums[half]);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
};

// Begins to write the staged rows of a warpgroup.
template <typename S>
__device__ __forceinline__ void store_tile(const CUtensorMap* out, uint32_t staged, int row, int column, int m, int n) {
#pragma unroll
  for (int half = 0; half < HALVES<S>; ++half)
#pragma unroll
    for (int piece = 0; piece < S::BN / 64; ++piece)
      if (row + half * 128 < m && column + piece * 64 < n)
        store_box(out, staged + (piece * S::BM + half * 128) * 128, column + piece * 64, row + half * 128);
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

#endif
}  // namespace

template <typename S>
CLUSTER_OF(S::PEERS)
__global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v10_scales_by_tma(const __grid_constant__ Maps maps, const float* __restrict__ scale_weight, int m,
                                 int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int BM = S::BM, BN = S::BN, STAGES = S::STAGES, PEERS = S::PEERS;
  extern __shared__ uint8_t memory[];
  const uint32_t staged = (shared_address(memory) + 1023) & ~1023U, a = staged + S::OUT_BYTES;
  const uint32_t weight = a + STAGES * S::A_BYTES, scales = weight + STAGES * S::WEIGHT_BYTES;
  const uint32_t of_columns = scales + STAGES * S::SCALE_BYTES, full = of_columns + 16 * STAGES;
  const uint32_t empty = full + 8 * STAGES, written = empty + 8 * STAGES, free = written + 16;
  const int rank = peer_rank<PEERS>(), clusters = gridDim.x / PEERS;
  const int tile_rows = (m + S::ROWS - 1) / S::ROWS, tile_columns = (n + S::COLUMNS - 1) / S::COLUMNS;
  const int tiles = tile_rows * tile_columns, steps = (k + BK - 1) / BK;
  const int first_row = S::ON_A ? 0 : rank * BM, first_column = S::ON_A ? rank * BN : 0;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group

  let_next_start();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + 8 * stage, 2);  // bytes, and scales of the weight
      init_barrier(empty + 8 * stage, PEERS * 8);
    }
    for (int of = 0; of < 2; ++of) init_barrier(written + 8 * of, 4), init_barrier(free + 8 * of, 1);
    publish_barriers();
  }
  if (threadIdx.x == 256) prefetch_map(&maps.a), prefetch_map(&maps.weight), prefetch_map(&maps.scales);
  join_peers<PEERS>();

  if (group == 2) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT));
    if (threadIdx.x == 256) {
      wait_for_previous();
      Ring<STAGES> ring = {0, 1};  // all stages start empty
      for (int tile = blockIdx.x / PEERS; tile < tiles; tile += clusters) {
        int row, column;
        place<S>(tile, tile_rows, tile_columns, row, column);
        row += first_row, column += first_column;
        int of_shares[SHARES<S>];  // first scales of the weight
#pragma unroll
        for (int share = 0; share < SHARES<S>; ++share)
          of_shares[share] = min(column + share * 64, n - 1) / SCALED * steps;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
          wait_barrier(empty + 8 * ring.stage, ring.phase);  // of both blocks
          const uint32_t barrier = full + 8 * ring.stage;
          const uint32_t to_a = a + ring.stage * S::A_BYTES, to_weight = weight + ring.stage * S::WEIGHT_BYTES;
          const uint32_t to_scales = scales + ring.stage * S::SCALE_BYTES;
          // what is beyond the edge is zeros, counted in full
          expect_bytes(barrier, S::A_BYTES + S::WEIGHT_BYTES + S::SCALE_BYTES);
          if constexpr (S::ON_A) {
            const int from = rank * S::A_BOX;
            load_box_for_all<PEERS>(to_a + from * BK, &maps.a, barrier, step * BOX, row + from);
            load_box_for_all<PEERS>(to_scales + from * 4, &maps.scales, barrier, row + from, step);
            load_box(to_weight, &maps.weight, barrier, step * BOX, column);
          } else {
            const int from = rank * S::WEIGHT_BOX;
            load_box(to_a, &maps.a, barrier, step * BOX, row);
            load_box(to_scales, &maps.scales, barrier, row, step);
            load_box_for_all<PEERS>(to_weight + from * BK, &maps.weight, barrier, step * BOX, column + from);
          }
#pragma unroll
          for (int share = 0; share < SHARES<S>; ++share)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(of_columns + ring.stage * 16 + share * 4),
                         "l"(scale_weight + of_shares[share] + step)
                         : "memory");
          asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
          ring.advance();
        }
      }
      // a block that ended could no longer be written to: both have given back its stages
      for (int stage = 0; stage < STAGES; ++stage, ring.advance()) wait_barrier(empty + 8 * ring.stage, ring.phase);
    }
    const int of = threadIdx.x / 32 - 10;  // two more warps each write the tiles of a warpgroup
    if (of >= 0 && threadIdx.x % 32 == 0) {
      uint32_t phase = 0;
      for (int tile = blockIdx.x / PEERS; tile < tiles; tile += clusters, phase ^= 1) {
        int row, column;
        place<S>(tile, tile_rows, tile_columns, row, column);
        wait_barrier(written + 8 * of, phase);  // its warps have waited for the previous kernel
        store_tile<S>(&maps.out, staged + of * 64 * 128, row + first_row + of * 64, column + first_column, m, n);
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        arrive(free + 8 * of);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MORE));
    wait_for_previous();
    const int thread = threadIdx.x % 128;
    const uint32_t to = staged + group * 64 * 128;
    const int my_row = group * 64 + thread / 32 * 16 + thread % 32 / 4;
    Worker<S> worker = {rows_at(a + group * 64 * BK), rows_at(weight), full, empty,
                        scales + my_row * 4,          of_columns,      {}};
    uint32_t phase = 1;  // nothing is staged yet
    float sums[HALVES<S>][BN / 2];
#pragma unroll
    for (int i = 0; i < HALVES<S> * BN / 2; ++i) sums[i / (BN / 2)][i % (BN / 2)] = 0.0f;
    for (int tile = blockIdx.x / PEERS; tile < tiles; tile += clusters, phase ^= 1) {
      worker.run(sums, steps, to, free + 8 * group, phase);
      __syncwarp();
      if (thread % 32 == 0) arrive(written + 8 * group);
    }
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <typename S>
int64_t tiles(const MatmulFp8Call& call) {
  return static_cast<int64_t>((call.m - 1) / S::ROWS + 1) * ((call.n - 1) / S::COLUMNS + 1);
}

template <typename S>
cudaError_t launch(const MatmulFp8Call& call) {
  if (const cudaError_t status = refused(call)) return status;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const int steps = (call.k + BK - 1) / BK;
  if (sm_count == 0) return cudaErrorNotSupported;
  if (call.m % 4 || reinterpret_cast<uintptr_t>(call.scale_a) % 16) return matmul_fp8_v06_blocks(call);
  Maps maps;
  if (!make_fp8_map(maps.a, call.a, call.m, call.k, S::A_BOX) ||
      !make_fp8_map(maps.weight, call.weight, call.n, call.k, S::WEIGHT_BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 64, BOX) ||
      !make_map<float>(maps.scales, call.scale_a, steps, call.m, call.m, 1, S::ON_A ? S::A_BOX : S::BM))
    return cudaErrorInvalidValue;
  return launch_overlapped(
      matmul_fp8_v10_scales_by_tma<S>,
      {static_cast<int>(std::min<int64_t>(tiles<S>(call), sm_count / S::PEERS)) * S::PEERS, THREADS}, S::BYTES,
      call.stream, maps, call.scale_weight, call.m, call.n, call.k);
}

using Tall = Shape<256, 128, 3, true, 2>;
using Alone = Shape<256, 128, 3, true, 1>;
using Wide = Shape<128, 192, 4, false, 2>;

// Estimates the cycles, if a step takes `step`.
template <typename S>
int64_t time(const MatmulFp8Call& call, int sm_count, int step) {
  const int at_once = sm_count / S::PEERS, boundary = 1000;  // a tile takes so many more
  return (tiles<S>(call) + at_once - 1) / at_once * (static_cast<int64_t>(call.k + BK - 1) / BK * step + boundary);
}

}  // namespace

cudaError_t matmul_fp8_v10_scales_by_tma(const MatmulFp8Call& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  if (time<Wide>(call, sm_count, 845) < time<Tall>(call, sm_count, 1080)) return launch<Wide>(call);
  return tiles<Alone>(call) <= sm_count ? launch<Alone>(call) : launch<Tall>(call);
}
