// What the top-k kernels share: an entry, which orders values and then columns; rows in packets; the sorted output.
#pragma once

#include <cmath>

#include "topk.h"
#include "vec.cuh"

// Numbers in the order of values. NaN is the largest; no value has the key 0.
__device__ __forceinline__ uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value);
  if (value != value) return 0xffffffffu;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// Of equal values the first column has the larger entry, so that no two entries of a row are equal.
using Entry = unsigned long long;
constexpr Entry ABOVE_ALL = ~0ull;

__device__ __forceinline__ Entry entry_of(float value, int column) {
  return static_cast<Entry>(key_of(value)) << 32 | (0xfffffffeu - static_cast<uint32_t>(column));
}

template <typename T>
__device__ __forceinline__ void write_entry(Entry entry, T* value, int64_t* index) {
  const uint32_t key = static_cast<uint32_t>(entry >> 32);
  *value = from_float<T>(key == 0xffffffffu ? __int_as_float(0x7fffffff) : value_of(key));
  *index = 0xfffffffeu - static_cast<uint32_t>(entry);
}

// Writes the k largest of `count` different entries in shared memory, in order: a thread counts what is larger.
template <int THREADS, typename T>
__device__ __forceinline__ void write_ranked(const Entry* entries, int count, int k, T* values, int64_t* indices) {
  for (int i = threadIdx.x; i < count; i += THREADS) {
    const Entry own = entries[i];
    int rank = 0;
#pragma unroll 4
    for (int j = 0; j < count; ++j) rank += entries[j] > own;
    if (rank < k) write_entry(own, values + rank, indices + rank);
  }
}

// A row as packets at addresses that are multiples of 16; the first and last one may reach beyond it.
template <typename T>
struct Row {
  static constexpr int WIDTH = 16 / sizeof(T);
  const T* row;
  int past;  // elements of the first packet before the row
  int columns;
  int packets;

  __device__ __forceinline__ Row(const T* row, int columns)
      : row(row),
        past(static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T))),
        columns(columns),
        packets((past + columns + WIDTH - 1) / WIDTH) {}

  __device__ __forceinline__ int column(int packet, int element) const { return packet * WIDTH + element - past; }
  __device__ __forceinline__ bool has(int column) const { return column >= 0 && column < columns; }

  __device__ __forceinline__ bool whole(int packet) const {
    return has(column(packet, 0)) && has(column(packet, WIDTH - 1));
  }
  __device__ __forceinline__ bool cut(int packet) const { return packet < packets && !whole(packet); }

  __device__ __forceinline__ static Packet<T, WIDTH> nothing() {
    Packet<T, WIDTH> part;
    constexpr uint32_t word = sizeof(T) == 2 ? 0xff80ff80u : 0xff800000u;  // -inf
    part.raw = make_uint4(word, word, word, word);
    return part;
  }
  __device__ __forceinline__ Packet<T, WIDTH> load(int packet) const {  // a whole one
    return Packet<T, WIDTH>::load(row + column(packet, 0));
  }
  // what is not in the row is -inf
  __device__ __forceinline__ Packet<T, WIDTH> load_cut(int packet) const {
    Packet<T, WIDTH> part = nothing();
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      if (has(column(packet, j))) part.values[j] = row[column(packet, j)];
    return part;
  }
  __device__ __forceinline__ Packet<T, WIDTH> load_any(int packet) const {
    return whole(packet) ? load(packet) : load_cut(packet);
  }
};
