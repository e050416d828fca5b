// backward v09_single: GELU, as v02 with one packet a thread in float32, too.
// Shapes   gradient, x, out (N, C) row-major.
// Needs    16-byte aligned float32 of whole packets, fewer than 2^31 (v02 takes the others, and bf16)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once.
// Versus   v02: blocks of 256 threads read 4 KB of each operand in one go, where those of v02 read 2 KB twice.
// Source   v02_packet
#include "check.cuh"
#include "gelu_packets.cuh"

#ifndef BACKWARD_V09_THREADS
#define BACKWARD_V09_THREADS 256
#endif

cudaError_t backward_v02_packet(const BackwardCall& call);

namespace {
constexpr int THREADS = BACKWARD_V09_THREADS;
}

__global__ void __launch_bounds__(THREADS)
    backward_v09_single(const float* gradient, const float* x, float* out, uint32_t packets) {
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
  if (packet >= packets) return;
  const int64_t at = static_cast<int64_t>(packet) * 4;
  wait_for_previous();
  const auto given = Packet<float, 4>::load(gradient + at), values = Packet<float, 4>::load(x + at);
  float result[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) result[j] = given.values[j] * gelu_slope(values.values[j]);
  Packet<float, 4>::scaled(result, 1.0f).store(out + at);
}

cudaError_t backward_v09_single(const BackwardCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.gradient) |
                         reinterpret_cast<uintptr_t>(call.out);
  const int64_t elements = call.rows * call.columns, packets = elements / 4;
  if (call.dtype != DType::float32 || addresses % 16 || elements % 4 || packets > 0x7fffff00)
    return backward_v02_packet(call);
  static const bool waits = compiled_to_wait(backward_v09_single);
  const cudaError_t status =
      launch_overlapped(backward_v09_single, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream,
                        static_cast<const float*>(call.gradient), static_cast<const float*>(call.x),
                        static_cast<float*>(call.out), static_cast<uint32_t>(packets));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
