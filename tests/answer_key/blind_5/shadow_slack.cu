// A renderer: shadows on a side stream end before the lights on the main one. b: the shadows take half as long (wins nothing).
#include "key.h"

__device__ float traced(float x, int rounds) {
  for (int k = 0; k < rounds; k++) x = 0.999f * x + sinf(x) * 1e-3f;
  return x;
}
__global__ void lights(float* pixels, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  pixels[i] = traced(pixels[i], rounds);
}
__global__ void shadows(float* pixels, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  pixels[i] = traced(pixels[i], rounds);
}
__global__ void compose(float* pixels, const float* dark) { pixels[threadIdx.x] *= 1 - dark[threadIdx.x]; }

struct Program {
  int rounds;
  float *pixels = device<float>(72 * 256), *dark = device<float>(40 * 256);
  cudaStream_t main, side;
  cudaEvent_t begun, done;
  Program(char form) : rounds(form == 'a' ? 24000 : 12000) {
    CHECK(cudaStreamCreateWithFlags(&main, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(begun, main));
    CHECK(cudaStreamWaitEvent(side, begun));
    shadows<<<40, 256, 0, side>>>(dark, rounds);
    CHECK(cudaEventRecord(done, side));
    lights<<<72, 256, 0, main>>>(pixels, 48000);
    CHECK(cudaStreamWaitEvent(main, done));
    compose<<<1, 256, 0, main>>>(pixels, dark);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
