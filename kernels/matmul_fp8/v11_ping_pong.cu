// matmul_fp8 v11_ping_pong: a warpgroup computes whole tiles, and writes one while the other warpgroup multiplies.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    sm_90a, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / BN) + N*K * ceil(M / 256)) bytes through L2, where BN is 128, 176 or 192 columns of a tile
// Versus   v08: there both warpgroups share a tile, so both round it at the same time, and the tensor cores rest. Here
//          the tensor cores work for one warpgroup at a time, all the time. The width is that whose whole waves end
//          first: v08 has 256 or 176 columns. A block's last tile goes through the ring, which is free then.
// Source   CUTLASS's ping-pong schedule; cuBLASLt has the same tiles of 128 x 176
#ifndef MATMUL_FP8_V11_GROUP_ROWS
#define MATMUL_FP8_V11_GROUP_ROWS 8
#endif
#ifndef MATMUL_FP8_V11_UNROLL
#define MATMUL_FP8_V11_UNROLL 2
#endif
#include "fp8_tile.cuh"
#include "ping_pong.cuh"

namespace {

[[maybe_unused]] constexpr int UNROLL = MATMUL_FP8_V11_UNROLL;

using Narrow = PingPong<128, 6, 2, MATMUL_FP8_V11_GROUP_ROWS>;
using Middle = PingPong<176, 5, 2, MATMUL_FP8_V11_GROUP_ROWS>;
using Wide = PingPong<192, 5, 1, MATMUL_FP8_V11_GROUP_ROWS>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// How e4m3 operands are loaded, multiplied and rounded, as run_ping_pong() asks.
template <int BN>
struct Fp8 {
  const float *scale_a, *scale_weight;
  float scale = 0.0f;

  __device__ __forceinline__ void start() { scale = *scale_a * *scale_weight; }

  __device__ __forceinline__ void load_weight(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column,
                                              int step, int rank) const {
    constexpr int SHARE = BN / PEERS;  // rows
    load_box_for_all<PEERS>(to + rank * SHARE * BK, map, barrier, step * BOX, column + rank * SHARE);
  }

  __device__ __forceinline__ void begin_tile(uint32_t, int, int) const {}
  __device__ __forceinline__ void end_tile(int) const {}

  __device__ __forceinline__ void multiply(float (&sums)[HALVES][BN / 2], uint32_t a, uint32_t weight,
                                           bool keep) const {
    const uint64_t of_a = rows_at(a), of_weight = rows_at(weight);
#pragma unroll
    for (int part = 0; part < BK / 32; ++part)
#pragma unroll
      for (int half = 0; half < HALVES; ++half)
        multiply_fp8(sums[half], advanced(of_a, half * 64 * BK + part * 32), advanced(of_weight, part * 32),
                     keep || part > 0);
  }

  __device__ __forceinline__ void round(const float (&sums)[BN / 2], int from, uint32_t, uint32_t (&to)[16]) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) to[i] = pack(sums[from / 2 + i * 2] * scale, sums[from / 2 + i * 2 + 1] * scale);
  }
};

#endif
}  // namespace

template <typename P>
CLUSTER_OF(PEERS)
__global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v11_ping_pong(const __grid_constant__ PingPongMaps maps, const float* __restrict__ scale_a,
                             const float* __restrict__ scale_weight, int m, int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  run_ping_pong<P, UNROLL>(maps, m, n, (k + BK - 1) / BK, Fp8<P::BN>{scale_a, scale_weight});
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <typename P>
cudaError_t launch(const MatmulFp8Call& call, int sm_count) {
  PingPongMaps maps;
  if (!make_fp8_map(maps.a, call.a, call.m, call.k, BM) ||
      !make_fp8_map(maps.weight, call.weight, call.n, call.k, P::BN / PEERS) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  return launch_ping_pong<P>(matmul_fp8_v11_ping_pong<P>, call.m, call.n, sm_count, call.stream, maps, call.scale_a,
                             call.scale_weight, call.m, call.n, call.k);
}

}  // namespace

cudaError_t matmul_fp8_v11_ping_pong(const MatmulFp8Call& call) {
  if (const cudaError_t status = refused(call)) return status;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  const auto columns = [&](auto width) {  // of the busiest cluster
    return cluster_waves<decltype(width)::BN>(call.m, call.n, sm_count) * decltype(width)::BN;
  };
  const int64_t narrow = columns(Narrow{}), middle = columns(Middle{}), wide = columns(Wide{});
  if (narrow <= std::min(middle, wide)) return launch<Narrow>(call, sm_count);
  return middle <= wide ? launch<Middle>(call, sm_count) : launch<Wide>(call, sm_count);
}
