// encoder v05_prepared: the host prepares the divisions; at a batch of one a row is a block, if it has 64 to 1024
// packets; four sequences share a position where positions are few.
// Shapes   ids (B, T); tokens (V, C); positions (T, C); out (B, T, C).
// Needs    < 2^31 packets (16-byte ones if rows are a multiple of 16 bytes); an id outside 0 to V - 1 gives NaN
// Moves    8 bytes per id, each row of tokens that occurs (once), positions once, B * T * C * sizeof(T) out.
// Versus   v04: multiplications and shifts in place of two divisions before the first load, and neither where a row is a block.
//          It goes through the batch first only if two sequences move more than two thirds of L2, not a third.
// Source   v04_reuse
#include "check.cuh"
#include "divide.cuh"
#include "encoder.h"
#include "keep.cuh"
#include "overlap.cuh"
#include "vec.cuh"
#include "widest.cuh"

#ifndef ENCODER_V05_L2_PERCENT
#define ENCODER_V05_L2_PERCENT 66
#endif

namespace {
constexpr int THREADS = 256;
// If two sequences move more than this share of L2, blocks go through the batch first. Otherwise L2 keeps the positions
// for the next sequences, and blocks go along a sequence, which reads and writes memory contiguously.
constexpr int L2_PERCENT = ENCODER_V05_L2_PERCENT;
constexpr int64_t FEW_BYTES = int64_t{2} << 20;      // positions up to which four sequences share one, not two
constexpr int FEW_THREADS = 64, ROW_THREADS = 1024;  // a row of so many packets may be a block
}  // namespace

template <typename P, typename T>
__device__ __forceinline__ void store_sum(bool known, const P& token, const P& position, T* to) {
  constexpr int WIDTH = sizeof(P) / sizeof(T);
  float sum[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) sum[j] = known ? to_float(token.values[j]) + to_float(position.values[j]) : NAN;
  P::scaled(sum, 1.0f).store(to);
}

// A batch of one: each block has a row, each thread a packet of it.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(ROW_THREADS)
    encoder_v05_row(const int64_t* ids, const T* tokens, const T* positions, T* out, uint64_t vocabulary) {
  using P = Packet<T, WIDTH>;
  let_next_start();
  const int64_t row = blockIdx.x, columns = static_cast<int64_t>(blockDim.x) * WIDTH;
  const uint32_t column = threadIdx.x * WIDTH;
  wait_for_previous();
  const uint64_t id = ids[row];
  const auto position = P::load(positions + row * columns + column);
  const bool known = id < vocabulary;
  store_sum(known, known ? P::load(tokens + id * columns + column) : position, position, out + row * columns + column);
}

// A thread adds one packet of a position to COUNT sequences. `inner` counts what neighbours go along: positions, or
// groups of COUNT sequences.
template <typename T, int WIDTH, int COUNT>
__global__ void __launch_bounds__(THREADS)
    encoder_v05_prepared(const int64_t* ids, const T* tokens, const T* positions, T* out, uint64_t vocabulary,
                         uint32_t length, Divisor row_packets, Divisor inner, uint32_t batch, bool batch_first) {
  using P = Packet<T, WIDTH>;
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x, unit = row_packets.quotient(packet);
  const uint32_t slow = inner.quotient(unit), fast = unit - slow * inner.by;
  const uint32_t row = batch_first ? slow : fast, first = (batch_first ? fast : slow) * COUNT;
  if (row >= length || first >= batch) return;
  // count in packets and multiply by their width last: otherwise the compiler does not see that a sum is aligned, and
  // splits a store into four
  const uint32_t column = packet - unit * row_packets.by;
  const auto at = [=](int64_t place) { return (place * row_packets.by + column) * WIDTH; };
  wait_for_previous();
  // rows are known only once the ids are loaded, so load all ids first, then all rows
  const auto position = batch_first ? P::load(positions + at(row)) : load_and_keep<P>(positions + at(row));
  uint64_t id[COUNT];
  P token[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) id[k] = first + k < batch ? ids[(first + k) * length + row] : vocabulary;
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
    if (id[k] < vocabulary) token[k] = P::load(tokens + at(id[k]));
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    if (first + k >= batch) return;
    store_sum(id[k] < vocabulary, token[k], position, out + at((first + k) * length + row));
  }
}

template <typename T, int WIDTH>
static cudaError_t launch_row(const EncoderCall& call) {
  static const bool waits = compiled_to_wait(encoder_v05_row<T, WIDTH>);
  const cudaError_t status = launch_overlapped(
      encoder_v05_row<T, WIDTH>, waits, static_cast<int>(call.rows), call.columns / WIDTH, call.stream, call.ids,
      static_cast<const T*>(call.tokens), static_cast<const T*>(call.positions), static_cast<T*>(call.out),
      static_cast<uint64_t>(call.vocabulary));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T, int WIDTH, int COUNT>
static cudaError_t launch(const EncoderCall& call) {
  const int64_t batch = call.rows / call.length, row_packets = call.columns / WIDTH;
  const int64_t groups = (batch - 1) / COUNT + 1, packets = groups * call.length * row_packets;
  if (call.rows * row_packets > 0x7fffffff) return cudaErrorInvalidConfiguration;
  int device = 0, l2_bytes = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device)) return status;
  const int64_t moved = 5 * static_cast<int64_t>(call.length) * call.columns * sizeof(T);  // by two sequences
  const bool batch_first = 100 * moved > static_cast<int64_t>(L2_PERCENT) * l2_bytes;
  static const bool waits = compiled_to_wait(encoder_v05_prepared<T, WIDTH, COUNT>);
  const cudaError_t status = launch_overlapped(
      encoder_v05_prepared<T, WIDTH, COUNT>, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream,
      call.ids, static_cast<const T*>(call.tokens), static_cast<const T*>(call.positions), static_cast<T*>(call.out),
      static_cast<uint64_t>(call.vocabulary), static_cast<uint32_t>(call.length),
      Divisor(static_cast<uint32_t>(row_packets)),
      Divisor(batch_first ? static_cast<uint32_t>(groups) : static_cast<uint32_t>(call.length)),
      static_cast<uint32_t>(batch), batch_first);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t encoder_v05_prepared(const EncoderCall& call) {
  return launch_widest(call, [&](auto packet) {
    using Widest = decltype(packet);
    using T = typename Widest::Type;
    constexpr int WIDTH = Widest::WIDTH;
    const int row_packets = call.columns / WIDTH;
    if (call.rows == call.length && row_packets >= FEW_THREADS && row_packets <= ROW_THREADS)
      return launch_row<T, WIDTH>(call);
    const int64_t positions = static_cast<int64_t>(call.length) * call.columns * sizeof(T);
    return positions <= FEW_BYTES ? launch<T, WIDTH, 4>(call) : launch<T, WIDTH, 2>(call);
  });
}
