// gemv v05_straight: one pass over a row, without loop or branch; weights, x and bias are all loaded before the first
// use.
// Shapes   weight (N, K) row-major, x (K), bias, out (N).
// Needs    sm_90, 16-byte aligned rows of up to 3 KB, N of 16384 or more; otherwise v04 runs
// Moves    as v02: (N*K + K + 2*N) * sizeof(T) bytes.
// Versus   v04: it has branches between loads and sums: a loop over a row of any length, which the LM head runs once,
//          and tests for missing rows. It loads the bias only after the sums. Here the number of packets in a row is
//          known at compile time.
// Source   Little's law, see v02
#ifndef GEMV_V05_THREADS
#define GEMV_V05_THREADS 128
#endif
#ifndef GEMV_V05_EARLY_MB
#define GEMV_V05_EARLY_MB 4
#endif
#define ROWS_THREADS GEMV_V05_THREADS
#include "check.cuh"
#include "overlap.cuh"
#include "warp_rows.cuh"

cudaError_t gemv_v04_early(const GemvCall& call);  // runs what this rung does not take

namespace {
constexpr int64_t EARLY_BYTES = int64_t{GEMV_V05_EARLY_MB} << 20;  // of rows that are prefetched, as in v04
constexpr int ROWS = 2;                                            // rows per warp: x is loaded once for both
}  // namespace

// Operands are not __restrict__, because loads of x must stay after the wait. A row has up to COUNT packets per lane.
template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS)
    gemv_v05_straight(const T* weight, const T* x, const T* bias, T* out, int n, int k, int early) {
  constexpr int WIDTH = 16 / sizeof(T);
  let_next_start();
  const int lane = threadIdx.x % 32, first = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * ROWS;
  if (lane == 0 && first < min(early, n))
    prefetch_l2(weight + static_cast<int64_t>(first) * k, min(ROWS, n - first) * k * static_cast<uint32_t>(sizeof(T)));
  wait_for_previous();
  Packet<T, WIDTH> loaded[ROWS][COUNT], shared[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int column = (i * 32 + lane) * WIDTH;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (column < k && first + r < n)
        loaded[r][i] = Packet<T, WIDTH>::load(weight + static_cast<int64_t>(first + r) * k + column);
    if (column < k) shared[i] = Packet<T, WIDTH>::load(x + column);
  }
  const bool writes = lane < ROWS && first + lane < n;
  const float added = writes ? to_float(bias[first + lane]) : 0.0f;
  float sum[ROWS] = {};
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if ((i * 32 + lane) * WIDTH < k)
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) sum[r] += to_float(loaded[r][i].values[j]) * to_float(shared[i].values[j]);
  float mine = 0.0f;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    sum[r] = warp_sum(sum[r]);
    if (lane == r) mine = sum[r];
  }
  if (writes) out[first + lane] = from_float<T>(mine + added);
}

template <typename T>
static cudaError_t launch(const GemvCall& call) {
  const int64_t row_bytes = call.k * static_cast<int64_t>(sizeof(T));
  if (!whole_packets(call, sizeof(T)) || call.n < MANY_ROWS || row_bytes > 6 * 512) return gemv_v04_early(call);
  const auto kernel = row_bytes > 3 * 512 ? gemv_v05_straight<T, 6> : gemv_v05_straight<T, 3>;
  static const bool waits = compiled_to_wait(gemv_v05_straight<T, 6>);
  if (!waits) return gemv_v04_early(call);
  const cudaError_t status = launch_overlapped(
      kernel, waits, (call.n - 1) / (THREADS / 32 * ROWS) + 1, THREADS, call.stream, static_cast<const T*>(call.weight),
      static_cast<const T*>(call.x), static_cast<const T*>(call.bias), static_cast<T*>(call.out), call.n, call.k,
      static_cast<int>(EARLY_BYTES / row_bytes));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t gemv_v05_straight(const GemvCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
