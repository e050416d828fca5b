// Flow through pores: the new state is copied back over the old one after each sweep. b: the pointers change places.
#include "key.h"

__global__ void flow(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = 0.5f * in[i] + 0.25f * (in[(i + 1) % n] + in[(i + n - 1) % n]);
  for (int k = 0; k < 60; k++) v = v * 0.99f + __sinf(v - k);
  out[i] = v;
}

struct Program {
  static const int n = 1 << 24;
  char form;
  float *state = device<float>(n), *next = device<float>(n);
  Program(char form) : form(form) {}
  void step(int) {
    for (int i = 0; i < 6; i++) {
      flow<<<n / 256, 256>>>(state, next, n);
      if (form == 'a') CHECK(cudaMemcpyAsync(state, next, n * 4, cudaMemcpyDeviceToDevice));
      else std::swap(state, next);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
