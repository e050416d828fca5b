// Chooses the widest packet for a call of the encoder.
#pragma once

#include <cstdint>

#include "encoder.h"

template <typename T, int N>
struct PacketOf {
  using Type = T;
  static constexpr int WIDTH = N;
};

template <typename T, typename Launch>
cudaError_t launch_widest_of(const EncoderCall& call, Launch launch) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.tokens) | reinterpret_cast<uintptr_t>(call.positions) |
                         reinterpret_cast<uintptr_t>(call.out) | (static_cast<uintptr_t>(call.columns) * sizeof(T));
  constexpr int FULL = 16 / sizeof(T);
  if (addresses % 16 == 0) return launch(PacketOf<T, FULL>());
  if (addresses % 8 == 0) return launch(PacketOf<T, FULL / 2>());
  if (addresses % sizeof(T) == 0) return launch(PacketOf<T, 1>());
  return cudaErrorMisalignedAddress;
}

// Calls `launch` with a PacketOf: the widest that the addresses and the length of a row allow.
template <typename Launch>
cudaError_t launch_widest(const EncoderCall& call, Launch launch) {
  return call.dtype == DType::float32 ? launch_widest_of<float>(call, launch)
                                      : launch_widest_of<__nv_bfloat16>(call, launch);
}
