// attention_grouped v09_split_tf32: fp32 on the tensor cores; a number is the sum of two of TF32, and three products of
// TF32 stand for one of fp32.
// Shapes   q (B, nh, Tq, hs), k, v (B, nkv, Tk, hs) fp32 with any strides of batch, head and token, out (B, Tq, nh, hs).
// Needs    fp32, hs 64 or 128, 16-byte aligned tokens; sm_80 and up to 108 KB of shared memory per block, or v01 runs
// Moves    q and out once, visible keys and values once through DRAM; through L2 once for each head and 64 queries.
// Versus   v01: one instruction of the tensor cores has 1,024 multiply-adds, an FMA of a warp 32. What three products
//          leave out is below 2^-22 of a product, as a few roundings of fp32 are. Weights stay in registers: columns of
//          the first product are the summed axis of the second in any order.
// Source   v01; CUTLASS' OpMultiplyAddFastF32, which PyTorch's memory-efficient attention uses in fp32; Ootomo and
//          Yokota 2022, "Recovering single precision accuracy from Tensor Cores"
#include <cstdint>

#include "check.cuh"
#include "span.cuh"

cudaError_t attention_grouped_v01_tiled(const AttentionGroupedCall& call);  // runs where this rung cannot

#ifndef ATTENTION_GROUPED_V09_KEYS
#define ATTENTION_GROUPED_V09_KEYS 64
#endif

namespace {
constexpr int WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16;  // a warp has 16 queries
constexpr int KEYS = ATTENTION_GROUPED_V09_KEYS, EIGHTS = KEYS / 8;
constexpr int BLOCKS = KEYS == 32 ? 3 : 2;                     // of an SM
constexpr float LOG2_E = 1.4426950408889634f, LEAST = -1e30f;  // LEAST stands for no score yet; finite after scaling

// Floats from one row to the next in shared memory. The 8 lanes that load 16 bytes each at a time then meet all banks:
// they read four packets of two rows of queries or keys, or two packets of four rows of values, every second row.
template <int D>
constexpr int KEY_PITCH = D + 16;
template <int D>
constexpr int VALUE_PITCH = D + 4;
template <int D>
constexpr int SHARED_BYTES = ((ROWS + KEYS) * KEY_PITCH<D> + KEYS * VALUE_PITCH<D>)*4;

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Starts an asynchronous copy of 16 bytes to shared memory; writes zeros if nothing is `there`.
__device__ __forceinline__ void copy_async(float* to, const float* from, bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(there ? 16 : 0)
      : "memory");
#endif
}
// Closes a group of copies, and waits until only the youngest group may still run.
__device__ __forceinline__ void close_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// x = high + low: high has the 11 bits of TF32, rounded, and the tensor cores take the upper 11 of the 12 bits of low.
struct Split {
  uint32_t high, low;
  __device__ __forceinline__ Split() {}
  __device__ __forceinline__ explicit Split(float x) {
    high = (__float_as_uint(x) + 0x1000) & 0xffffe000;
    low = __float_as_uint(x - __uint_as_float(high));
  }
};

// d (16 x 8) += a (16 x 8) x b (8 x 8) in TF32
__device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

// The same, nearly in fp32, for N pieces of d: the products of two low parts are left out.
template <int N>
__device__ __forceinline__ void multiply_split(float (*d)[4], const Split (&a)[4], const Split (&b)[N][2]) {
#pragma unroll
  for (int n = 0; n < N; ++n) multiply(d[n], a[0].low, a[1].low, a[2].low, a[3].low, b[n][0].high, b[n][1].high);
#pragma unroll
  for (int n = 0; n < N; ++n) multiply(d[n], a[0].high, a[1].high, a[2].high, a[3].high, b[n][0].low, b[n][1].low);
#pragma unroll
  for (int n = 0; n < N; ++n) multiply(d[n], a[0].high, a[1].high, a[2].high, a[3].high, b[n][0].high, b[n][1].high);
}

__device__ __forceinline__ float4 packet(const float* from) { return *reinterpret_cast<const float4*>(from); }
}  // namespace

