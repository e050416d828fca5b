// A kiln burns bricks in a buffer of 16 MB. a: asked from the driver in each step and given back, b: kept.
#include "key.h"

__global__ void burn(float* bricks, float* sum, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i % 7;
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  bricks[i] = v;
  if (i < 4096) sum[i] = v;
}

struct Program {
  static const int n = 1 << 22;
  char form;
  float *kept = device<float>(n), *sum = device<float>(4096);
  cudaStream_t stream;
  Program(char form) : form(form) { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void step(int) {
    float* bricks = kept;
    if (form == 'a') CHECK(cudaMalloc(&bricks, n * 4));
    for (int i = 0; i < 3; i++) burn<<<n / 256, 256, 0, stream>>>(bricks, sum, 150);
    CHECK(cudaStreamSynchronize(stream));
    if (form == 'a') CHECK(cudaFree(bricks));
  }
  std::vector<float> result() { return home(sum, 4096); }
};
KEY_MAIN(Program)
