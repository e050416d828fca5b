// attention v03_tiled: 128 queries per block, tiles of 64 keys, an online softmax, 8 x 4 sums per thread.
// Shapes   q, k, v, out (batch_heads, tokens, 64), sums in fp32; any number of tokens, any window.
// Needs    96 KB of shared memory per block (sm_80), 16-byte aligned operands
// Moves    q, k, v and out once through DRAM; k and v through L2 once for each 128 queries.
// Versus   v02: no array of weights. Three float4 from shared memory feed 32 FMA, instead of two words for one FMA.
// Expect   attention: time at most 2 times the floor's in fp32; attention_windowed: time at most 2.222 times the
//          floor's in fp32. Refuted if not.
// Source   Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135
#include <cfloat>
#include <cstdint>

#include "attention.h"
#include "check.cuh"
#include "exact_row.cuh"
#include "vec.cuh"

#ifndef ATTENTION_V03_ROWS
#define ATTENTION_V03_ROWS 128
#endif
#ifndef ATTENTION_V03_UNROLL
#define ATTENTION_V03_UNROLL 1
#endif

namespace {
constexpr int D = ATTENTION_HEAD_SIZE, ROWS = ATTENTION_V03_ROWS, KEYS = 64;
constexpr int UNROLL = ATTENTION_V03_UNROLL;                     // of the products, in steps of 4 along the summed axis
constexpr int SIDE = 16, MY_ROWS = 8, MY_COLUMNS = KEYS / SIDE;  // SIDE threads cover the keys of a tile
constexpr int TOGETHER = ROWS / MY_ROWS, THREADS = TOGETHER * SIDE;  // TOGETHER: rows that a block reads at a time
constexpr int SHARED_BYTES = (D * ROWS + D * KEYS + KEYS * D + KEYS * ROWS) * 4;
constexpr int BLOCKS = 228 * 1024 / (SHARED_BYTES + 1024);  // blocks whose shared memory fits into an SM of Hopper
constexpr float LOG2_E = 1.4426950408889634f;
static_assert(MY_COLUMNS == 4 && D == KEYS, "two float4 of one operand, one of the other");
static_assert(ROWS == 32 || ROWS == 64 || ROWS == 128 || ROWS == 256, "groups of rows are found by xor");

// Offset of element (line, four * 4 + one) in a swizzled matrix. Each line permutes its groups of 4 elements, which
// avoids bank conflicts along lines and along columns. Group four ^ g is at the offset xor 4 * g.
__device__ __forceinline__ unsigned place(unsigned line, unsigned four, unsigned one, unsigned width) {
  return line * width + ((four ^ line / 4 % 8) << 2) + one;
}

__device__ __forceinline__ float4 read4(const float* from) { return *reinterpret_cast<const float4*>(from); }

// sums[8][4] += 8 values of the left operand (`low`, `high`) times 4 of the right one
__device__ __forceinline__ void add_products(float (&sums)[MY_ROWS][MY_COLUMNS], const float4& low, const float4& high,
                                             const float4& right) {
  const float a[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const float b[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] += a[i] * b[j];
}

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
}  // namespace

// Blocks with the most keys start first.
template <typename T>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_v03_tiled(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                        int heads, int tokens, int window, float scale) {
  extern __shared__ __align__(16) float memory[];
  float* const queries = memory;             // [64][ROWS], transposed
  float* const keys = queries + D * ROWS;    // [64][64], transposed
  float* const values = keys + D * KEYS;     // [64][64]
  float* const weights = values + KEYS * D;  // [64][ROWS], transposed
  const int head = blockIdx.x % heads, first_query = (gridDim.x / heads - 1 - blockIdx.x / heads) * ROWS;
  const int64_t base = static_cast<int64_t>(head) * tokens * D;
  const int my_row = threadIdx.x / SIDE, my_column = threadIdx.x % SIDE;  // groups of 8 rows and of 4 columns
  const int query = first_query + my_row * MY_ROWS;
  const int warp_query = first_query + threadIdx.x / 32 * 2 * MY_ROWS, warp_last = warp_query + 2 * MY_ROWS - 1;

  const auto read = [&](const T* from, int row) {  // 4 elements of a row, in this thread's columns
    const int four = threadIdx.x % 16;
    float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < tokens) {
      const auto packet = Packet<T, 4>::load(from + base + row * D + four * 4);
      result = make_float4(to_float(packet.values[0]), to_float(packet.values[1]), to_float(packet.values[2]),
                           to_float(packet.values[3]));
    }
    return result;
  };
  // a step of TOGETHER rows is a step of TOGETHER / 4 groups
  const unsigned line = threadIdx.x % 16 * 4, row = threadIdx.x / 16;
  const auto transpose = [&](float* to, unsigned width, int step, const float4& from) {
    to += place(line, row / 4, row % 4, width) ^ step * TOGETHER;
    to[0] = from.x, to[width] = from.y, to[2 * width] = from.z, to[3 * width] = from.w;
  };
#pragma unroll
  for (int i = 0; i < ROWS / TOGETHER; ++i) transpose(queries, ROWS, i, read(q, first_query + row + i * TOGETHER));

