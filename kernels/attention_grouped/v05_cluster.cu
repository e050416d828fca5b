// attention_grouped v05_cluster: query heads that share keys are one operand of mma.sync, and a cluster merges its
// blocks.
// Shapes   q (B, nh, 1, hs), k, v (B, nkv, Tk, hs) bf16 with any strides of batch, head and token, out (B, 1, nh, hs).
// Needs    sm_90, bf16, 16-byte aligned tokens; v03 runs in fp32 and on other GPUs
// Moves    2 * (B*nkv*Tk + B*nh) * hs * sizeof(T) bytes of visible keys: no workspace.
// Versus   v03: up to eight query heads are rows of one product, so a key costs 3 instructions of the tensor cores
//          instead of 1024 FMAs and 64 shuffles. Keys and values go from DRAM to the registers that the product reads:
//          its inner axis may have any order, so 16 bytes of a lane need no exchange. One launch, not two.
// Source   PTX ISA, mma.m16n8k16; Dao et al. 2023, "Flash-Decoding for long-context inference"; v04_cluster of
//          attention_decode
#include <cooperative_groups.h>

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "../attention_decode/decode.cuh"
#include "check.cuh"
#include "overlap.cuh"
#include "span.cuh"

cudaError_t attention_grouped_v03_split(const AttentionGroupedCall& call);  // runs what this rung does not take

#ifndef ATTENTION_GROUPED_V05_WARPS
#define ATTENTION_GROUPED_V05_WARPS 8
#endif
#ifndef ATTENTION_GROUPED_V05_RESIDENT
#define ATTENTION_GROUPED_V05_RESIDENT 12
#endif
#ifndef ATTENTION_GROUPED_V05_FEW
#define ATTENTION_GROUPED_V05_FEW 11
#endif
#ifndef ATTENTION_GROUPED_V05_HINT
#define ATTENTION_GROUPED_V05_HINT 0
#endif

namespace {
// Warps of a block. The largest cluster has too few blocks for few heads: then a block has more warps.
constexpr int MANY_WARPS = ATTENTION_GROUPED_V05_WARPS, FEW_WARPS = ATTENTION_GROUPED_V05_FEW;
constexpr int HEADS = 8;  // query heads of a block, at most: columns of the second product
constexpr int TILE = 16;  // keys that a warp takes at a time
constexpr int MOST = 16;  // blocks of a cluster, at most

// Blocks per SM that registers allow, and that the split of the keys aims at: RESIDENT warps with heads of 128, more with
// the smaller ones.
template <int D, int WARPS>
constexpr int BLOCKS = std::max(ATTENTION_GROUPED_V05_RESIDENT * (D == 64 ? 5 : 3) / 3 / WARPS, 1);

// d (16 x 8) += a (16 x 16) x b (16 x 8)
__device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The low (or high) halves of two words, the first one's below.
__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

__device__ __forceinline__ uint4 load_16(const __nv_bfloat16* from) {
#if ATTENTION_GROUPED_V05_HINT  // not kept in L1; L2 fetches 256 bytes at a time
  uint4 word;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(from));
  return word;
#else
  return *reinterpret_cast<const uint4*>(from);
#endif
}

// What one warp found: values weighted by 2^(score - largest), their largest score and their sum. What the block found
// takes the place of its first warp's values, and has extremes of its own.
template <int D>
struct Found {
  float values[HEADS][D];
  float extremes[HEADS][2], of_block[HEADS][2];
};
}  // namespace

// A lane has number `row` = lane / 4 and `four` = lane % 4. In the first product, scores (heads x keys) = q x k^T, it
// holds head `row` of q, key `row` of each half of a tile, and of both the columns b * 32 + four * 8 + 0 to 7. Its
// scores are those of head `row` and the keys four * 2 and four * 2 + 1 of each half, as the second product wants its
// weights: values^T (hs x heads) += v^T x weights^T, for which it holds those four keys, columns c * 64 + row * 8 + 0
// to 7.
template <int D, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS<D, WARPS>)
    attention_grouped_v05_cluster(Grouped<__nv_bfloat16> in, int bundles, int parts) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int THREADS = WARPS * 32, EIGHTS = D / 32,
                WIDE = D / 64;  // packets of a lane: in a key's row, in a value's row
  __shared__ Found<D> found[WARPS];
  let_next_start();
  const int part = blockIdx.x % parts, bundle = blockIdx.x / parts % bundles, pair = blockIdx.x / parts / bundles;
  const int batch = pair / in.key_heads, key_head = pair % in.key_heads, sharing = in.heads / in.key_heads;
  const int count = min(HEADS, sharing - bundle * HEADS), first_head = key_head * sharing + bundle * HEADS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, four = lane % 4;
  wait_for_previous();
  const float to_log2 = in.scale * 1.4426950408889634f;

  uint4 q[EIGHTS] = {};
  if (row < count)
