// Six terraces are filled by one kernel, each as deep as it asks. a: the last one takes 30,000 rounds, b: 10,000 are enough.
#include "key.h"

__global__ void fill_terrace(const float* slope, float* water, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + slope[i], v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  water[i] += v;
}
__global__ void drain(float* water, float* slope, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = water[i] * 0.1f;
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  water[i] = 0.1f * v, slope[i] = fabsf(v);
}

struct Program {
  static const int blocks = 96, n = blocks * 256;
  int last;
  float *slope = device<float>(n), *water = device<float>(n);
  cudaStream_t stream;
  Program(char form) : last(form == 'a' ? 30000 : 10000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0; i < 6; i++) fill_terrace<<<blocks, 256, 0, stream>>>(slope, water, i < 5 ? 2000 : last);
    drain<<<blocks, 256, 0, stream>>>(water, slope, 10000);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(water, n); }
};
KEY_MAIN(Program)
