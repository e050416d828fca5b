// Kernels whose scratch comes from a pool that keeps its memory (b: one buffer; wins nothing: the host runs ahead).
#include "key.h"

__global__ void squares(const float4* in, float4* out) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = in[i];
  out[i] = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
}

struct Program {
  static const size_t n = (size_t)1 << 25;
  bool each;
  float4 *in = device<float4>(n), *out = device<float4>(n), *kept = nullptr;
  Program(char form) : each(form == 'a') {
    cudaMemPool_t pool;
    uint64_t most = UINT64_MAX;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most));
    if (!each) kept = device<float4>(n);
  }
  void step(int) {
    for (int k = 0; k < 6; k++) {
      float4* scratch = kept;
      if (each) CHECK(cudaMallocAsync((void**)&scratch, n * sizeof(float4), 0));
      squares<<<n / 256, 256>>>(in, scratch);
      squares<<<n / 256, 256>>>(scratch, out);
      if (each) CHECK(cudaFreeAsync(scratch, 0));
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
