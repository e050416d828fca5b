// backward v02_packet: GELU, 16-byte packets, two special-function instructions an element.
// Shapes   gradient, x, out (N, C) row-major.
// Needs    nothing (16-byte packets if the operands are aligned and their elements fill packets)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once.
// Versus   v01: 16 bytes per access; p + y p (1 - p) (2u)' with p = 1 / (1 + e^-2u) needs one power and one reciprocal.
// Source   gelu v02_vector, without its prefetches
#include <type_traits>

#include "check.cuh"
#include "gelu_packets.cuh"

#ifndef BACKWARD_V02_THREADS
#define BACKWARD_V02_THREADS 128
#endif

namespace {
constexpr int THREADS = BACKWARD_V02_THREADS;
}

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS) backward_v02_packet(const T* gradient, const T* x, T* out, int64_t packets) {
  let_next_start();
  const int64_t packet = static_cast<int64_t>(blockIdx.x) * PACKETS<WIDTH, THREADS> + threadIdx.x;
  wait_for_previous();
  gelu_packets<T, WIDTH>(gradient, x, out, packet, THREADS, packets, [] {});
}

template <typename T>
static cudaError_t launch(const BackwardCall& call) {
  return with_packets<T>(call, [&](auto width) {
    constexpr int WIDTH = decltype(width)::value;
    const int64_t packets = call.rows * call.columns / WIDTH, blocks = (packets - 1) / PACKETS<WIDTH, THREADS> + 1;
    if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
    const auto kernel = backward_v02_packet<T, WIDTH>;
    static const bool waits = compiled_to_wait(kernel);
    const cudaError_t status = launch_overlapped(kernel, waits, static_cast<int>(blocks), THREADS, call.stream,
                                                 static_cast<const T*>(call.gradient), static_cast<const T*>(call.x),
                                                 static_cast<T*>(call.out), packets);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  });
}

cudaError_t backward_v02_packet(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
