// residual v05_pairs: two sums of bf16 an instruction; loads pass L1 up to 128 MB, stores of most bytes are streaming.
// Shapes   x, y, out of one shape, N * C elements.
// Needs    tensors aligned to 16 bytes, of a multiple of 16 bytes (v04 takes the others)
// Moves    3 * N * C * sizeof(T) bytes: both operands once in, the sum once out.
// Versus   v04: an eighth of the instructions between the loads and the store of bf16, so that few blocks end earlier; blocks of
//          256 threads.
// Source   v04_pass_l1
#include "check.cuh"
#include "overlap.cuh"
#include "packed.cuh"
#include "residual.h"

cudaError_t residual_v04_pass_l1(const ResidualCall& call);

#ifndef RESIDUAL_V05_THREADS
#define RESIDUAL_V05_THREADS 256
#endif

namespace {
constexpr int THREADS = RESIDUAL_V05_THREADS;
// of all three tensors: up to the first loads pass L1, beyond the second L2 evicts the sums first
constexpr int64_t PASS_BYTES = int64_t{128} << 20, STREAMED_BYTES = int64_t{512} << 20;
enum class Hint { none, pass_l1, streamed };
}  // namespace

template <typename T, Hint HINT>
__global__ void __launch_bounds__(THREADS)
    residual_v05_pairs(const uint4* x, const uint4* y, uint4* out, uint32_t packets) {
  let_next_start();
  const uint32_t packet = blockIdx.x * THREADS + threadIdx.x;
  if (packet >= packets) return;
  wait_for_previous();
  constexpr bool PASS = HINT == Hint::pass_l1;
  const uint4 left = PASS ? load_once(x + packet) : x[packet], right = PASS ? load_once(y + packet) : y[packet];
  const uint4 sum = sum_of_packets<T>(left, right);
  HINT == Hint::streamed ? __stcs(out + packet, sum) : static_cast<void>(out[packet] = sum);
}

template <typename T, Hint HINT>
static cudaError_t launch(const ResidualCall& call) {
  const int64_t packets = call.elements * static_cast<int64_t>(sizeof(T)) / 16;
  const auto kernel = residual_v05_pairs<T, HINT>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status =
      launch_overlapped(kernel, waits, static_cast<int>((packets - 1) / THREADS + 1), THREADS, call.stream,
                        static_cast<const uint4*>(call.x), static_cast<const uint4*>(call.y),
                        static_cast<uint4*>(call.out), static_cast<uint32_t>(packets));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t choose(const ResidualCall& call) {
  const int64_t bytes = call.elements * static_cast<int64_t>(sizeof(T));
  const auto addresses =
      reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.y) | reinterpret_cast<uintptr_t>(call.out);
  if ((addresses | bytes) % 16 || bytes / 16 > 0x7fffffff) return residual_v04_pass_l1(call);
  if (3 * bytes <= PASS_BYTES) return launch<T, Hint::pass_l1>(call);
  return 3 * bytes > STREAMED_BYTES ? launch<T, Hint::streamed>(call) : launch<T, Hint::none>(call);
}

cudaError_t residual_v05_pairs(const ResidualCall& call) {
  return call.dtype == DType::float32 ? choose<float>(call) : choose<__nv_bfloat16>(call);
}
