// A small plasma: kick, drift and wrap of particles, 12 substeps. a: three kernels a substep, b: one.
#include "key.h"

__device__ float kicked(float v, float x) { return v + 0.01f * __sinf(x); }
__device__ float drifted(float x, float v) { return x + 0.01f * v; }
__device__ float wrapped(float x) { return x - floorf(x); }
__global__ void kick_particles(float* x, float* v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  v[i] = kicked(v[i], x[i]);
}
__global__ void drift_particles(float* x, float* v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = drifted(x[i], v[i]);
}
__global__ void wrap_particles(float* x, float* v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = wrapped(x[i]);
}
__global__ void push_particles(float* x, float* v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  v[i] = kicked(v[i], x[i]);
  x[i] = wrapped(drifted(x[i], v[i]));
}
__global__ void energy(const float* v, float* sum, int n) {
  float mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += v[i] * v[i];
  for (int k = 16; k; k /= 2) mine += __shfl_xor_sync(~0u, mine, k);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

struct Program {
  static const int n = 1 << 16;
  bool apart;
  float *x = device<float>(n), *v = device<float>(n), *sum = device<float>(1);
  Program(char form) : apart(form == 'a') {}
  void step(int) {
    for (int k = 0; k < 12; k++) {
      if (apart) {
        kick_particles<<<n / 256, 256>>>(x, v);
        drift_particles<<<n / 256, 256>>>(x, v);
        wrap_particles<<<n / 256, 256>>>(x, v);
      } else {
        push_particles<<<n / 256, 256>>>(x, v);
      }
    }
    energy<<<64, 256>>>(v, sum, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
