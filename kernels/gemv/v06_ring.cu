// gemv v06_ring: blocks that stay; each copies groups of rows into a ring in shared memory ahead of its sums.
// Shapes   weight (N, K) row-major, x (K), bias, out (N).
// Needs    sm_90, 16-byte aligned rows of up to 3 KB, N of 16384 or more; otherwise v05 runs
// Moves    as v02: (N*K + K + 2*N) * sizeof(T) bytes.
// Versus   v05: the first instructions of the launch ask for 192 KB an SM, no later block has to start, and each thread
//          keeps its part of x in registers for all rows. Groups of rows are dealt to blocks in turn, so every block has
//          the same number of groups or one less.
// Source   PTX ISA, cp.async.bulk; CUTLASS's pipelines of TMA copies
#ifndef GEMV_V06_RING_KB
#define GEMV_V06_RING_KB 192
#endif
#ifndef GEMV_V06_ROWS
#define GEMV_V06_ROWS 8
#endif
#ifndef GEMV_V06_STAYS
#define GEMV_V06_STAYS 1
#endif
#include <algorithm>

#include "check.cuh"
#include "gemv.h"
#include "hopper.cuh"
#include "overlap_shared.cuh"
#include "reduce.cuh"
#include "vec.cuh"

cudaError_t gemv_v05_straight(const GemvCall& call);  // runs what this rung does not take

namespace {
constexpr int ROWS = GEMV_V06_ROWS;                   // of a group: a stage of the ring, one row for each warp
constexpr int THREADS = 32 * (ROWS + 1);              // the last warp copies
constexpr bool STAYS = GEMV_V06_STAYS;                // else a block fills its ring once
constexpr int BLOCKS = 227 / (GEMV_V06_RING_KB + 1);  // per SM
constexpr int FEWEST_ROWS = 16384;

template <int COUNT>
constexpr int STAGES_OF = GEMV_V06_RING_KB * 2 / (ROWS * COUNT);  // a row has COUNT times 512 bytes
}  // namespace

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ void copy_in(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  expect_bytes(barrier, bytes);
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
#endif

// A row has up to COUNT packets per lane. Block b has the groups first, first + step, … below `groups`, `most` at most.
template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS)
    gemv_v06_ring(const T* weight, const T* x, const T* bias, T* out, int n, int k, int groups, int step, int most) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int WIDTH = 16 / sizeof(T), STAGES = STAGES_OF<COUNT>;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t barriers[2 * STAGES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = blockIdx.x * (STAYS ? 1 : most), count = min(most, (groups - first + step - 1) / step);
  const uint32_t room = shared_address(memory), full = shared_address(barriers), empty = full + 8 * STAGES;
  const uint32_t row_bytes = k * static_cast<uint32_t>(sizeof(T));
  const auto fill = [&](int i, int stage) {
    const int row = (first + i * step) * ROWS;
    copy_in(room + stage * ROWS * row_bytes, weight + static_cast<int64_t>(row) * k, min(ROWS, n - row) * row_bytes,
            full + 8 * stage);
  };
  let_next_start();
  if (threadIdx.x == THREADS - 32) {
    init_ring<STAGES>(full, empty, ROWS);
    wait_for_previous();
    for (int i = 0; i < min(count, STAGES); ++i) fill(i, i);
  }
  __syncthreads();
  Ring<STAGES> ring;
  if (warp == ROWS) {
    if (lane == 0)
      for (int i = STAGES; i < count; ++i) {
        wait_barrier(empty + 8 * ring.stage, ring.phase);
        fill(i, ring.stage);
        ring.advance();
      }
    return;
  }
  wait_for_previous();
  Packet<T, WIDTH> own[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int column = (i * 32 + lane) * WIDTH;
    own[i].raw = make_uint4(0, 0, 0, 0);
    if (column < k) own[i] = Packet<T, WIDTH>::load(x + column);
  }
  // lane j keeps the sum of the jth of 32 rows, and loads its bias ahead
  const auto row_of = [&](int i) { return (first + i * step) * ROWS + warp; };
  for (int base = 0; base < count; base += 32) {
    const int row = row_of(base + lane), here = min(32, count - base);
    const bool writes = lane < here && row < n;
    const float added = writes ? to_float(bias[row]) : 0.0f;
    float kept = 0.0f;
    for (int i = 0; i < here; ++i) {
      const T* from = reinterpret_cast<const T*>(memory + (ring.stage * ROWS + warp) * row_bytes);
      float sum[2] = {};
      wait_barrier(full + 8 * ring.stage, ring.phase);
      Packet<T, WIDTH> loaded[COUNT];
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
        if ((j * 32 + lane) * WIDTH < k) loaded[j] = Packet<T, WIDTH>::load(from + (j * 32 + lane) * WIDTH);
      __syncwarp();
      if (lane == 0) arrive(empty + 8 * ring.stage);
      ring.advance();
#pragma unroll
      for (int j = 0; j < COUNT; ++j)
        if ((j * 32 + lane) * WIDTH < k)
#pragma unroll
          for (int e = 0; e < WIDTH; ++e) sum[e % 2] += to_float(loaded[j].values[e]) * to_float(own[j].values[e]);
      const float whole = warp_sum(sum[0] + sum[1]);
      if (lane == i) kept = whole;
    }
    if (writes) out[row] = from_float<T>(kept + added);
  }
#endif
}

template <typename T, int COUNT>
static cudaError_t launch_rows(const GemvCall& call, int sm_count) {
  constexpr int STAGES = STAGES_OF<COUNT>;
  const int groups = (call.n - 1) / ROWS + 1;
  const int blocks = STAYS ? std::min(groups, BLOCKS * sm_count) : (groups - 1) / STAGES + 1;
  const uint32_t bytes = STAGES * ROWS * call.k * static_cast<uint32_t>(sizeof(T));
  const cudaError_t status = launch_overlapped(gemv_v06_ring<T, COUNT>, {blocks, THREADS}, bytes, call.stream,
                                               static_cast<const T*>(call.weight), static_cast<const T*>(call.x),
                                               static_cast<const T*>(call.bias), static_cast<T*>(call.out), call.n,
                                               call.k, groups, STAYS ? blocks : 1, STAYS ? groups : STAGES);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const GemvCall& call) {
  const int64_t row_bytes = call.k * static_cast<int64_t>(sizeof(T));
  const auto places = reinterpret_cast<uintptr_t>(call.weight) | reinterpret_cast<uintptr_t>(call.x);
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (!sm_count || (places | row_bytes) % 16 || call.n < FEWEST_ROWS || row_bytes > 6 * 512)
    return gemv_v05_straight(call);
  return row_bytes > 3 * 512 ? launch_rows<T, 6>(call, sm_count) : launch_rows<T, 3>(call, sm_count);
}

cudaError_t gemv_v06_ring(const GemvCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
