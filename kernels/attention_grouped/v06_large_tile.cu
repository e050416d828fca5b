// attention_grouped v06_large_tile: fp32; a thread has 8 queries by 4 keys of the scores and 8 queries by 8 columns of
// the output; tiles arrive by cp.async.
// Shapes   q (B, nh, Tq, hs), k, v (B, nkv, Tk, hs) fp32 with any strides of batch, head and token, out (B, Tq, nh, hs).
// Needs    fp32, hs 64 or 128, 16-byte aligned tokens; sm_80 and 64 or 112 KB of shared memory per block, or v01 runs
// Moves    q and out once, visible keys and values once through DRAM; through L2 once for each head and 64 queries.
// Versus   v01: it loads 2 packets of shared memory per 16 FMAs, this rung 3 per 32 (scores) and 4 per 64 (values). No
//          matrix is transposed on its way in: 4 columns of a key are one packet. Keys of the next tile arrive while
//          the values of this one are used, and values while scores are computed.
// Source   v01; Volkov and Demmel 2008, "Benchmarking GPUs to tune dense linear algebra" (register tiles)
#include <cstdint>

#include "check.cuh"
#include "span.cuh"

cudaError_t attention_grouped_v01_tiled(const AttentionGroupedCall& call);  // runs where this rung cannot

#ifndef ATTENTION_GROUPED_V06_UNROLL
#define ATTENTION_GROUPED_V06_UNROLL 2
#endif

namespace {
constexpr int ROWS = 64, KEYS = 64, LANES = 16;                // 16 lanes share 8 queries
constexpr int MINE = 8, OWN = KEYS / LANES;                    // queries of a thread, and its keys: lane + 16 j
constexpr int THREADS = ROWS / MINE * LANES;                   // 128
constexpr int UNROLL = ATTENTION_GROUPED_V06_UNROLL;           // packets of the summed axis
constexpr float LOG2_E = 1.4426950408889634f, LEAST = -1e30f;  // LEAST stands for no score yet; finite after scaling

template <int D>
constexpr int SHARED_BYTES = ((ROWS + 2 * KEYS) * D + ROWS * KEYS) * 4;

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Starts an asynchronous copy of 16 bytes to shared memory; writes zeros if nothing is `there`.
__device__ __forceinline__ void copy_async(float4* to, const float* from, bool there) {
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

// Where the packet `chunk` of a row is. Lanes of a phase read one chunk of 8 keys, or of 2 queries that are 8 apart.
template <int D>
__device__ __forceinline__ int key_at(int key, int chunk) {
  return key * (D / 4) + (chunk ^ key % 8);
}
template <int WIDTH>
__device__ __forceinline__ int row_at(int row, int chunk) {
  return row * (WIDTH / 4) + (chunk ^ row / MINE % 2 * 4);
}

__device__ __forceinline__ float dot(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}
}  // namespace

template <int D>
__global__ void __launch_bounds__(THREADS, 2) attention_grouped_v06_large_tile(Grouped<float> in) {
  constexpr int FOURS = D / 4, PARTS = D / (LANES * 4);  // packets of a token; of a thread's outputs in a row
  extern __shared__ __align__(16) float4 memory[];
  float4 *const queries = memory, *const keys = queries + ROWS * FOURS, *const values = keys + KEYS * FOURS;
  float4* const weights = values + KEYS * FOURS;  // [ROWS][KEYS]
  const int tiles = (in.queries - 1) / ROWS + 1;
  // blocks with the most keys start first
  const int head = blockIdx.x / tiles % in.heads, batch = blockIdx.x / tiles / in.heads;
  const int first_query = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * ROWS;
  const int key_head = head / (in.heads / in.key_heads);
  const Span span(in.spans, batch, in.keys);
  const int ahead = span.end - in.queries;  // the place of query 0
  const float* const q = in.q + batch * in.q_strides.batch + head * in.q_strides.head;
  const float* const k = in.k + batch * in.k_strides.batch + key_head * in.k_strides.head;
  const float* const v = in.v + batch * in.v_strides.batch + key_head * in.v_strides.head;
  const int lane = threadIdx.x % LANES, my_row = threadIdx.x / LANES * MINE;
  const int last_key = min(ahead + min(first_query + ROWS, in.queries), span.end) - 1;
  const int first_key = max(span.from(ahead + first_query), 0) / KEYS * KEYS;

  // copies 64 rows of a tensor; rows outside [from, end) become zeros
  const auto fetch = [&](float4* to, auto where, const float* tensor, int64_t token, int first, int from, int end) {
#pragma unroll 4
    for (int i = threadIdx.x; i < 64 * FOURS; i += THREADS) {
      const int row = i / FOURS, chunk = i % FOURS, at = first + row;
      const bool there = at >= from && at < end;
      copy_async(to + where(row, chunk), tensor + (there ? at * token + chunk * 4 : 0), there);
    }
  };
  const auto fetch_keys = [&](int first) {
    if (first <= last_key) fetch(keys, key_at<D>, k, in.k_strides.token, first, span.first, span.end);
    close_copies();  // an empty group keeps the count right
  };
  const auto fetch_values = [&](int first) {
    const auto plain = [](int row, int chunk) { return row * FOURS + chunk; };
    if (first <= last_key) fetch(values, plain, v, in.v_strides.token, first, span.first, span.end);
    close_copies();
  };
  fetch(queries, row_at<D>, q, in.q_strides.token, first_query, 0, in.queries);
  fetch_keys(first_key);
  fetch_values(first_key);

  const float to_log2 = in.scale * LOG2_E;
  const int place = ahead + first_query + my_row;  // of this thread's first query
  const int warp_last = ahead + first_query + static_cast<int>(threadIdx.x) / 32 * 16 + 15;  // of the warp's last one
  float sums[MINE][PARTS * 4] = {}, largest[MINE], weight_sums[MINE] = {};
#pragma unroll
  for (int i = 0; i < MINE; ++i) largest[i] = LEAST;
  for (int start = first_key; start <= last_key; start += KEYS) {
    wait_copies();
    __syncthreads();  // all threads see the keys
    float scores[MINE][OWN] = {};
#pragma unroll UNROLL
    for (int chunk = 0; chunk < FOURS; ++chunk) {
      float4 key[OWN];
#pragma unroll
      for (int j = 0; j < OWN; ++j) key[j] = keys[key_at<D>(lane + LANES * j, chunk)];
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        const float4 query = queries[row_at<D>(my_row + i, chunk)];
#pragma unroll
        for (int j = 0; j < OWN; ++j) scores[i][j] = dot(query, key[j], scores[i][j]);
      }
    }
    __syncthreads();  // no thread reads these keys any more
    fetch_keys(start + KEYS);

    if (start + KEYS - 1 > ahead + first_query || start < span.from(ahead + first_query + ROWS - 1)) {
#pragma unroll
      for (int i = 0; i < MINE; ++i)
#pragma unroll
        for (int j = 0; j < OWN; ++j) {
          const int key = start + lane + LANES * j;
          if (key > place + i || key < span.from(place + i)) scores[i][j] = -INFINITY;
        }
    }
    float factor[MINE];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      float most = scores[i][0];
#pragma unroll
      for (int j = 1; j < OWN; ++j) most = fmaxf(most, scores[i][j]);
#pragma unroll
      for (int offset = 1; offset < LANES; offset *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, offset));
      most = fmaxf(most, largest[i]);
      grown |= most > largest[i];
      factor[i] = exp2_fast((largest[i] - most) * to_log2);
      largest[i] = most;
    }
    if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        weight_sums[i] *= factor[i];
