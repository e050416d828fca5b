// Advection with scratch memory of the stream's pool. a: allocated and freed in each step, b: once (wins nothing).
#include "key.h"

__global__ void slopes(const float4* x, float4* s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 a = x[i], b = x[(i + 1) % n];
  s[i] = {b.x - a.x, b.y - a.y, b.z - a.z, b.w - a.w};
}
__global__ void advect(float4* x, const float4* s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 a = x[i], b = s[i];
  x[i] = {a.x - 0.1f * b.x, a.y - 0.1f * b.y, a.z - 0.1f * b.z, a.w - 0.1f * b.w};
}

struct Program {
  static const int n = 1 << 25;
  bool each;
  float4 *x = device<float4>(n / 4), *s = nullptr;
  cudaStream_t stream;
  Program(char form) : each(form == 'a') {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaMemPool_t pool;
    unsigned long long all = ~0ull;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    if (!each) s = device<float4>(n / 4);
  }
  void step(int) {
    for (int k = 0; k < 4; k++) {
      if (each) CHECK(cudaMallocAsync(&s, n * sizeof(float), stream));
      slopes<<<n / 4 / 256, 256, 0, stream>>>(x, s, n / 4);
      advect<<<n / 4 / 256, 256, 0, stream>>>(x, s, n / 4);
      if (each) CHECK(cudaFreeAsync(s, stream));
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
