// gemv argmax: the position of each row's largest value, the first one if several are equal, and of a NaN if there is
// one. It follows the product of the output embedding.
// Shapes   values (rows, N) -> out (rows) int64, row-major.
// Needs    N < 2^31
// Moves    rows * N * sizeof(T) bytes, and 8 per row.
// Versus   PyTorch's argmax: one block, too, but 16-byte packets, and it starts while the product before it drains.
// Source   torch.argmax
#include <cstdint>

#include "argmax.h"
#include "check.cuh"
#include "overlap.cuh"
#include "vec.cuh"

namespace {
constexpr int THREADS = 1024;
}

// Larger values have larger keys, and of equal values the first one. A NaN's key is larger than every number's. Adding 0
// makes -0 and 0 equal.
__device__ __forceinline__ uint64_t key_of(float value, uint32_t at) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  const uint32_t order = value != value ? 0xffffffffU : bits >> 31 ? ~bits : bits | 0x80000000U;
  return uint64_t{order} << 32 | static_cast<uint32_t>(~at);
}

__device__ __forceinline__ uint64_t larger(uint64_t one, uint64_t other) { return one > other ? one : other; }

template <typename T>
__global__ void __launch_bounds__(THREADS) gemv_argmax(const T* values, int64_t* out, uint32_t n) {
  constexpr int WIDTH = 16 / sizeof(T);
  __shared__ uint64_t of_warps[THREADS / 32];
  let_next_start();
  const uint32_t thread = threadIdx.x;
  const T* const row = values + static_cast<int64_t>(blockIdx.x) * n;
  const uint32_t inside = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
  const uint32_t first = min(n, (WIDTH - inside) % WIDTH);  // of the packets
  const uint32_t packets = (n - first) / WIDTH, last = first + packets * WIDTH;
  wait_for_previous();

  float best = 0.0f;
  uint32_t at = n;  // none yet
  const auto see = [&](T element, uint32_t position) {
    const float value = to_float(element);
    if (value > best || at == n || (value != value && best == best)) best = value, at = position;
  };
  if (thread < first) see(row[thread], thread);
#pragma unroll 2
  for (uint32_t packet = thread; packet < packets; packet += THREADS) {
    const uint32_t from = first + packet * WIDTH;
    const auto loaded = Packet<T, WIDTH>::load(row + from);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) see(loaded.values[i], from + i);
  }
  if (last + thread < n) see(row[last + thread], last + thread);

  uint64_t key = at == n ? 0 : key_of(best, at);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) key = larger(key, __shfl_xor_sync(0xffffffffU, key, lanes));
  if (thread % 32 == 0) of_warps[thread / 32] = key;
  __syncthreads();
  if (thread >= 32) return;
  key = of_warps[thread];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) key = larger(key, __shfl_xor_sync(0xffffffffU, key, lanes));
  if (thread == 0) out[blockIdx.x] = static_cast<uint32_t>(~key);
}

template <typename T>
static cudaError_t launch(const ArgmaxCall& call) {
  static const bool waits = compiled_to_wait(gemv_argmax<T>);
  const cudaError_t status =
      launch_overlapped(gemv_argmax<T>, waits, call.rows, THREADS, call.stream, static_cast<const T*>(call.values),
                        static_cast<int64_t*>(call.out), static_cast<uint32_t>(call.n));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t gemv_argmax(const ArgmaxCall& call) {
  if (call.rows < 1 || call.n < 1) return cudaErrorInvalidValue;
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
