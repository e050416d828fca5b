// Each of six drips in a grotto takes 8 MB from the pool and gives them back in stream order. b: kept (wins nothing).
#include "key.h"

__global__ void drip(float* grotto, float* pond, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = grotto[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  pond[i] = v, grotto[i] = v;
}

struct Program {
  static const int blocks = 100, n = blocks * 256, size = 1 << 21;
  char form;
  float *grotto = device<float>(n), *kept = device<float>(size);
  cudaStream_t stream;
  Program(char form) : form(form) {
    cudaMemPool_t pool;
    unsigned long long most = ~0ull;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0; i < 6; i++) {
      float* pond = kept;
      if (form == 'a') CHECK(cudaMallocAsync(&pond, size * 4, stream));
      drip<<<blocks, 256, 0, stream>>>(grotto, pond, 7000);
      if (form == 'a') CHECK(cudaFreeAsync(pond, stream));
    }
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(grotto, n); }
};
KEY_MAIN(Program)
