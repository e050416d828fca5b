// residual v02_vector: 16-byte packets, overlapped launches.
// Shapes   x, y, out of one shape, N * C elements.
// Needs    nothing (16-byte packets if the tensors are aligned and have a multiple of 16 bytes)
// Moves    3 * N * C * sizeof(T) bytes: both operands once in, the sum once out.
// Versus   v01: a quarter (fp32) or an eighth (bf16) of the accesses.
// Source   measured here, see README.md
#include "check.cuh"
#include "overlap.cuh"
#include "residual.h"
#include "vec.cuh"

#ifndef RESIDUAL_V02_THREADS
#define RESIDUAL_V02_THREADS 256
#endif

namespace {
constexpr int THREADS = RESIDUAL_V02_THREADS;
}  // namespace

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS) residual_v02_vector(const T* x, const T* y, T* out, uint32_t packets) {
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
  if (packet >= packets) return;
  const int64_t at = static_cast<int64_t>(packet) * WIDTH;
  wait_for_previous();
  const auto left = Packet<T, WIDTH>::load(x + at), right = Packet<T, WIDTH>::load(y + at);
  float sum[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) sum[j] = to_float(left.values[j]) + to_float(right.values[j]);
  Packet<T, WIDTH>::scaled(sum, 1.0f).store(out + at);
}

template <typename T, int WIDTH>
static cudaError_t launch(const ResidualCall& call) {
  const int64_t packets = call.elements / WIDTH;
  if (packets > 0x7fffffff) return cudaErrorInvalidConfiguration;
  static const bool waits = compiled_to_wait(residual_v02_vector<T, WIDTH>);
  const cudaError_t status =
      launch_overlapped(residual_v02_vector<T, WIDTH>, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS,
                        call.stream, static_cast<const T*>(call.x), static_cast<const T*>(call.y),
                        static_cast<T*>(call.out), static_cast<uint32_t>(packets));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

// Launches with the widest packet that the addresses and the number of elements allow.
template <typename T>
static cudaError_t launch_widest(const ResidualCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.y) |
                         reinterpret_cast<uintptr_t>(call.out) | (static_cast<uintptr_t>(call.elements) * sizeof(T));
  constexpr int FULL = 16 / sizeof(T);
  if (addresses % 16 == 0) return launch<T, FULL>(call);
  if (addresses % 8 == 0) return launch<T, FULL / 2>(call);
  if (addresses % sizeof(T) == 0) return launch<T, 1>(call);
  return cudaErrorMisalignedAddress;
}

cudaError_t residual_v02_vector(const ResidualCall& call) {
  return call.dtype == DType::float32 ? launch_widest<float>(call) : launch_widest<__nv_bfloat16>(call);
}
