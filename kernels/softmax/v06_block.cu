// softmax v06_block: one block per row, the row in shared memory, maximum and sum by trees of barriers.
// Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.
// Needs    Tk floats of shared memory beside the tree: 57 000 columns on sm_90, 16 000 on sm_75
// Moves    2 * N * Tk * sizeof(T) bytes: every score once, every output once.
// Versus   v02: a score is read once instead of twice, and an exponential computed once instead of three times. But the
//          maximum and the sum need a tree each, of eight steps with a barrier.
// Source   Harris, "Optimizing Parallel Reduction in CUDA", sequential addressing
#include "check.cuh"
#include "reduce.cuh"
#include "softmax.h"
#include "vec.cuh"

#ifndef SOFTMAX_V06_THREADS
#define SOFTMAX_V06_THREADS 256
#endif

namespace {
constexpr int THREADS = SOFTMAX_V06_THREADS;

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float sum(float a, float b) { return a + b; }

// Joins all values of a block, and returns the result to every thread.
template <float (*JOIN)(float, float)>
__device__ __forceinline__ float tree(float* values, float mine) {
  values[threadIdx.x] = mine;
  __syncthreads();
  for (int width = THREADS / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) values[threadIdx.x] = JOIN(values[threadIdx.x], values[threadIdx.x + width]);
    __syncthreads();
  }
  const float joined = values[0];
  __syncthreads();  // the next tree overwrites values[0]
  return joined;
}
}  // namespace

template <typename T>
__global__ void __launch_bounds__(THREADS) softmax_v06_block(const T* scores, T* out, int tq, int tk, float scale) {
  extern __shared__ float row_values[];
  __shared__ float values[THREADS];
  const int64_t row = blockIdx.x;
  const int last = static_cast<int>(row % tq) + tk - tq;
  const T* from = scores + row * tk;
  T* to = out + row * tk;

  float largest = -INFINITY;
  for (int column = threadIdx.x; column < tk; column += THREADS) {
    const float loaded = to_float(from[column]);  // dense: the masked part is read too
    const float score = column <= last ? loaded * scale : -INFINITY;
    row_values[column] = score;
    largest = fmaxf(largest, score);  // fmaxf ignores a NaN; the sum keeps it
  }
  largest = tree<larger>(values, largest);
  float total = 0.0f;
  for (int column = threadIdx.x; column < tk; column += THREADS) {
    const float power = exp_fast(row_values[column] - largest);  // -inf - -inf: NaN, as in PyTorch
    row_values[column] = power;
    total += power;
  }
  total = tree<sum>(values, total);
  for (int column = threadIdx.x; column < tk; column += THREADS) to[column] = from_float<T>(row_values[column] / total);
}

template <typename T>
static cudaError_t launch(const SoftmaxCall& call) {
  const size_t bytes = call.tk * sizeof(float);
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  if (bytes + THREADS * sizeof(float) > static_cast<size_t>(most)) return cudaErrorInvalidValue;
  if (const cudaError_t status = cudaFuncSetAttribute(softmax_v06_block<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(bytes)))
    return status;
  softmax_v06_block<T><<<static_cast<unsigned>(call.rows), THREADS, bytes, call.stream>>>(
      static_cast<const T*>(call.scores), static_cast<T*>(call.out), call.tq, call.tk, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t softmax_v06_block(const SoftmaxCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
