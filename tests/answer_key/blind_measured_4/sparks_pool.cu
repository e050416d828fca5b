// Twenty-four short passes over sparks. a: each takes scratch from the stream's pool, which keeps its memory, b: one buffer.
#include "key.h"

__global__ void glow(float* sparks, float* scratch, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = sparks[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  scratch[i] = v;
  sparks[i] = 0.5f * scratch[i];
}

struct Program {
  static const int n = 1 << 15;
  char form;
  float *sparks = device<float>(n), *kept = device<float>(n);
  cudaStream_t stream;
  Program(char form) : form(form) {
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
  }
  void step(int) {
    for (int i = 0; i < 24; i++) {
      float* scratch = kept;
      if (form == 'a') CHECK(cudaMallocAsync(&scratch, n * 4, stream));
      glow<<<n / 256, 256, 0, stream>>>(sparks, scratch, 60);
      if (form == 'a') CHECK(cudaFreeAsync(scratch, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
  }
};
KEY_MAIN(Program)
