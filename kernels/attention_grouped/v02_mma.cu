// attention_grouped v02_mma: bf16 on Ampere's tensor core instructions (mma.sync); scores and weights stay in
// registers.
// Shapes   q (B, nh, Tq, hs), k, v (B, nkv, Tk, hs) bf16 with any strides of batch, head and token, out (B, Tq, nh, hs).
// Needs    sm_80, hs 64 or 128, 16-byte aligned tokens, 40 or 80 KB of shared memory per block
// Moves    q and out once, visible keys and values once through DRAM; through L2 once for each head and 64 queries.
// Versus   v01: one instruction computes 16 x 8 x 16 products instead of one, and no weight passes through shared
//          memory.
// Source   attention/v04_mma.cu; Dao, "FlashAttention-2", arXiv:2307.08691
#include <cuda_bf16.h>

#include <cstdint>

#include "check.cuh"
#include "span.cuh"

#ifndef ATTENTION_GROUPED_V02_STAGES
#define ATTENTION_GROUPED_V02_STAGES 2
#endif

namespace {
constexpr int WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16, KEYS = 64;  // a warp has 16 queries, a tile 64 keys
constexpr int STAGES = ATTENTION_GROUPED_V02_STAGES;
constexpr float LEAST = -1e30f;  // stands for no score yet; finite after any scaling
static_assert(STAGES >= 2, "one stage is filled while another is read");

template <int D>
constexpr int ROW_BYTES = D * 2;
template <int D>
constexpr int SHARED_BYTES = (ROWS + STAGES * 2 * KEYS) * ROW_BYTES<D>;
}  // namespace

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
namespace {
constexpr float LOG2_E = 1.4426950408889634f;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Starts an asynchronous copy of 16 bytes to shared memory; writes zeros if nothing is `there`.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// The offset of a 16-byte chunk of a row, swizzled so that the eight rows of one ldmatrix are in eight different bank
// groups.
template <int D>
__device__ __forceinline__ uint32_t offset(int row, int chunk) {
  return row * ROW_BYTES<D> + ((chunk ^ (row % 8)) << 4);
}

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

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 2) attention_grouped_v02_mma(Grouped<T> in) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int CHUNKS = D / 8;
  extern __shared__ __align__(128) uint8_t memory[];
  const uint32_t queries = shared_address(memory), stages = queries + ROWS * ROW_BYTES<D>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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

  // copies rows of a tensor; rows outside [from, end) become zeros
  const auto fetch = [&](uint32_t to, const T* tensor, int64_t token, int first_row, int rows, int from, int end) {
    for (int i = threadIdx.x; i < rows * CHUNKS; i += THREADS) {
      const int row = i / CHUNKS, chunk = i % CHUNKS, at = first_row + row;
      const bool there = at >= from && at < end;
      copy_async(to + offset<D>(row, chunk), tensor + (there ? at * token + chunk * 8 : 0), there);
    }
  };
  const int last_key = min(ahead + min(first_query + ROWS, in.queries), span.end) - 1;
  const int first_tile = span.from(ahead + first_query) / KEYS, last_tile = last_key < 0 ? -1 : last_key / KEYS;
  const auto fetch_tile = [&](int tile) {
    if (tile <= last_tile) {
      const uint32_t to = stages + tile % STAGES * 2 * KEYS * ROW_BYTES<D>;
      fetch(to, k, in.k_strides.token, tile * KEYS, KEYS, span.first, span.end);
      fetch(to + KEYS * ROW_BYTES<D>, v, in.v_strides.token, tile * KEYS, KEYS, span.first, span.end);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps wait_group's count right
  };
  fetch(queries, q, in.q_strides.token, first_query, ROWS, 0, in.queries);
#pragma unroll
  for (int more = 0; more < STAGES - 1; ++more) fetch_tile(first_tile + more);

  const int warp_query = first_query + warp * 16, warp_place = ahead + warp_query;
  const float to_log2 = in.scale * LOG2_E;
  uint32_t left[D / 16][4];  // the queries
  float sums[D / 8][4] = {}, largest[2] = {LEAST, LEAST}, weight_sums[2] = {};

  for (int tile = first_tile; tile <= last_tile; ++tile) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // all threads see the tile, and none reads the stage of the tile before
    fetch_tile(tile + STAGES - 1);
    if (tile == first_tile) {
#pragma unroll
      for (int part = 0; part < D / 16; ++part)
        read_matrices(left[part], queries + offset<D>(warp * 16 + lane % 16, part * 2 + lane / 16));
    }
    const int first_key = tile * KEYS;
    // no query of this warp sees a key of this tile
    if (first_key > warp_place + 15 || first_key + KEYS - 1 < span.from(warp_place)) continue;
    const uint32_t keys = stages + tile % STAGES * 2 * KEYS * ROW_BYTES<D>, values = keys + KEYS * ROW_BYTES<D>;

    float scores[KEYS / 8][4] = {};
#pragma unroll
    for (int part = 0; part < D / 16; ++part)
#pragma unroll
      for (int pair = 0; pair < KEYS / 16; ++pair) {
        uint32_t right[4];
        read_matrices(right, keys + offset<D>(pair * 16 + lane / 16 * 8 + lane % 8, part * 2 + lane / 8 % 2));
        multiply(scores[pair * 2], left[part], right[0], right[1]);
        multiply(scores[pair * 2 + 1], left[part], right[2], right[3]);
      }

    const int place = warp_place + lane / 4;  // place of the lane's first row; its second is 8 later
    if (first_key + KEYS - 1 > warp_place || first_key < span.from(warp_place + 15)) {
#pragma unroll
      for (int x = 0; x < KEYS / 8; ++x)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first_key + x * 8 + lane % 4 * 2 + i % 2, at = place + i / 2 * 8;
          if (key > at || key < span.from(at)) scores[x][i] = -INFINITY;
        }
    }

    float shift[2], factor[2];
    bool grown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = fmaxf(scores[0][half * 2], scores[0][half * 2 + 1]);
