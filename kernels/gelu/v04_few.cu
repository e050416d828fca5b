// gelu v04_few: a few tokens, where only the time of one thread counts: no prefetch, a division that the host prepares.
// Shapes   x, out (N, C) row-major; bias (C,) or none.
// Needs    nothing (more than 1 MB, or rows that are not aligned to 16 bytes, are v02's)
// Moves    2 * N * C * sizeof(T) bytes (+ C for the bias): every element once in, once out.
// Versus   v02: a multiplication and a shift before the load of the bias in place of a division, smaller blocks.
// Source   v02_vector
#include "check.cuh"
#include "divide.cuh"
#include "gelu.cuh"
#include "gelu.h"
#include "overlap.cuh"
#include "vec.cuh"

cudaError_t gelu_v02_vector(const GeluCall& call);

namespace {
constexpr int THREADS = 128;
constexpr int64_t FEW_BYTES = int64_t{1} << 20;  // of x
}  // namespace

// One packet per thread; `row` is C / WIDTH.
template <typename T, bool BIAS>
__global__ void __launch_bounds__(THREADS)
    gelu_v04_few(const T* x, const T* bias, T* out, uint32_t packets, Divisor row) {
  constexpr int WIDTH = 16 / sizeof(T);
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
  if (packet >= packets) return;
  wait_for_previous();
  const auto loaded = Packet<T, WIDTH>::load(x + packet * WIDTH);
  Packet<T, WIDTH> added;
  if constexpr (BIAS) added = Packet<T, WIDTH>::load(bias + (packet - row.quotient(packet) * row.by) * WIDTH);
  float value[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    value[j] = to_float(loaded.values[j]);
    if constexpr (BIAS) value[j] += to_float(added.values[j]);
    value[j] = gelu(value[j]);
  }
  Packet<T, WIDTH>::scaled(value, 1.0f).store(out + packet * WIDTH);
}

template <typename T>
static cudaError_t launch(const GeluCall& call) {
  constexpr int WIDTH = 16 / sizeof(T);
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.bias) |
                         reinterpret_cast<uintptr_t>(call.out) | (static_cast<uintptr_t>(call.columns) * sizeof(T));
  if (addresses % 16 != 0 || call.elements * static_cast<int64_t>(sizeof(T)) > FEW_BYTES) return gelu_v02_vector(call);
  const auto packets = static_cast<uint32_t>(call.elements / WIDTH);
  const auto kernel = call.bias ? gelu_v04_few<T, true> : gelu_v04_few<T, false>;
  static const bool waits = compiled_to_wait(gelu_v04_few<T, true>);
  const cudaError_t status =
      launch_overlapped(kernel, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream,
                        static_cast<const T*>(call.x), static_cast<const T*>(call.bias), static_cast<T*>(call.out),
                        packets, Divisor(static_cast<uint32_t>(call.columns / WIDTH)));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t gelu_v04_few(const GeluCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
