// What the cross-entropy kernels share: the largest logit and the sum of e^(logit - largest) of a row, found in one
// pass, and what follows from them for the target.
#pragma once

#include "cross_entropy.h"
#include "reduce.cuh"
#include "vec.cuh"

struct Powers {
  float largest = -INFINITY;
  float sum = 0.0f;
};

// What is subtracted before e^x: a part of -inf alone adds 0, not NaN.
__device__ __forceinline__ float shift_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

__device__ __forceinline__ Powers merge(Powers a, Powers b) {
  const float largest = fmaxf(a.largest, b.largest), shift = shift_of(largest);
  return {largest, a.sum * exp_fast(a.largest - shift) + b.sum * exp_fast(b.largest - shift)};
}

// Adds `COUNT` values; fmaxf ignores a NaN, and the sum keeps it.
template <int COUNT>
__device__ __forceinline__ void add(Powers& powers, const float (&value)[COUNT]) {
  float largest = powers.largest;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) largest = fmaxf(largest, value[i]);
  const float shift = shift_of(largest);
  powers.sum *= exp_fast(powers.largest - shift);
  powers.largest = largest;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) powers.sum += exp_fast(value[i] - shift);
}

// Over all threads of a block, for each of them.
template <int THREADS>
__device__ __forceinline__ Powers merged_in_block(Powers powers) {
  const auto join = [](Powers own) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
      own = merge(own,
                  {__shfl_xor_sync(0xffffffffu, own.largest, offset), __shfl_xor_sync(0xffffffffu, own.sum, offset)});
    return own;
  };
  __shared__ Powers partial[THREADS / 32];
  powers = join(powers);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = powers;
  __syncthreads();
  return join(threadIdx.x % 32 < THREADS / 32 ? partial[threadIdx.x % 32] : Powers{});
}

// The target of a row, and its logit: read before the gradient may overwrite it.
struct Wanted {
  int column;  // -1: none
  float logit;
  bool ignored;

  template <typename T>
  __device__ __forceinline__ static Wanted load(const int64_t* target, const T* row, int columns) {
    const int64_t column = *target;
    const bool inside = column >= 0 && column < columns;
    return {inside ? static_cast<int>(column) : -1, inside ? to_float(row[column]) : __int_as_float(0x7fffffff),
            column == CROSS_ENTROPY_IGNORED};
  }
  __device__ __forceinline__ float loss(Powers powers) const {
    return ignored ? 0.0f : powers.largest - logit + logf(powers.sum);
  }
  // the factor of e^(logit - largest); an unknown target makes the whole row NaN
  __device__ __forceinline__ float factor(Powers powers, float scale) const {
    return column < 0 ? logit : scale / powers.sum;
  }
  __device__ __forceinline__ float gradient(Powers powers, float scale) const {
    return exp_fast(logit - powers.largest) * (scale / powers.sum) - scale;
  }
};

// A row as packets of WIDTH elements at addresses that are multiples of 16, and up to 2 * (WIDTH - 1) elements before
// and behind them, which one thread each has.
template <typename T>
struct Edges {
  static constexpr int WIDTH = 16 / sizeof(T);
  int head;     // elements before the first packet
  int packets;  // whole ones
  int count;    // elements that no packet has

  __device__ __forceinline__ Edges(const T* row, int columns) {
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    head = min(columns, (WIDTH - past) % WIDTH);
    packets = (columns - head) / WIDTH;
    count = columns - packets * WIDTH;
  }
  __device__ __forceinline__ int column(int edge) const { return edge < head ? edge : edge + packets * WIDTH; }
};
