// backward v10_shifted: layernorm in bf16 with two passes over a row, not three; a warp has a row.
// Shapes   gradient, x, out (N, C) row-major; weight, of_weight, of_bias (C,); workspace two rows of C floats per block.
// Needs    sm_90, bf16, rows of up to 1536 bytes (else v06 runs)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once; the blocks' sums stay in L2.
// Versus   v06: its loop over a row of 768 has 789 instructions, 198 us of the 277 us that the bytes take; this one has 564. One
//          pass sums x and its square, both less an element of the row. So the variance loses little precision: at most a
//          factor of C, if the median of three elements is far from all others. The second pass has one multiply-add in
//          place of a difference and a product.
// Source   Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance" (shifted data); v06_ring
#include "backward.h"
#include "check.cuh"
#include "row_gradients.cuh"

cudaError_t backward_v06_ring(const BackwardCall& call);

#ifndef BACKWARD_V10_STAGES
#define BACKWARD_V10_STAGES 4
#endif

namespace {
// Reads a packet from shared memory again. Without `volatile` ptxas would keep the one of the first pass, converted, and spill.
template <typename Part>
__device__ __forceinline__ Part read_again(const uint4* from) {
  Part part;
  asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(part.raw.x), "=r"(part.raw.y), "=r"(part.raw.z), "=r"(part.raw.w)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from)))
               : "memory");
  return part;
}
}  // namespace

// FULL: every lane has COUNT packets of every row.
template <typename T, typename M, bool FULL>
__global__ void __launch_bounds__(M::THREADS, M::BLOCKS)
    backward_v10_shifted(const T* gradient, const T* x, const T* weight, T* out, float* sums, int rows, int columns,
                         float eps) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int COUNT = M::COUNT, G = M::G, ROWS = M::ROWS, STAGES = M::STAGES, WIDTH = 16 / sizeof(T);
  static_assert(G == 32);
  using Part = Packet<T, WIDTH>;
  extern __shared__ uint4 ring[];
  let_next_start();
  wait_for_previous();
  const int lane = threadIdx.x % G;
  const int step = gridDim.x * ROWS;
  const float share = 1.0f / static_cast<float>(columns);
  const int last = FULL ? G - 1 : columns / WIDTH - 1;  // lane that has a packet
  const auto has = [&](int k) { return FULL || (k * G + lane) * WIDTH < columns; };
  uint4* const own = ring + threadIdx.x;
  constexpr int SLOT = M::THREADS, STAGE = 2 * COUNT * SLOT;
  int row = blockIdx.x * ROWS + threadIdx.x / G;
  int64_t place = static_cast<int64_t>(row) * columns + lane * WIDTH;  // of this thread's first packet of a row
  const int64_t stride = static_cast<int64_t>(step) * columns;
  const auto fetch = [&](int ahead, int stage) {
    if (row + ahead * step >= rows) return;
    const int64_t at = place + ahead * stride;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      if (has(k)) {
        copy_packet(own + stage * STAGE + 2 * k * SLOT, x + at + k * G * WIDTH);
        copy_packet(own + stage * STAGE + (2 * k + 1) * SLOT, gradient + at + k * G * WIDTH);
      }
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    fetch(stage, stage);
    end_copies_and_wait<STAGES - 2>();
  }
  Part weights[COUNT];
  float of_weight[COUNT][WIDTH], of_bias[COUNT][WIDTH];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    weights[k].raw = {};
    if (has(k)) weights[k] = Part::load(weight + (k * G + lane) * WIDTH);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) of_weight[k][j] = of_bias[k][j] = 0.0f;
  }
  for (int stage = 0; row < rows; row += step, place += stride) {
    fetch(STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);  // into what this thread read last
    end_copies_and_wait<STAGES - 2>();
    const uint4* data = own + stage * STAGE;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    float shift = 0.0f;
    float4 total = {};
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      if (k == 0 || has(k)) {
        const Part values = read_packet<Part>(data + 2 * k * SLOT),
                   given = read_packet<Part>(data + (2 * k + 1) * SLOT);
        if (k == 0) {
          const float mine = to_float(values.values[0]), first = __shfl_sync(0xffffffffu, mine, 0),
                      second = __shfl_sync(0xffffffffu, mine, min(11, last)),
                      third = __shfl_sync(0xffffffffu, mine, min(22, last));
          shift = fmaxf(fminf(first, second), fminf(fmaxf(first, second), third));
          if (!has(0)) continue;
        }
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
          const float off = to_float(values.values[j]) - shift;
          const float wanted = to_float(given.values[j]) * to_float(weights[k].values[j]);
          total.x += off * off, total.y += off * wanted, total.z += off, total.w += wanted;
        }
      }
    total = add_over_row<G, ROWS>(total, 0);
    const float mean_off = total.z * share, mean_wanted = total.w * share;
    const float variance = total.x * share - mean_off * mean_off;
    const float scale = rsqrtf((variance < 0.0f ? 0.0f : variance) + eps);  // a NaN stays
    const float mean_product = (total.y - mean_off * total.w) * scale * share;
    const float less = -(shift + mean_off) * scale, back = -mean_product * scale, base = -mean_wanted * scale;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      if (has(k)) {
        const Part values = read_again<Part>(data + 2 * k * SLOT), given = read_again<Part>(data + (2 * k + 1) * SLOT);
        float result[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
          const float z = to_float(values.values[j]) * scale + less, one = to_float(given.values[j]);
          result[j] = z * back + (one * to_float(weights[k].values[j]) * scale + base);
          of_weight[k][j] += one * z, of_bias[k][j] += one;
        }
        Part::scaled(result, 1.0f).store(out + place + k * G * WIDTH);
      }
  }

  // the rows of the block first, through the ring, whose copies have all been read
  constexpr int ROW = COUNT * G * WIDTH;
  static_assert(2 * ROWS * ROW * 4 <= M::BYTES);
  float* shared = reinterpret_cast<float*>(ring);
  const auto put = [&](float* to, const float (&values)[COUNT][WIDTH]) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll
      for (int j = 0; j < WIDTH; j += 4)
        *reinterpret_cast<float4*>(to + (k * G + lane) * WIDTH + j) = {values[k][j], values[k][j + 1], values[k][j + 2],
                                                                       values[k][j + 3]};
  };
  __syncthreads();
  put(shared + threadIdx.x / G * ROW, of_weight);
  put(shared + (ROWS + threadIdx.x / G) * ROW, of_bias);
  __syncthreads();
  for (int column = threadIdx.x; column < columns; column += M::THREADS)
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      float total = 0.0f;
#pragma unroll
      for (int from = 0; from < ROWS; ++from) total += shared[(which * ROWS + from) * ROW + column];
      sums[(static_cast<int64_t>(which) * gridDim.x + blockIdx.x) * columns + column] = total;
    }
