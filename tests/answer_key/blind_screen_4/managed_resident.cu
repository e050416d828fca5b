// Stars in managed memory that stays on the GPU, as the host never touches it. b: cudaMalloc (wins nothing).
#include "key.h"

__global__ void drift_stars(float4* stars, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 s = stars[i];
  for (int k = 0; k < rounds; k++) {
    float r = rsqrtf(s.x * s.x + s.y * s.y + s.z * s.z + 0.1f);
    s.x -= 0.001f * r * s.x, s.y -= 0.001f * r * s.y, s.z -= 0.001f * r * s.z;
  }
  stars[i] = s;
}

struct Program {
  static const int n = 1 << 22;
  float4* stars;
  Program(char form) {
    if (form == 'a') CHECK(cudaMallocManaged(&stars, n * sizeof(float4)));
    else CHECK(cudaMalloc(&stars, n * sizeof(float4)));
    CHECK(cudaMemset(stars, 0, n * sizeof(float4)));
  }
  void step(int) {
    for (int k = 0; k < 3; k++) drift_stars<<<n / 256, 256>>>(stars, n, 200);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
