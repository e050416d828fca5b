// gemv v06_at_once: weights, bias and x of a row are all asked for at once, for few rows as for many.
// Shapes   weight (N, K) row-major, x (K), bias, out (N).
// Needs    16-byte aligned rows of up to 12 KB, N below 16384; otherwise v05 runs
// Moves    as v02: (N*K + K + 2*N) * sizeof(T) bytes.
// Versus   v02 and v04 ask for the bias behind the sums: with data in DRAM, one more wait of its latency. The number of packets
//          a thread has is known at compile time, as in v05.
// Source   v05_straight
#ifndef GEMV_V06_THREADS
#define GEMV_V06_THREADS 256
#endif
#define ROWS_THREADS GEMV_V06_THREADS
#include "check.cuh"
#include "overlap.cuh"
#include "warp_rows.cuh"

cudaError_t gemv_v05_straight(const GemvCall& call);  // runs what this rung does not take

// Operands are not __restrict__, because loads must stay after the wait. A row has WARPS warps, up to COUNT packets a lane.
template <typename T, int WARPS, int COUNT>
__global__ void __launch_bounds__(THREADS)
    gemv_v06_at_once(const T* weight, const T* x, const T* bias, T* out, int n, int k) {
  constexpr int WIDTH = 16 / sizeof(T), G = 32 * WARPS, ROWS = THREADS / G;
  __shared__ float parts[ROWS][WARPS];
  let_next_start();
  const int lane = threadIdx.x % G, own = threadIdx.x / G, row = blockIdx.x * ROWS + own;
  if (row >= n) return;
  const T* from = weight + static_cast<int64_t>(row) * k;
  wait_for_previous();
  Packet<T, WIDTH> loaded[COUNT], shared[COUNT];
  const auto column = [&](int i) { return (i * G + lane) * WIDTH; };
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if (column(i) < k) loaded[i] = Packet<T, WIDTH>::load(from + column(i));
  T added;
  if (lane == 0) added = bias[row];
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if (column(i) < k) shared[i] = Packet<T, WIDTH>::load(x + column(i));
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if (column(i) < k)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) sum += to_float(loaded[i].values[j]) * to_float(shared[i].values[j]);
  sum = warp_sum(sum);
  if constexpr (WARPS > 1) {
    if (lane % 32 == 0) parts[own][lane / 32] = sum;
    join_row<G, ROWS>();
    sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) sum += parts[own][warp];
  }
  if (lane == 0) out[row] = from_float<T>(sum + to_float(added));
}

template <typename T>
static cudaError_t launch(const GemvCall& call) {
  const int64_t packets = call.k * static_cast<int64_t>(sizeof(T)) / 16;
  if (!whole_packets(call, sizeof(T)) || call.n >= MANY_ROWS || packets > 768) return gemv_v05_straight(call);
  const auto go = [&](auto kernel, int rows) {
    static const bool waits = compiled_to_wait(gemv_v06_at_once<T, 1, 3>);
    const cudaError_t status = launch_overlapped(
        kernel, waits, (call.n - 1) / rows + 1, THREADS, call.stream, static_cast<const T*>(call.weight),
        static_cast<const T*>(call.x), static_cast<const T*>(call.bias), static_cast<T*>(call.out), call.n, call.k);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  };
  if (packets > 384) return go(gemv_v06_at_once<T, 4, 6>, THREADS / 128);
  if (packets > 192) return go(gemv_v06_at_once<T, 4, 3>, THREADS / 128);
  if (packets > 96) return go(gemv_v06_at_once<T, 1, 6>, THREADS / 32);
  return go(gemv_v06_at_once<T, 1, 3>, THREADS / 32);
}

cudaError_t gemv_v06_at_once(const GemvCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
