// Smoke in a box: pressure needs three scratch fields a step. a: cudaMalloc and cudaFree, b: cudaMallocAsync of a pool that keeps.
#include "key.h"

__global__ void relax(const float* in, float* out, int width, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.25f * (in[(i + 1) % n] + in[(i + n - 1) % n] + in[(i + width) % n] + in[(i + n - width) % n]);
}
__global__ void blend(const float* a, const float* b, const float* c, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.5f * a[i] + 0.3f * b[i] + 0.2f * c[i];
}

struct Program {
  static const int width = 4096, n = width * 2048;
  bool pooled;
  float* smoke = device<float>(n);
  Program(char form) : pooled(form == 'b') {
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  }
  void step(int) {
    float* scratch[3];
    for (auto& one : scratch) {
      if (pooled) CHECK(cudaMallocAsync((void**)&one, n * sizeof(float), 0));
      else CHECK(cudaMalloc(&one, n * sizeof(float)));
    }
    relax<<<n / 256, 256>>>(smoke, scratch[0], width, n);
    for (int k = 0; k < 6; k++) relax<<<n / 256, 256>>>(scratch[k % 3], scratch[(k + 1) % 3], width, n);
    blend<<<n / 256, 256>>>(scratch[0], scratch[1], scratch[2], smoke);
    CHECK(cudaGetLastError());
    for (auto& one : scratch) {
      if (pooled) CHECK(cudaFreeAsync(one, 0));
      else CHECK(cudaFree(one));
    }
  }
};
KEY_MAIN(Program)
