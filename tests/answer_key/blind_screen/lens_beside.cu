// Ray bundles fill the GPU; a statistic in 4 blocks runs beside them. b: the statistic in 64 blocks (wins nothing).
#include "key.h"

__global__ void trace_bundle(float* rays, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float a = rays[i], b = a + 1, c = a - 1, d = 0.5f;
  for (int k = 0; k < rounds; k++) a = a * d + b, b = b * d - c, c = c * d + a, d = d * 0.9999f + 1e-5f;
  rays[i] = a + b + c;
}
__global__ void spot_size(const float* rays, float* sum, int n) {
  float mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += rays[i] * rays[i];
  for (int k = 16; k; k /= 2) mine += __shfl_xor_sync(~0u, mine, k);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

struct Program {
  static const int n = 1 << 22;
  int blocks;
  float *rays = device<float>(n), *last = device<float>(n), *sum = device<float>(1);
  cudaStream_t one, two;
  Program(char form) : blocks(form == 'a' ? 4 : 64) {
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&two, cudaStreamNonBlocking, -5));
  }
  void step(int) {
    spot_size<<<blocks, 256, 0, two>>>(last, sum, n / 4);
    trace_bundle<<<n / 256, 256, 0, one>>>(rays, 4000);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
