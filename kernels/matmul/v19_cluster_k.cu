// matmul v19_cluster_k: with few tiles and a long K, two blocks of a cluster share the steps in K of a tile.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned operands, K of 2048 or more, tiles for at most half of the
//          SMs; otherwise v18 runs
// Moves    (M*K + K*N + N + M*N) * 2 bytes; half of the sums between the SMs of a cluster.
// Versus   v14: at 1024 x 768 x 3072 it has 96 tiles of 128 x 64, of 48 steps each, and narrow tiles read more of
//          shared memory for a product. Here 48 tiles of 128 x 128 have two blocks each, of 24 steps. Then each
//          block adds up half of the tile: the other one sends it sums from its registers.
// Expect   time at most 0.9 times v18_ping_pong's at mlp_proj. Refuted if not.
// Source   v13, Osama et al. 2023, "Stream-K", arXiv:2301.03598; CUDA C++ Programming Guide, "Distributed Shared Memory"
#include <cuda_bf16.h>

#include <cstdint>

#include "check.cuh"
#include "hopper.cuh"
#include "matmul.h"
#include "overlap_shared.cuh"
#include "ring_steps.cuh"
#include "tile_order.cuh"

#ifndef MATMUL_V19_STAGES
#define MATMUL_V19_STAGES 5
#endif

// These run what this rung does not take.
cudaError_t matmul_v18_ping_pong(const MatmulCall& call);
cudaError_t matmul_v18_ping_pong_workspace(const MatmulCall& call, size_t& bytes);

namespace {
constexpr int BM = 128, BN = 128, BK = 64, STAGES = MATMUL_V19_STAGES;
constexpr int CONSUMERS = 2, THREADS = 128 * (CONSUMERS + 1);  // a warpgroup has 64 rows of the tile
constexpr int LEAST_K = 2048, GROUP_ROWS = 8;
constexpr uint32_t A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BK * BN * 2;
constexpr uint32_t SENT_BYTES = 64 * BN * 4, OUT_BYTES = 64 * BN * 2, BIAS_BYTES = BN * 2;
constexpr uint32_t SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16) + SENT_BYTES + OUT_BYTES + BIAS_BYTES + 16;
static_assert(SHARED_BYTES <= 227 * 1024);

struct Maps {
  CUtensorMap a, weight, out;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The place in block `rank` of the cluster for what this block has at `address` in its shared memory.
__device__ __forceinline__ uint32_t place_in(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Sends four floats to a place of another block, whose barrier counts the bytes.
__device__ __forceinline__ void send_four(uint32_t to, const float* from, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(__float_as_uint(from[0])), "r"(__float_as_uint(from[1])), "r"(__float_as_uint(from[2])),
      "r"(__float_as_uint(from[3])), "r"(barrier)
      : "memory");
}
#endif
}  // namespace

