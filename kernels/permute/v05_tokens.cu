// permute v05_tokens: merge by blocks of whole tokens; many bytes are prefetched into L2, few pass L1.
// Shapes   merge: (B, nh, T, hs) -> (B, T, C).
// Needs    16-byte packets, up to 1024 a token, and T > 1 (v04 takes the others)
// Moves    2 * B * T * C * sizeof(T) bytes: every element once in, once out.
// Versus   v04: a thread finds its head once. From 16 MB on it moves one packet, and L2 fetches the tokens 3 MB ahead, which
//          lie in as many places as there are heads. With fewer bytes a thread has four or eight packets in flight, and
//          they pass L1.
// Source   v02_vector of gelu
#include "check.cuh"
#include "divide.cuh"
#include "overlap.cuh"
#include "packed.cuh"
#include "permute.h"
#include "vec.cuh"

cudaError_t permute_v04_merge(const PermuteCall& call);

#ifndef PERMUTE_V05_AHEAD_MB
#define PERMUTE_V05_AHEAD_MB 3
#endif

namespace {
constexpr int64_t AHEAD_BYTES = int64_t{PERMUTE_V05_AHEAD_MB} << 20;                 // distance of the prefetch into L2
constexpr int64_t SMALL_BYTES = int64_t{4} << 20, MEDIUM_BYTES = int64_t{16} << 20;  // of the input
template <int COUNT>
constexpr uint32_t MOST_THREADS = COUNT == 8 ? 512 : 1024;  // more would not leave a thread its registers
}  // namespace

// Lengths are in packets.
struct Tiles {
  Divisor row;         // nh * head: one token
  Divisor head;        // one head of one token
  Divisor tiles;       // of a sequence
  uint32_t heads;      // nh
  uint32_t tokens;     // T
  uint32_t sequences;  // B
};

// The block's threads have `side` tokens at a time, and COUNT times as many in all; `ahead` is in tokens.
template <int COUNT, bool AHEAD>
__global__ void __launch_bounds__(MOST_THREADS<COUNT>)
    permute_v05_merge(const uint4* from, uint4* to, Tiles all, uint32_t side, uint32_t ahead) {
  let_next_start();
  const uint32_t own = all.row.quotient(threadIdx.x), packet = threadIdx.x - own * all.row.by;
  const uint32_t which = all.head.quotient(packet), at = packet - which * all.head.by;
  const uint32_t sequence = all.tiles.quotient(blockIdx.x);
  const uint32_t first = (blockIdx.x - sequence * all.tiles.by) * (COUNT * side);
  const auto place = [&](uint32_t of_sequence, uint32_t token) {
    return from + (static_cast<int64_t>(of_sequence * all.heads + which) * all.tokens + token) * all.head.by + at;
  };
  uint4* const target = to + static_cast<int64_t>(sequence) * all.tokens * all.row.by + packet;
  wait_for_previous();
  uint4 loaded[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t token = first + k * side + own;
    if (token < all.tokens) loaded[k] = AHEAD ? *place(sequence, token) : load_once(place(sequence, token));
  }
  if (AHEAD && at == 0 && own == 0) {
    const uint32_t later = first + ahead, more = later / all.tokens, token = later - more * all.tokens;
    if (more < all.sequences - sequence)
      prefetch_l2(place(sequence + more, token), min(COUNT * side, all.tokens - token) * all.head.by * 16);
  }
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t token = first + k * side + own;
    if (token < all.tokens) target[static_cast<int64_t>(token) * all.row.by] = loaded[k];
  }
}

template <int COUNT, bool AHEAD>
static cudaError_t launch(const PermuteCall& call, uint32_t head, uint32_t threads) {
  const auto tokens = static_cast<uint32_t>(call.tokens), heads = static_cast<uint32_t>(call.heads);
  const uint32_t row = heads * head, side = threads > row ? threads / row : 1,
                 tiles = (tokens - 1) / (COUNT * side) + 1;
  const int64_t sequences = call.elements / (int64_t{tokens} * heads * call.head_size);
  if (row > MOST_THREADS<COUNT> || sequences * tiles > 0x7fffffff) return permute_v04_merge(call);
  const Tiles all = {Divisor(row), Divisor(head), Divisor(tiles), heads, tokens, static_cast<uint32_t>(sequences)};
  const auto kernel = permute_v05_merge<COUNT, AHEAD>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status =
      launch_overlapped(kernel, waits, static_cast<int>(sequences * tiles), static_cast<int>(row * side), call.stream,
                        static_cast<const uint4*>(call.from), static_cast<uint4*>(call.to[0]), all, side,
                        static_cast<uint32_t>(AHEAD_BYTES / (int64_t{16} * row)));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t permute_v05_merge(const PermuteCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.from) | reinterpret_cast<uintptr_t>(call.to[0]) |
                         (static_cast<uintptr_t>(call.head_size) * call.element_bytes);
  const int64_t bytes = call.elements * call.element_bytes;
  const int64_t row = static_cast<int64_t>(call.heads) * call.head_size * call.element_bytes;
  if (addresses % 16 || row > 16 * MOST_THREADS<1> || call.tokens == 1) return permute_v04_merge(call);
  const auto head = static_cast<uint32_t>(call.head_size * call.element_bytes / 16);
  if (bytes <= SMALL_BYTES) return launch<4, false>(call, head, 384);
  if (bytes <= MEDIUM_BYTES) return launch<8, false>(call, head, 384);
  return launch<1, true>(call, head, 192);
}
