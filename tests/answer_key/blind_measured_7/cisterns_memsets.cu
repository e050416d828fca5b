// Cisterns are emptied before rain fills them. a: by 96 memsets of 32 KB that lie side by side, b: by one.
#include "key.h"

__global__ void fill_cistern(float* water, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + water[i] + i % 47, v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  water[i] = v;
}

struct Program {
  static const int count = 96, part = 1 << 13, blocks = 120, n = blocks * 256;
  char form;
  float* water = device<float>(count * part);
  cudaStream_t stream;
  Program(char form) : form(form) { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void step(int) {
    int calls = form == 'a' ? count : 1, each = count * part / calls;
    for (int i = 0; i < calls; i++) CHECK(cudaMemsetAsync(water + i * each, 0, each * 4, stream));
    fill_cistern<<<blocks, 256, 0, stream>>>(water, 24000);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(water, n); }
};
KEY_MAIN(Program)
