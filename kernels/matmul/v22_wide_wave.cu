// matmul v22_wide_wave: v19 with tiles of 64 x 128, where those of 64 x 96 are more than SMs.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    sm_90a, N % 4 == 0, K % 4 == 0, K of 64 or more, 16-byte aligned operands, more tiles of 64 x 96 than SMs, no
//          more of 64 x 128, and few SMs without a tile if K is long; otherwise v19 runs
// Moves    (M*K * ceil(N / 128) + K*N * ceil(M / 64)) * 4 bytes through L2.
// Versus   v19: at 1024 cubed it hands 176 tiles of 64 x 96 to v15, which cuts 32 tiles along K for 132 SMs. There are 128
//          tiles of 64 x 128. A lane has 8 x 16 outputs.
// Source   CUTLASS, "sliced-K"
#include <cstdint>

#include "check.cuh"
#include "ffma.cuh"
#include "hopper.cuh"
#include "matmul.h"
#include "overlap_shared.cuh"

#ifndef MATMUL_V22_DEPTH
#define MATMUL_V22_DEPTH 32
#endif
#ifndef MATMUL_V22_STAGES
#define MATMUL_V22_STAGES 8
#endif

// These run what this rung does not take.
cudaError_t matmul_v19_one_wave(const MatmulCall& call);
cudaError_t matmul_v19_one_wave_workspace(const MatmulCall& call, size_t& bytes);

