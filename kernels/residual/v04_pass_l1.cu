// residual v04_pass_l1: blocks of 1024 threads; with few bytes, loads leave no line in L1.
// Shapes   x, y, out of one shape, N * C elements.
// Needs    nothing (16-byte packets if the tensors are aligned and have a multiple of 16 bytes)
// Moves    3 * N * C * sizeof(T) bytes: both operands once in, the sum once out.
// Versus   v02: no thread reads a line of another, so a line in L1 is of no use. A quarter of the blocks to start.
// Source   v02_vector
#include "check.cuh"
#include "overlap.cuh"
#include "residual.h"
#include "vec.cuh"

#ifndef RESIDUAL_V04_THREADS
#define RESIDUAL_V04_THREADS 1024
#endif
#ifndef RESIDUAL_V04_PASS_MB
#define RESIDUAL_V04_PASS_MB 128
#endif

namespace {
constexpr int THREADS = RESIDUAL_V04_THREADS;
// up to so many bytes in all three tensors, loads pass L1
constexpr int64_t PASS_BYTES = int64_t{RESIDUAL_V04_PASS_MB} << 20;
}  // namespace

// Loads a packet that no thread loads again: L1 keeps no line for it.
template <typename P, typename T>
__device__ __forceinline__ P load_once(const T* from) {
  P packet;
  if constexpr (sizeof(P) == 16)
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(packet.raw.x), "=r"(packet.raw.y), "=r"(packet.raw.z), "=r"(packet.raw.w)
                 : "l"(from));
  else
    packet = P::load(from);
  return packet;
}

template <typename T, int WIDTH, bool PASS>
__global__ void __launch_bounds__(THREADS) residual_v04_pass_l1(const T* x, const T* y, T* out, uint32_t packets) {
  using P = Packet<T, WIDTH>;
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
  if (packet >= packets) return;
  const int64_t at = static_cast<int64_t>(packet) * WIDTH;
  wait_for_previous();
  const P left = PASS ? load_once<P>(x + at) : P::load(x + at), right = PASS ? load_once<P>(y + at) : P::load(y + at);
  float sum[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) sum[j] = to_float(left.values[j]) + to_float(right.values[j]);
  P::scaled(sum, 1.0f).store(out + at);
}

template <typename T, int WIDTH>
static cudaError_t launch(const ResidualCall& call) {
  const int64_t packets = call.elements / WIDTH;
  if (packets > 0x7fffffff) return cudaErrorInvalidConfiguration;
  const bool pass = 3 * call.elements * static_cast<int64_t>(sizeof(T)) <= PASS_BYTES;
  const auto kernel = pass ? residual_v04_pass_l1<T, WIDTH, true> : residual_v04_pass_l1<T, WIDTH, false>;
  static const bool waits = compiled_to_wait(residual_v04_pass_l1<T, WIDTH, true>);
  const cudaError_t status = launch_overlapped(
      kernel, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream, static_cast<const T*>(call.x),
      static_cast<const T*>(call.y), static_cast<T*>(call.out), static_cast<uint32_t>(packets));
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

cudaError_t residual_v04_pass_l1(const ResidualCall& call) {
  return call.dtype == DType::float32 ? launch_widest<float>(call) : launch_widest<__nv_bfloat16>(call);
}
