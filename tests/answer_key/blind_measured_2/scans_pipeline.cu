// Scans go up, are filtered and summed on three streams at once; the upload sets the pace. b: a faster filter (wins nothing).
#include "key.h"

__global__ void filter(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + k);
  out[i] = v;
}
__global__ void add_up(const float* in, float* sums) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&sums[i % 1024], in[i]);
}

struct Program {
  static const int n = 1 << 22;
  int rounds;
  float *host, *in[3], *out[3], *sums = device<float>(1024);
  cudaStream_t streams[3];
  Program(char form) : rounds(form == 'a' ? 150 : 50) {
    CHECK(cudaMallocHost(&host, n * 4));
    memset(host, 0, n * 4);
    for (int i = 0; i < 3; i++) {
      CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
      in[i] = device<float>(n), out[i] = device<float>(n);
    }
  }
  void step(int) {
    for (int i = 0; i < 3; i++) {
      CHECK(cudaMemcpyAsync(in[i], host, n * 4, cudaMemcpyHostToDevice, streams[i]));
      filter<<<n / 256, 256, 0, streams[i]>>>(in[i], out[i], rounds);
      add_up<<<n / 4096, 256, 0, streams[i]>>>(out[i], sums);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
