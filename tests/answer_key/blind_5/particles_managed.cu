// Particles in managed memory: the GPU moves them, the host checks some. a: it reads their pages, b: the GPU gathers what it reads.
#include "key.h"

__global__ void move_particles(float* places, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = places[i];
  for (int k = 0; k < rounds; k++) x += 1e-4f * sinf(x + k);
  places[i] = x;
}
__global__ void gather_checked(const float* places, float* checked, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  checked[i] = places[i * stride];
}

struct Program {
  static const int n = 1 << 21, stride = 512;
  bool pages;
  float *places, *checked = device<float>(n / stride), *home, sum = 0;
  Program(char form) : pages(form == 'a') {
    CHECK(cudaMallocHost(&home, n / stride * sizeof(float)));
    if (pages) CHECK(cudaMallocManaged(&places, n * sizeof(float)));
    else CHECK(cudaMalloc(&places, n * sizeof(float)));
    CHECK(cudaMemset(places, 0, n * sizeof(float)));
  }
  void step(int) {
    move_particles<<<n / 256, 256>>>(places, n, 64);
    if (!pages) {
      gather_checked<<<n / stride / 256, 256>>>(places, checked, stride);
      CHECK(cudaMemcpyAsync(home, checked, n / stride * sizeof(float), cudaMemcpyDeviceToHost));
    }
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < n / stride; k++) sum += pages ? places[k * stride] : home[k];
  }
};
KEY_MAIN(Program)
