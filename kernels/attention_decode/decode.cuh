// What the rungs share: groups of lanes walk the keys with an online softmax, and partial results are merged. A lane
// holds 16 bytes of a key. 8 lanes hold a key in bf16, 16 in fp32, so a warp loads 4 or 2 keys at a time. Each group
// keeps its own softmax in registers, and is merged with the others once, at the end.
#pragma once

#include <cstdint>

#include "attention_decode.h"
#include "vec.cuh"

constexpr int HEAD_SIZE = ATTENTION_DECODE_HEAD_SIZE;

template <typename T>
constexpr int WIDTH = 16 / static_cast<int>(sizeof(T));  // elements of a key in one lane
template <typename T>
constexpr int LANES = HEAD_SIZE / WIDTH<T>;  // lanes that hold one key
template <typename T>
constexpr int GROUPS = 32 / LANES<T>;  // keys that one load instruction of a warp reads

// The operands as kernels take them. `scale` includes log2(e), so that exp becomes exp2.
template <typename T>
struct Operands {
  const T* q;
  const T* k;
  const T* v;
  AttentionDecodeStrides q_strides;
  AttentionDecodeStrides k_strides;
  AttentionDecodeStrides v_strides;
  int heads;
  int keys;
  float scale;
};

template <typename T>
inline Operands<T> operands(const AttentionDecodeCall& call) {
  return {static_cast<const T*>(call.q),
          static_cast<const T*>(call.k),
          static_cast<const T*>(call.v),
          call.q_strides,
          call.k_strides,
          call.v_strides,
          call.heads,
          call.keys,
          call.scale * 1.4426950408889634f};
}

// Layout of q, k and v. `dense`: 16-byte aligned, with the tokens of keys and values contiguous. `aligned`: each row
// starts at a multiple of 16 bytes. `any`: neither.
enum class Layout { dense, aligned, any };

inline Layout layout_of(const AttentionDecodeCall& call) {
  const int64_t size = call.dtype == DType::float32 ? 4 : 2;
  uint64_t bits =
      reinterpret_cast<uintptr_t>(call.q) | reinterpret_cast<uintptr_t>(call.k) | reinterpret_cast<uintptr_t>(call.v);
  for (const auto& strides : {call.q_strides, call.k_strides, call.v_strides})
    bits |= static_cast<uint64_t>((strides.batch | strides.head | strides.token) * size);
  if (bits % 16) return Layout::any;
  const bool dense = call.k_strides.token == HEAD_SIZE && call.v_strides.token == HEAD_SIZE;
  return dense || call.keys == 1 ? Layout::dense : Layout::aligned;
}

// Calls `run` with the element type and the layout of a call, as a type Kind<T, LAYOUT>.
template <typename T, Layout LAYOUT>
struct Kind {
  using Type = T;
  static constexpr Layout layout = LAYOUT;
};
template <typename T, typename Run>
inline cudaError_t with_layout(const AttentionDecodeCall& call, Run run) {
  switch (layout_of(call)) {
    case Layout::dense:
      return run(Kind<T, Layout::dense>{});
    case Layout::aligned:
      return run(Kind<T, Layout::aligned>{});
    default:
      return run(Kind<T, Layout::any>{});
  }
}
template <typename Run>
inline cudaError_t with_kind(const AttentionDecodeCall& call, Run run) {
  return call.dtype == DType::float32 ? with_layout<float>(call, run) : with_layout<__nv_bfloat16>(call, run);
}

template <typename T>
__device__ __forceinline__ const T* start_of(const T* base, const AttentionDecodeStrides& strides, int row, int heads) {
  return base + row / heads * strides.batch + row % heads * strides.head;
}

template <typename T, Layout LAYOUT>
__device__ __forceinline__ Packet<T, WIDTH<T>> load_packet(const T* from) {
  if constexpr (LAYOUT != Layout::any) {
    return Packet<T, WIDTH<T>>::load(from);
  } else {
    Packet<T, WIDTH<T>> packet;
#pragma unroll
    for (int j = 0; j < WIDTH<T>; ++j) packet.values[j] = from[j];
    return packet;
  }
}

// Converts a packet to floats. A bf16 takes one instruction on the 32 bits of its pair, and no 16-bit register.
__device__ __forceinline__ void to_floats(const Packet<float, 4>& packet, float (&to)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = packet.values[j];
}
__device__ __forceinline__ void to_floats(const Packet<__nv_bfloat16, 8>& packet, float (&to)[8]) {
  const uint32_t pairs[] = {packet.raw.x, packet.raw.y, packet.raw.z, packet.raw.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    to[2 * j] = __uint_as_float(pairs[j] << 16);
    to[2 * j + 1] = __uint_as_float(pairs[j] & 0xffff0000u);
  }
}

