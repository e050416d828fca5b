// What v02 and v08 share: the derivative of GELU's tanh form, and a thread's packets.
#pragma once

#include "backward.h"
#include "gelu.cuh"
#include "overlap.cuh"
#include "vec.cuh"

// The square is cut where p is 0 or 1 in any case, so that (1 - p) (2u)' is not 0 * inf. Infinities give NaN, as in
// PyTorch.
__device__ __forceinline__ float gelu_slope(float y) {
  constexpr float LINEAR = 1.5957691216057308f, CUBIC = 1.5957691216057308f * 0.044715f;  // 2 sqrt(2 / pi)
  const float square = fminf(y * y, 1e4f);
  const float p = reciprocal(1.0f + exp_fast(-y * fmaf(CUBIC, square, LINEAR)));
  return fmaf(y * p, (1.0f - p) * fmaf(3.0f * CUBIC, square, LINEAR), p);
}

// A thread's packets, `every` apart from `packet` on: 8 elements, if packets are 16 bytes. `while_loading()` runs once
// the loads are issued.
template <typename T, int WIDTH, typename WhileLoading>
__device__ __forceinline__ void gelu_packets(const T* gradient, const T* x, T* out, int64_t packet, uint32_t every,
                                             int64_t packets, WhileLoading while_loading) {
  constexpr int COUNT = WIDTH == 4 ? 2 : 1;
  Packet<T, WIDTH> values[COUNT], gradients[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int64_t at = packet + k * every;
    if (at < packets) {
      values[k] = Packet<T, WIDTH>::load(x + at * WIDTH);
      gradients[k] = Packet<T, WIDTH>::load(gradient + at * WIDTH);
    }
  }
  while_loading();
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int64_t at = packet + k * every;
    float result[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      result[j] = to_float(gradients[k].values[j]) * gelu_slope(to_float(values[k].values[j]));
    if (at < packets) Packet<T, WIDTH>::scaled(result, 1.0f).store(out + at * WIDTH);
  }
}

// The packets of a block of so many threads.
template <int WIDTH, int THREADS>
constexpr int PACKETS = WIDTH == 4 ? 2 * THREADS : THREADS;

// Calls `launch` with the width of the packets: 16 bytes, or one element.
template <typename T, typename Launch>
inline cudaError_t with_packets(const BackwardCall& call, Launch launch) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.gradient) |
                         reinterpret_cast<uintptr_t>(call.out) |
                         static_cast<uintptr_t>(call.rows * call.columns * static_cast<int64_t>(sizeof(T)));
  if (addresses % 16 == 0) return launch(std::integral_constant<int, 16 / sizeof(T)>());
  return launch(std::integral_constant<int, 1>());
}
