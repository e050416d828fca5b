// backward v02_packet: GELU, 16-byte packets, two special-function instructions an element, prefetches into L2.
// Shapes   gradient, x, out (N, C) row-major.
// Needs    nothing (16-byte packets if the operands are aligned and their elements fill packets)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once.
// Versus   v01: 16 bytes per access; p + y p (1 - p) (2u)' with p = 1 / (1 + e^-2u) needs one power and one reciprocal.
// Source   gelu v02_vector
#include "backward.h"
#include "check.cuh"
#include "gelu.cuh"
#include "overlap.cuh"
#include "vec.cuh"

#ifndef BACKWARD_V02_THREADS
#define BACKWARD_V02_THREADS 256
#endif
#ifndef BACKWARD_V02_AHEAD_MB
#define BACKWARD_V02_AHEAD_MB 3
#endif

namespace {
constexpr int THREADS = BACKWARD_V02_THREADS;
constexpr int64_t AHEAD_BYTES = int64_t{BACKWARD_V02_AHEAD_MB} << 20;  // of both operands; 0: no prefetch

// The square is cut where p is 0 or 1 in any case, so that (1 - p) (2u)' is not 0 * inf. Infinities give NaN, as in
// PyTorch.
__device__ __forceinline__ float gelu_slope(float y) {
  constexpr float LINEAR = 1.5957691216057308f, CUBIC = 1.5957691216057308f * 0.044715f;  // 2 sqrt(2 / pi)
  const float square = fminf(y * y, 1e4f);
  const float p = reciprocal(1.0f + exp_fast(-y * fmaf(CUBIC, square, LINEAR)));
  return fmaf(y * p, (1.0f - p) * fmaf(3.0f * CUBIC, square, LINEAR), p);
}
}  // namespace

// One packet per thread.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    backward_v02_packet(const T* gradient, const T* x, T* out, uint32_t packets, uint32_t ahead) {
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
  if (packet >= packets) return;
  const int64_t at = static_cast<int64_t>(packet) * WIDTH;
  wait_for_previous();
  const auto values = Packet<T, WIDTH>::load(x + at), gradients = Packet<T, WIDTH>::load(gradient + at);
  if (AHEAD_BYTES > 0 && WIDTH * sizeof(T) == 16 && threadIdx.x == 0 && packets - packet > ahead + THREADS) {
    prefetch_l2(x + at + static_cast<int64_t>(ahead) * WIDTH, THREADS * 16);
    prefetch_l2(gradient + at + static_cast<int64_t>(ahead) * WIDTH, THREADS * 16);
  }
  float result[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) result[j] = to_float(gradients.values[j]) * gelu_slope(to_float(values.values[j]));
  Packet<T, WIDTH>::scaled(result, 1.0f).store(out + at);
}

template <typename T, int WIDTH>
static cudaError_t launch(const BackwardCall& call) {
  const int64_t packets = call.rows * call.columns / WIDTH;
  if (packets > 0x7fffffff) return cudaErrorInvalidConfiguration;
  const auto kernel = backward_v02_packet<T, WIDTH>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status =
      launch_overlapped(kernel, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream,
                        static_cast<const T*>(call.gradient), static_cast<const T*>(call.x), static_cast<T*>(call.out),
                        static_cast<uint32_t>(packets), static_cast<uint32_t>(AHEAD_BYTES / 2 / (WIDTH * sizeof(T))));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch_widest(const BackwardCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.gradient) |
                         reinterpret_cast<uintptr_t>(call.out) |
                         static_cast<uintptr_t>(call.rows * call.columns * static_cast<int64_t>(sizeof(T)));
  return addresses % 16 == 0 ? launch<T, 16 / sizeof(T)>(call) : launch<T, 1>(call);
}

cudaError_t backward_v02_packet(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch_widest<float>(call) : launch_widest<__nv_bfloat16>(call);
}