#pragma unroll
    for (int b = 0; b < EIGHTS; ++b)
      q[b] = load_16(in.q + batch * in.q_strides.batch + (first_head + row) * in.q_strides.head + b * 32 + four * 8);
  const __nv_bfloat16* const k = in.k + batch * in.k_strides.batch + key_head * in.k_strides.head + four * 8;
  const __nv_bfloat16* const v = in.v + batch * in.v_strides.batch + key_head * in.v_strides.head + row * 8;

  uint4 keys[2][EIGHTS], values[4][WIDE];
  int left = 0;                              // keys from the tile's first one to the end
  const __nv_bfloat16 *key = k, *value = v;  // where this lane reads the next tile
  const auto load_keys = [&] {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int b = 0; b < EIGHTS; ++b) {
        if (left < TILE && half * 8 + row >= left)
          keys[half][b] = {};
        else
          keys[half][b] = load_16(key + half * 8 * in.k_strides.token + b * 32);
      }
    key += WARPS * TILE * in.k_strides.token;
  };
  const auto load_values = [&] {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int c = 0; c < WIDE; ++c) {  // what is not read is 0: weight 0 times what is there might be NaN
        if (left < TILE && i / 2 * 8 + four * 2 + i % 2 >= left)
          values[i][c] = {};
        else
          values[i][c] = load_16(value + (i / 2 * 8 + i % 2) * in.v_strides.token + c * 64);
      }
    value += WARPS * TILE * in.v_strides.token;
  };
  const auto share = [&](int begin, int end) {  // of the keys that the query sees
    const int each = (max(end - begin, 0) - 1) / parts + 1, start = begin + part * each + warp * TILE;
    left = min(end, begin + (part + 1) * each) - start;
    key = k + (start + row) * in.k_strides.token, value = v + (start + four * 2) * in.v_strides.token;
    if (left > 0) load_keys(), load_values();
  };

  float largest = -INFINITY, sum = 0.0f;  // of head `row`; the sum is of this lane's keys
  float out[WIDE][4][4] = {};             // columns c * 64 + row * 8 + 2 i and one more, of heads four * 2 and one more
  share(0, in.keys);                      // most calls see all keys, so these are loaded while the span is on its way
  const Span span(in.spans, batch, in.keys);
  const int seen = span.from(span.end - 1);
  if (seen != 0 || span.end != in.keys) share(seen, span.end);
  const bool sees = seen < span.end;
  while (left > 0) {
    const int now = left;
    float score[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int b = 0; b < EIGHTS; ++b) {
        multiply(score[half], q[b].x, 0, q[b].y, 0, keys[half][b].x, keys[half][b].y);
        multiply(score[half], q[b].z, 0, q[b].w, 0, keys[half][b].z, keys[half][b].w);
      }
    left -= WARPS * TILE;
    if (left > 0) load_keys();
    float weight[4], most = -INFINITY;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weight[i] = i / 2 * 8 + four * 2 + i % 2 < now ? score[i / 2][i % 2] * to_log2 : -INFINITY;
      most = fmaxf(most, weight[i]);  // fmaxf ignores NaN, exp2 keeps it
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    if (__any_sync(0xffffffffu, most > largest)) {
      most = fmaxf(most, largest);
      const float factor = exp2_fast(largest - exponent_base(most));
      largest = most;
      sum *= factor;
      const float factors[2] = {__shfl_sync(0xffffffffu, factor, four * 8),
                                __shfl_sync(0xffffffffu, factor, four * 8 + 4)};
#pragma unroll
      for (int c = 0; c < WIDE; ++c)
#pragma unroll
        for (int i = 0; i < 16; ++i) out[c][i / 4][i % 4] *= factors[i % 2];
    }
    const float base = exponent_base(largest);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += weight[i] = exp2_fast(weight[i] - base);
    const uint32_t weights[2] = {pack(weight[0], weight[1]), pack(weight[2], weight[3])};
#pragma unroll
    for (int c = 0; c < WIDE; ++c) {
      const uint32_t words[4][4] = {{values[0][c].x, values[0][c].y, values[0][c].z, values[0][c].w},
                                    {values[1][c].x, values[1][c].y, values[1][c].z, values[1][c].w},
                                    {values[2][c].x, values[2][c].y, values[2][c].z, values[2][c].w},
                                    {values[3][c].x, values[3][c].y, values[3][c].z, values[3][c].w}};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        multiply(out[c][i], low_halves(words[0][i], words[1][i]), high_halves(words[0][i], words[1][i]),
                 low_halves(words[2][i], words[3][i]), high_halves(words[2][i], words[3][i]), weights[0], weights[1]);
    }
    if (left > 0) load_values();
  }

  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (four == 0) found[warp].extremes[row][0] = largest, found[warp].extremes[row][1] = sum;
