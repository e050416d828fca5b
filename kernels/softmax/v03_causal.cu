// softmax v03_causal: a row stays in registers, packets wholly above the diagonal are never loaded, L2 is fed ahead.
// Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.   Needs  nothing (16-byte packets where rows are aligned)
// Moves    every 32-byte sector with a visible score once, plus N * Tk * sizeof(T) written.
// Versus   v02: half the reads, 16-byte accesses, one pass, all loads in flight before the reduction, no arithmetic
//          above the diagonal; blocks take their places while the kernel before drains.
// Expect   dram read ~ 0.5 of the input, time within 4 % of the byte floor. Refuted if read > 0.55.
// Source   apex scaled_upper_triang_masked_softmax.h (skips the loads); row mapping measured here, see README.md
#include "check.cuh"
#include "overlap.cuh"
#include "reduce.cuh"
#include "softmax.h"
#include "vec.cuh"

namespace {
// How far ahead rows are prefetched into L2: about what all SMs hold at once. 3 to 6 MB were within 0.3 %, 8 and 2 MB
// up to 0.6 % slower.
constexpr int64_t AHEAD_BYTES = 6 << 20;
constexpr int64_t FEW_ROWS = 256;
// Up to so many values a thread, branches around the diagonal pay.
constexpr int BRANCH_VALUES = 16;
}  // namespace

// Wait for the G threads of one row; a block's rows go on independently of each other.
template <int G, int ROWS>
__device__ __forceinline__ void join_row() {
  if constexpr (ROWS == 1) {
    __syncthreads();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(threadIdx.x) / G + 1), "n"(G) : "memory");
  }
}

// G threads a row, COUNT packets of WIDTH elements each: COUNT * G * WIDTH >= Tk. ROWS rows a block.
template <typename T, int WIDTH, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS)
    softmax_v03_causal(const T* scores, T* out, int rows, int tq, int tk, float scale, int ahead) {
  let_next_start();
  const int lane = threadIdx.x % G;
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole rows leave, no barrier joins two rows
  const int visible = row % tq + 1 + tk - tq;
  const T* from = scores + static_cast<int64_t>(row) * tk;
  T* to = out + static_cast<int64_t>(row) * tk;
  // Most of what a warp holds lies on one side of the diagonal: no mask below it, no arithmetic above. bf16 at T 512
  // takes 3 % less time so; with more values a thread, or narrow packets, the branches cost more than they save.
  constexpr bool BRANCHES = WIDTH * sizeof(T) == 16 && COUNT * WIDTH <= BRANCH_VALUES;
  const int warp_column = (lane & ~31) * WIDTH;
  const auto all_visible = [&](int k) { return BRANCHES && (k * G + 32) * WIDTH + warp_column <= visible; };
  const auto any_visible = [&](int k) { return !BRANCHES || k * G * WIDTH + warp_column < visible; };

  wait_for_previous();
  // all loads are issued before the first use; a packet with no visible score is not loaded
  Packet<T, WIDTH> loaded[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < visible) loaded[k] = Packet<T, WIDTH>::load(from + column);
  }
  // One thread a row asks for the visible part of a row that a later block reads. DRAM then sees long reads, blocks
  // live shorter: 2 to 3 % less time on an H200.
  if (WIDTH * sizeof(T) == 16 && lane == 0 && ahead < rows - row) {
    const int later = row + ahead;
    const int wanted = later % tq + 1 + tk - tq;
    if (wanted > 0)
      prefetch_l2(scores + static_cast<int64_t>(later) * tk, (wanted * static_cast<uint32_t>(sizeof(T)) + 15) & ~15u);
  }

  float value[COUNT][WIDTH];
  float largest = -INFINITY;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    if (all_visible(k)) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        value[k][j] = to_float(loaded[k].values[j]) * scale;
        largest = fmaxf(largest, value[k][j]);  // a NaN is not a maximum; it comes back in the sum
      }
    } else if (any_visible(k)) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        const int column = (k * G + lane) * WIDTH + j;
        value[k][j] = column < visible ? to_float(loaded[k].values[j]) * scale : -INFINITY;
        largest = fmaxf(largest, value[k][j]);
      }
    }
  }
  largest = warp_max(largest);
  // with several warps a row, one of them may see only masked columns: -inf - -inf must not spoil its zeros
  const float base = G > 32 && largest == -INFINITY ? 0.0f : largest;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    if (any_visible(k)) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        value[k][j] = exp_fast(value[k][j] - base);
        sum += value[k][j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) value[k][j] = 0.0f;
    }
  }
  sum = warp_sum(sum);

  // NaN for a row that sees nothing, only -inf, +inf or a NaN: 0 * inf or a NaN sum
  float factor;
  if constexpr (G == 32) {
    factor = 1.0f / sum;
  } else {
    constexpr int WARPS = G / 32;
    __shared__ float shared_largest[ROWS][WARPS], shared_total[ROWS][WARPS];
    float* warp_largest = shared_largest[threadIdx.x / G];
    float* warp_total = shared_total[threadIdx.x / G];
    if (lane % 32 == 0) {
      warp_largest[lane / 32] = largest;
      warp_total[lane / 32] = sum;
    }
    join_row<G, ROWS>();
    float row_largest = -INFINITY, total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) row_largest = fmaxf(row_largest, warp_largest[warp]);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) total += warp_total[warp] * exp_fast(warp_largest[warp] - row_largest);
    factor = exp_fast(largest - row_largest) / total;
  }

  // the row is written in one go, zeros included: writing the zeros early, while the loads fly, was 3 % slower
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int column = (k * G + lane) * WIDTH;
    if (column < tk) Packet<T, WIDTH>::scaled(value[k], factor).store(to + column);
  }
}

