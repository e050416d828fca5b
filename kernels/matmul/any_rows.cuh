// What v15 and v16 share: TMA does not take rows of every length and address, so a kernel copies these word
// by word to rows that it takes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

constexpr int WORDS = 8, COPY_THREADS = 256, COPY_ROWS = COPY_THREADS / 32;  // WORDS per lane, all in flight at once

// A copy of a matrix to rows `pitch` elements apart; a warp copies a piece of a row. `rows` is 0 if no copy is needed.
template <typename T>
struct Copy {
  const T* from;
  T* to;
  int rows, columns, pitch;

  // Plans no copy of a matrix that TMA takes. Otherwise the copy is placed after the first `bytes` of the
  // workspace, and `bytes` grows by its size. Its pitch is a multiple of `unit` bytes, which is a multiple of 16.
  static Copy plan(const void* from, int rows, int columns, int unit, void* workspace, size_t& bytes) {
    Copy copy = {static_cast<const T*>(from), nullptr, 0, columns, columns};
    const int width = columns * static_cast<int>(sizeof(T));
    if (width % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0) return copy;
    const size_t start = (bytes + 255) / 256 * 256;
    copy.to = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(workspace) + start);
    copy.rows = rows, copy.pitch = (width + unit - 1) / unit * unit / static_cast<int>(sizeof(T));
    bytes = start + static_cast<size_t>(rows) * copy.pitch * sizeof(T);
    return copy;
  }

  const T* operand() const { return rows ? to : from; }

  __host__ __device__ int words() const {
    return (columns - 1) / static_cast<int>(4 / sizeof(T)) + 1;
  }  // words per row
  __host__ __device__ unsigned pieces() const { return (words() - 1) / (32 * WORDS) + 1; }
  __host__ __device__ unsigned blocks() const { return (rows + COPY_ROWS - 1) / COPY_ROWS * pieces(); }
};

// 1 if a row of 16-bit elements starts with the second half of a word, else 0.
__device__ __forceinline__ int starts_inside_a_word(const uint16_t* row) {
  return static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row)) / 2 % 2);
}

// Returns the lane's word. With `odd` it returns the second half of the lane's word and the first half of the next
// lane's; after lane 31 comes `following` of lane 0. All lanes of a warp call it.
__device__ __forceinline__ uint32_t shifted(uint32_t word, uint32_t following, int odd) {
  const int lane = threadIdx.x % 32;
  const uint32_t next = __shfl_sync(0xffffffffU, lane == 0 ? following : word, lane + 1);
  return __byte_perm(word, next, odd ? 0x5432 : 0x3210);
}

// Reads a lane's words of a row: index `first`, and every 32nd word after it. Reads nothing outside the row.
__device__ __forceinline__ void read_words(const float* row, int columns, int first, uint32_t (&words)[WORDS]) {
  const float* from = row + first;
#pragma unroll
  for (int i = 0; i < WORDS; ++i)
    if (first + i * 32 < columns) words[i] = __float_as_uint(from[i * 32]);
}

// The same for 16-bit elements, where a row may start and end inside a word. It reads aligned words of two elements,
// and shifts them. Of the first and the last word it reads only the row's half.
__device__ __forceinline__ void read_words(const __nv_bfloat16* row, int columns, int first, uint32_t (&words)[WORDS]) {
  const auto* from = reinterpret_cast<const uint16_t*>(row);
  const int odd = starts_inside_a_word(from), lane = threadIdx.x % 32;
  const auto* pairs = reinterpret_cast<const uint32_t*>(from + first * 2 - odd);
  const int left = columns + odd - first * 2;  // elements from the beginning of that word on
  const bool starts = odd && first == 0, ends = left > 0 && left <= WORDS * 64 + 1;
  uint32_t whole[WORDS + 1] = {}, start = 0, end = 0;
#pragma unroll
  for (int i = 0; i <= WORDS; ++i) {
    // the last word belongs to the next piece; the last lane's last word may end in it
    const bool wanted = i == 0 ? !starts : i < WORDS || (odd && lane == 0);
    if (wanted && left > i * 64 + 1) whole[i] = pairs[i * 32];
  }
  if (starts) start = from[0];
  if (ends) end = from[columns - 1];
  if (starts) whole[0] = start << 16;
#pragma unroll
  for (int i = 0; i <= WORDS; ++i)
    if (left == i * 64 + 1) whole[i] = end;
#pragma unroll
  for (int i = 0; i < WORDS; ++i) words[i] = shifted(whole[i], whole[i + 1], odd);
}

// Copies the part of block `block`, one of copy.blocks().
template <typename T>
__device__ __forceinline__ void copy_rows(const Copy<T>& copy, unsigned block) {
  const unsigned pieces = copy.pieces();
  const int row = static_cast<int>(block / pieces * COPY_ROWS + threadIdx.x / 32);
  const int first = static_cast<int>(block % pieces * 32 * WORDS + threadIdx.x % 32);
  if (row >= copy.rows) return;
  auto* to = reinterpret_cast<uint32_t*>(copy.to + static_cast<int64_t>(row) * copy.pitch) + first;
  uint32_t words[WORDS];
  read_words(copy.from + static_cast<int64_t>(row) * copy.columns, copy.columns, first, words);
#pragma unroll
  for (int i = 0; i < WORDS; ++i)
    if (first + i * 32 < copy.words()) to[i * 32] = words[i];
}
