// A ferry crosses in four kernels of a millisecond. a: the host waits after each step, b: never (wins nothing).
#include "key.h"

__global__ void cross(float* river, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = river[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v - k);
  river[i] = v;
}

struct Program {
  static const int blocks = 100, n = blocks * 256;
  char form;
  float* river = device<float>(n);
  cudaStream_t stream;
  Program(char form) : form(form) { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void step(int) {
    for (int i = 0; i < 4; i++) cross<<<blocks, 256, 0, stream>>>(river, 45000);
    CHECK(cudaGetLastError());
    if (form == 'a') CHECK(cudaDeviceSynchronize());
  }
  std::vector<float> result() { return home(river, n); }
};
KEY_MAIN(Program)
