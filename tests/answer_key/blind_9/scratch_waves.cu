// Waves of many sources, then sums of blocks. a: a small scratch is allocated and freed in each step, b: once (wins nothing).
#include "key.h"

__global__ void waves(float* sums, int rounds) {
  __shared__ float parts[8];
  float x = (blockIdx.x * 256 + threadIdx.x) % 4093 * 1e-4f, y = 0.5f;
  for (int k = 0; k < rounds; k++) {
    y = y * x + 0.25f;
    x = x * 0.999f + y * 1e-3f;
  }
  for (int lane = 16; lane; lane /= 2) y += __shfl_down_sync(~0u, y, lane);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = y;
  __syncthreads();
  if (threadIdx.x) return;
  float sum = 0;
  for (float part : parts) sum += part;
  sums[blockIdx.x] = sum;
}
__global__ void gather(const float* sums, float* out, int each) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < each; k++) sum += sums[i * each + k];
  out[i] = sum;
}

struct Program {
  static const int blocks = 16384, groups = 1024;
  bool each;
  float *out = device<float>(groups), *kept = device<float>(blocks);
  Program(char form) : each(form == 'a') {}
  void step(int) {
    float* sums = kept;
    if (each) CHECK(cudaMalloc(&sums, blocks * sizeof(float)));
    waves<<<blocks, 256>>>(sums, 24000);
    gather<<<groups / 256, 256>>>(sums, out, blocks / groups);
    CHECK(cudaGetLastError());
    if (each) CHECK(cudaFree(sums));
  }
  std::vector<float> result() {
    std::vector<float> values(groups);
    CHECK(cudaMemcpy(values.data(), out, groups * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
