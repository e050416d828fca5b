// A sundial is read after each of eight hours, and the host sleeps until each has passed. b: it never waits.
#include "key.h"

__global__ void pass_hour(float* shadow, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = shadow[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  shadow[i] = v;
}

struct Program {
  static const int blocks = 110, n = blocks * 256;
  char form;
  float* shadow = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t passed;
  Program(char form) : form(form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming | cudaEventBlockingSync));
  }
  void step(int) {
    for (int i = 0; i < 8; i++) {
      pass_hour<<<blocks, 256, 0, stream>>>(shadow, 6000);
      CHECK(cudaEventRecord(passed, stream));
      if (form == 'a') CHECK(cudaEventSynchronize(passed));
    }
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(shadow, n); }
};
KEY_MAIN(Program)
