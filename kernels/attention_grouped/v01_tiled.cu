// attention_grouped v01_tiled: 64 queries of a head, tiles of 32 keys, an online softmax, FMAs in fp32.
// Shapes   q (B, nh, Tq, hs), k, v (B, nkv, Tk, hs) with any strides of batch, head and token, out (B, Tq, nh, hs).
// Needs    hs 64 or 128, 16-byte aligned tokens; for hs 128 72 KB of shared memory per block (sm_80)
// Moves    q and out once, visible keys and values once through DRAM; through L2 once for each head and 64 queries.
// Versus   nothing: this is the first rung.
// Source   attention/v03_tiled.cu; Dao et al. 2022, arXiv:2205.14135
#include <cstdint>

#include "check.cuh"
#include "span.cuh"

#ifndef ATTENTION_GROUPED_V01_UNROLL
#define ATTENTION_GROUPED_V01_UNROLL 4
#endif

namespace {
constexpr int ROWS = 64, KEYS = 32, UNROLL = ATTENTION_GROUPED_V01_UNROLL;  // UNROLL: products, along the summed axis
constexpr int SIDE = 8, MINE = 4, THREADS = ROWS / MINE * SIDE;             // 8 threads share 4 rows, each with 4 keys
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LEAST = -1e30f;  // stands for no score yet; finite after any scaling
static_assert(KEYS == SIDE * MINE, "a thread has four keys");

template <int D>
constexpr int SHARED_BYTES = (D * ROWS + 2 * KEYS * D + KEYS * ROWS) * 4;

// Offset of element (line, place) in a swizzled matrix. Each line permutes its groups of 4 elements, which avoids bank
// conflicts along lines and along columns.
__device__ __forceinline__ int at(int line, int place, int width) {
  return line * width + (((place / 4) ^ (line / 4 % 8)) << 2) + place % 4;
}
__device__ __forceinline__ float4 read4(const float* from) { return *reinterpret_cast<const float4*>(from); }

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// sums[4][4] += 4 values of `left` times 4 of `right`
__device__ __forceinline__ void add_products(float (&sums)[MINE][MINE], const float4& left, const float4& right) {
  const float a[4] = {left.x, left.y, left.z, left.w}, b[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] += a[i] * b[j];
}
}  // namespace

template <typename T, int D>
__global__ void __launch_bounds__(THREADS) attention_grouped_v01_tiled(Grouped<T> in) {
  constexpr int FOURS = D / 4, PARTS = D / (SIDE * 4);  // groups of 4: of a token, of a thread's outputs in a row
  extern __shared__ __align__(16) float memory[];
  float* const queries = memory;             // [D][ROWS], transposed
  float* const keys = queries + D * ROWS;    // [D][KEYS], transposed
  float* const values = keys + D * KEYS;     // [KEYS][D]
  float* const weights = values + KEYS * D;  // [KEYS][ROWS], transposed
  const int tiles = (in.queries - 1) / ROWS + 1;
  // blocks with the most keys start first
  const int head = blockIdx.x / tiles % in.heads, batch = blockIdx.x / tiles / in.heads;
  const int first_query = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * ROWS;
  const int key_head = head / (in.heads / in.key_heads);
  const Span span(in.spans, batch, in.keys);
  const int ahead = span.end - in.queries;  // the place of query 0
  const T* const q = in.q + batch * in.q_strides.batch + head * in.q_strides.head;
  const T* const k = in.k + batch * in.k_strides.batch + key_head * in.k_strides.head;
  const T* const v = in.v + batch * in.v_strides.batch + key_head * in.v_strides.head;
  const auto read = [](const T* from, bool there) {
    float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there) {
      const auto packet = Packet<T, 4>::load(from);
      result = make_float4(to_float(packet.values[0]), to_float(packet.values[1]), to_float(packet.values[2]),
                           to_float(packet.values[3]));
    }
    return result;
  };
  const auto transpose = [](float* to, int place, int four, int width, const float4& from) {
    const float parts[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) to[at(four * 4 + j, place, width)] = parts[j];
  };
  for (int i = threadIdx.x; i < ROWS * FOURS; i += THREADS) {
    const int row = i / FOURS, four = i % FOURS;
    transpose(queries, row, four, ROWS,
              read(q + (first_query + row) * in.q_strides.token + four * 4, first_query + row < in.queries));
  }

  const int my_row = threadIdx.x / SIDE * MINE, my_key = threadIdx.x % SIDE * MINE;
  const float to_log2 = in.scale * LOG2_E;
  float sums[PARTS][MINE][MINE] = {}, largest[MINE], weight_sums[MINE] = {};
