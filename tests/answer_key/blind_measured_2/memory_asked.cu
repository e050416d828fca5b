// A server asks how much memory is free before each request, and waits for each answer. b: it does not ask.
#include "key.h"

__global__ void respond(float* x, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + k);
  x[i] = v;
}

struct Program {
  static const int n = 1 << 17;
  char form;
  float* x = device<float>(n);
  Program(char form) : form(form) {}
  void step(int) {
    size_t left = 1, all;
    if (form == 'a') CHECK(cudaMemGetInfo(&left, &all));
    if (left) respond<<<n / 256, 256>>>(x, 1000);
    CHECK(cudaDeviceSynchronize());
  }
};
KEY_MAIN(Program)
