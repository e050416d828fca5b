// attention_grouped v03_split: a block has part of a key head's keys, and reads them once for up to four query heads.
// Shapes   q (B, nh, 1, hs), k, v (B, nkv, Tk, hs) with any strides of batch, head and token, out (B, 1, nh, hs).
// Needs    hs 64 or 128, 16-byte aligned tokens, a workspace of hs + 2 floats for each head and part
// Moves    2 * (B*nkv*Tk + B*nh) * hs * sizeof(T) bytes of visible keys, and the workspace, which is written and read.
// Versus   v01: a thread uses 16 bytes of a key for up to four query heads, and there are as many blocks as the GPU
//          holds.
// Source   Dao et al. 2023, "Flash-Decoding for long-context inference"; Ainslie et al. 2023, arXiv:2305.13245
#include <algorithm>

#include "../attention_decode/decode.cuh"
#include "check.cuh"
#include "overlap.cuh"
#include "span.cuh"

#ifndef ATTENTION_GROUPED_V03_WARPS
#define ATTENTION_GROUPED_V03_WARPS 4
#endif
#ifndef ATTENTION_GROUPED_V03_BLOCKS
#define ATTENTION_GROUPED_V03_BLOCKS 3
#endif

namespace {
constexpr int WARPS = ATTENTION_GROUPED_V03_WARPS, THREADS = WARPS * 32;
constexpr int BLOCKS = ATTENTION_GROUPED_V03_BLOCKS;  // blocks per SM that the split of the keys aims at
constexpr int LEAST_KEYS = 64, MOST_PARTS = 64;

struct Plan {
  int together;  // query heads of a block: 1, 2 or 4
  int bundles;   // groups of query heads that share a key head
  int parts;     // parts of the keys
};

inline Plan plan_of(const AttentionGroupedCall& call, int multiprocessors) {
  const int sharing = call.heads / call.key_heads;
  const int together = sharing == 1 ? 1 : sharing == 2 ? 2 : 4, bundles = (sharing - 1) / together + 1;
  const int blocks = call.batch * call.key_heads * bundles;
  const int most = std::min((call.keys - 1) / LEAST_KEYS + 1, MOST_PARTS);
  return {together, bundles, std::clamp(BLOCKS * multiprocessors / blocks, 1, most)};
}

// The keys that the one query of a sequence sees.
struct Seen {
  int begin;
  int end;

  __device__ __forceinline__ explicit Seen(const Span& span) : begin(span.from(span.end - 1)), end(span.end) {}
};
}  // namespace

