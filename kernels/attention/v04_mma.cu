// attention v04_mma: bf16 on Ampere's tensor core instructions (mma.sync); scores and weights stay in registers.
// Shapes   q, k, v, out (batch_heads, tokens, 64) bf16, sums in fp32; any number of tokens, any window.
// Needs    sm_80, 80 KB of shared memory per block, 16-byte aligned operands
// Moves    q, k, v and out once through DRAM; k and v through L2 once for each tile of queries.
// Versus   v03: one instruction computes 16 x 8 x 16 products instead of one, and no weight passes through shared
//          memory.
// Source   Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "mma.sync", "ldmatrix" and "cp.async"
#include <cuda_bf16.h>

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "attention.h"
#include "check.cuh"
#include "exact_row.cuh"

#ifndef ATTENTION_V04_BANDS
#define ATTENTION_V04_BANDS 2
#endif
#ifndef ATTENTION_V04_WARPS
#define ATTENTION_V04_WARPS 4
#endif
#ifndef ATTENTION_V04_KEYS
#define ATTENTION_V04_KEYS 64
#endif
#ifndef ATTENTION_V04_STAGES
#define ATTENTION_V04_STAGES 4
#endif
#ifndef ATTENTION_V04_BLOCKS
#define ATTENTION_V04_BLOCKS 2
#endif

