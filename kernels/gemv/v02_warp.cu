// gemv v02_warp: one or four warps per row, 16-byte loads; a row of up to 12 KB is in flight before the first use.
// Shapes   weight (N, K) row-major, x (K), bias, out (N).
// Needs    nothing (rows or operands that are not 16-byte aligned are read element by element)
// Moves    (N*K + K + 2*N) * sizeof(T) bytes: every weight once from DRAM; x from L1.
// Versus   v01: whole sectors per request, 48 to 192 bytes in flight per thread.
// Source   Little's law: bytes in flight = bandwidth * latency
#ifndef GEMV_V02_THREADS
#define GEMV_V02_THREADS 256
#endif
#define ROWS_THREADS GEMV_V02_THREADS
#include "check.cuh"
#include "warp_rows.cuh"

template <typename T, int WARPS, int COUNT, int ROWS>
__global__ void __launch_bounds__(THREADS)
    gemv_v02_warp(const T* __restrict__ weight, const T* __restrict__ x, const T* __restrict__ bias,
                  T* __restrict__ out, int n, int k) {
  const int group = blockIdx.x * (THREADS / (32 * WARPS)) + threadIdx.x / (32 * WARPS);
  warp_rows<T, WARPS, COUNT, ROWS>(weight, x, bias, out, group * ROWS, n, k);
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
  if (threadIdx.x % 32 == 0) out[row] = from_float<T>(sum + to_float(bias[row]));
}

template <typename T>
static cudaError_t launch(const GemvCall& call) {
  const auto go = [&](auto kernel, int a_block) {
    kernel<<<(call.n - 1) / a_block + 1, THREADS, 0, call.stream>>>(
        static_cast<const T*>(call.weight), static_cast<const T*>(call.x), static_cast<const T*>(call.bias),
        static_cast<T*>(call.out), call.n, call.k);
    RETURN_IF_LAUNCH_FAILED();
    return cudaSuccess;
  };
  if (!whole_packets(call, sizeof(T))) return go(gemv_v02_any<T>, THREADS / 32);
  return with_mapping(call, sizeof(T), [&](auto mapping) {
    using M = decltype(mapping);
    return go(gemv_v02_warp<T, M::WARPS, M::COUNT, M::ROWS>, M::A_BLOCK);
  });
}

cudaError_t gemv_v02_warp(const GemvCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
