// Pictures of the sky go up from pinned memory, then stars are counted, all on one stream. a: 32 bits a pixel, b: 16.
#include "key.h"

__global__ void count_stars(const float* sky, int* stars, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = sky[i];
  for (int k = 0; k < rounds; k++) v = v * 0.96f + __sinf(v + k);
  if (v > 1e6f) atomicAdd(stars, 1);
}

struct Program {
  static const int n = 1 << 22;
  size_t bytes;
  float *host, *sky = device<float>(n);
  int* stars = device<int>(1);
  cudaStream_t stream;
  Program(char form) : bytes(form == 'a' ? n * 4 : n * 2) {
    CHECK(cudaMallocHost(&host, n * 4));
    memset(host, 0, n * 4);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    CHECK(cudaMemcpyAsync(sky, host, bytes, cudaMemcpyHostToDevice, stream));
    count_stars<<<n / 256, 256, 0, stream>>>(sky, stars, 200);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
