// encoder v04_reuse: a position stays in registers for two sequences of the batch.
// Shapes   ids (B, T); tokens (V, C); positions (T, C); out (B, T, C).
// Needs    < 2^31 packets (16-byte ones if rows are a multiple of 16 bytes); an id outside 0 to V - 1 gives NaN
// Moves    8 bytes per id, each row of tokens that occurs (once), positions once, B * T * C * sizeof(T) out.
// Versus   v02: its blocks use a position again only one whole sequence later. If L2 would have lost it by then, blocks
//          go through the batch first here. Otherwise they ask L2 to keep it.
// Source   v02_vector
#include "check.cuh"
#include "encoder.h"
#include "keep.cuh"
#include "overlap.cuh"
#include "vec.cuh"
#include "widest.cuh"

#ifndef ENCODER_V04_THREADS
#define ENCODER_V04_THREADS 256
#endif
#ifndef ENCODER_V04_COUNT
#define ENCODER_V04_COUNT 2
#endif
#ifndef ENCODER_V04_L2_PERCENT
#define ENCODER_V04_L2_PERCENT 33
#endif
#ifndef ENCODER_V04_KEEP
#define ENCODER_V04_KEEP 1
#endif

namespace {
constexpr int THREADS = ENCODER_V04_THREADS;
constexpr int COUNT = ENCODER_V04_COUNT;  // sequences to which a thread adds its packet of a position
// If COUNT sequences move more than this share of L2, blocks go through the batch first. Otherwise L2 keeps the
// positions for the next COUNT sequences, and blocks go along a sequence, which reads and writes memory contiguously.
constexpr int L2_PERCENT = ENCODER_V04_L2_PERCENT;
constexpr bool KEEP = ENCODER_V04_KEEP;
}  // namespace

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    encoder_v04_reuse(const int64_t* ids, const T* tokens, const T* positions, T* out, int64_t vocabulary,
                      uint32_t length, uint32_t row_packets, uint32_t batch, bool batch_first) {
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x, unit = packet / row_packets;
  const uint32_t inner = batch_first ? (batch - 1) / COUNT + 1 : length, outer = unit / inner;
  const uint32_t row = batch_first ? outer : unit - outer * inner;
  const uint32_t first = (batch_first ? unit - outer * inner : outer) * COUNT;
  if (row >= length || first >= batch) return;
  // count in packets and multiply by their width last: otherwise the compiler does not see that a sum is aligned, and
  // splits a store into four
  const uint32_t column = packet - unit * row_packets;
  const auto at = [=](int64_t place) { return (place * row_packets + column) * WIDTH; };
  wait_for_previous();
  // rows are known only once the ids are loaded, so load all ids first, then all rows
  const T* from = positions + at(row);
  const auto position = KEEP && !batch_first ? load_and_keep<Packet<T, WIDTH>>(from) : Packet<T, WIDTH>::load(from);
  int64_t id[COUNT];
  Packet<T, WIDTH> token[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    id[k] = first + k < batch ? ids[(first + k) * length + row] : -1;
    if (id[k] >= vocabulary) id[k] = -1;
  }
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
    if (id[k] >= 0) token[k] = Packet<T, WIDTH>::load(tokens + at(id[k]));
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    if (first + k >= batch) return;
    float sum[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      sum[j] = id[k] >= 0 ? to_float(token[k].values[j]) + to_float(position.values[j]) : NAN;
    Packet<T, WIDTH>::scaled(sum, 1.0f).store(out + at((first + k) * length + row));
  }
}

template <typename T, int WIDTH>
static cudaError_t launch(const EncoderCall& call) {
  const int64_t batch = call.rows / call.length, row_packets = call.columns / WIDTH;
  const int64_t packets = ((batch - 1) / COUNT + 1) * call.length * row_packets;
  if (call.rows * row_packets > 0x7fffffff) return cudaErrorInvalidConfiguration;
  int device = 0, l2_bytes = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device)) return status;
  const int64_t moved = (2 * COUNT + 1) * static_cast<int64_t>(call.length) * call.columns * sizeof(T);
  static const bool waits = compiled_to_wait(encoder_v04_reuse<T, WIDTH>);
  const cudaError_t status = launch_overlapped(
      encoder_v04_reuse<T, WIDTH>, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream, call.ids,
      static_cast<const T*>(call.tokens), static_cast<const T*>(call.positions), static_cast<T*>(call.out),
      call.vocabulary, static_cast<uint32_t>(call.length), static_cast<uint32_t>(row_packets),
      static_cast<uint32_t>(batch), 100 * moved > static_cast<int64_t>(L2_PERCENT) * l2_bytes);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t encoder_v04_reuse(const EncoderCall& call) {
  return launch_widest(call, [&](auto packet) {
    using Widest = decltype(packet);
    return launch<typename Widest::Type, Widest::WIDTH>(call);
  });
}
