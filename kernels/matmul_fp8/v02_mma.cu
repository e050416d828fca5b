// matmul_fp8 v02_mma: mma.sync on e4m3, operands through registers, three stages.
// Shapes   a (M, K), weight (N, K) e4m3, one scale each, out (M, N) bf16, all row-major.
// Needs    96 KB of shared memory per block, sm_89 or later, N % 16 == 0, K % 16 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 128) + N*K * ceil(M / 128)) bytes through L2.
// Versus   v01: one instruction computes 16 x 8 x 32 products. On sm_90 the compiler makes two instructions on fp16 of
//          it and converts both operands before, so it is no faster than fp16.
// Source   PTX ISA, "mma.sync", "ldmatrix" and "cp.async"
#include <cuda_bf16.h>

#include "check.cuh"
#include "matmul_fp8.h"

#ifndef MATMUL_FP8_V02_STAGES
#define MATMUL_FP8_V02_STAGES 3
#endif

namespace {
constexpr int BM = 128, BN = 128, BK = 128, STAGES = MATMUL_FP8_V02_STAGES, THREADS = 256;  // 2 x 4 warps of 64 x 32
constexpr int A_BYTES = BM * BK, STAGE_BYTES = A_BYTES + BN * BK;
}  // namespace

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
namespace {

// The offset of a 16-byte chunk of a row of 128 bytes, swizzled so that the eight rows of one ldmatrix are in eight
// different bank groups.
__device__ __forceinline__ uint32_t offset(int row, int chunk) { return row * 128 + ((chunk ^ (row % 8)) << 4); }

__device__ __forceinline__ void read_matrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace
#endif

__global__ void __launch_bounds__(THREADS, 1)
    matmul_fp8_v02_mma(const uint8_t* __restrict__ a, const uint8_t* __restrict__ weight,
                       const float* __restrict__ scale_a, const float* __restrict__ scale_weight,
                       __nv_bfloat16* __restrict__ out, int m, int n, int k) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  constexpr int ROWS = THREADS / (BK / 16);  // that the block copies at once
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t stages = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  const int steps = (k + BK - 1) / BK, my_row = thread / (BK / 16), chunk = thread % (BK / 16);

  const auto fetch = [&](int step) {
    if (step < steps) {
      const uint32_t stage = stages + step % STAGES * STAGE_BYTES;
      const int deep = step * BK + chunk * 16;
      const auto copy = [&](uint32_t to, const uint8_t* from, int first, int end) {
#pragma unroll
        for (int row = my_row; row < 128; row += ROWS) {
          const bool inside = first + row < end && deep < k;
          const uint8_t* place = inside ? from + static_cast<int64_t>(first + row) * k + deep : from;
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + offset(row, chunk)), "l"(place),
                       "r"(inside ? 16 : 0)
                       : "memory");
        }
      };
      copy(stage, a, first_row, m);
      copy(stage + A_BYTES, weight, first_column, n);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps wait_group's count right
  };

  float sums[4][4][4] = {};  // 16-row bands x 8-column bands
  for (int step = 0; step < STAGES - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // the stage is here, and all warps have read the one before, which is filled again
    fetch(step + STAGES - 1);
    const uint32_t from = stages + step % STAGES * STAGE_BYTES;
#pragma unroll 1  // the conversions of several parts at once would not fit into registers
    for (int part = 0; part < BK / 32; ++part) {
      uint32_t left[4][4], right[2][4];
#pragma unroll
      for (int band = 0; band < 4; ++band)
        read_matrices(left[band], from + offset(warp_row + band * 16 + lane % 16, part * 2 + lane / 16));
#pragma unroll
      for (int pair = 0; pair < 2; ++pair)  // matrices: columns 0-7 with both halves of K, then columns 8-15
        read_matrices(
            right[pair],
            from + A_BYTES + offset(warp_column + pair * 16 + lane / 16 * 8 + lane % 8, part * 2 + lane / 8 % 2));
#pragma unroll
      for (int band = 0; band < 4; ++band)
#pragma unroll
        for (int x = 0; x < 4; ++x)
          multiply(sums[band][x], left[band], right[x / 2][x % 2 * 2], right[x / 2][x % 2 * 2 + 1]);
    }
  }

  const float scale = *scale_a * *scale_weight;
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const int column = first_column + warp_column + x * 8 + lane % 4 * 2;
    if (column >= n) continue;
#pragma unroll
    for (int band = 0; band < 4; ++band)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + warp_row + band * 16 + half * 8 + lane / 4;
        if (row < m)
          *reinterpret_cast<__nv_bfloat162*>(out + static_cast<int64_t>(row) * n + column) =
              __floats2bfloat162_rn(sums[band][x][half * 2] * scale, sums[band][x][half * 2 + 1] * scale);
      }
  }
#else
  __trap();  // compiled without FP8 instructions
#endif
}

cudaError_t matmul_fp8_v02_mma(const MatmulFp8Call& call) {
  if (const cudaError_t status = refused(call)) return status;
  constexpr int bytes = STAGES * STAGE_BYTES;
  int device = 0, most = 0, major = 0, minor = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device))
    return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device))
    return status;
  if (most < bytes || 10 * major + minor < 89) return cudaErrorNotSupported;
  void (*const kernel)(const uint8_t*, const uint8_t*, const float*, const float*, __nv_bfloat16*, int, int, int) =
      matmul_fp8_v02_mma;
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return status;
  const dim3 grid((call.n + BN - 1) / BN, (call.m + BM - 1) / BM);
  kernel<<<grid, THREADS, bytes, call.stream>>>(
      static_cast<const uint8_t*>(call.a), static_cast<const uint8_t*>(call.weight), call.scale_a, call.scale_weight,
      static_cast<__nv_bfloat16*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
