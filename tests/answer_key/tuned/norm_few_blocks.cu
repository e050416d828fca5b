// Power iteration on a banded matrix. a: the norm uses 8 blocks, b: 528.
#include "key.h"

__global__ void multiply_band(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int k = -16; k <= 16; k++) sum += x[(i + k + n) % n] / (1.0f + k * k);
  y[i] = sum;
}

__global__ void square_norm(const float* y, float* norm, int n) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += y[i] * y[i];
  for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) atomicAdd(norm, sum);
}

__global__ void normalise(const float* y, float* x, const float* norm, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = y[i] * rsqrtf(*norm + 1e-20f);
}

struct Program {
  static const int n = 1 << 24;
  int blocks;
  float *x = device<float>(n), *y = device<float>(n), *norm = device<float>(1);
  Program(char form) : blocks(form == 'a' ? 8 : 528) {}
  void step(int) {
    CHECK(cudaMemsetAsync(norm, 0, 4));
    multiply_band<<<n / 256, 256>>>(x, y, n);
    square_norm<<<blocks, 256>>>(y, norm, n);
    normalise<<<n / 256, 256>>>(y, x, norm, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