namespace {
// a warp has BANDS bands of 16 queries, a tile has KEYS keys
constexpr int BANDS = ATTENTION_V04_BANDS, WARPS = ATTENTION_V04_WARPS, KEYS = ATTENTION_V04_KEYS;
constexpr int STAGES = ATTENTION_V04_STAGES, BLOCKS = ATTENTION_V04_BLOCKS;
constexpr int THREADS = WARPS * 32, ROWS = WARPS * BANDS * 16;
constexpr int ROW_BYTES = ATTENTION_HEAD_SIZE * 2;
constexpr int STAGE_BYTES = 2 * KEYS * ROW_BYTES;  // keys and values
constexpr int SHARED_BYTES = ROWS * ROW_BYTES + STAGES * STAGE_BYTES;
static_assert(STAGES >= 2, "one stage is filled while another is read");
static_assert(KEYS % 16 == 0 && KEYS % (THREADS / 8) == 0 && THREADS % 64 == 0, "threads copy whole groups of rows");
}  // namespace

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
namespace {

constexpr int CHUNKS = ROW_BYTES / 16;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float SLACK = 8.0f;  // the maximum grows only if a weight would exceed 2^8; fp32 overflows at 2^128

template <int N>
using Number = std::integral_constant<int, N>;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Starts an asynchronous copy of 16 bytes from global to shared memory.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// The offset of a 16-byte chunk of a row, swizzled so that the eight rows of one ldmatrix are in eight different bank
// groups.
__device__ __forceinline__ uint32_t offset(int row, int chunk) { return row * ROW_BYTES + ((chunk ^ (row % 8)) << 4); }

// Loads four 8 x 8 matrices of 16-bit elements. Each group of 8 lanes passes the row addresses of one matrix.
__device__ __forceinline__ void read_matrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void read_transposed(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace
#endif

// Blocks with the most keys start first.
template <typename T>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_v04_mma(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                      int heads, int tokens, int window, float scale) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t queries = shared_address(memory), stages = queries + ROWS * ROW_BYTES;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int head = blockIdx.x % heads, first_query = (gridDim.x / heads - 1 - blockIdx.x / heads) * ROWS;
  const int64_t base = static_cast<int64_t>(head) * tokens * ATTENTION_HEAD_SIZE;
  q += base, k += base, v += base, out += base;
  const int first_tile = max(0, first_query - window + 1) / KEYS;
  const int last_tile = (min(first_query + ROWS, tokens) - 1) / KEYS;

  // rows after the last one are copies of it; no stored output depends on them
  const int copy_row = thread / CHUNKS, copy_chunk = thread % CHUNKS;
  const auto fetch = [&](uint32_t to, const T* from, int first_row, auto rows) {
    constexpr int STEP = THREADS / CHUNKS;
    to += offset(copy_row, copy_chunk);
    if (first_row + decltype(rows)::value <= tokens) {
      from += (first_row + copy_row) * ATTENTION_HEAD_SIZE + copy_chunk * 8;
#pragma unroll
      for (int row = 0; row < decltype(rows)::value; row += STEP)
        copy_async(to + row * ROW_BYTES, from + row * ATTENTION_HEAD_SIZE);
    } else {
#pragma unroll 1
      for (int row = 0; row < decltype(rows)::value; row += STEP)
        copy_async(to + row * ROW_BYTES,
                   from + min(first_row + copy_row + row, tokens - 1) * ATTENTION_HEAD_SIZE + copy_chunk * 8);
    }
  };
  const auto fetch_tile = [&](int tile) {
    if (tile <= last_tile) {
      const uint32_t to = stages + tile % STAGES * STAGE_BYTES;
      fetch(to, k, tile * KEYS, Number<KEYS>());
      fetch(to + KEYS * ROW_BYTES, v, tile * KEYS, Number<KEYS>());
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps wait_group's count right
  };
  fetch(queries, q, first_query, Number<ROWS>());
#pragma unroll
  for (int ahead = 0; ahead < STAGES - 1; ++ahead) fetch_tile(first_tile + ahead);

  const int warp_row = warp * BANDS * 16, warp_query = first_query + warp_row;  // the warp's first
  const float to_log2 = scale * LOG2_E, slack = __fdividef(SLACK, to_log2);
  uint32_t left[BANDS][4][4];  // the queries
  float sums[BANDS][8][4] = {}, largest[BANDS][2], weight_sums[BANDS][2] = {};
#pragma unroll
  for (int band = 0; band < BANDS; ++band) largest[band][0] = largest[band][1] = -FLT_MAX;

  for (int tile = first_tile; tile <= last_tile; ++tile) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // all threads see the tile, and none reads the stage of the tile before
    fetch_tile(tile + STAGES - 1);
    if (tile == first_tile) {
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
#pragma unroll
        for (int part = 0; part < 4; ++part)
          read_matrices(left[band][part], queries + offset(warp_row + band * 16 + lane % 16, part * 2 + lane / 16));
    }
    const int first_key = tile * KEYS;
    // no query of this warp sees a key of this tile
    if (first_key > warp_query + BANDS * 16 - 1 || first_key + KEYS - 1 <= warp_query - window) continue;
    // the lane's addresses in the first 16 keys; xor with a bit of the address reaches the row's other chunks
    const uint32_t stage = stages + tile % STAGES * STAGE_BYTES;
    const uint32_t keys = stage + offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const uint32_t values = stage + KEYS * ROW_BYTES + offset(lane % 16, lane / 16);

    float scores[BANDS][KEYS / 8][4] = {};
#pragma unroll
    for (int part = 0; part < 4; ++part)
#pragma unroll
      for (int pair = 0; pair < KEYS / 16; ++pair) {
        uint32_t right[4];
        read_matrices(right, (keys ^ part << 5) + pair * 16 * ROW_BYTES);
#pragma unroll
        for (int band = 0; band < BANDS; ++band) {
          multiply(scores[band][pair * 2], left[band][part], right[0], right[1]);
          multiply(scores[band][pair * 2 + 1], left[band][part], right[2], right[3]);
        }
      }

    if (first_key + KEYS - 1 > warp_query || first_key <= warp_query + BANDS * 16 - 1 - window) {
      const int ahead = first_key + lane % 4 * 2 - (warp_query + lane / 4);  // the lane's first key minus query
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
#pragma unroll
        for (int x = 0; x < KEYS / 8; ++x)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int more = x * 8 + i % 2 - band * 16 - i / 2 * 8;
            if (ahead > -more || ahead + window <= -more) scores[band][x][i] = -INFINITY;
          }
    }

    float shift[BANDS][2];
    bool grown = false;
    float factor[BANDS][2];
#pragma unroll
    for (int band = 0; band < BANDS; ++band)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = fmaxf(scores[band][0][half * 2], scores[band][0][half * 2 + 1]);
#pragma unroll
        for (int x = 1; x < KEYS / 8; ++x)
          most = fmaxf(most, fmaxf(scores[band][x][half * 2], scores[band][x][half * 2 + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float before = largest[band][half];
        const bool more = most > before + slack;
        grown |= more;
        if (more) largest[band][half] = most;
        factor[band][half] = exp2_fast((before - largest[band][half]) * to_log2);
        shift[band][half] = largest[band][half] * to_log2;
      }
    if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
      for (int band = 0; band < BANDS; ++band) {
#pragma unroll
        for (int half = 0; half < 2; ++half) weight_sums[band][half] *= factor[band][half];
#pragma unroll
        for (int x = 0; x < 8; ++x)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[band][x][i] *= factor[band][i / 2];
      }
    }

#pragma unroll
    for (int part = 0; part < KEYS / 16; ++part) {
      uint32_t weights[BANDS][4];
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* from = &scores[band][part * 2 + i / 2][i % 2 * 2];
          const float low = exp2_fast(from[0] * to_log2 - shift[band][i % 2]);
          const float high = exp2_fast(from[1] * to_log2 - shift[band][i % 2]);
          weight_sums[band][i % 2] += low + high;
          weights[band][i] = pack(low, high);
        }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t right[4];
        read_transposed(right, (values ^ pair << 5) + part * 16 * ROW_BYTES);
#pragma unroll
        for (int band = 0; band < BANDS; ++band) {
          multiply(sums[band][pair * 2], weights[band], right[0], right[1]);
          multiply(sums[band][pair * 2 + 1], weights[band], right[2], right[3]);
        }
      }
    }
  }

  // the output replaces the warp's own queries in shared memory, and goes from there to DRAM in whole rows
  __syncwarp();  // all lanes have read the queries
  unsigned bad[BANDS][2];