namespace {
constexpr int BM = 64, BN = 128, BK = MATMUL_V22_DEPTH, STAGES = MATMUL_V22_STAGES;
static_assert(BK == 16 || BK == 32, "rows of the left tile are swizzled: 64 or 128 bytes");
constexpr int GROUPS = 4;  // of warps: each takes its slice of a stage's depth
constexpr int WARPS = 8, THREADS = 32 * WARPS, ALL_THREADS = THREADS + 128;  // one more warpgroup feeds the ring
constexpr int GROUP_THREADS = THREADS / GROUPS;
constexpr int TM = 2 * GROUPS, TN = 16;  // outputs of a lane; a warp has 8 x 4 lanes
constexpr int WARP_COLUMNS = 4 * TN;
constexpr int SLICE = BK / GROUPS;  // depth that a group takes of a stage
static_assert(SLICE % 4 == 0 && BM == 8 * TM && BN / WARP_COLUMNS * GROUPS == WARPS);
constexpr int LEAST_K = 64;
constexpr int MOST_IDLE = 400;  // K times the share of SMs without a tile; v15 is slower at 396 (512 x 768 x 768)
constexpr uint32_t A_BYTES = BM * BK * 4;
constexpr int SHARE = TM / GROUPS;  // of a lane's TM rows: a group sums this many of them in the end

constexpr uint32_t STAGE_BYTES = A_BYTES + BK * BN * 4;
constexpr int PACKETS = SHARE * (TN / 4);  // of four sums, in a share
constexpr uint32_t RING_BYTES = STAGES * STAGE_BYTES, BARRIERS_BYTES = 16 * STAGES;
constexpr uint32_t SHARED_BYTES = 1024 + RING_BYTES + BARRIERS_BYTES + BN * 4;
static_assert(SHARED_BYTES <= 227 * 1024);
static_assert(GROUPS * GROUPS * PACKETS * GROUP_THREADS * 16 <= RING_BYTES, "the sums take the place of the ring");

struct Maps {
  CUtensorMap a, weight;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ float4 add(float4 one, float4 other) {
  return make_float4(one.x + other.x, one.y + other.y, one.z + other.z, one.w + other.w);
}

#endif
}  // namespace

__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v22_wide_wave(const __grid_constant__ Maps maps, const float* __restrict__ bias, float* __restrict__ out,
                         int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t full = stages + RING_BYTES, empty = full + 8 * STAGES;
  const uint32_t biases = stages + RING_BYTES + BARRIERS_BYTES;
  const int thread = threadIdx.x, lane = thread % 32;
  const int warp = __shfl_sync(0xffffffffU, thread / 32, 0);  // tells the compiler that it is the same in a warp
  const int columns = (n + BN - 1) / BN, steps = (k + BK - 1) / BK;
  const int tile_row = static_cast<int>(blockIdx.x) / columns * BM;
  const int tile_column = static_cast<int>(blockIdx.x) % columns * BN;

  let_next_start();
  if (thread == THREADS) init_ring<STAGES>(full, empty, WARPS);
  __syncthreads();

  if (warp >= WARPS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (thread == THREADS) {
      wait_for_previous();
      Ring<STAGES> ring = {0, 1};  // all stages start empty
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const uint32_t barrier = full + 8 * ring.stage, to = stages + ring.stage * STAGE_BYTES;
        wait_barrier(empty + 8 * ring.stage, ring.phase);
        expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
        load_box(to, &maps.a, barrier, step * BK, tile_row);
        load_box(to + A_BYTES, &maps.weight, barrier, tile_column, step * BK);
        ring.advance();
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");

  const int group = warp / (WARPS / GROUPS), in_group = warp % (WARPS / GROUPS);
  const int my_row = lane / 4, my_column = in_group * WARP_COLUMNS + lane % 4 * 4;
  const uint32_t a_mine = (my_row * BK * 4 + twist<BK>(my_row)) ^ (group * SLICE * 4);
  const uint32_t weight_mine = A_BYTES + group * SLICE * BN * 4 + my_column * 4;
  float left[TM][4];  // four steps in K at a time
  float right[2][TN / 4][4];
  Ring<STAGES> ring;
  uint32_t a_from = stages + a_mine, weight_from = stages + weight_mine;  // of the current slice
  const auto read_left = [&](int chunk, int y) { read_shared(left[y], (a_from ^ (chunk * 16)) + y * 8 * BK * 4); };
  const auto read_right = [&](int into, int deep) {
#pragma unroll
    for (int x = 0; x < TN / 4; ++x) read_shared(right[into][x], weight_from + deep * BN * 4 + x * 64);
  };

  wait_for_previous();
  // each of the first threads copies 16 bytes of the bias while products are computed
  if (thread < BN / 4 && tile_column + thread * 4 < n)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(biases + thread * 16),
                 "l"(bias + tile_column + thread * 4)
                 : "memory");

  wait_barrier(full, 0);
#pragma unroll
  for (int y = 0; y < TM; ++y) read_left(0, y);
  read_right(0, 0);
  float sums[TM][TN];
#pragma unroll
  for (int y = 0; y < TM; ++y)
#pragma unroll
    for (int x = 0; x < TN; ++x) sums[y][x] = 0.0f;
#pragma unroll 1
  for (int step = 1; step <= steps; ++step) {
#pragma unroll
    for (int deep = 0; deep < SLICE; ++deep) {
      const int now = deep % 2;
      const bool last = deep == SLICE - 1;
      if (last) {  // the slice is in registers: go to the next one, whose first operands are read below
        __syncwarp();
        if (lane == 0) arrive(empty + 8 * ring.stage);
        ring.advance();
        a_from = stages + ring.stage * STAGE_BYTES + a_mine;
        weight_from = stages + ring.stage * STAGE_BYTES + weight_mine;
        if (step < steps) wait_barrier(full + 8 * ring.stage, ring.phase);
      }
      read_right(1 - now, last ? 0 : deep + 1);
      keep_order();
#pragma unroll
      for (int y = 0; y < TM; ++y) {
        multiply_row(sums[y], left[y][deep % 4], right[now], y, now);
        if (deep % 4 == 3) read_left(last ? 0 : deep / 4 + 1, y);
      }
    }
  }

  // The groups exchange sums, each packet of a warp in one piece. A group gets the sums of its share of rows.
  asm volatile("cp.async.wait_all;" ::: "memory");  // the bias
  join_named(1, THREADS);                           // nothing is read or comes into the ring any more
  const auto place = [&](int to, int from) {
    return stages + ((to * GROUPS + from) * PACKETS * GROUP_THREADS + thread % GROUP_THREADS) * 16;
  };
  // Adding a zero that the compiler does not know leaves it free to choose registers for the sums.
  const float zero = __uint_as_float(blockDim.y - 1);
  float4 mine[PACKETS];
#pragma unroll
  for (int to = 0; to < GROUPS; ++to)
#pragma unroll
    for (int packet = 0; packet < PACKETS; ++packet) {
      const float* from = sums[to * SHARE + packet / (TN / 4)] + packet % (TN / 4) * 4;
      const float4 words = make_float4(from[0] + zero, from[1] + zero, from[2] + zero, from[3] + zero);
      if (to == group)
        mine[packet] = words;
      else
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(place(to, group) + packet * GROUP_THREADS * 16),
                     "f"(words.x), "f"(words.y), "f"(words.z), "f"(words.w)
                     : "memory");
    }
  join_named(1, THREADS);
  const auto packet_at = [](uint32_t from) {
    float words[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(words[0]), "=f"(words[1]), "=f"(words[2]), "=f"(words[3])
                 : "r"(from)
                 : "memory");
    return make_float4(words[0], words[1], words[2], words[3]);
  };
#pragma unroll
  for (int i = 1; i < GROUPS; ++i)
#pragma unroll
    for (int packet = 0; packet < PACKETS; ++packet)
      mine[packet] = add(mine[packet], packet_at(place(group, (group + i) % GROUPS) + packet * GROUP_THREADS * 16));
#pragma unroll
  for (int packet = 0; packet < PACKETS; ++packet) {
    const int row = tile_row + my_row + (group * SHARE + packet / (TN / 4)) * 8;
    const int in_tile = my_column + packet % (TN / 4) * 16, column = tile_column + in_tile;
    if (row < m && column < n)
      *reinterpret_cast<float4*>(out + static_cast<int64_t>(row) * n + column) =
          add(mine[packet], packet_at(biases + in_tile * 4));
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v22_wide_wave_workspace(const MatmulCall& call, size_t& bytes) {
  return matmul_v19_one_wave_workspace(call, bytes);
}

cudaError_t matmul_v22_wide_wave(const MatmulCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const auto tiles_of = [&](int columns) {
    return static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + columns - 1) / columns);
  };
  const int64_t tiles = tiles_of(BN);
  const int64_t idle = call.k * (sm_count - tiles);  // negative if there are more tiles than SMs
  if (tiles_of(96) <= sm_count || idle < 0 || idle > static_cast<int64_t>(MOST_IDLE) * sm_count || call.n % 4 ||
      call.k % 4 || call.k < LEAST_K || !aligned(call))
    return matmul_v19_one_wave(call);
  Maps maps;
  if (!make_map<float>(maps.a, call.a, call.m, call.k, call.k, BM, BK) ||
      !make_map<float>(maps.weight, call.weight, call.k, call.n, call.n, BK, BN))
    return cudaErrorInvalidValue;
  return launch_overlapped(matmul_v22_wide_wave, {static_cast<int>(tiles), ALL_THREADS}, SHARED_BYTES, call.stream,
                           maps, static_cast<const float*>(call.bias), static_cast<float*>(call.out), call.m, call.n,
                           call.k);
}
