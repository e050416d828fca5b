// The host waits for four kernels, then plans the berths before the next ones. b: 0.4 of its work.
#include "key.h"

__global__ void moor(float* ships, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = ships[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v + k);
  ships[i] = v;
}

struct Program {
  static const int blocks = 100, n = blocks * 256;
  int berths;
  volatile float plan = 0;
  float* ships = device<float>(n);
  cudaStream_t stream;
  Program(char form) : berths(form == 'a' ? 250000 : 100000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0; i < 4; i++) moor<<<blocks, 256, 0, stream>>>(ships, 12000);
    CHECK(cudaStreamSynchronize(stream));
    nvtxRangePushA("plan berths");
    for (int k = 0; k < berths; k++) plan = plan * 0.98f + 0.1f;
    nvtxRangePop();
  }
  std::vector<float> result() { return home(ships, n); }
};
KEY_MAIN(Program)
