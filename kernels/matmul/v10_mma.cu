// matmul v10_mma: bf16 on Ampere's tensor core instructions (mma.sync), operands through registers, four stages.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    192 KB of shared memory per block (sm_90), N % 8 == 0, K % 8 == 0, 16-byte aligned operands
// Moves    (M*K * ceil(N / 256) + K*N * ceil(M / 128)) * 2 bytes through L2.
// Versus   v09: one instruction computes 16 x 8 x 16 products instead of one. On Hopper this instruction is
//          slower than wgmma, in any kernel.
// Source   PTX ISA, "mma.sync", "ldmatrix" and "cp.async"
#include <cuda_bf16.h>

#include <cstdint>

#include "check.cuh"
#include "matmul.h"

#ifndef MATMUL_V10_STAGES
#define MATMUL_V10_STAGES 4
#endif

namespace {
constexpr int BM = 128, BN = 256, BK = 64, STAGES = MATMUL_V10_STAGES, THREADS = 256;  // 2 x 4 warps of 64 x 64
constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BK * BN * 2;
}  // namespace

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
namespace {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Starts an asynchronous copy of 16 bytes to shared memory; writes zeros if not `inside`.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// The offset of a 16-byte chunk of a row, swizzled so that the eight rows of one ldmatrix are in eight different bank
// groups.
__device__ __forceinline__ uint32_t a_offset(int row, int chunk) { return row * 128 + ((chunk ^ (row % 8)) << 4); }
__device__ __forceinline__ uint32_t weight_offset(int deep, int chunk) {  // rows of 32 chunks
  return deep * 512 + ((chunk ^ (deep % 8)) << 4);
}

// Loads four 8 x 8 matrices of 16-bit elements. Each group of 8 lanes passes the row addresses of one matrix.
__device__ __forceinline__ void read_matrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}
__device__ __forceinline__ void read_transposed(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace
#endif

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_v10_mma(const T* __restrict__ a, const T* __restrict__ weight, const T* __restrict__ bias,
                   T* __restrict__ out, int m, int n, int k) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int A_ROWS = THREADS / (BK / 8), WEIGHT_ROWS = THREADS / (BN / 8);
  constexpr int PARTS = BK / 16;  // each is 16 deep, as one instruction is
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t stages = shared_address(memory);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 64;
  const int steps = (k + BK - 1) / BK;

  // A thread copies the same chunk of every 32nd row of `a` and of every 8th row of weight.
  const int a_row = thread / (BK / 8), a_chunk = thread % (BK / 8), weight_row = thread / 32,
            weight_chunk = thread % 32;
  const uint32_t a_to = stages + a_offset(a_row, a_chunk);
  const uint32_t weight_to = stages + A_BYTES + weight_offset(weight_row, weight_chunk);
  const auto fetch = [&](int step) {
    if (step < steps) {
      const uint32_t stage = step % STAGES * STAGE_BYTES;
      const int a_deep = step * BK + a_chunk * 8, column = first_column + weight_chunk * 8;
      const T* from = a + static_cast<int64_t>(first_row + a_row) * k + a_deep;
#pragma unroll
      for (int i = 0; i < BM / A_ROWS; ++i, from += static_cast<int64_t>(A_ROWS) * k) {
        const bool inside = first_row + a_row + i * A_ROWS < m && a_deep < k;
        copy_async(a_to + stage + i * A_ROWS * 128, inside ? from : a, inside);
      }
      const int deep = step * BK + weight_row;
      from = weight + static_cast<int64_t>(deep) * n + column;
#pragma unroll
      for (int i = 0; i < BK / WEIGHT_ROWS; ++i, from += static_cast<int64_t>(WEIGHT_ROWS) * n) {
        const bool inside = deep + i * WEIGHT_ROWS < k && column < n;
        copy_async(weight_to + stage + i * WEIGHT_ROWS * 512, inside ? from : weight, inside);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps wait_group's count right
  };

  uint32_t left[2][4][4], right[2][4][4];
  const auto read = [&](int into, int step, int part) {
    const uint32_t from = stages + step % STAGES * STAGE_BYTES;
#pragma unroll
    for (int band = 0; band < 4; ++band)
      read_matrices(left[into][band], from + a_offset(warp_row + band * 16 + lane % 16, part * 2 + lane / 16));
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      read_transposed(right[into][pair],
                      from + A_BYTES + weight_offset(part * 16 + lane % 16, warp_column / 8 + pair * 2 + lane / 16));
  };

  float sums[4][8][4] = {};  // 16-row bands x 8-column bands
  for (int step = 0; step < STAGES; ++step) fetch(step);
  asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
  __syncthreads();
  read(0, 0, 0);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int now = part % 2;
      if (part + 1 < PARTS) {
        read(1 - now, step, part + 1);
      } else {  // the stage is in registers: wait for the next one, and refill this one while products are computed
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        read(1 - now, step + 1, 0);
        fetch(step + STAGES);
      }
#pragma unroll
      for (int band = 0; band < 4; ++band)
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          multiply(sums[band][pair * 2], left[now][band], right[now][pair][0], right[now][pair][1]);
          multiply(sums[band][pair * 2 + 1], left[now][band], right[now][pair][2], right[now][pair][3]);
        }
    }
  }

#pragma unroll
  for (int x = 0; x < 8; ++x) {
    const int column = first_column + warp_column + x * 8 + lane % 4 * 2;
    if (column >= n) continue;
    const float2 shift = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(bias + column));
#pragma unroll
    for (int band = 0; band < 4; ++band)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + warp_row + band * 16 + half * 8 + lane / 4;
        if (row < m)
          *reinterpret_cast<__nv_bfloat162*>(out + static_cast<int64_t>(row) * n + column) =
              __floats2bfloat162_rn(sums[band][x][half * 2] + shift.x, sums[band][x][half * 2 + 1] + shift.y);
      }
  }
#endif
}

cudaError_t matmul_v10_mma(const MatmulCall& call) {
  if (call.n % 8 || call.k % 8) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  using T = __nv_bfloat16;
  constexpr int bytes = STAGES * STAGE_BYTES;
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  if (most < bytes) return cudaErrorNotSupported;
  if (const cudaError_t status =
          cudaFuncSetAttribute(matmul_v10_mma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return status;
  const dim3 grid((call.n + BN - 1) / BN, (call.m + BM - 1) / BM);
  matmul_v10_mma<T><<<grid, THREADS, bytes, call.stream>>>(
      static_cast<const T*>(call.a), static_cast<const T*>(call.weight), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.m, call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
