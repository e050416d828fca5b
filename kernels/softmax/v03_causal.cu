// softmax v03_causal: a row stays in registers, packets above the diagonal are never loaded, prefetches into L2.
// Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.
// Needs    nothing (16-byte packets if rows are aligned)
// Moves    every 32-byte sector with a visible score once, plus N * Tk * sizeof(T) written.
// Versus   v02: half the reads, 16-byte accesses, one pass, all loads in flight before the reduction, no arithmetic
//          above the diagonal. Blocks start while the previous kernel drains.
// Source   apex scaled_upper_triang_masked_softmax.h (skips the loads); row mapping measured here, see README.md
#ifndef SOFTMAX_V03_AHEAD_MB
#define SOFTMAX_V03_AHEAD_MB 6
#endif
#define ROW_AHEAD_MB SOFTMAX_V03_AHEAD_MB

#include "causal_row.cuh"
#include "check.cuh"

// G threads per row have COUNT packets of WIDTH elements each. A block has ROWS rows.
template <typename T, int WIDTH, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS)
    softmax_v03_causal(const T* scores, T* out, int rows, int tq, int tk, float scale, int ahead) {
  let_next_start();
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole rows return; no barrier spans two rows
  const int lane = threadIdx.x % G;
  const int visible = visible_columns(row, tq, tk);
  const int64_t start = static_cast<int64_t>(row) * tk;
  wait_for_previous();
  causal_row<T, WIDTH, COUNT, G, ROWS>(scores + start, out + start, visible, tk, scale, [&] {
    // One thread per row prefetches the visible part of a row that a later block reads. DRAM then sees long reads, and
    // blocks live shorter (README.md).
    if (AHEAD_BYTES > 0 && WIDTH * sizeof(T) == 16 && lane == 0 && ahead < rows - row)
      prefetch_visible(scores, row + ahead, tq, tk);
  });
}

// Rows too long for registers: one block per row, an online pass and a writing pass, nothing read above the diagonal.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(512) softmax_v03_causal_long(const T* scores, T* out, int tq, int tk, float scale) {
  constexpr int WARPS = 16;
  __shared__ float warp_largest[WARPS], warp_total[WARPS];
  const int64_t row = blockIdx.x;
  const int visible = static_cast<int>(row % tq) + 1 + tk - tq;
  const T* from = scores + row * tk;
  T* to = out + row * tk;

  float largest = -INFINITY, sum = 0.0f;
  for (int first = threadIdx.x * WIDTH; first < visible; first += 512 * WIDTH) {
    const auto packet = Packet<T, WIDTH>::load(from + first);
    float score[WIDTH];
    float larger = largest;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      score[j] = first + j < visible ? to_float(packet.values[j]) * scale : -INFINITY;
      larger = fmaxf(larger, score[j]);
    }
    const float base = larger == -INFINITY ? 0.0f : larger;
    sum *= exp_fast(largest - base);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += exp_fast(score[j] - base);
    largest = larger;
  }
  const float in_warp = warp_max(largest);
  sum = warp_sum(sum * exp_fast(largest - (in_warp == -INFINITY ? 0.0f : in_warp)));
  if (threadIdx.x % 32 == 0) {
    warp_largest[threadIdx.x / 32] = in_warp;
    warp_total[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  float row_largest = -INFINITY, total = 0.0f;
  for (int warp = 0; warp < WARPS; ++warp) row_largest = fmaxf(row_largest, warp_largest[warp]);
  for (int warp = 0; warp < WARPS; ++warp) total += warp_total[warp] * exp_fast(warp_largest[warp] - row_largest);

  const float factor = 1.0f / total;
  for (int first = threadIdx.x * WIDTH; first < tk; first += 512 * WIDTH) {
    Packet<T, WIDTH> packet;
    if (first < visible) packet = Packet<T, WIDTH>::load(from + first);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const float power = first + j < visible ? exp_fast(to_float(packet.values[j]) * scale - row_largest) : 0.0f;
      packet.values[j] = from_float<T>(power * factor);
    }
    packet.store(to + first);
  }
}

template <typename T, int WIDTH, int COUNT, int G, int ROWS>
static cudaError_t launch_rows(const SoftmaxCall& call) {
  const int rows = static_cast<int>(call.rows);
  const int64_t ahead = AHEAD_BYTES / (call.tk * static_cast<int64_t>(sizeof(T)));
  const auto kernel = softmax_v03_causal<T, WIDTH, COUNT, G, ROWS>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status =
      launch_overlapped(kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.scores),
                        static_cast<T*>(call.out), rows, call.tq, call.tk, call.scale, static_cast<int>(ahead));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T, int WIDTH>
static cudaError_t launch(const SoftmaxCall& call) {
  const auto too_long = [&] {
    softmax_v03_causal_long<T, WIDTH><<<static_cast<unsigned>(call.rows), 512, 0, call.stream>>>(
        static_cast<const T*>(call.scores), static_cast<T*>(call.out), call.tq, call.tk, call.scale);
    RETURN_IF_LAUNCH_FAILED();
    return cudaSuccess;
  };
  const auto in_registers = [&](auto mapping) {
    using M = decltype(mapping);
    return launch_rows<T, WIDTH, M::COUNT, M::G, M::ROWS>(call);
  };
  return with_mapping<T, WIDTH>(call, in_registers, too_long);
}

// Launches with the widest packet that every row start allows: 16 bytes if Tk is a multiple of it, one element at
// worst.
template <typename T>
static cudaError_t launch_widest(const SoftmaxCall& call) {
  const auto addresses = alignment_bits(call, sizeof(T));
  constexpr int FULL = 16 / sizeof(T);
  if (addresses % 16 == 0) return launch<T, FULL>(call);
  if (addresses % 8 == 0) return launch<T, FULL / 2>(call);
  if (addresses % 4 == 0) return launch<T, FULL / 4>(call);
  if constexpr (FULL == 8) return launch<T, 1>(call);
  return cudaErrorMisalignedAddress;
}

cudaError_t softmax_v03_causal(const SoftmaxCall& call) {
  return call.dtype == DType::float32 ? launch_widest<float>(call) : launch_widest<__nv_bfloat16>(call);
}