#pragma unroll
        for (int x = 0; x < PARTS * 4; ++x) sums[i][x] *= factor[i];
      }
    }
    __syncwarp();  // a warp reads only the weights that it wrote, so it needs no barrier of the block
#pragma unroll
    for (int i = 0; i < MINE; ++i)
#pragma unroll
      for (int j = 0; j < OWN; ++j) {
        const float weight = exp2_fast(scores[i][j] * to_log2 - largest[i] * to_log2);
        weight_sums[i] += weight;
        const int key = lane + LANES * j;
        reinterpret_cast<float*>(weights + row_at<KEYS>(my_row + i, key / 4))[key % 4] = weight;
      }
    wait_copies();
    __syncthreads();  // all threads see the values, and a warp its weights
    const int chunks = min(KEYS / 4, max(warp_last - start, -1) / 4 + 1);  // with a key that a query of the warp sees
#pragma unroll UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk) {
      float4 weight[MINE];
#pragma unroll
      for (int i = 0; i < MINE; ++i) weight[i] = weights[row_at<KEYS>(my_row + i, chunk)];
#pragma unroll
      for (int u = 0; u < 4; ++u)
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          const float4 value = values[(chunk * 4 + u) * FOURS + part * LANES + lane];
#pragma unroll
          for (int i = 0; i < MINE; ++i) {
            const float w = u == 0 ? weight[i].x : u == 1 ? weight[i].y : u == 2 ? weight[i].z : weight[i].w;
            sums[i][part * 4] += w * value.x;
            sums[i][part * 4 + 1] += w * value.y;
            sums[i][part * 4 + 2] += w * value.z;
            sums[i][part * 4 + 3] += w * value.w;
          }
        }
    }
    __syncthreads();  // no thread reads these values any more
    fetch_values(start + KEYS);
  }

  unsigned bad = 0;  // a bit for each of the warp's 16 rows
#pragma unroll
  for (int i = 0; i < MINE; ++i) {
    float sum = weight_sums[i];
#pragma unroll
    for (int offset = 1; offset < LANES; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    const int query = first_query + my_row + i, at_place = place + i;
    const bool sees = span.from(at_place) <= at_place;
    const float inverse = sees ? 1.0f / sum : 0.0f;
    float test = sum * 0.0f;
    float* const to = in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D + lane * 4;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      Packet<float, 4> packet;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        packet.values[j] = sees ? sums[i][part * 4 + j] * inverse : 0.0f;
        test += packet.values[j] * 0.0f;
      }
      if (query < in.queries) packet.store(to + part * LANES * 4);
    }
    const unsigned lanes = __ballot_sync(0xffffffffu, sees && test != test);
    bad |= (lanes & 0xffffu ? 1u << i : 0u) | (lanes >> LANES ? 1u << (MINE + i) : 0u);
  }
  __syncwarp();
  for (; bad; bad &= bad - 1) {
    const int query = first_query + static_cast<int>(threadIdx.x) / 32 * 16 + __ffs(bad) - 1, at_place = ahead + query;
    if (query < in.queries)
      exact_row<float, D>(q + query * in.q_strides.token, k, v, in.k_strides.token, in.v_strides.token,
                          in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D,
                          span.from(at_place), at_place, in.scale);
  }
}

template <int D>
static cudaError_t launch(const AttentionGroupedCall& call) {
  constexpr int BYTES = SHARED_BYTES<D>;
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  const auto kernel = attention_grouped_v06_large_tile<D>;
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

cudaError_t attention_grouped_v06_large_tile(const AttentionGroupedCall& call) {
  if (call.dtype != DType::float32 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  return call.head_size == 64 ? launch<64>(call) : launch<128>(call);
}
