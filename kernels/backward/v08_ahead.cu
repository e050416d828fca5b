// backward v08_ahead: v02 with prefetches into L2.
// Shapes   gradient, x, out (N, C) row-major.
// Needs    sm_90 for the prefetches (16-byte packets if the operands are aligned and their elements fill packets)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once.
// Versus   v02: one thread of a block prefetches what a later block reads, as in gelu v02_vector: long reads for DRAM.
// Source   gelu v02_vector
#include <type_traits>

#include "check.cuh"
#include "gelu_packets.cuh"

#ifndef BACKWARD_V08_THREADS
#define BACKWARD_V08_THREADS 256
#endif
#ifndef BACKWARD_V08_AHEAD_MB
#define BACKWARD_V08_AHEAD_MB 6
#endif

namespace {
constexpr int THREADS = BACKWARD_V08_THREADS;
constexpr int64_t AHEAD_BYTES = int64_t{BACKWARD_V08_AHEAD_MB} << 19;  // of each operand
}  // namespace

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS) backward_v08_ahead(const T* gradient, const T* x, T* out, int64_t packets) {
  constexpr int BLOCK = PACKETS<WIDTH, THREADS>;
  let_next_start();
  const int64_t packet = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
  wait_for_previous();
  gelu_packets<T, WIDTH>(gradient, x, out, packet, THREADS, packets, [&] {
    const int64_t later = packet + AHEAD_BYTES / (WIDTH * sizeof(T));
    if (WIDTH * sizeof(T) == 16 && threadIdx.x == 0 && later + BLOCK <= packets) {
      prefetch_l2(x + later * WIDTH, BLOCK * 16);
      prefetch_l2(gradient + later * WIDTH, BLOCK * 16);
    }
  });
}

template <typename T>
static cudaError_t launch(const BackwardCall& call) {
  return with_packets<T>(call, [&](auto width) {
    constexpr int WIDTH = decltype(width)::value;
    const int64_t packets = call.rows * call.columns / WIDTH, blocks = (packets - 1) / PACKETS<WIDTH, THREADS> + 1;
    if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
    const auto kernel = backward_v08_ahead<T, WIDTH>;
    static const bool waits = compiled_to_wait(kernel);
    const cudaError_t status = launch_overlapped(kernel, waits, static_cast<int>(blocks), THREADS, call.stream,
                                                 static_cast<const T*>(call.gradient), static_cast<const T*>(call.x),
                                                 static_cast<T*>(call.out), packets);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  });
}

cudaError_t backward_v08_ahead(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
