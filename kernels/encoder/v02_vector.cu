// encoder v02_vector: 16-byte packets, two in flight per thread, 32-bit divisions, overlapped launches.
// Shapes   ids (B, T); tokens (V, C); positions (T, C); out (B, T, C).
// Needs    < 2^31 packets (16-byte ones if rows are a multiple of 16 bytes); an id outside 0 to V - 1 gives NaN
// Moves    8 bytes per id, each row of tokens that occurs (once), positions once, B * T * C * sizeof(T) out.
// Versus   v01: 16 bytes per access, one division per packet.
// Source   llm.c, dev/cuda/encoder_forward.cu, kernel 3 (the idea)
#include "check.cuh"
#include "encoder.h"
#include "overlap.cuh"
#include "vec.cuh"
#include "widest.cuh"

#ifndef ENCODER_V02_THREADS
#define ENCODER_V02_THREADS 256
#endif
#ifndef ENCODER_V02_COUNT
#define ENCODER_V02_COUNT 2
#endif

namespace {
constexpr int THREADS = ENCODER_V02_THREADS;
constexpr int COUNT = ENCODER_V02_COUNT;  // packets per thread
}  // namespace

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    encoder_v02_vector(const int64_t* ids, const T* tokens, const T* positions, T* out, uint32_t packets,
                       int64_t vocabulary, uint32_t length, uint32_t row_packets) {
  let_next_start();
  const uint32_t first = blockIdx.x * (COUNT * THREADS) + threadIdx.x;
  const int64_t columns = static_cast<int64_t>(row_packets) * WIDTH;
  wait_for_previous();
  // rows are known only once the ids are loaded, so load all ids first, then all rows
  int64_t id[COUNT];
  Packet<T, WIDTH> token[COUNT], position[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t packet = first + k * THREADS;
    id[k] = packet < packets ? ids[packet / row_packets] : -1;
    if (id[k] >= vocabulary) id[k] = -1;
  }
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t packet = first + k * THREADS, row = packet / row_packets;
    const int64_t column = static_cast<int64_t>(packet - row * row_packets) * WIDTH;
    if (id[k] >= 0) {
      token[k] = Packet<T, WIDTH>::load(tokens + id[k] * columns + column);
      position[k] = Packet<T, WIDTH>::load(positions + row % length * columns + column);
    }
  }
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t packet = first + k * THREADS;
    if (packet >= packets) return;
    float sum[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      sum[j] = id[k] >= 0 ? to_float(token[k].values[j]) + to_float(position[k].values[j]) : NAN;
    Packet<T, WIDTH>::scaled(sum, 1.0f).store(out + static_cast<int64_t>(packet) * WIDTH);
  }
}

template <typename T, int WIDTH>
static cudaError_t launch(const EncoderCall& call) {
  const int64_t packets = call.rows * (call.columns / WIDTH);
  if (packets > 0x7fffffff) return cudaErrorInvalidConfiguration;
  static const bool waits = compiled_to_wait(encoder_v02_vector<T, WIDTH>);
  const cudaError_t status = launch_overlapped(
      encoder_v02_vector<T, WIDTH>, waits, static_cast<int>((packets - 1) / (COUNT * THREADS) + 1), THREADS,
      call.stream, call.ids, static_cast<const T*>(call.tokens), static_cast<const T*>(call.positions),
      static_cast<T*>(call.out), static_cast<uint32_t>(packets), call.vocabulary, static_cast<uint32_t>(call.length),
      static_cast<uint32_t>(call.columns / WIDTH));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t encoder_v02_vector(const EncoderCall& call) {
  return launch_widest(call, [&](auto packet) {
    using Widest = decltype(packet);
    return launch<typename Widest::Type, Widest::WIDTH>(call);
  });
}
