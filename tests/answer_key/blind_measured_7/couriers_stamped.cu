// A host function stamps a letter between the kernels of a stream, twice a step, and the GPU waits for it. b: 0.3 of its work.
#include "key.h"

__global__ void carry_letter(float* route, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = route[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v + k);
  route[i] = v;
}

struct Letter {
  int stamps;
  volatile float ink = 0;
};

static void CUDART_CB stamp_letter(void* data) {
  auto* one = (Letter*)data;
  nvtxRangePushA("stamp letter");
  for (int k = 0; k < one->stamps; k++) one->ink = one->ink * 0.98f + 0.1f;
  nvtxRangePop();
}

struct Program {
  static const int blocks = 100, n = blocks * 256;
  Letter letter;
  float* route = device<float>(n);
  cudaStream_t stream;
  Program(char form) {
    letter.stamps = form == 'a' ? 100000 : 30000;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0; i < 2; i++) {
      carry_letter<<<blocks, 256, 0, stream>>>(route, 26000);
      CHECK(cudaLaunchHostFunc(stream, stamp_letter, &letter));
    }
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(route, n); }
};
KEY_MAIN(Program)
