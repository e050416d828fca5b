// rmsnorm v02_vector: a row in registers, read once in 16-byte packets; prefetches into L2, overlapped launches.
// Shapes   x, out (N, C) row-major; weight (C,).
// Needs    nothing (rows that are no multiple of 16 bytes, or longer than 32 KB, are v01's)
// Moves    2 * N * C * sizeof(T) bytes: every element once from DRAM, once out; the weight from L1.
// Versus   v01: one pass instead of two, 16 bytes per access, all loads of a row in flight before the first use.
// Source   layernorm v05_vector
#include "check.cuh"
#include "overlap.cuh"
#include "rmsnorm.h"
#include "row_norm.cuh"
#include "vec.cuh"

cudaError_t rmsnorm_v01_block(const RmsnormCall& call);

#ifndef RMSNORM_V02_AHEAD_MB
#define RMSNORM_V02_AHEAD_MB 3
#endif
#ifndef RMSNORM_V02_EARLY
#define RMSNORM_V02_EARLY 4
#endif

namespace {
// Distance of the prefetch into L2: so many MB of fp32, twice as many of bf16. A few long rows need none.
template <typename T>
constexpr int64_t AHEAD_BYTES = int64_t{RMSNORM_V02_AHEAD_MB} << (sizeof(T) == 2 ? 21 : 20);
constexpr int SHORT_COLUMNS = 1024;
constexpr int64_t FEW_BYTES = int64_t{96} << 20, MANY_BYTES = int64_t{192} << 20;  // of x
constexpr int EARLY_COUNT =
    RMSNORM_V02_EARLY;  // with up to so many packets a thread, the weight is loaded with the row
}  // namespace

// G threads per row have COUNT packets of WIDTH elements each: COUNT * G * WIDTH >= C. A block has ROWS rows.
template <typename T, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS)
    rmsnorm_v02_vector(const T* x, const T* weight, T* out, int rows, int columns, float eps, int ahead) {
  constexpr int WIDTH = 16 / sizeof(T);
  constexpr bool EARLY = COUNT <= EARLY_COUNT;
  let_next_start();
  const int lane = threadIdx.x % G;
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole rows return; no barrier spans two rows
  const int64_t start = static_cast<int64_t>(row) * columns;

  wait_for_previous();
  Packet<T, WIDTH> loaded[COUNT], weights[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    loaded[k].raw = {};
    if (column < columns) loaded[k] = Packet<T, WIDTH>::load(x + start + column);
    if (EARLY && column < columns) weights[k] = Packet<T, WIDTH>::load(weight + column);
  }
  if (RMSNORM_V02_AHEAD_MB > 0 && lane == 0 && ahead < rows - row)
    prefetch_l2(x + start + static_cast<int64_t>(ahead) * columns, columns * static_cast<uint32_t>(sizeof(T)));

  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) squares += to_float(loaded[k].values[j]) * to_float(loaded[k].values[j]);
  const float scale = rsqrtf(row_sum<G, ROWS, 0>(squares) / columns + eps);

#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column >= columns) break;
    if (!EARLY) weights[k] = Packet<T, WIDTH>::load(weight + column);
    float value[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[j] = to_float(loaded[k].values[j]) * scale * to_float(weights[k].values[j]);
    Packet<T, WIDTH>::scaled(value, 1.0f).store(out + start + column);
  }
}

template <typename T, int COUNT, int G, int ROWS>
static cudaError_t launch_rows(const RmsnormCall& call) {
  const int rows = static_cast<int>(call.rows);
  const int64_t row_bytes = call.columns * static_cast<int64_t>(sizeof(T));
  const bool fetches = call.columns <= SHORT_COLUMNS || rows * row_bytes > FEW_BYTES;
  const auto kernel = rmsnorm_v02_vector<T, COUNT, G, ROWS>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status =
      launch_overlapped(kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.x),
                        static_cast<const T*>(call.weight), static_cast<T*>(call.out), rows, call.columns, call.eps,
                        fetches ? static_cast<int>(AHEAD_BYTES<T> / row_bytes) : rows);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const RmsnormCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.out) | (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (addresses % 16 || packets > 2048) return rmsnorm_v01_block(call);
  if (packets <= 32) return launch_rows<T, 1, 32, 4>(call);
  if (packets <= 64) return launch_rows<T, 2, 32, 4>(call);
  if (packets <= 128) return launch_rows<T, 4, 32, 4>(call);
  if (packets <= 256) return launch_rows<T, 2, 128, 1>(call);
  if (packets <= 512) return launch_rows<T, 4, 128, 1>(call);
  if (packets <= 1024 && call.rows * packets * 16 <= MANY_BYTES) return launch_rows<T, 4, 256, 1>(call);
  if (packets <= 1024) return launch_rows<T, 2, 512, 1>(call);
  return launch_rows<T, 4, 512, 1>(call);
}

cudaError_t rmsnorm_v02_vector(const RmsnormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
