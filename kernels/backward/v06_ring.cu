// backward v06_ring: layernorm by blocks that stay, with rows on their way into rings in shared memory.
// Shapes   gradient, x, out (N, C) row-major; weight, of_weight, of_bias (C,); workspace two rows of C floats per block.
// Needs    sm_90 (other GPUs, rows that are no multiple of 16 bytes or too long for registers are v05's)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once; the blocks' sums stay in L2.
// Versus   v05: both operands are read once, in 16-byte packets, two rows ahead of the arithmetic. Each block keeps its
//          sums for weight and bias in registers; a second launch adds them, always in the same order.
// Source   rmsnorm v05_persistent; PTX ISA, "cp.async"; the two stages of apex's layer_norm backward
#include "backward.h"
#include "check.cuh"
#include "row_gradients.cuh"

cudaError_t backward_v05_columns(const BackwardCall& call);

#ifndef BACKWARD_V06_STAGES
#define BACKWARD_V06_STAGES 3
#endif

template <typename T, typename M>
__global__ void __launch_bounds__(M::THREADS, M::BLOCKS)
    backward_v06_ring(const T* gradient, const T* x, const T* weight, T* out, float* sums, int rows, int columns,
                      float eps) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  let_next_start();
  wait_for_previous();
  row_gradients<T, M, true>(gradient, x, weight, out, sums, rows, columns, eps);
#endif
}

template <typename T>
__global__ void __launch_bounds__(SUM_THREADS)
    backward_v06_sum(const float* sums, T* of_weight, T* of_bias, int count, int columns) {
  let_next_start();
  wait_for_previous();
  add_blocks<T>(sums, of_weight, of_bias, count, columns);
}

template <typename T>
static cudaError_t launch(const BackwardCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.out) | reinterpret_cast<uintptr_t>(call.gradient) |
                         (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const auto other = [&] { return backward_v05_columns(call); };
  if (addresses % 16) return other();
  const auto in_ring = [&](auto mapping) {
    using M = decltype(mapping);
    const auto kernel = backward_v06_ring<T, M>;
    static const bool waits = compiled_to_wait(kernel);
    if (!waits) return other();
    const int blocks = ring_blocks<M>(call.rows, call.partial_rows / 2);
    cudaError_t status =
        launch_overlapped(kernel, Grid{blocks, M::THREADS}, M::BYTES, call.stream, static_cast<const T*>(call.gradient),
                          static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<T*>(call.out),
                          call.workspace, static_cast<int>(call.rows), call.columns, call.number);
    RETURN_IF_LAUNCH_FAILED();
    if (status != cudaSuccess) return status;
    status = launch_overlapped(backward_v06_sum<T>, waits, sum_blocks(call.columns, 2), SUM_THREADS, call.stream,
                               static_cast<const float*>(call.workspace), static_cast<T*>(call.of_weight),
                               static_cast<T*>(call.of_bias), blocks, call.columns);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  };
  return with_ring<T, BACKWARD_V06_STAGES>(static_cast<int>(call.columns * sizeof(T) / 16), in_ring, other);
}

cudaError_t backward_v06_ring(const BackwardCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
