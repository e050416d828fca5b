// A mesh in managed memory, whose positions the host writes in each step. a: pages move on faults, b: they are prefetched.
#include "key.h"

__global__ void deform(const float4* mesh, float4* out, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = mesh[i];
  for (int k = 0; k < rounds; k++) v.x += __sinf(v.y), v.y += __sinf(v.z), v.z += __sinf(v.w), v.w += __sinf(v.x);
  out[i] = v;
}

struct Program {
  static const int n = 1 << 19;
  bool ahead;
  float4 *mesh, *out = device<float4>(n);
  Program(char form) : ahead(form == 'b') {
    CHECK(cudaMallocManaged(&mesh, n * sizeof(float4)));
    memset(mesh, 0, n * sizeof(float4));
  }
  void move(cudaMemLocationType type) {
    if (ahead) CHECK(cudaMemPrefetchAsync(mesh, n * sizeof(float4), cudaMemLocation{type, 0}, 0, 0));
  }
  void step(int i) {
    move(cudaMemLocationTypeHost);
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < n; k += 64) mesh[k].w = i;
    move(cudaMemLocationTypeDevice);
    deform<<<n / 256, 256>>>(mesh, out, n, 600);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