  const float to_log2 = scale * LOG2_E;
  float sums[MY_ROWS][MY_COLUMNS] = {}, largest[MY_ROWS], weight_sums[MY_ROWS] = {};
#pragma unroll
  for (int i = 0; i < MY_ROWS; ++i) largest[i] = -FLT_MAX;

  const int last_tile = (min(first_query + ROWS, tokens) - 1) / KEYS;
  for (int tile = max(0, first_query - window + 1) / KEYS; tile <= last_tile; ++tile) {
    const int first_key = tile * KEYS;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < KEYS / TOGETHER; ++i) {
      transpose(keys, KEYS, i, read(k, first_key + row + i * TOGETHER));
      *reinterpret_cast<float4*>(values + (threadIdx.x + i * THREADS) * 4) = read(v, first_key + row + i * TOGETHER);
    }
    __syncthreads();
    // no query of this warp sees a key of this tile
    if (first_key > warp_last || first_key + KEYS - 1 <= warp_query - window) continue;

    float scores[MY_ROWS][MY_COLUMNS] = {};
#pragma unroll UNROLL
    for (int first = 0; first < D; first += 4) {
      const unsigned left = place(first, my_row * 2, 0, ROWS), right = place(first, my_column, 0, KEYS);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        add_products(scores, read4(queries + left + i * ROWS), read4(queries + (left ^ 4) + i * ROWS),
                     read4(keys + right + i * KEYS));
    }
    if (first_key + KEYS - 1 > warp_query || first_key <= warp_last - window) {
      const int ahead = first_key + my_column * MY_COLUMNS - query;  // the thread's first key minus its first query
#pragma unroll
      for (int i = 0; i < MY_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS; ++j)
          if (ahead > i - j || ahead + window <= i - j) scores[i][j] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < MY_ROWS; ++i) {
      float most = fmaxf(fmaxf(scores[i][0], scores[i][1]), fmaxf(scores[i][2], scores[i][3]));
#pragma unroll
      for (int lane = 1; lane < SIDE; lane *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
      most = fmaxf(most, largest[i]);
      const float factor = exp2_fast((largest[i] - most) * to_log2), shift = most * to_log2;
      largest[i] = most;
      weight_sums[i] *= factor;
#pragma unroll
      for (int j = 0; j < MY_COLUMNS; ++j) {
        sums[i][j] *= factor;
        scores[i][j] = exp2_fast(scores[i][j] * to_log2 - shift);
        weight_sums[i] += scores[i][j];
      }
    }
    // a warp reads only the weights that it wrote, so it needs no barrier of the block
    __syncwarp();
#pragma unroll
    for (int j = 0; j < MY_COLUMNS; ++j)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        *reinterpret_cast<float4*>(weights + (place(my_column * 4, my_row * 2, 0, ROWS) ^ high * 4) + j * ROWS) =
            make_float4(scores[high * 4][j], scores[high * 4 + 1][j], scores[high * 4 + 2][j], scores[high * 4 + 3][j]);
    __syncwarp();
#pragma unroll UNROLL
    for (int first = 0; first < KEYS; first += 4) {
      const unsigned left = place(first, my_row * 2, 0, ROWS);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        add_products(sums, read4(weights + left + i * ROWS), read4(weights + (left ^ 4) + i * ROWS),
                     read4(values + (first + i) * D + my_column * 4));
    }
  }

  unsigned bad = 0;  // a bit for each of the warp's rows
#pragma unroll
  for (int i = 0; i < MY_ROWS; ++i) {
    float sum = weight_sums[i];
#pragma unroll
    for (int lane = 1; lane < SIDE; lane *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    const float inverse = __fdividef(1.0f, sum);
    float test = sum * 0.0f;
    Packet<T, 4> packet;
#pragma unroll
    for (int j = 0; j < MY_COLUMNS; ++j) {
      const float value = sums[i][j] * inverse;
      test += value * 0.0f;
      packet.values[j] = from_float<T>(value);
    }
    if (query + i < tokens) packet.store(out + base + (query + i) * D + my_column * 4);
    const unsigned lanes = __ballot_sync(0xffffffffu, test != test);
    bad |= (lanes & 0xffffu ? 1u << i : 0u) | (lanes >> SIDE ? 1u << (MY_ROWS + i) : 0u);
  }
  __syncwarp();
  for (; bad; bad &= bad - 1) {
    const int row = warp_query + __ffs(bad) - 1;
    if (row < tokens)
      attention_exact_row(q + base + row * D, k + base, v + base, out + base + row * D, max(0, row - window + 1), row,
                          scale);
  }
}

template <typename T>
static cudaError_t launch(const AttentionCall& call) {
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  if (most < SHARED_BYTES) return cudaErrorNotSupported;
  if (const cudaError_t status =
          cudaFuncSetAttribute(attention_v03_tiled<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  const int64_t blocks = static_cast<int64_t>((call.tokens + ROWS - 1) / ROWS) * call.batch_heads;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  attention_v03_tiled<T><<<static_cast<unsigned>(blocks), THREADS, SHARED_BYTES, call.stream>>>(
      static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
      static_cast<T*>(call.out), call.batch_heads, call.tokens, visible_window(call), call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_v03_tiled(const AttentionCall& call) {
  if (!sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