#pragma unroll
      for (int x = 1; x < KEYS / 8; ++x) most = fmaxf(most, fmaxf(scores[x][half * 2], scores[x][half * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float before = largest[half];
      grown |= most > before;
      largest[half] = fmaxf(before, most);
      factor[half] = exp2_fast((before - largest[half]) * to_log2);
      shift[half] = largest[half] * to_log2;
    }
    if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) weight_sums[half] *= factor[half];
#pragma unroll
      for (int x = 0; x < D / 8; ++x)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[x][i] *= factor[i / 2];
    }

#pragma unroll
    for (int part = 0; part < KEYS / 16; ++part) {
      uint32_t weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* from = &scores[part * 2 + i / 2][i % 2 * 2];
        const float low = exp2_fast(from[0] * to_log2 - shift[i % 2]);
        const float high = exp2_fast(from[1] * to_log2 - shift[i % 2]);
        weight_sums[i % 2] += low + high;
        weights[i] = pack(low, high);
      }
#pragma unroll
      for (int pair = 0; pair < D / 16; ++pair) {
        uint32_t right[4];
        read_transposed(right, values + offset<D>(part * 16 + lane % 16, pair * 2 + lane / 16));
        multiply(sums[pair * 2], weights, right[0], right[1]);
        multiply(sums[pair * 2 + 1], weights, right[2], right[3]);
      }
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");  // needed even if the block sees no tile

  unsigned bad[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = weight_sums[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int query = warp_query + half * 8 + lane / 4, at = ahead + query;
    const bool sees = span.from(at) <= at;
    const float inverse = sees ? __fdividef(1.0f, sum) : 0.0f;
    float test = sum * 0.0f;
    T* const to = in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D + lane % 4 * 2;
#pragma unroll
    for (int x = 0; x < D / 8; ++x) {
      const float low = sees ? sums[x][half * 2] * inverse : 0.0f;
      const float high = sees ? sums[x][half * 2 + 1] * inverse : 0.0f;
      test += low * 0.0f + high * 0.0f;
      if (query < in.queries) *reinterpret_cast<uint32_t*>(to + x * 8) = pack(low, high);
    }
    bad[half] = __ballot_sync(0xffffffffu, sees && test != test);
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half)
    for (unsigned rest = bad[half]; rest;) {
      const int row = (__ffs(rest) - 1) / 4, query = warp_query + half * 8 + row, at = ahead + query;
      rest &= ~(0xfu << row * 4);
      if (query < in.queries)
        exact_row<T, D>(q + query * in.q_strides.token, k, v, in.k_strides.token, in.v_strides.token,
                        in.out + ((static_cast<int64_t>(batch) * in.queries + query) * in.heads + head) * D,
                        span.from(at), at, in.scale);
    }
#endif
}

template <int D>
static cudaError_t launch(const AttentionGroupedCall& call) {
  using T = __nv_bfloat16;
  const auto kernel = attention_grouped_v02_mma<T, D>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES<D>))
    return status;
  const int64_t blocks = static_cast<int64_t>((call.queries - 1) / ROWS + 1) * call.heads * call.batch;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  kernel<<<static_cast<unsigned>(blocks), THREADS, SHARED_BYTES<D>, call.stream>>>(grouped<T>(call));
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_grouped_v02_mma(const AttentionGroupedCall& call) {
  if (call.dtype != DType::bfloat16 || !sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int device = 0, major = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device))
    return status;
  if (major < 8) return cudaErrorNotSupported;
  return call.head_size == 64 ? launch<64>(call) : launch<128>(call);
}
