// Gravity of 65536 bodies with tiles in shared memory, near the roof of the FP32 units: nothing is worth doing.
#include "key.h"

__global__ void gravity(const float4* bodies, float4* force, int n) {
  __shared__ float4 tile[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  float4 me = bodies[i];
  float x = 0, y = 0, z = 0;
  for (int first = 0; first < n; first += 256) {
    tile[threadIdx.x] = bodies[first + threadIdx.x];
    __syncthreads();
#pragma unroll 32
    for (int k = 0; k < 256; k++) {
      float4 other = tile[k];
      float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
      r = other.w * r * r * r;
      x += dx * r, y += dy * r, z += dz * r;
    }
    __syncthreads();
  }
  force[i] = {x, y, z, 0};
}

struct Program {
  static const int n = 132 * 512;
  float4 *bodies = device<float4>(n), *force = device<float4>(n);
  Program(char) {}
  void step(int) {
    gravity<<<n / 256, 256>>>(bodies, force, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
