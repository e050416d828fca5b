// Light through fog, marched along rays, which fills the GPU. a: a small buffer is allocated and freed each time, b: once (wins nothing).
#include "key.h"

__global__ void march(float* light, const float* fog, int n, int steps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = i * 1e-6f, left = 1, sum = 0;
  for (int k = 0; k < steps; k++) {
    float thick = 0.01f + 0.01f * __sinf(x * 3) * __cosf(x * 5 + k) + fog[(i + k) & 4095];
    left *= __expf(-thick), sum += left * thick * __sinf(x + k * 0.01f), x += 1e-3f;
  }
  light[i] = sum;
}
__global__ void tone(const float* light, float* picture, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  picture[i] = light[i] / (1 + light[i]);
}

struct Program {
  static const int n = 1 << 20;
  bool again;
  float *light = device<float>(n), *fog = device<float>(4096), *picture = device<float>(n);
  Program(char form) : again(form == 'a') {}
  void step(int) {
    float* held = light;
    if (again) CHECK(cudaMalloc(&held, n * sizeof(float)));
    march<<<n / 256, 256>>>(held, fog, n, 4000);
    tone<<<n / 256, 256>>>(held, picture, n);
    CHECK(cudaGetLastError());
    if (again) CHECK(cudaFree(held));
  }
};
KEY_MAIN(Program)