#pragma unroll
  for (int band = 0; band < BANDS; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = weight_sums[band][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float inverse = __fdividef(1.0f, sum);
      float test = sum * 0.0f;
      const int row = warp_row + band * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int x = 0; x < 8; ++x) {
        const float low = sums[band][x][half * 2] * inverse, high = sums[band][x][half * 2 + 1] * inverse;
        test += low * 0.0f + high * 0.0f;
        *reinterpret_cast<uint32_t*>(memory + offset(row, x) + lane % 4 * 4) = pack(low, high);
      }
      bad[band][half] = __ballot_sync(0xffffffffu, test != test);
    }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < BANDS * 16 * CHUNKS / 32; ++i) {
    const int at = lane + i * 32, row = at / CHUNKS, chunk = at % CHUNKS;
    if (warp_query + row < tokens)
      *reinterpret_cast<uint4*>(out + (warp_query + row) * ATTENTION_HEAD_SIZE + chunk * 8) =
          *reinterpret_cast<const uint4*>(memory + offset(warp_row + row, chunk));
  }
  __syncwarp();
#pragma unroll
  for (int band = 0; band < BANDS; ++band)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      for (unsigned rest = bad[band][half]; rest;) {
        const int row = (__ffs(rest) - 1) / 4, query = warp_query + band * 16 + half * 8 + row;
        rest &= ~(0xfu << row * 4);
        if (query < tokens)
          attention_exact_row(q + query * ATTENTION_HEAD_SIZE, k, v, out + query * ATTENTION_HEAD_SIZE,
                              max(0, query - window + 1), query, scale);
      }
#endif
}

cudaError_t attention_v04_mma(const AttentionCall& call) {
  if (call.dtype != DType::bfloat16 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int device = 0, major = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device))
    return status;
  if (major < 8) return cudaErrorNotSupported;
  using T = __nv_bfloat16;
  if (const cudaError_t status =
          cudaFuncSetAttribute(attention_v04_mma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  const int64_t blocks = static_cast<int64_t>((call.tokens + ROWS - 1) / ROWS) * call.batch_heads;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  attention_v04_mma<T><<<static_cast<unsigned>(blocks), THREADS, SHARED_BYTES, call.stream>>>(
      static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
      static_cast<T*>(call.out), call.batch_heads, call.tokens, visible_window(call), call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
