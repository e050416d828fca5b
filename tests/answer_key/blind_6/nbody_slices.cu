// A cluster of few stars. a: a thread for each star, which fills 32 blocks, b: eight threads share the others of a star.
#include "key.h"

__global__ void forces(const float4* stars, float3* pulls, int n, int slice) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * slice;
  float4 me = stars[i];
  float3 pull = make_float3(0, 0, 0);
  __shared__ float4 tile[256];
  for (int begin = first; begin < first + slice; begin += 256) {
    tile[threadIdx.x] = stars[begin + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < 256; k++) {
      float4 other = tile[k];
      float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
      float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-4f), weight = other.w * inverse * inverse * inverse;
      pull.x += dx * weight, pull.y += dy * weight, pull.z += dz * weight;
    }
    __syncthreads();
  }
  if (gridDim.y == 1) {
    pulls[i] = pull;
  } else {
    atomicAdd(&pulls[i].x, pull.x), atomicAdd(&pulls[i].y, pull.y), atomicAdd(&pulls[i].z, pull.z);
  }
}

__global__ void advance(float4* stars, float3* speeds, float3* pulls, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float3 speed = speeds[i], pull = pulls[i];
  speed.x += 1e-4f * pull.x, speed.y += 1e-4f * pull.y, speed.z += 1e-4f * pull.z;
  speeds[i] = speed, pulls[i] = make_float3(0, 0, 0);
  stars[i].x += 1e-4f * speed.x, stars[i].y += 1e-4f * speed.y, stars[i].z += 1e-4f * speed.z;
}

struct Program {
  static const int n = 8192;
  char form;
  float4* stars = device<float4>(n);
  float3 *speeds = device<float3>(n), *pulls = device<float3>(n);
  Program(char form) : form(form) {
    std::vector<float4> first(n);
    for (int i = 0; i < n; i++) first[i] = make_float4(i % 97 / 97.0f, i % 89 / 89.0f, i % 83 / 83.0f, 1.0f / n);
    CHECK(cudaMemcpy(stars, first.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
  }
  void step(int) {
    int parts = form == 'a' ? 1 : 8;
    for (int k = 0; k < 8; k++) {
      forces<<<dim3(n / 256, parts), 256>>>(stars, pulls, n, n / parts);
      advance<<<n / 256, 256>>>(stars, speeds, pulls, n);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
