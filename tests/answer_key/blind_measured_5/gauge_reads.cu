// Twelve sluices in turn. a: the host reads a gauge after each of them, and waits, b: no gauge is read.
#include "key.h"

__global__ void open_sluice(float* river, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = river[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  river[i] = v;
}

struct Program {
  static const int n = 1 << 18;
  char form;
  float *river = device<float>(n), *gauge;
  cudaStream_t stream;
  Program(char form) : form(form) {
    CHECK(cudaMallocHost(&gauge, 4));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0; i < 12; i++) {
      open_sluice<<<n / 256, 256, 0, stream>>>(river, 400);
      if (form == 'b') continue;
      CHECK(cudaMemcpyAsync(gauge, river, 4, cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(river, n); }
};
KEY_MAIN(Program)