// Writes to `found`, for each head and part: D values, the largest score, the sum. With one part, writes the output
// itself.
template <typename T, int D, int TOGETHER>
__global__ void __launch_bounds__(THREADS)
    attention_grouped_v03_split(Grouped<T> in, float* found, int bundles, int parts) {
  constexpr int WIDE = WIDTH<T>, KEY_LANES = D / WIDE, TOGETHER_KEYS = 32 / KEY_LANES;
  constexpr int UNROLL_KEYS = TOGETHER == 4 ? 2 : 4, CHUNK = TOGETHER_KEYS * UNROLL_KEYS;
  __shared__ float values[WARPS][TOGETHER][D], extremes[WARPS][TOGETHER][2];
  let_next_start();
  const int part = blockIdx.x % parts, bundle = blockIdx.x / parts % bundles, row = blockIdx.x / parts / bundles;
  const int batch = row / in.key_heads, key_head = row % in.key_heads, sharing = in.heads / in.key_heads;
  const int first_head = bundle * TOGETHER, count = min(TOGETHER, sharing - first_head);  // heads of this block
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = lane / KEY_LANES;
  const int column = lane % KEY_LANES * WIDE;
  wait_for_previous();
  const Seen seen(Span(in.spans, batch, in.keys));
  const int each = (max(seen.end - seen.begin, 0) - 1) / parts + 1;
  const int begin = seen.begin + part * each, end = min(seen.end, begin + each);

  float q[TOGETHER][WIDE];
#pragma unroll
  for (int h = 0; h < TOGETHER; ++h) {
    const int head = key_head * sharing + first_head + min(h, count - 1);
    const auto packet = Packet<T, WIDE>::load(in.q + batch * in.q_strides.batch + head * in.q_strides.head + column);
    to_floats(packet, q[h]);
#pragma unroll
    for (int j = 0; j < WIDE; ++j) q[h][j] *= in.scale * 1.4426950408889634f;
  }
  const T* const k = in.k + batch * in.k_strides.batch + key_head * in.k_strides.head + column;
  const T* const v = in.v + batch * in.v_strides.batch + key_head * in.v_strides.head + column;

  Partial<WIDE> partial[TOGETHER];
  for (int start = begin + warp * CHUNK; start < end; start += WARPS * CHUNK) {
    Packet<T, WIDE> key[UNROLL_KEYS], value[UNROLL_KEYS];
#pragma unroll
    for (int u = 0; u < UNROLL_KEYS; ++u) {
      const int64_t place = start + u * TOGETHER_KEYS + mine;
      if (place < end) {
        key[u] = Packet<T, WIDE>::load(k + place * in.k_strides.token);
        value[u] = Packet<T, WIDE>::load(v + place * in.v_strides.token);
      } else {  // not read: weight 0 times what is there might be NaN
        key[u].raw = value[u].raw = {};
      }
    }
#pragma unroll
    for (int h = 0; h < TOGETHER; ++h) {
      float score[UNROLL_KEYS];
#pragma unroll
      for (int u = 0; u < UNROLL_KEYS; ++u) {
        float element[WIDE], sum = 0.0f;
        to_floats(key[u], element);
#pragma unroll
        for (int j = 0; j < WIDE; ++j) sum += q[h][j] * element[j];
#pragma unroll
        for (int offset = KEY_LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        score[u] = start + u * TOGETHER_KEYS + mine < end ? sum : -INFINITY;
      }
      take_scores(partial[h], score);
#pragma unroll
      for (int u = 0; u < UNROLL_KEYS; ++u) {
        float element[WIDE];
        to_floats(value[u], element);
#pragma unroll
        for (int j = 0; j < WIDE; ++j) partial[h].value[j] += score[u] * element[j];
      }
    }
  }

  // merge the lanes of a warp that hold one column, then the warps of the block
#pragma unroll
  for (int h = 0; h < TOGETHER; ++h) {
    float largest = partial[h].largest;
#pragma unroll
    for (int offset = KEY_LANES; offset < 32; offset *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    partial[h].scale_by(exp2_fast(partial[h].largest - exponent_base(largest)));
#pragma unroll
    for (int offset = KEY_LANES; offset < 32; offset *= 2) {
      partial[h].sum += __shfl_xor_sync(0xffffffffu, partial[h].sum, offset);
#pragma unroll
      for (int j = 0; j < WIDE; ++j) partial[h].value[j] += __shfl_xor_sync(0xffffffffu, partial[h].value[j], offset);
    }
    if (mine == 0)
#pragma unroll
      for (int j = 0; j < WIDE; ++j) values[warp][h][column + j] = partial[h].value[j];
    if (lane == 0) extremes[warp][h][0] = largest, extremes[warp][h][1] = partial[h].sum;
  }
  __syncthreads();
  for (int at = threadIdx.x; at < count * D; at += THREADS) {
    const int h = at / D, to_column = at % D, head = key_head * sharing + first_head + h;
    float largest = -INFINITY, sum = 0.0f, total = 0.0f;
#pragma unroll
    for (int from = 0; from < WARPS; ++from) largest = fmaxf(largest, extremes[from][h][0]);
#pragma unroll
    for (int from = 0; from < WARPS; ++from) {
      const float factor = exp2_fast(extremes[from][h][0] - exponent_base(largest));
      sum += factor * extremes[from][h][1];
      total += factor * values[from][h][to_column];
    }
    const int64_t of_head = static_cast<int64_t>(batch) * in.heads + head;
    if (parts == 1) {
      in.out[of_head * D + to_column] = from_float<T>(seen.begin < seen.end ? total / sum : 0.0f);
    } else {
      float* const to = found + (of_head * parts + part) * (D + 2);
      to[to_column] = total;
      if (to_column == 0) to[D] = largest, to[D + 1] = sum;
    }
  }
}

template <typename T, int D>
__global__ void __launch_bounds__(D) attention_grouped_v03_merge(Grouped<T> in, const float* found, int parts) {
  let_next_start();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  found += row * parts * (D + 2);
  float largest = -INFINITY, sum = 0.0f, total = 0.0f;
  for (int part = 0; part < parts; ++part) largest = fmaxf(largest, found[part * (D + 2) + D]);
  const float base = exponent_base(largest);
  for (int part = 0; part < parts; ++part) {
    const float* const from = found + part * (D + 2);
    const float factor = exp2_fast(from[D] - base);
    sum += factor * from[D + 1];
    total += factor * from[threadIdx.x];
  }
  const Seen seen(Span(in.spans, static_cast<int>(row) / in.heads, in.keys));
  in.out[row * D + threadIdx.x] = from_float<T>(seen.begin < seen.end ? total / sum : 0.0f);
}

template <typename T, int D, int TOGETHER>
static cudaError_t launch(const AttentionGroupedCall& call, const Plan& plan) {
  const auto split = attention_grouped_v03_split<T, D, TOGETHER>;
  static const bool waits = compiled_to_wait(split);
  const Grouped<T> in = grouped<T>(call);
  const int blocks = call.batch * call.key_heads * plan.bundles * plan.parts;
  cudaError_t status =
      launch_overlapped(split, waits, blocks, THREADS, call.stream, in, call.workspace, plan.bundles, plan.parts);
  RETURN_IF_LAUNCH_FAILED();
  if (status != cudaSuccess || plan.parts == 1) return status;
  status = launch_overlapped(attention_grouped_v03_merge<T, D>, waits, call.batch * call.heads, D, call.stream, in,
                             static_cast<const float*>(call.workspace), plan.parts);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T, int D>
static cudaError_t launch(const AttentionGroupedCall& call, const Plan& plan) {
  if (plan.together == 1) return launch<T, D, 1>(call, plan);
  return plan.together == 2 ? launch<T, D, 2>(call, plan) : launch<T, D, 4>(call, plan);
}

template <typename T>
static cudaError_t launch(const AttentionGroupedCall& call, const Plan& plan) {
  return call.head_size == 64 ? launch<T, 64>(call, plan) : launch<T, 128>(call, plan);
}

static cudaError_t count_multiprocessors(int& count) {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}

cudaError_t attention_grouped_v03_split(const AttentionGroupedCall& call) {
  if (!sizes_fit(call) || call.queries != 1) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int multiprocessors = 0;
  if (const cudaError_t failed = count_multiprocessors(multiprocessors)) return failed;
  const Plan plan = plan_of(call, multiprocessors);
  return call.dtype == DType::float32 ? launch<float>(call, plan) : launch<__nv_bfloat16>(call, plan);
}

int64_t attention_grouped_workspace(const AttentionGroupedCall& call) {
  int multiprocessors = 1;  // if the count fails, the launch reports the error
  count_multiprocessors(multiprocessors);
  return static_cast<int64_t>(call.batch) * call.heads * plan_of(call, multiprocessors).parts * (call.head_size + 2);
}
