// gelu v02_vector: 16-byte packets, y / (1 + e^-2u) with two special-function instructions, prefetches into L2.
// Shapes   x, out (N, C) row-major; bias (C,) or none.
// Needs    nothing (16-byte packets if rows are aligned)
// Moves    2 * N * C * sizeof(T) bytes (+ C for the bias): every element once in, once out.
// Versus   v01: 16 bytes per access, and about 10 instructions per element instead of tanhf's 30. Its relative error
//          also holds where tanh is near -1: 1 + tanh(u) cancels there, 1 + e^-2u does not.
// Source   0.5 y (1 + tanh u) = y / (1 + e^-2u); Hendrycks and Gimpel 2016, arXiv:1606.08415
#include "check.cuh"
#include "gelu.cuh"
#include "gelu.h"
#include "overlap.cuh"
#include "vec.cuh"

#ifndef GELU_V02_THREADS
#define GELU_V02_THREADS 256
#endif
#ifndef GELU_V02_AHEAD_MB
#define GELU_V02_AHEAD_MB 3
#endif

namespace {
constexpr int THREADS = GELU_V02_THREADS;
constexpr int64_t AHEAD_BYTES = int64_t{GELU_V02_AHEAD_MB} << 20;  // distance of the prefetch into L2; 0: no prefetch
}  // namespace

// One packet per thread; `row` is C / WIDTH.
template <typename T, int WIDTH, bool BIAS>
__global__ void __launch_bounds__(THREADS)
    gelu_v02_vector(const T* x, const T* bias, T* out, uint32_t packets, uint32_t row, uint32_t ahead) {
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
  if (packet >= packets) return;
  const int64_t at = static_cast<int64_t>(packet) * WIDTH;
  wait_for_previous();
  const auto loaded = Packet<T, WIDTH>::load(x + at);
  Packet<T, WIDTH> added;
  if constexpr (BIAS) added = Packet<T, WIDTH>::load(bias + static_cast<int64_t>(packet % row) * WIDTH);
  if (AHEAD_BYTES > 0 && WIDTH * sizeof(T) == 16 && threadIdx.x == 0 && packets - packet > ahead + THREADS)
    prefetch_l2(x + at + static_cast<int64_t>(ahead) * WIDTH, THREADS * 16);
  float value[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    value[j] = to_float(loaded.values[j]);
    if constexpr (BIAS) value[j] += to_float(added.values[j]);
    value[j] = gelu(value[j]);
  }
  Packet<T, WIDTH>::scaled(value, 1.0f).store(out + at);
}

template <typename T, int WIDTH>
static cudaError_t launch(const GeluCall& call) {
  const int64_t packets = call.elements / WIDTH;
  if (packets > 0x7fffffff) return cudaErrorInvalidConfiguration;
  const auto kernel = call.bias ? gelu_v02_vector<T, WIDTH, true> : gelu_v02_vector<T, WIDTH, false>;
  static const bool waits = compiled_to_wait(gelu_v02_vector<T, WIDTH, true>);
  const cudaError_t status = launch_overlapped(
      kernel, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream, static_cast<const T*>(call.x),
      static_cast<const T*>(call.bias), static_cast<T*>(call.out), static_cast<uint32_t>(packets),
      static_cast<uint32_t>(call.columns / WIDTH), static_cast<uint32_t>(AHEAD_BYTES / (WIDTH * sizeof(T))));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

// Launches with the widest packet that the addresses and the length of a row allow.
template <typename T>
static cudaError_t launch_widest(const GeluCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.bias) |
                         reinterpret_cast<uintptr_t>(call.out) | (static_cast<uintptr_t>(call.columns) * sizeof(T));
  constexpr int FULL = 16 / sizeof(T);
  if (addresses % 16 == 0) return launch<T, FULL>(call);
  if (addresses % 8 == 0) return launch<T, FULL / 2>(call);
  if (addresses % sizeof(T) == 0) return launch<T, 1>(call);
  return cudaErrorMisalignedAddress;
}

cudaError_t gelu_v02_vector(const GeluCall& call) {
  return call.dtype == DType::float32 ? launch_widest<float>(call) : launch_widest<__nv_bfloat16>(call);
}
