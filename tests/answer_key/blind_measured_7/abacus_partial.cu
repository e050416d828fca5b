// The host slides an abacus while a kernel works, for twice as long; its sum starts the next kernel. b: 0.3 of it, then the kernel limits.
#include "key.h"

__global__ void weigh_silk(float* silk, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = silk[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v - k);
  silk[i] = v;
}
__global__ void price_silk(float* silk, float sum, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = silk[i] + 1e-3f * sum;
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __cosf(v + k);
  silk[i] = v;
}

struct Program {
  static const int blocks = 100, n = blocks * 256;
  int beads;
  volatile float sum = 5;
  float* silk = device<float>(n);
  cudaStream_t stream;
  Program(char form) : beads(form == 'a' ? 300000 : 90000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    weigh_silk<<<blocks, 256, 0, stream>>>(silk, 45000);
    nvtxRangePushA("slide abacus");
    for (int k = 0; k < beads; k++) sum = sum * 0.98f + 0.1f;
    nvtxRangePop();
    price_silk<<<blocks, 256, 0, stream>>>(silk, sum, 24000);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
  }
  std::vector<float> result() { return home(silk, n); }
};
KEY_MAIN(Program)
