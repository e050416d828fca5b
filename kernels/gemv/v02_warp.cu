// gemv v02_warp: one or four warps a row, 16-byte loads, all of a row's packets in flight before the first use.
// Shapes   weight (N, K) row-major, x (K), bias, out (N).
// Needs    nothing (rows or bases that are not 16-byte aligned are read element by element)
// Moves    (N*K + K + 2*N) * sizeof(T) bytes: every weight once from DRAM; x from L1.
// Versus   v01: whole sectors a request; 48 to 192 bytes in flight a thread.
// Expect   at least 90 % of the read bandwidth on the LM head with cold L2.
// Refuted if   below.
// Source   Little's law: 4.8 TB/s * 0.7 us / 132 multiprocessors = 25 KB in flight on each
#include <cstdint>

#include "check.cuh"
#include "gemv.h"
#include "reduce.cuh"
#include "vec.cuh"

namespace {
constexpr int THREADS = 256;
constexpr int MANY_ROWS = 16384;  // from here on a warp takes two rows: x is loaded once for both

__device__ __forceinline__ bool first_lane() { return threadIdx.x % 32 == 0; }
}  // namespace

// WARPS a row, ROWS rows together, COUNT packets of a row and thread at a time.
template <typename T, int WARPS, int COUNT, int ROWS>
__global__ void __launch_bounds__(THREADS)
    gemv_v02_warp(const T* __restrict__ weight, const T* __restrict__ x, const T* __restrict__ bias,
                  T* __restrict__ out, int n, int k) {
  constexpr int WIDTH = 16 / sizeof(T), G = 32 * WARPS, GROUPS = THREADS / G;
  const int lane = threadIdx.x % G, group = threadIdx.x / G;
  const int first = (blockIdx.x * GROUPS + group) * ROWS;
  float sum[ROWS] = {};
  for (int base = lane * WIDTH; base < k; base += COUNT * G * WIDTH) {
    Packet<T, WIDTH> loaded[ROWS][COUNT], shared[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int column = base + i * G * WIDTH;
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (column < k && first + r < n)
          loaded[r][i] = Packet<T, WIDTH>::load(weight + static_cast<int64_t>(first + r) * k + column);
      if (column < k) shared[i] = Packet<T, WIDTH>::load(x + column);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (base + i * G * WIDTH >= k) break;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        if (first + r >= n) break;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) sum[r] += to_float(loaded[r][i].values[j]) * to_float(shared[i].values[j]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) sum[r] = warp_sum(sum[r]);
  if constexpr (WARPS > 1) {
    __shared__ float parts[THREADS / 32][ROWS];
    if (first_lane())
      for (int r = 0; r < ROWS; ++r) parts[threadIdx.x / 32][r] = sum[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      sum[r] = 0.0f;
#pragma unroll
      for (int warp = 0; warp < WARPS; ++warp) sum[r] += parts[group * WARPS + warp][r];
    }
  }
  if (lane == 0)
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (first + r < n) out[first + r] = from_float<T>(sum[r] + to_float(bias[first + r]));
}

// Any length and alignment.
template <typename T>
__global__ void __launch_bounds__(THREADS) gemv_v02_any(const T* __restrict__ weight, const T* __restrict__ x,
                                                        const T* __restrict__ bias, T* __restrict__ out, int n, int k) {
  const int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= n) return;
  const T* from = weight + static_cast<int64_t>(row) * k;
  float sum = 0.0f;
  for (int i = threadIdx.x % 32; i < k; i += 32) sum += to_float(from[i]) * to_float(x[i]);
  sum = warp_sum(sum);
  if (first_lane()) out[row] = from_float<T>(sum + to_float(bias[row]));
}

template <typename T, int WARPS, int COUNT, int ROWS>
static cudaError_t launch_rows(const GemvCall& call) {
  constexpr int A_BLOCK = THREADS / (32 * WARPS) * ROWS;
  gemv_v02_warp<T, WARPS, COUNT, ROWS><<<(call.n - 1) / A_BLOCK + 1, THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.weight), static_cast<const T*>(call.x), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

template <typename T>
static cudaError_t launch(const GemvCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.weight) | reinterpret_cast<uintptr_t>(call.x) |
                         (static_cast<uintptr_t>(call.k) * sizeof(T));
  if (addresses % 16 == 0) {
    const int64_t packets = call.k * static_cast<int64_t>(sizeof(T)) / 16;
    if (packets > 384) return launch_rows<T, 4, 6, 1>(call);
    if (packets > 192) return launch_rows<T, 4, 3, 1>(call);
    if (packets > 96) return call.n >= MANY_ROWS ? launch_rows<T, 1, 6, 2>(call) : launch_rows<T, 1, 6, 1>(call);
    return call.n >= MANY_ROWS ? launch_rows<T, 1, 3, 2>(call) : launch_rows<T, 1, 3, 1>(call);
  }
  constexpr int ROWS = THREADS / 32;
  gemv_v02_any<T><<<(call.n - 1) / ROWS + 1, THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.weight), static_cast<const T*>(call.x), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), call.n, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t gemv_v02_warp(const GemvCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
