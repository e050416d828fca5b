// Eight times a template of 64 MB is copied to a locker, whose first shelf a kernel then overwrites. b: not copied.
#include "key.h"

__global__ void fill_shelf(float* locker, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + i % 41, v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  locker[i] = v;
}

struct Program {
  static const int blocks = 120, n = blocks * 256, size = 1 << 24;
  char form;
  float *pattern = device<float>(size), *locker = device<float>(size);
  cudaStream_t stream;
  Program(char form) : form(form) { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void step(int) {
    for (int i = 0; i < 8; i++) {
      if (form == 'a') CHECK(cudaMemcpyAsync(locker, pattern, size * 4, cudaMemcpyDeviceToDevice, stream));
      fill_shelf<<<blocks, 256, 0, stream>>>(locker, 4000);
    }
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(locker, n); }
};
KEY_MAIN(Program)
