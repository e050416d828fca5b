// Shallow water in 24 small kernels a step. a: a debugging macro waits for the GPU after each of them.
#include "key.h"

__global__ void flux(const float* h, const float* u, float* f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float left = h[(i + n - 1) % n], right = h[(i + 1) % n], v = u[i];
  for (int k = 0; k < 60; k++) v = 0.5f * (v + __fdividef(left * right, 1.0f + v * v));
  f[i] = v;
}
__global__ void update(float* h, float* u, const float* f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float change = f[(i + 1) % n] - f[i];
  h[i] -= 1e-3f * change;
  u[i] -= 2e-3f * change;
}
__global__ void shore(float* h, float* u, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (h[i] < 0) h[i] = 0, u[i] = 0;
}

struct Program {
  static const int n = 1 << 19;
  bool debug;
  float *h = device<float>(n), *u = device<float>(n), *f = device<float>(n);
  Program(char form) : debug(form == 'a') {}
  void check() {
    CHECK(cudaGetLastError());
    if (debug) CHECK(cudaDeviceSynchronize());
  }
  void step(int) {
    for (int k = 0; k < 8; k++) {
      flux<<<n / 256, 256>>>(h, u, f, n), check();
      update<<<n / 256, 256>>>(h, u, f, n), check();
      shore<<<n / 256, 256>>>(h, u, n), check();
    }
  }
};
KEY_MAIN(Program)
