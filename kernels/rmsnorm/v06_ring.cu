// rmsnorm v06_ring: backward by blocks that stay, with rows on their way into rings in shared memory.
// Shapes   gradient, x, out (N, C) row-major; weight, of_weight (C,); workspace one row of C floats per block.
// Needs    sm_90 (other GPUs, rows that are no multiple of 16 bytes or too long for registers are v05's)
// Moves    3 * N * C * sizeof(T) bytes: both operands once, the result once; the blocks' sums stay in L2.
// Versus   v05: rows are on their way from the first instruction on and without registers. The second launch loads all that
//          a thread adds at once.
// Source   PTX ISA, "cp.async"; the persistent layer norm of QuACK also stages rows in shared memory
#include "check.cuh"
#include "rmsnorm.h"
#include "row_gradients.cuh"

cudaError_t rmsnorm_v05_persistent(const RmsnormCall& call);

#ifndef RMSNORM_V06_STAGES
#define RMSNORM_V06_STAGES 2
#endif

template <typename T, typename M>
__global__ void __launch_bounds__(M::THREADS, M::BLOCKS)
    rmsnorm_v06_ring(const T* gradient, const T* x, const T* weight, T* out, float* sums, int rows, int columns,
                     float eps) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  let_next_start();
  wait_for_previous();
  row_gradients<T, M, false>(gradient, x, weight, out, sums, rows, columns, eps);
#endif
}

template <typename T>
__global__ void __launch_bounds__(SUM_THREADS)
    rmsnorm_v06_sum(const float* sums, T* of_weight, int count, int columns) {
  let_next_start();
  wait_for_previous();
  add_blocks<T>(sums, of_weight, nullptr, count, columns);
}

template <typename T>
static cudaError_t launch(const RmsnormCall& call) {
  const auto addresses = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight) |
                         reinterpret_cast<uintptr_t>(call.out) | reinterpret_cast<uintptr_t>(call.gradient) |
                         (static_cast<uintptr_t>(call.columns) * sizeof(T));
  const auto other = [&] { return rmsnorm_v05_persistent(call); };
  if (addresses % 16) return other();
  const auto in_ring = [&](auto mapping) {
    using M = decltype(mapping);
    const auto kernel = rmsnorm_v06_ring<T, M>;
    static const bool waits = compiled_to_wait(kernel);
    if (!waits) return other();
    const int blocks = ring_blocks<M>(call.rows, call.partial_rows / 2);
    cudaError_t status =
        launch_overlapped(kernel, Grid{blocks, M::THREADS}, M::BYTES, call.stream, static_cast<const T*>(call.gradient),
                          static_cast<const T*>(call.x), static_cast<const T*>(call.weight), static_cast<T*>(call.out),
                          call.workspace, static_cast<int>(call.rows), call.columns, call.eps);
    RETURN_IF_LAUNCH_FAILED();
    if (status != cudaSuccess) return status;
    status = launch_overlapped(rmsnorm_v06_sum<T>, waits, sum_blocks(call.columns, 1), SUM_THREADS, call.stream,
                               static_cast<const float*>(call.workspace), static_cast<T*>(call.of_weight), blocks,
                               call.columns);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  };
  return with_ring<T, RMSNORM_V06_STAGES>(static_cast<int>(call.columns * sizeof(T) / 16), in_ring, other);
}

cudaError_t rmsnorm_v06_ring(const RmsnormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
