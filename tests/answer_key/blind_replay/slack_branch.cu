// A depth map and a histogram side by side, then a join. The histogram has slack. b: it is faster (wins nothing).
#include "key.h"

__global__ void depth_map(const float* image, float* depth, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = image[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + k);
  depth[i] = v;
}
__global__ void histogram(const float* image, int* bins, int n, int repeats) {
  __shared__ int mine[256];
  mine[threadIdx.x] = 0;
  __syncthreads();
  for (int r = 0; r < repeats; r++)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
      atomicAdd(&mine[(int)(fabsf(image[i]) * 40 + i) % 256], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
__global__ void join(float* depth, const int* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) depth[i] *= 1.0f / (1 + bins[i % 256]);
}

struct Program {
  static const int n = 64 * 256;
  int repeats;
  float *image = device<float>(n), *depth = device<float>(n);
  int* bins = device<int>(256);
  cudaStream_t one, two;
  cudaEvent_t begin, end;
  Program(char form) : repeats(form == 'a' ? 60 : 20) {
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&begin, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(begin, one));
    CHECK(cudaStreamWaitEvent(two, begin));
    histogram<<<8, 256, 0, two>>>(image, bins, n, repeats);
    CHECK(cudaEventRecord(end, two));
    depth_map<<<n / 256, 256, 0, one>>>(image, depth, n, 12000);
    CHECK(cudaStreamWaitEvent(one, end));
    join<<<n / 256, 256, 0, one>>>(depth, bins, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