#endif
}

template <typename T>
__global__ void __launch_bounds__(SUM_THREADS)
    backward_v10_sum(const float* sums, T* of_weight, T* of_bias, int count, int columns) {
  let_next_start();
  wait_for_previous();
  add_blocks<T>(sums, of_weight, of_bias, count, columns);
}

template <typename T, typename M, bool FULL>
static cudaError_t launch_rows(const BackwardCall& call) {
  const auto kernel = backward_v10_shifted<T, M, FULL>;
  static const bool waits = compiled_to_wait(kernel);
  if (!waits) return backward_v06_ring(call);
  const int blocks = ring_blocks<M>(call.rows, call.partial_rows / 2);
  cudaError_t status =
      launch_overlapped(kernel, Grid{blocks, M::THREADS}, M::BYTES, call.stream, static_cast<const T*>(call.gradient),
                        static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<T*>(call.out),
                        call.workspace, static_cast<int>(call.rows), call.columns, call.number);
  RETURN_IF_LAUNCH_FAILED();
  if (status != cudaSuccess) return status;
  status = launch_overlapped(backward_v10_sum<T>, waits, sum_blocks(call.columns, 2), SUM_THREADS, call.stream,
                             static_cast<const float*>(call.workspace), static_cast<T*>(call.of_weight),
                             static_cast<T*>(call.of_bias), blocks, call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <int COUNT>
static cudaError_t launch_count(const BackwardCall& call) {
  using M = RingMapping<COUNT, 32, 8, BACKWARD_V10_STAGES>;
  const bool full = call.columns == COUNT * 32 * 8;
  return full ? launch_rows<__nv_bfloat16, M, true>(call) : launch_rows<__nv_bfloat16, M, false>(call);
}

cudaError_t backward_v10_shifted(const BackwardCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.out) | reinterpret_cast<uintptr_t>(call.gradient) |
                         (static_cast<uintptr_t>(call.columns) * 2);
  if (call.dtype != DType::bfloat16 || addresses % 16 || call.columns > 768) return backward_v06_ring(call);
  if (call.columns <= 256) return launch_count<1>(call);
  return call.columns <= 512 ? launch_count<2>(call) : launch_count<3>(call);
}
