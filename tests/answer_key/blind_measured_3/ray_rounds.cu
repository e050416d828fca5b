// Rays are cast, shaded and gathered, one kernel after another. b: shading takes 60 % of its rounds.
#include "key.h"

__global__ void cast_rays(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  out[i] = v;
}
__global__ void shade(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  out[i] = v;
}
__global__ void gather_light(const float* in, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.9f * out[i] + 0.1f * in[i];
}

struct Program {
  static const int n = 1 << 20;
  int shading;
  float *rays = device<float>(n), *hits = device<float>(n), *light = device<float>(n);
  Program(char form) : shading(form == 'a' ? 2000 : 1200) {}
  void step(int) {
    cast_rays<<<n / 256, 256>>>(rays, hits, 1500);
    shade<<<n / 256, 256>>>(hits, rays, shading);
    gather_light<<<n / 256, 256>>>(rays, light);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
