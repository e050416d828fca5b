// layernorm v04_constant: v03 with weight and bias in constant memory, copied there before every launch.
// Shapes   x, out (N, C) row-major; weight, bias (C,).
// Needs    C <= 8192 in fp32; one stream at a time: all calls share the 64 KB of constant memory, so calls on two
//          streams would overwrite each other's weights
// Moves    2 * N * C * sizeof(T) bytes, and two copies of C elements.
// Versus   v03: weight and bias no longer pass through L1. But the constant cache serves one address per cycle, and the
//          32 lanes of a warp read 32 columns.
// Why      serialised reads: 2 * C cycles per row instead of C / 16.
// Source   the claim that constant memory speeds up a bias (CLAIMS.md): it holds for one address per warp
#include "check.cuh"
#include "layernorm.h"
#include "reduce.cuh"
#include "vec.cuh"

#ifndef LAYERNORM_V04_THREADS
#define LAYERNORM_V04_THREADS 128
#endif

namespace {
constexpr int THREADS = LAYERNORM_V04_THREADS;
constexpr int ROWS = THREADS / 32;
constexpr int CONSTANT_BYTES = 64 << 10;
}  // namespace

__constant__ uint4 layernorm_parameters[CONSTANT_BYTES / 16];  // weight in the first half, bias in the second

template <typename T>
__global__ void __launch_bounds__(THREADS)
    layernorm_v04_constant(const T* x, T* out, int64_t rows, int columns, float eps) {
  const T* weight = reinterpret_cast<const T*>(layernorm_parameters);
  const T* bias = reinterpret_cast<const T*>(layernorm_parameters + CONSTANT_BYTES / 32);
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / 32;
  if (row >= rows) return;
  const T* from = x + row * columns;
  T* to = out + row * columns;
  float sum = 0.0f;
  for (int column = lane; column < columns; column += 32) sum += to_float(from[column]);
  const float mean = warp_sum(sum) / columns;
  float squares = 0.0f;
  for (int column = lane; column < columns; column += 32) {
    const float centred = to_float(from[column]) - mean;
    squares += centred * centred;
  }
  const float scale = rsqrtf(warp_sum(squares) / columns + eps);
  for (int column = lane; column < columns; column += 32)
    to[column] =
        from_float<T>((to_float(from[column]) - mean) * scale * to_float(weight[column]) + to_float(bias[column]));
}

template <typename T>
static cudaError_t launch(const LayernormCall& call) {
  const size_t bytes = call.columns * sizeof(T);
  if (bytes > CONSTANT_BYTES / 2) return cudaErrorInvalidValue;
  for (const bool second : {false, true})
    if (const cudaError_t status =
            cudaMemcpyToSymbolAsync(layernorm_parameters, second ? call.bias : call.weight, bytes,
                                    second ? CONSTANT_BYTES / 2 : 0, cudaMemcpyDeviceToDevice, call.stream))
      return status;
  layernorm_v04_constant<T><<<static_cast<unsigned>((call.rows - 1) / ROWS + 1), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<T*>(call.out), call.rows, call.columns, call.eps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t layernorm_v04_constant(const LayernormCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