// A lane has number `row` = lane / 4 and `four` = lane % 4. It holds rows `row` and `row` + 8 of its warp's 16 queries.
// Of 16 columns of queries and keys it takes four * 4 to four * 4 + 3: the summed axis may have any order. Its scores
// are those of keys four * 2 and four * 2 + 1 of every eight; as weights, these are columns `four` and `four` + 4 of the
// second product, whose rows of values are ordered alike. Of 32 columns of values it takes row * 4 to row * 4 + 3, and
// of the output's it gets four * 8 to four * 8 + 7.
template <int D>
__global__ void __launch_bounds__(THREADS, BLOCKS) attention_grouped_v09_split_tf32(Grouped<float> in) {
  constexpr int FOURS = D / 4, WIDE = D / 32, K_PITCH = KEY_PITCH<D>, V_PITCH = VALUE_PITCH<D>;
  extern __shared__ __align__(16) float memory[];
  float *const queries = memory, *const keys = queries + ROWS * K_PITCH, *const values = keys + KEYS * K_PITCH;
  const int tiles = (in.queries - 1) / ROWS + 1, pairs = gridDim.x / tiles;
  // blocks with the most keys start first
  const int pair = blockIdx.x % pairs, head = pair % in.heads, batch = pair / in.heads;
  const int first_query = (tiles - 1 - static_cast<int>(blockIdx.x) / pairs) * ROWS;
  const int key_head = head / (in.heads / in.key_heads);
  const Span span(in.spans, batch, in.keys);
  const int ahead = span.end - in.queries;  // the place of query 0
  const float* const q = in.q + batch * in.q_strides.batch + head * in.q_strides.head;
  const float* const k = in.k + batch * in.k_strides.batch + key_head * in.k_strides.head;
  const float* const v = in.v + batch * in.v_strides.batch + key_head * in.v_strides.head;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, four = lane % 4;
  const int last_key = min(ahead + min(first_query + ROWS, in.queries), span.end) - 1;
  const int first_key = max(span.from(ahead + first_query), 0) / KEYS * KEYS;

  // copies rows of a tensor; rows outside [from, end) become zeros
  const auto fetch = [&](float* to, int pitch, int rows, const float* tensor, int64_t token, int first, int from,
                         int end) {
#pragma unroll 4
    for (int i = threadIdx.x; i < rows * FOURS; i += THREADS) {
      const int at = first + i / FOURS, chunk = i % FOURS;
      const bool there = at >= from && at < end;
      copy_async(to + i / FOURS * pitch + chunk * 4, tensor + (there ? at * token + chunk * 4 : 0), there);
    }
  };
  const auto fetch_keys = [&](int first) {
    if (first <= last_key) fetch(keys, K_PITCH, KEYS, k, in.k_strides.token, first, span.first, span.end);
    close_copies();  // an empty group keeps the count right
  };
  const auto fetch_values = [&](int first) {
    if (first <= last_key) fetch(values, V_PITCH, KEYS, v, in.v_strides.token, first, span.first, span.end);
    close_copies();
  };
  fetch(queries, K_PITCH, ROWS, q, in.q_strides.token, first_query, 0, in.queries);
  fetch_keys(first_key);
  fetch_values(first_key);

  const float to_log2 = in.scale * LOG2_E;
  const int top = ahead + first_query + warp * 16;  // the place of the warp's first query
  float sums[WIDE][4][4] = {}, largest[2] = {LEAST, LEAST}, total[2] = {};
  for (int start = first_key; start <= last_key; start += KEYS) {
    wait_copies();
    __syncthreads();  // all threads see the keys
    float scores[EIGHTS][4] = {};
#pragma unroll 2
    for (int column = 0; column < D; column += 16) {
      const float* const mine = queries + (warp * 16 + row) * K_PITCH + column + four * 4;
      const float4 low = packet(mine), high = packet(mine + 8 * K_PITCH);
      const Split a[2][4] = {{Split(low.x), Split(high.x), Split(low.y), Split(high.y)},
                             {Split(low.z), Split(high.z), Split(low.w), Split(high.w)}};
#pragma unroll
      for (int n = 0; n < EIGHTS; n += 4) {
        Split b[2][4][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 key = packet(keys + ((n + i) * 8 + row) * K_PITCH + column + four * 4);
          b[0][i][0] = Split(key.x), b[0][i][1] = Split(key.y), b[1][i][0] = Split(key.z), b[1][i][1] = Split(key.w);
        }
        multiply_split(scores + n, a[0], b[0]);
        multiply_split(scores + n, a[1], b[1]);
      }
    }
    __syncthreads();  // no thread reads these keys any more
    fetch_keys(start + KEYS);

    if (start + KEYS - 1 > top || start < span.from(top + 15)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int place = top + row + half * 8, most = place - start - four * 2;
        const int least = span.from(place) - start - four * 2;
#pragma unroll
        for (int n = 0; n < EIGHTS; ++n)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (n * 8 + j > most || n * 8 + j < least) scores[n][half * 2 + j] = -INFINITY;
      }
    }
    float factor[2], base[2];
    bool grown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = LEAST;
#pragma unroll
      for (int n = 0; n < EIGHTS; ++n) most = fmaxf(most, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      most = fmaxf(most, largest[half]);
      grown |= most > largest[half];
      factor[half] = exp2_fast((largest[half] - most) * to_log2);
      largest[half] = most, base[half] = most * to_log2;
    }
    if (__any_sync(0xffffffffu, grown)) {
      total[0] *= factor[0], total[1] *= factor[1];
#pragma unroll
      for (int h = 0; h < WIDE; ++h)
#pragma unroll
        for (int i = 0; i < 16; ++i) sums[h][i / 4][i % 4] *= factor[i / 2 % 2];
    }
#pragma unroll
    for (int n = 0; n < EIGHTS; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = exp2_fast(scores[n][i] * to_log2 - base[i / 2]);
        total[i / 2] += scores[n][i];
      }
    wait_copies();
    __syncthreads();                                     // all threads see the values
    const int seen = max(top + 15 - start, -1) / 8 + 1;  // eights of keys with one that a query of the warp sees
#pragma unroll
    for (int n = 0; n < EIGHTS; ++n) {
      if (n >= seen) break;
      const Split a[4] = {Split(scores[n][0]), Split(scores[n][2]), Split(scores[n][1]), Split(scores[n][3])};
      const float* const mine = values + (n * 8 + four * 2) * V_PITCH + row * 4;
#pragma unroll
      for (int h = 0; h < WIDE; ++h) {
        const float4 even = packet(mine + h * 32), odd = packet(mine + V_PITCH + h * 32);
        const Split b[4][2] = {{Split(even.x), Split(odd.x)},
                               {Split(even.y), Split(odd.y)},
                               {Split(even.z), Split(odd.z)},
                               {Split(even.w), Split(odd.w)}};
        multiply_split(sums[h], a, b);
      }
    }
    __syncthreads();  // no thread reads these values any more
    fetch_values(start + KEYS);
  }

  unsigned bad[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = total[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int query = first_query + warp * 16 + half * 8 + row, place = ahead + query;
    const bool sees = span.from(place) <= place;
    const float inverse = sees ? 1.0f / sum : 0.0f;
    float test = sum * 0.0f;
    float* const to = in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D + four * 8;
#pragma unroll
    for (int h = 0; h < WIDE; ++h)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        Packet<float, 4> packet;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          packet.values[j] = sees ? sums[h][j][half * 2 + odd] * inverse : 0.0f;
          test += packet.values[j] * 0.0f;
        }
        if (query < in.queries) packet.store(to + h * 32 + odd * 4);
      }
    bad[half] = __ballot_sync(0xffffffffu, sees && test != test);
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half)
    for (unsigned rest = bad[half]; rest;) {
      const int at = (__ffs(rest) - 1) / 4, query = first_query + warp * 16 + half * 8 + at, place = ahead + query;
      rest &= ~(0xfu << at * 4);
      if (query < in.queries)
        exact_row<float, D>(q + query * in.q_strides.token, k, v, in.k_strides.token, in.v_strides.token,
                            in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D,
                            span.from(place), place, in.scale);
    }
}

template <int D>
static cudaError_t launch(const AttentionGroupedCall& call) {
  constexpr int BYTES = SHARED_BYTES<D>;
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  const auto kernel = attention_grouped_v09_split_tf32<D>;
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel)) return status;
  if (most < BYTES || attributes.ptxVersion < 80) return attention_grouped_v01_tiled(call);
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES))
    return status;
  const int64_t blocks = static_cast<int64_t>((call.queries - 1) / ROWS + 1) * call.heads * call.batch;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  kernel<<<static_cast<unsigned>(blocks), THREADS, BYTES, call.stream>>>(grouped<float>(call));
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_grouped_v09_split_tf32(const AttentionGroupedCall& call) {
  if (call.dtype != DType::float32 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  return call.head_size == 64 ? launch<64>(call) : launch<128>(call);
}