#pragma unroll
  for (int i = 0; i < MINE; ++i) largest[i] = LEAST;
  const int place = ahead + first_query + my_row;  // place of this thread's first query
  const int last_key = min(ahead + min(first_query + ROWS, in.queries), span.end) - 1;
  const int first_key = max(span.from(ahead + first_query), 0);
  for (int start = first_key / KEYS * KEYS; start <= last_key; start += KEYS) {
    __syncthreads();
    for (int i = threadIdx.x; i < KEYS * FOURS; i += THREADS) {
      const int key = i / FOURS, four = i % FOURS;
      const bool there = start + key >= span.first && start + key < span.end;
      transpose(keys, key, four, KEYS, read(k + (start + key) * in.k_strides.token + four * 4, there));
      *reinterpret_cast<float4*>(values + key * D + four * 4) =
          read(v + (start + key) * in.v_strides.token + four * 4, there);
    }
    __syncthreads();
    float scores[MINE][MINE] = {};
#pragma unroll UNROLL
    for (int column = 0; column < D; ++column)
      add_products(scores, read4(queries + at(column, my_row, ROWS)), read4(keys + at(column, my_key, KEYS)));
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      const int from = span.from(place + i);
      float most = largest[i];
#pragma unroll
      for (int j = 0; j < MINE; ++j) {
        const int key = start + my_key + j;
        if (key > place + i || key < from) scores[i][j] = -INFINITY;
        most = fmaxf(most, scores[i][j]);
      }
#pragma unroll
      for (int lane = 1; lane < SIDE; lane *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
      const float factor = exp2_fast((largest[i] - most) * to_log2), shift = most * to_log2;
      largest[i] = most;
      weight_sums[i] *= factor;
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
#pragma unroll
        for (int j = 0; j < MINE; ++j) sums[part][i][j] *= factor;
#pragma unroll
      for (int j = 0; j < MINE; ++j) {
        scores[i][j] = exp2_fast(scores[i][j] * to_log2 - shift);
        weight_sums[i] += scores[i][j];
      }
    }
    // a warp reads only the weights that it wrote, so it needs no barrier of the block
    __syncwarp();
#pragma unroll
    for (int j = 0; j < MINE; ++j)
      *reinterpret_cast<float4*>(weights + at(my_key + j, my_row, ROWS)) =
          make_float4(scores[0][j], scores[1][j], scores[2][j], scores[3][j]);
    __syncwarp();
#pragma unroll UNROLL
    for (int key = 0; key < KEYS; ++key) {
      const float4 left = read4(weights + at(key, my_row, ROWS));
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        add_products(sums[part], left, read4(values + key * D + part * SIDE * 4 + my_key));
    }
  }

  unsigned bad = 0;  // a bit for each of the warp's 16 rows
#pragma unroll
  for (int i = 0; i < MINE; ++i) {
    float sum = weight_sums[i];
#pragma unroll
    for (int lane = 1; lane < SIDE; lane *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    const int query = first_query + my_row + i, at_place = place + i;
    const bool sees = span.from(at_place) <= at_place;
    const float inverse = sees ? 1.0f / sum : 0.0f;
    float test = sum * 0.0f;
    const int64_t row = (static_cast<int64_t>(batch) * in.queries + query) * in.heads + head;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      Packet<T, 4> packet;
#pragma unroll
      for (int j = 0; j < MINE; ++j) {
        const float value = sees ? sums[part][i][j] * inverse : 0.0f;
        test += value * 0.0f;
        packet.values[j] = from_float<T>(value);
      }
      if (query < in.queries) packet.store(in.out + row * D + part * SIDE * 4 + my_key);
    }
    const unsigned lanes = __ballot_sync(0xffffffffu, sees && test != test);
#pragma unroll
    for (int group = 0; group < 4; ++group) bad |= (lanes >> group * SIDE & 0xffu) ? 1u << (group * MINE + i) : 0u;
  }
  __syncwarp();
  for (; bad; bad &= bad - 1) {
    const int query = first_query + threadIdx.x / 32 * 16 + __ffs(bad) - 1, at_place = ahead + query;
    if (query < in.queries)
      exact_row<T, D>(q + query * in.q_strides.token, k, v, in.k_strides.token, in.v_strides.token,
                      in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D,
                      span.from(at_place), at_place, in.scale);
  }
}

template <typename T, int D>
static cudaError_t launch(const AttentionGroupedCall& call) {
  constexpr int BYTES = SHARED_BYTES<D>;
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  if (most < BYTES) return cudaErrorNotSupported;
  const auto kernel = attention_grouped_v01_tiled<T, D>;
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES))
    return status;
  const int64_t blocks = static_cast<int64_t>((call.queries - 1) / ROWS + 1) * call.heads * call.batch;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  kernel<<<static_cast<unsigned>(blocks), THREADS, BYTES, call.stream>>>(grouped<T>(call));
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

template <typename T>
static cudaError_t launch(const AttentionGroupedCall& call) {
  return call.head_size == 64 ? launch<T, 64>(call) : launch<T, 128>(call);
}

cudaError_t attention_grouped_v01_tiled(const AttentionGroupedCall& call) {
  if (!sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
