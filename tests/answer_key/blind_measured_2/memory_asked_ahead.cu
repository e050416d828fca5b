// A trainer asks how much memory is free before each step, far ahead of the GPU. b: it does not ask (wins nothing).
#include "key.h"

__global__ void train(float* x, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + k);
  x[i] = v;
}

struct Program {
  static const int n = 1 << 20;
  char form;
  float* x = device<float>(n);
  Program(char form) : form(form) {}
  void step(int) {
    size_t left = 1, all;
    if (form == 'a') CHECK(cudaMemGetInfo(&left, &all));
    for (int i = 0; i < 6 && left; i++) train<<<n / 256, 256>>>(x, 3000);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
