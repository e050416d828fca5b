// cross_entropy v05_ring: blocks that stay; bulk copies bring rows into a ring in shared memory, read once.
// Shapes   logits, gradient (N, V) row-major; target (N,) int64; loss (N,).
// Needs    sm_90, a gradient (v03 runs on other GPUs, without one, and for rows longer than the rings of a cluster of four)
// Moves    2 * N * V * sizeof(T) bytes: every logit once in, every gradient once out.
// Versus   v03: the gradient finds its row in shared memory. v04: rows follow each other without a pause, as the next ones
//          come while one is reduced and written.
// Source   v04_cluster; PTX ISA, "cp.async.bulk"; Little's law: 224 KB on their way to each SM
#include "ring.cuh"

cudaError_t cross_entropy_v03_online(const CrossEntropyCall& call);

template <typename T>
__global__ void __launch_bounds__(THREADS + 32, 1)
    cross_entropy_v05_ring(const T* logits, const int64_t* target, T* loss, T* gradient, float scale, int rows,
                           int columns) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  rows_through_ring<T, true, 1>(logits, target, loss, gradient, scale, rows, columns);
#endif
}

template <typename T>
static cudaError_t launch(const CrossEntropyCall& call) {
  const auto apart = reinterpret_cast<uintptr_t>(call.logits) ^ reinterpret_cast<uintptr_t>(call.gradient);
  const int size = blocks_for_row(call.columns * static_cast<int64_t>(sizeof(T)), STAGES_OF<1>);
  int multiprocessors = 0;
  if (const cudaError_t status = hopper_multiprocessors(multiprocessors)) return status;
  if (multiprocessors == 0 || !call.gradient || apart % 16 || size == 0) return cross_entropy_v03_online(call);
  return launch_rings<1>(cross_entropy_v05_ring<T>, call, multiprocessors, size);
}

cudaError_t cross_entropy_v05_ring(const CrossEntropyCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