// Rows too long for registers: one block a row, an online pass and a writing pass, still nothing above the diagonal.
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

// The mapping of rows to threads, by packets in a row, as measured on an H200 (README.md).
template <typename T, int WIDTH>
static cudaError_t launch(const SoftmaxCall& call) {
  const int packets = (call.tk - 1) / WIDTH + 1;
  if (packets <= 32) return launch_rows<T, WIDTH, 1, 32, 4>(call);
  // decode: a handful of rows, where only the time of one row counts
  if (call.rows <= FEW_ROWS && packets <= 128) return launch_rows<T, WIDTH, 1, 128, 1>(call);
  if (call.rows <= FEW_ROWS && packets <= 256) return launch_rows<T, WIDTH, 1, 256, 1>(call);
  if (packets <= 64) return launch_rows<T, WIDTH, 2, 32, 4>(call);
  if (packets <= 128) return launch_rows<T, WIDTH, 4, 32, 4>(call);
  if constexpr (WIDTH * sizeof(T) == 16) {
    if (packets <= 256) {
      if constexpr (sizeof(T) == 4) return launch_rows<T, WIDTH, 2, 128, 1>(call);
      if constexpr (sizeof(T) == 2) return launch_rows<T, WIDTH, 8, 32, 4>(call);
    }
    if (packets <= 512) return launch_rows<T, WIDTH, 8, 64, 2>(call);
    if (packets <= 1024) return launch_rows<T, WIDTH, 8, 128, 1>(call);
  } else {
    if (packets <= 256) return launch_rows<T, WIDTH, 4, 64, 1>(call);
    if (packets <= 512) return launch_rows<T, WIDTH, 4, 128, 1>(call);
    if (packets <= 1024) return launch_rows<T, WIDTH, 4, 256, 1>(call);
    if (packets <= 2048) return launch_rows<T, WIDTH, 8, 256, 1>(call);
    if (packets <= 4096) return launch_rows<T, WIDTH, 16, 256, 1>(call);
  }
  softmax_v03_causal_long<T, WIDTH><<<static_cast<unsigned>(call.rows), 512, 0, call.stream>>>(
      static_cast<const T*>(call.scores), static_cast<T*>(call.out), call.tq, call.tk, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

// The widest packet that every row start allows: 16 bytes where Tk is a multiple of it, one element at worst.
template <typename T>
static cudaError_t launch_widest(const SoftmaxCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.scores) | reinterpret_cast<uintptr_t>(call.out) |
                         (static_cast<uintptr_t>(call.tk) * sizeof(T));
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