#pragma unroll
  for (int h = 0; h < 2; ++h)
    if (four * 2 + h < count)
#pragma unroll
      for (int c = 0; c < WIDE; ++c)
#pragma unroll
        for (int i = 0; i < 8; ++i)
          found[warp].values[four * 2 + h][c * 64 + row * 8 + i] = out[c][i / 2][i % 2 * 2 + h];
  __syncthreads();

  // merges `from(i)` for i below `of`, of warps or of blocks: column `column` of head h
  const auto merge = [&](int h, int column, int of, auto from, auto blocks) {
    const auto extremes = [&](int i) { return decltype(blocks)::value ? from(i)->of_block[h] : from(i)->extremes[h]; };
    Partial<1> merged;
    for (int i = 0; i < of; ++i) merged.largest = fmaxf(merged.largest, extremes(i)[0]);
    const float base = exponent_base(merged.largest);
    for (int i = 0; i < of; ++i) {
      const float factor = exp2_fast(extremes(i)[0] - base);
      merged.sum += factor * extremes(i)[1];
      merged.value[0] += factor * from(i)->values[h][column];
    }
    return merged;
  };
  const auto write = [&](int h, int column, const Partial<1>& merged) {
    in.out[(static_cast<int64_t>(batch) * in.heads + first_head + h) * D + column] =
        from_float<__nv_bfloat16>(sees ? merged.value[0] / merged.sum : 0.0f);
  };
  for (int at = threadIdx.x; at < count * D; at += THREADS) {
    const int h = at / D, column = at % D;
    const Partial<1> merged = merge(h, column, WARPS, [&](int i) { return found + i; }, std::false_type());
    if (parts == 1) {
      write(h, column, merged);
    } else {
      found->values[h][column] = merged.value[0];  // this thread alone reads this place
      if (column == 0) found->of_block[h][0] = merged.largest, found->of_block[h][1] = merged.sum;
    }
  }
  if (parts == 1) return;
  auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  for (int at = part * THREADS + threadIdx.x; at < count * D; at += parts * THREADS)
    write(at / D, at % D,
          merge(at / D, at % D, parts, [&](int i) { return cluster.map_shared_rank(found, i); }, std::true_type()));
  cluster.sync();  // no block ends while others read its memory
#endif
}

namespace {
// How many clusters of `size` blocks the GPU holds at once, or 0 if it cannot say.
template <int D, int WARPS>
int clusters_at_once(int size) {
  static std::atomic<int> known[MOST + 1];
  if (const int count = known[size]) return count;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(size);
  config.blockDim = dim3(WARPS * 32);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  const auto kernel = attention_grouped_v05_cluster<D, WARPS>;
  if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) return 0;
  return known[size] = count;
}

template <int D, int WARPS>
cudaError_t launch_split(const AttentionGroupedCall& call, int bundles, int most) {
  const auto kernel = attention_grouped_v05_cluster<D, WARPS>;
  static const bool waits = compiled_to_wait(kernel);
  if (!waits) return attention_grouped_v03_split(call);
  static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (allowed != cudaSuccess) return allowed;
  // as many blocks of a head as are resident together, with a tile for each warp
  const int rows = call.batch * call.key_heads * bundles;
  int parts = std::clamp(std::min(most, (call.keys - 1) / (WARPS * TILE) + 1), 1, MOST);
  while (parts > 1 && clusters_at_once<D, WARPS>(parts) < rows) --parts;
  const cudaError_t status = launch_overlapped(kernel, waits, Grid{rows * parts, WARPS * 32, parts}, call.stream,
                                               grouped<__nv_bfloat16>(call), bundles, parts);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <int D>
cudaError_t launch(const AttentionGroupedCall& call) {
  int device = 0, multiprocessors = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return status;
  const int bundles = (call.heads / call.key_heads - 1) / HEADS + 1;
  const int most = BLOCKS<D, MANY_WARPS> * multiprocessors / (call.batch * call.key_heads * bundles);
  const bool few = most >= MOST && call.keys > MOST * MANY_WARPS * TILE;
  return few ? launch_split<D, FEW_WARPS>(call, bundles, MOST) : launch_split<D, MANY_WARPS>(call, bundles, most);
}
}  // namespace

cudaError_t attention_grouped_v05_cluster(const AttentionGroupedCall& call) {
  if (!sizes_fit(call) || call.queries != 1) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  if (call.dtype == DType::float32) return attention_grouped_v03_split(call);
  return call.head_size == 64 ? launch<64>(call) : launch<128>(call);
}