__global__ void __launch_bounds__(THREADS, 1)
    matmul_v19_cluster_k(const __grid_constant__ Maps maps, const __nv_bfloat16* __restrict__ bias, int m, int n,
                         int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * STAGE_BYTES, received = staged + OUT_BYTES;
  const uint32_t bias_at = received + SENT_BYTES, full = bias_at + BIAS_BYTES, empty = full + 8 * STAGES;
  const uint32_t all_sent = empty + 8 * STAGES;
  const int rank = blockIdx.x % 2, steps = (k + BK - 1) / BK, half = (steps + 1) / 2;
  const int first = rank * half, mine = rank ? steps - half : half;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // tells the compiler that a warp has one group
  int row, column;
  TileOrder<GROUP_ROWS, BM, BN>{(m + BM - 1) / BM, (n + BN - 1) / BN}.place(blockIdx.x / 2, row, column);

  let_next_start();
  if (threadIdx.x == 0) {
    init_barrier(all_sent, 1);
    init_ring<STAGES>(full, empty, CONSUMERS);
    expect_bytes(all_sent, SENT_BYTES);
  }
  __syncthreads();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x % 128 == 0) {
      wait_for_previous();
      Ring<STAGES> ring = {0, 1};  // all stages start empty
      for (int step = first; step < first + mine; ++step) {
        wait_barrier(empty + 8 * ring.stage, ring.phase);
        const uint32_t barrier = full + 8 * ring.stage, to = stages + ring.stage * STAGE_BYTES;
        expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
        load_box(to, &maps.a, barrier, step * BK, row);
#pragma unroll
        for (int box = 0; box < BN / BOX; ++box)
          load_box(to + A_BYTES + box * BK * BOX * 2, &maps.weight, barrier, column + box * BOX, step * BK);
        ring.advance();
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_previous();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    if (group == rank && thread < BN / 8 && column + thread * 8 < n)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(bias_at + thread * 16),
                   "l"(bias + column + thread * 8)
                   : "memory");
    float sums[BN / 2];
    Ring<STAGES> ring;
    multiply_steps(ring, mine, full, empty, thread == 0, [&](int step, int stage) {
      const uint32_t at = stages + stage * STAGE_BYTES;
#pragma unroll
      for (int part = 0; part < BK / 16; ++part)
        multiply<true>(sums, descriptor(at + group * 64 * BK * 2 + part * 32, 16, 1024),
                       descriptor(at + A_BYTES + part * 2048, BK * BOX * 2, 1024), step > 0 || part > 0);
    });
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // the other block has made its barrier
    if (group != rank) {                                                 // the other block finishes these rows
      const uint32_t to = place_in(received + thread * 16, group), barrier = place_in(all_sent, group);
#pragma unroll
      for (int i = 0; i < BN / 2; i += 4) send_four(to + i / 4 * 2048, sums + i, barrier);
    } else {
      wait_barrier(all_sent, 0);
#pragma unroll
      for (int i = 0; i < BN / 2; i += 4) {
        float other[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(other[0]), "=f"(other[1]), "=f"(other[2]), "=f"(other[3])
                     : "r"(received + thread * 16 + i / 4 * 2048)
                     : "memory");
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i + j] += other[j];
      }
      asm volatile("cp.async.wait_all;" ::: "memory");  // the bias
      join_named(1);
#pragma unroll
      for (int j = 0; j < BN / 16; ++j) {  // 16 columns: one stmatrix of four 8 x 8 matrices
        uint32_t packed[4];
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          uint32_t word;  // the bias of this lane's columns
          asm volatile("ld.shared.b32 %0, [%1];"
                       : "=r"(word)
                       : "r"(bias_at + (j * 16 + pair * 8 + lane % 4 * 2) * 2)
                       : "memory");
          const float2 shift = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(word));
          const float* from = sums + j * 8 + pair * 4;
          packed[pair * 2] = pack(from[0] + shift.x, from[1] + shift.y);
          packed[pair * 2 + 1] = pack(from[2] + shift.x, from[3] + shift.y);
        }
        // matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
        const int in_row = warp * 16 + lane % 8 + lane / 8 % 2 * 8;
        store_matrices(staged + j / 4 * 64 * 128 + swizzled<128>(in_row, j % 4 * 2 + lane / 16), packed[0], packed[1],
                       packed[2], packed[3]);
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      join_named(1);
      if (thread == 0) {
#pragma unroll
        for (int box = 0; box < BN / BOX; ++box)
          if (column + box * BOX < n)
            store_box(&maps.out, staged + box * 64 * 128, column + box * BOX, row + group * 64);
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
      }
    }
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v19_cluster_k_workspace(const MatmulCall& call, size_t& bytes) {
  return matmul_v18_ping_pong_workspace(call, bytes);
}

cudaError_t matmul_v19_cluster_k(const MatmulCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const int64_t tiles = static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + BN - 1) / BN);
  if (sm_count == 0 || call.n % 8 || call.k % 8 || !aligned(call) || call.k < LEAST_K || 2 * tiles > sm_count)
    return matmul_v18_ping_pong(call);
  Maps maps;
  if (!make_map(maps.a, call.a, call.m, call.k, call.k, BM, BOX) ||
      !make_map(maps.weight, call.weight, call.k, call.n, call.n, BK, BOX) ||
      !make_map(maps.out, call.out, call.m, call.n, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  void (*const kernel)(const Maps, const __nv_bfloat16*, int, int, int) = matmul_v19_cluster_k;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(SHARED_BYTES)))
    return status;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(2 * tiles));
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = SHARED_BYTES;
  config.stream = call.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, maps, static_cast<const __nv_bfloat16*>(call.bias), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
