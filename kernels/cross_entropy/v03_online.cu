// cross_entropy v03_online: maximum and sum in one pass over 16-byte packets; the gradient reads the row again.
// Shapes   logits, gradient (N, V) row-major; target (N,) int64; loss (N,).
// Needs    nothing (a gradient at another place within 16 bytes than its logits is v01's)
// Moves    N * V * sizeof(T) bytes; with the gradient three times as many, less what of the second read hits L2.
// Versus   v01: one pass instead of two, 16 bytes per access, several loads in flight.
// Source   Milakov, Gimelshein 2018, "Online normalizer calculation for softmax"
#include "check.cuh"
#include "online.cuh"
#include "overlap.cuh"

cudaError_t cross_entropy_v01_passes(const CrossEntropyCall& call);

#ifndef CROSS_ENTROPY_V03_THREADS
#define CROSS_ENTROPY_V03_THREADS 512
#endif
#ifndef CROSS_ENTROPY_V03_LONG_KB
#define CROSS_ENTROPY_V03_LONG_KB 112
#endif
#ifndef CROSS_ENTROPY_V03_UNROLL
#define CROSS_ENTROPY_V03_UNROLL 4
#endif

namespace {
constexpr int SHORT_THREADS = CROSS_ENTROPY_V03_THREADS, LONG_THREADS = 1024, UNROLL = CROSS_ENTROPY_V03_UNROLL;
// A longer row with a gradient gets LONG_THREADS: one row per SM, not two, so that L2 has it for the second read.
constexpr int64_t LONG_BYTES = int64_t{CROSS_ENTROPY_V03_LONG_KB} << 10;
}  // namespace

template <typename T, bool GRADIENT, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    cross_entropy_v03_online(const T* logits, const int64_t* target, T* loss, T* gradient, float scale, int columns) {
  constexpr int WIDTH = 16 / sizeof(T);
  using Part = Packet<T, WIDTH>;
  let_next_start();
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  const T* row = logits + start;
  const Edges<T> edges(row, columns);
  const T* body = row + edges.head;
  const int thread = threadIdx.x;

  wait_for_previous();
  const Wanted wanted = Wanted::load(target + blockIdx.x, row, columns);
  const float edge = thread < edges.count ? to_float(row[edges.column(thread)]) : -INFINITY;
  Powers powers;
  const float only[1] = {edge};
  add(powers, only);
  int first = thread;
  for (; first + (UNROLL - 1) * THREADS < edges.packets; first += UNROLL * THREADS) {
    Part part[UNROLL];
    float value[UNROLL * WIDTH];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) part[k] = Part::load(body + (first + k * THREADS) * WIDTH);
#pragma unroll
    for (int i = 0; i < UNROLL * WIDTH; ++i) value[i] = to_float(part[i / WIDTH].values[i % WIDTH]);
    add(powers, value);
  }
  for (; first < edges.packets; first += THREADS) {
    const Part part = Part::load(body + first * WIDTH);
    float value[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[j] = to_float(part.values[j]);
    add(powers, value);
  }
  powers = merged_in_block<THREADS>(powers);
  if (thread == 0) loss[blockIdx.x] = from_float<T>(wanted.loss(powers));
  if constexpr (GRADIENT) {
    T* to = gradient + start;
    const float factor = wanted.factor(powers, scale), of_target = wanted.gradient(powers, scale);
    const auto of = [&](float logit) { return wanted.ignored ? 0.0f : exp_fast(logit - powers.largest) * factor; };
    const auto store = [&](int packet, const Part& part) {
      float value[WIDTH];
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) value[j] = of(to_float(part.values[j]));
      Part::scaled(value, 1.0f).store(to + edges.head + packet * WIDTH);
    };
    if (thread < edges.count) to[edges.column(thread)] = from_float<T>(of(edge));
    // the other way round: what was read last is in L2. All loads first, which may not pass stores to the same memory
    int packet = thread < edges.packets ? thread + (edges.packets - 1 - thread) / THREADS * THREADS : -1;
    for (; packet - (UNROLL - 1) * THREADS >= 0; packet -= UNROLL * THREADS) {
      Part part[UNROLL];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) part[k] = Part::load(body + (packet - k * THREADS) * WIDTH);
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) store(packet - k * THREADS, part[k]);
    }
    for (; packet >= 0; packet -= THREADS) store(packet, Part::load(body + packet * WIDTH));
    __syncthreads();
    if (thread == 0 && wanted.column >= 0) to[wanted.column] = from_float<T>(of_target);
  }
}

template <typename T, bool GRADIENT, int THREADS>
static cudaError_t launch_rows(const CrossEntropyCall& call) {
  const auto kernel = cross_entropy_v03_online<T, GRADIENT, THREADS>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status = launch_overlapped(
      kernel, waits, static_cast<int>(call.rows), THREADS, call.stream, static_cast<const T*>(call.logits), call.target,
      static_cast<T*>(call.loss), static_cast<T*>(call.gradient), call.scale, call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const CrossEntropyCall& call) {
  const auto apart = reinterpret_cast<uintptr_t>(call.logits) ^ reinterpret_cast<uintptr_t>(call.gradient);
  if (call.gradient && apart % 16) return cross_entropy_v01_passes(call);
  if (!call.gradient) return launch_rows<T, false, SHORT_THREADS>(call);
  const bool is_long = call.columns * static_cast<int64_t>(sizeof(T)) > LONG_BYTES;
  return is_long ? launch_rows<T, true, LONG_THREADS>(call) : launch_rows<T, true, SHORT_THREADS>(call);
}

cudaError_t cross_entropy_v03_online(const CrossEntropyCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
