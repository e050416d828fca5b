// matmul v26_ping_pong: v18 in clusters of two blocks, with tiles of 128 x 192 where their waves end first.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands, and two tiles for each SM; otherwise v23 runs
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v23: its two warpgroups share a tile of 128 x 256 or 128 x 200, so the tensor cores rest while both round it.
//          Here they work for one warpgroup, while the other one rounds and writes its own tile. v18 does the same
//          without clusters, with 128 columns, and for K up to 1024.
// Source   CUTLASS, "KernelTmaWarpSpecializedPingpong"
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "check.cuh"
#include "matmul.h"
#include "ping_pong.cuh"

#ifndef MATMUL_V26_GROUP_ROWS
#define MATMUL_V26_GROUP_ROWS 8
#endif
#ifndef MATMUL_V26_UNROLL
#define MATMUL_V26_UNROLL 1
#endif

// These run what this rung does not take.
cudaError_t matmul_v23_cluster(const MatmulCall& call);
cudaError_t matmul_v23_cluster_workspace(const MatmulCall& call, size_t& bytes);

namespace {

constexpr int BK = 64;  // elements along K of a step
[[maybe_unused]] constexpr int UNROLL = MATMUL_V26_UNROLL;

using Narrow = PingPong<128, 6, 2, MATMUL_V26_GROUP_ROWS / 2, 128 * sizeof(__nv_bfloat16)>;
using Wide = PingPong<192, 5, 1, MATMUL_V26_GROUP_ROWS, 192 * sizeof(__nv_bfloat16)>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The descriptor of what is `bytes` further on: one addition, where a new one takes four dependent instructions.
__device__ __forceinline__ uint64_t advanced(uint64_t from, uint32_t bytes) {
  return (from & 0xFFFFFFFF00000000ULL) | (static_cast<uint32_t>(from) + (bytes >> 4));
}

// How bf16 operands are loaded, multiplied and rounded, as run_ping_pong() asks.
template <int BN>
struct Bf16 {
  const __nv_bfloat16* bias;

  __device__ __forceinline__ void start() const {}

  __device__ __forceinline__ void load_weight(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column,
                                              int step, int rank) const {
    constexpr int DEPTH = BK / PEERS;  // rows of the weight that a block loads
#pragma unroll
    for (int box = 0; box < BN / BOX; ++box)
      load_box_for_all<PEERS>(to + (box * BK + rank * DEPTH) * 128, map, barrier, column + box * BOX,
                              step * BK + rank * DEPTH);
  }

  // Each of the first threads copies 16 bytes of the bias while products are computed.
  __device__ __forceinline__ void begin_tile(uint32_t side, int column, int n) const {
    const int thread = threadIdx.x % 128;
    if (thread < BN / 8 && column + thread * 8 < n)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(side + thread * 16),
                   "l"(bias + column + thread * 8)
                   : "memory");
  }

  __device__ __forceinline__ void end_tile(int group) const {
    asm volatile("cp.async.wait_all;" ::: "memory");
    join_named(1 + group);
  }

  __device__ __forceinline__ void multiply(float (&sums)[HALVES][BN / 2], uint32_t a, uint32_t weight,
                                           bool keep) const {
    const uint64_t of_a = descriptor(a, 16, 1024), of_weight = descriptor(weight, BK * 128, 1024);
#pragma unroll
    for (int part = 0; part < BK / 16; ++part)
#pragma unroll
      for (int half = 0; half < HALVES; ++half)
        ::multiply<true>(sums[half], advanced(of_a, half * 64 * 128 + part * 32), advanced(of_weight, part * 2048),
                         keep || part > 0);
  }

  __device__ __forceinline__ void round(const float (&sums)[BN / 2], int from, uint32_t side,
                                        uint32_t (&to)[16]) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) {  // 8 columns: a pair of a row, and the same of the row eight below
      uint32_t word;               // the bias of this lane's columns
      asm volatile("ld.shared.b32 %0, [%1];"
                   : "=r"(word)
                   : "r"(side + (from + j * 8 + threadIdx.x % 4 * 2) * 2)
                   : "memory");
      const float2 shift = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(word));
      const float* pairs = sums + from / 2 + j * 4;
      to[j * 2] = pack(pairs[0] + shift.x, pairs[1] + shift.y);
      to[j * 2 + 1] = pack(pairs[2] + shift.x, pairs[3] + shift.y);
    }
  }
};

#endif
}  // namespace

template <typename P>
CLUSTER_OF(PEERS)
__global__ void __launch_bounds__(THREADS, 1)
    matmul_v26_ping_pong(const __grid_constant__ PingPongMaps maps, const __nv_bfloat16* __restrict__ bias, int m,
                         int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ping_pong<P, UNROLL>(maps, m, n, (k + BK - 1) / BK, Bf16<P::BN>{bias});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <typename P>
cudaError_t launch(const MatmulCall& call, int sm_count) {
  PingPongMaps maps;
  if (!make_map(maps.a, call.a, call.m, call.k, call.k, BM, BOX) ||
      !make_map(maps.weight, call.weight, call.k, call.n, call.n, BK / PEERS, BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  return launch_ping_pong<P>(matmul_v26_ping_pong<P>, call.m, call.n, sm_count, call.stream, maps,
                             static_cast<const __nv_bfloat16*>(call.bias), call.m, call.n, call.k);
}

// Estimates a product's time on an H200, in hundredths of what a step of v23 takes for a column. A tile adds what its
// rounding costs. The numbers fit one trial of ten shapes, see README.md.
template <int BN>
int64_t time_of(const MatmulCall& call, int sm_count, int step, int tile) {
  const int64_t steps = (call.k + BK - 1) / BK;
  return cluster_waves<BN>(call.m, call.n, sm_count) * (steps * BN * step + tile);
}

}  // namespace

cudaError_t matmul_v26_ping_pong_workspace(const MatmulCall& call, size_t& bytes) {
  return matmul_v23_cluster_workspace(call, bytes);
}

cudaError_t matmul_v26_ping_pong(const MatmulCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0 || call.n % 8 || call.k % 8 || !aligned(call)) return matmul_v23_cluster(call);
  const int64_t narrow = time_of<128>(call, sm_count, 102, 7000), wide = time_of<192>(call, sm_count, 101, 6000);
  const int64_t others = std::min(time_of<256>(call, sm_count, 100, 31700), time_of<200>(call, sm_count, 119, 31700));
  const bool turns = cluster_waves<192>(call.m, call.n, sm_count) > 1;  // a second tile follows
  if (!turns || std::min(narrow, wide) >= others) return matmul_v23_cluster(call);
  return narrow < wide ? launch<Narrow>(call, sm_count) : launch<Wide>(call, sm_count);
}
