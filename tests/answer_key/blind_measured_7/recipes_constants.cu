// Twenty-four dishes are cooked in turn. a: the same 4 KB of spices go up before each, from pinned memory, b: they went up once.
#include "key.h"

__global__ void cook_dish(float* dish, const float* spices, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = dish[i] + spices[i % 1024];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  dish[i] = v;
}

struct Program {
  static const int count = 24, blocks = 100, n = blocks * 256;
  char form;
  float *host, *dish = device<float>(n), *spices = device<float>(1024);
  cudaStream_t stream;
  Program(char form) : form(form) {
    CHECK(cudaMallocHost(&host, 4096));
    for (int i = 0; i < 1024; i++) host[i] = 1e-3f * i;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMemcpy(spices, host, 4096, cudaMemcpyHostToDevice));
  }
  void step(int) {
    for (int i = 0; i < count; i++) {
      if (form == 'a') CHECK(cudaMemcpyAsync(spices, host, 4096, cudaMemcpyHostToDevice, stream));
      cook_dish<<<blocks, 256, 0, stream>>>(dish, spices, 1100);
    }
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(dish, n); }
};
KEY_MAIN(Program)
