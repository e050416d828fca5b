// gemv v04_early: v02, with the first weights prefetched while the previous kernel still drains.
// Shapes   weight (N, K) row-major, x (K), bias, out (N).
// Needs    sm_90 and 16-byte aligned rows; otherwise v02 runs
// Moves    as v02: (N*K + K + 2*N) * sizeof(T) bytes.
// Versus   v02: a chain of small products, such as a decode step, waits for DRAM once, not at every launch. Blocks
//          start early, and prefetch their first rows into L2 before they wait for the previous kernel. A prefetch is a
//          hint: no value is read before that kernel has ended.
// Source   PTX ISA, cp.async.bulk.prefetch.L2 and griddepcontrol
#ifndef GEMV_V04_THREADS
#define GEMV_V04_THREADS 128
#endif
#ifndef GEMV_V04_EARLY_MB
#define GEMV_V04_EARLY_MB 4
#endif
#define ROWS_THREADS GEMV_V04_THREADS
#include "check.cuh"
#include "overlap.cuh"
#include "warp_rows.cuh"

cudaError_t gemv_v02_warp(const GemvCall& call);  // runs what this rung does not take

namespace {
// Blocks prefetch so many bytes of the first rows: about what all SMs hold.
constexpr int64_t EARLY_BYTES = int64_t{GEMV_V04_EARLY_MB} << 20;
}  // namespace

// Operands are not __restrict__, because loads of x must stay after the wait.
template <typename T, int WARPS, int COUNT, int ROWS>
__global__ void __launch_bounds__(THREADS)
    gemv_v04_early(const T* weight, const T* x, const T* bias, T* out, int n, int k, int early) {
  let_next_start();
  const int first = (blockIdx.x * (THREADS / (32 * WARPS)) + threadIdx.x / (32 * WARPS)) * ROWS;
  if (threadIdx.x % (32 * WARPS) == 0 && first < min(early, n))
    prefetch_l2(weight + static_cast<int64_t>(first) * k, min(ROWS, n - first) * k * static_cast<uint32_t>(sizeof(T)));
  wait_for_previous();
  warp_rows<T, WARPS, COUNT, ROWS>(weight, x, bias, out, first, n, k);
}

template <typename T>
static cudaError_t launch(const GemvCall& call) {
  if (!whole_packets(call, sizeof(T))) return gemv_v02_warp(call);
  return with_mapping(call, sizeof(T), [&](auto mapping) {
    using M = decltype(mapping);
    const auto kernel = gemv_v04_early<T, M::WARPS, M::COUNT, M::ROWS>;
    static const bool waits = compiled_to_wait(kernel);
    if (!waits) return gemv_v02_warp(call);
    const int64_t row_bytes = call.k * static_cast<int64_t>(sizeof(T));
    const cudaError_t status = launch_overlapped(kernel, waits, (call.n - 1) / M::A_BLOCK + 1, THREADS, call.stream,
                                                 static_cast<const T*>(call.weight), static_cast<const T*>(call.x),
                                                 static_cast<const T*>(call.bias), static_cast<T*>(call.out), call.n,
                                                 call.k, static_cast<int>(EARLY_BYTES / row_bytes));
    RETURN_IF_LAUNCH_FAILED();
    return status;
  });
}

cudaError_t gemv_v04_early(const GemvCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
