// cross_entropy v01_passes: one block per row, one element per access, a pass each for maximum, sum and gradient.
// Shapes   logits, gradient (N, V) row-major; target (N,) int64; loss (N,).
// Needs    nothing
// Moves    N * V * sizeof(T) bytes if later passes hit L2; the gradient as many.
// Versus   PyTorch: no log-probabilities are stored.
// Source   the definition
#include "check.cuh"
#include "online.cuh"
#include "row_norm.cuh"

#ifndef CROSS_ENTROPY_V01_THREADS
#define CROSS_ENTROPY_V01_THREADS 256
#endif

namespace {
constexpr int THREADS = CROSS_ENTROPY_V01_THREADS;
}

template <typename T, bool GRADIENT>
__global__ void __launch_bounds__(THREADS)
    cross_entropy_v01_passes(const T* logits, const int64_t* target, T* loss, T* gradient, float scale, int columns) {
  __shared__ float partial[THREADS / 32];
  const T* row = logits + static_cast<int64_t>(blockIdx.x) * columns;
  const Wanted wanted = Wanted::load(target + blockIdx.x, row, columns);
  float largest = -INFINITY;
  for (int column = threadIdx.x; column < columns; column += THREADS) largest = fmaxf(largest, to_float(row[column]));
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < THREADS / 32; ++warp) largest = fmaxf(largest, partial[warp]);
  float sum = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) sum += exp_fast(to_float(row[column]) - largest);
  const Powers powers{largest, row_sum<THREADS, 1, 0>(sum)};
  if (threadIdx.x == 0) loss[blockIdx.x] = from_float<T>(wanted.loss(powers));
  if constexpr (GRADIENT) {
    T* to = gradient + static_cast<int64_t>(blockIdx.x) * columns;
    const float factor = wanted.factor(powers, scale);
    for (int column = threadIdx.x; column < columns; column += THREADS) {
      const float power = exp_fast(to_float(row[column]) - largest) * factor;
      to[column] = from_float<T>(wanted.ignored            ? 0.0f
                                 : column == wanted.column ? wanted.gradient(powers, scale)
                                                           : power);
    }
  }
}

template <typename T>
static cudaError_t launch(const CrossEntropyCall& call) {
  const auto kernel = call.gradient ? cross_entropy_v01_passes<T, true> : cross_entropy_v01_passes<T, false>;
  kernel<<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.logits), call.target, static_cast<T*>(call.loss), static_cast<T*>(call.gradient),
      call.scale, call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t cross_entropy_v01_passes(const CrossEntropyCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