// 2^x in one instruction, with a relative error of 2^-22. Results below 2^-126 and of -inf are 0, of NaN NaN.
__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// What is subtracted from scores before exp2: their maximum, or 0 if that is -inf, since -inf - (-inf) is NaN.
__device__ __forceinline__ float exponent_base(float largest) { return largest == -INFINITY ? 0.0f : largest; }

// Softmax-weighted values of some keys. `value` and `sum` are weighted by 2^(score - largest).
template <int COUNT>
struct Partial {
  float largest = -INFINITY;
  float sum = 0.0f;
  float value[COUNT] = {};

  __device__ __forceinline__ void scale_by(float factor) {
    sum *= factor;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) value[j] *= factor;
  }
};

// The rows of one head as a lane sees them, from its column on. The constructor reads nothing from memory, so a kernel
// may call it before it waits for the previous one.
template <typename T, Layout LAYOUT>
struct Head {
  const T* q;
  const T* k;
  const T* v;
  int64_t k_token;
  int64_t v_token;
  float scale;

  __device__ __forceinline__ Head(const Operands<T>& in, int row)
      : k_token(LAYOUT == Layout::dense ? HEAD_SIZE : in.k_strides.token),
        v_token(LAYOUT == Layout::dense ? HEAD_SIZE : in.v_strides.token),
        scale(in.scale) {
    const int column = threadIdx.x % LANES<T> * WIDTH<T>;
    q = start_of(in.q, in.q_strides, row, in.heads) + column;
    k = start_of(in.k, in.k_strides, row, in.heads) + column;
    v = start_of(in.v, in.v_strides, row, in.heads) + column;
  }
};

// Adds COUNT scores to `partial`, and turns them into weights. What `partial` holds is rescaled to the new maximum.
template <int COUNT, int N>
__device__ __forceinline__ void take_scores(Partial<N>& partial, float (&score)[COUNT]) {
  float largest = partial.largest;
#pragma unroll
  for (int u = 0; u < COUNT; ++u) largest = fmaxf(largest, score[u]);  // fmaxf ignores NaN, exp2 keeps it
  const float base = exponent_base(largest);
  partial.scale_by(exp2_fast(partial.largest - base));
  partial.largest = largest;
#pragma unroll
  for (int u = 0; u < COUNT; ++u) {
    score[u] = exp2_fast(score[u] - base);
    partial.sum += score[u];
  }
}

// Walks the keys [begin, end) of a head by `warps` warps, of which this is number `warp`. They take chunks of UNROLL
// packets in turn. The keys of the next chunk are loaded as soon as this chunk's scores are known, its values after
// this chunk's values are used.
template <int UNROLL, typename T, Layout LAYOUT>
__device__ __forceinline__ Partial<WIDTH<T>> walk_keys(const Head<T, LAYOUT>& head, int begin, int end, int warp,
                                                       int warps) {
  constexpr int CHUNK = UNROLL * GROUPS<T>;
  using Loaded = Packet<T, WIDTH<T>>;
  const int mine = threadIdx.x % 32 / LANES<T>;
  Partial<WIDTH<T>> partial;
  Loaded k[UNROLL], v[UNROLL];
  float q[WIDTH<T>];
  const Loaded query = load_packet<T, LAYOUT>(head.q);
  const auto load = [&](Loaded(&to)[UNROLL], const T* from, int64_t stride, int start) {
    from += (start + mine) * stride;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) to[u] = load_packet<T, LAYOUT>(from + u * GROUPS<T> * stride);
  };
  const auto score_of = [&](const Loaded& key) {  // q . key, the same in all lanes of the group
    float sum = 0.0f, element[WIDTH<T>];
    to_floats(key, element);
#pragma unroll
    for (int j = 0; j < WIDTH<T>; ++j) sum += q[j] * element[j];
#pragma unroll
    for (int offset = LANES<T> / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    return sum;
  };
  const auto add_value = [&](const Loaded& value, float weight) {
    float element[WIDTH<T>];
    to_floats(value, element);
#pragma unroll
    for (int j = 0; j < WIDTH<T>; ++j) partial.value[j] += weight * element[j];
  };
  int start = begin + warp * CHUNK;
  if (start + CHUNK <= end) {
    load(k, head.k, head.k_token, start);
    load(v, head.v, head.v_token, start);
  }
  // converts the query only now, so that loads of keys and values do not wait for it
  to_floats(query, q);
#pragma unroll
  for (int j = 0; j < WIDTH<T>; ++j) q[j] *= head.scale;
  for (; start + CHUNK <= end; start += warps * CHUNK) {
    const int next = start + warps * CHUNK;
    const bool more = next + CHUNK <= end;
    float score[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) score[u] = score_of(k[u]);
    if (more) load(k, head.k, head.k_token, next);
    take_scores(partial, score);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) add_value(v[u], score[u]);
    if (more) load(v, head.v, head.v_token, next);
  }
  if (start < end) {  // the last chunk is incomplete, and one warp has it
    float score[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t key = start + u * GROUPS<T> + mine;
      if (key < end) {
        k[u] = load_packet<T, LAYOUT>(head.k + key * head.k_token);
        v[u] = load_packet<T, LAYOUT>(head.v + key * head.v_token);
      } else {  // not read: weight 0 times what is there might be NaN
        k[u].raw = v[u].raw = {};
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      score[u] = score_of(k[u]);
      if (start + u * GROUPS<T> + mine >= end) score[u] = -INFINITY;
    }
    take_scores(partial, score);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) add_value(v[u], score[u]);
  }
  return partial;
}

