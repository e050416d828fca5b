// permute into_cache: one launch splits qkv by head, and writes k and v straight into the rows of a KV cache.
// Shapes   qkv (B, T, 3 C) -> q (B, nh, T, hs), rows [first, first + T) of keys and values (B, nh, capacity, hs), and
//          on demand k and v (B, nh, T, hs) once more, for a kernel that needs them contiguous.
// Needs    < 2^31 packets (16-byte ones if a head of a token is a multiple of 16 bytes, otherwise smaller ones)
// Moves    6 * B * T * C * sizeof(T) bytes, 8 with the second k and v: every element is read once.
// Versus   v02_vector: the rows of two heads of the cache lie `capacity` rows apart. The host prepares the divisions,
//          so each costs a multiplication and a shift. No prefetch: the product before it has just written qkv.
// Source   v02_vector
#include "check.cuh"
#include "divide.cuh"
#include "into_cache.h"
#include "overlap.cuh"

namespace {
constexpr int THREADS = 256;  // a thread moves one packet each of q, k and v
}

// Lengths are in packets.
struct CachePlaces {
  Divisor row;         // nh * head: one token
  Divisor head;        // one head of one token
  Divisor tokens;      // T
  uint32_t sequences;  // B
  uint32_t heads;      // nh
  uint32_t capacity, first;
};

template <typename Raw>
__global__ void __launch_bounds__(THREADS)
    permute_into_cache(const Raw* qkv, Raw* q, Raw* keys, Raw* values, Raw* k, Raw* v, CachePlaces places) {
  let_next_start();
  const uint32_t item = blockIdx.x * THREADS + threadIdx.x, token = places.row.quotient(item);
  if (token >= places.sequences * places.tokens.by) return;
  const uint32_t at = item - token * places.row.by;
  const Raw* from = qkv + static_cast<int64_t>(token) * 3 * places.row.by + at;
  wait_for_previous();
  const Raw left = from[0], middle = from[places.row.by], right = from[2 * places.row.by];
  const uint32_t which = places.head.quotient(at), sequence = places.tokens.quotient(token);
  const uint32_t row = token - sequence * places.tokens.by, column = at - which * places.head.by;
  const int64_t line = sequence * places.heads + which;
  const int64_t to = (line * places.tokens.by + row) * places.head.by + column;
  const int64_t cached = (line * places.capacity + places.first + row) * places.head.by + column;
  q[to] = left;
  keys[cached] = middle;
  values[cached] = right;
  if (k != nullptr) {
    k[to] = middle;
    v[to] = right;
  }
}

template <typename Raw>
static cudaError_t launch(const IntoCacheCall& call) {
  const int64_t items = call.elements * call.element_bytes / static_cast<int64_t>(sizeof(Raw));
  if (items > 0x7fffff00) return cudaErrorInvalidConfiguration;
  const auto head = static_cast<uint32_t>(call.head_size * call.element_bytes / sizeof(Raw));
  const auto heads = static_cast<uint32_t>(call.heads), tokens = static_cast<uint32_t>(call.tokens);
  const CachePlaces places = {Divisor(heads * head),
                              Divisor(head),
                              Divisor(tokens),
                              static_cast<uint32_t>(items / heads / head / tokens),
                              heads,
                              static_cast<uint32_t>(call.capacity),
                              static_cast<uint32_t>(call.first)};
  static const bool waits = compiled_to_wait(permute_into_cache<Raw>);
  const cudaError_t status = launch_overlapped(
      permute_into_cache<Raw>, waits, static_cast<int>((items - 1) / THREADS + 1), THREADS, call.stream,
      static_cast<const Raw*>(call.qkv), static_cast<Raw*>(call.q), static_cast<Raw*>(call.keys),
      static_cast<Raw*>(call.values), static_cast<Raw*>(call.k), static_cast<Raw*>(call.v), places);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

// Launches with the widest packet that the addresses and the length of a head allow.
cudaError_t permute_into_cache(const IntoCacheCall& call) {
  auto addresses = static_cast<uintptr_t>(call.head_size) * call.element_bytes;
  const void* operands[] = {call.qkv, call.q, call.keys, call.values, call.k, call.v};
  for (const void* operand : operands) addresses |= reinterpret_cast<uintptr_t>(operand);
  if (addresses % 16 == 0) return launch<uint4>(call);
  if (addresses % 8 == 0) return launch<uint2>(call);
  if (addresses % 4 == 0) return launch<uint32_t>(call);
  if (addresses % 2 == 0) return launch<uint16_t>(call);
  return cudaErrorMisalignedAddress;
}