// The partial result of one warp, block or split, as it is passed on.
struct Result {
  float value[HEAD_SIZE];
  float largest;
  float sum;
};

// Merges the groups of a warp into the Result `to`.
template <typename T>
__device__ __forceinline__ void merge_groups(Partial<WIDTH<T>> partial, Result& to) {
  float largest = partial.largest;
#pragma unroll
  for (int offset = LANES<T>; offset < 32; offset *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  partial.scale_by(exp2_fast(partial.largest - exponent_base(largest)));
#pragma unroll
  for (int offset = LANES<T>; offset < 32; offset *= 2) {
    partial.sum += __shfl_xor_sync(0xffffffffu, partial.sum, offset);
#pragma unroll
    for (int j = 0; j < WIDTH<T>; ++j) partial.value[j] += __shfl_xor_sync(0xffffffffu, partial.value[j], offset);
  }
  const int lane = threadIdx.x % 32;
  if (lane < LANES<T>)
#pragma unroll
    for (int j = 0; j < WIDTH<T>; ++j) to.value[lane * WIDTH<T> + j] = partial.value[j];
  if (lane == 0) {
    to.largest = largest;
    to.sum = partial.sum;
  }
}

// Merges column `column` of `count` results. Returns its value (not yet divided by the sum), the sum and the largest
// score. Loads BATCH results at a time.
template <int BATCH>
__device__ __forceinline__ Partial<1> merge_column(const Result* results, int count, int column) {
  Partial<1> merged;
  for (int first = 0; first < count; first += BATCH) {
    float largest[BATCH], sum[BATCH], value[BATCH], highest = merged.largest;
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const bool inside = first + i < count;
      largest[i] = inside ? results[first + i].largest : -INFINITY;
      sum[i] = inside ? results[first + i].sum : 0.0f;
      value[i] = inside ? results[first + i].value[column] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) highest = fmaxf(highest, largest[i]);
    const float base = exponent_base(highest);
    merged.scale_by(exp2_fast(merged.largest - base));
    merged.largest = highest;
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const float factor = exp2_fast(largest[i] - base);
      merged.sum += factor * sum[i];
      merged.value[0] += factor * value[i];
    }
  }
  return merged;
}

// Prefetches into L2 the query, and the first `bytes` each of the keys and values [begin, end) of a head, if its tokens
// are contiguous. Thread 0 prefetches query and keys, thread 32 the values; both hold column 0.
template <typename T, Layout LAYOUT>
__device__ __forceinline__ void prefetch_first(const Head<T, LAYOUT>& head, int begin, int end, int bytes) {
  if (LAYOUT != Layout::dense || threadIdx.x % 32 != 0 || threadIdx.x > 32 || begin >= end) return;
  const T* from = (threadIdx.x == 0 ? head.k : head.v) + static_cast<int64_t>(begin) * HEAD_SIZE;
  prefetch_l2(from, min(bytes, (end - begin) * HEAD_SIZE * static_cast<int>(sizeof(T))));
  if (threadIdx.x == 0) prefetch_l2(head.q, HEAD_SIZE * sizeof(T));
}

// Walks the keys [begin, end) of a head with all threads of a block of WARPS warps. Threads below HEAD_SIZE get their
// column.
template <int WARPS, int UNROLL, typename T, Layout LAYOUT>
__device__ __forceinline__ Partial<1> walk_by_block(const Head<T, LAYOUT>& head, int begin, int end) {
  static_assert(WARPS * 32 >= HEAD_SIZE, "a thread for each column");
  __shared__ Result found[WARPS];
  const int warp = threadIdx.x / 32;
  merge_groups<T>(walk_keys<UNROLL>(head, begin, end, warp, WARPS), found[warp]);
  __syncthreads();
  return threadIdx.x < HEAD_SIZE ? merge_column<WARPS>(found, WARPS, threadIdx.x) : Partial<1>{};
}
