// A casting is poured, then its mould comes down to pageable memory by a blocking copy. a: all 8 MB, b: the 2 MB that are read.
#include "key.h"

__global__ void pour(float* mould, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = mould[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  mould[i] = v;
}

struct Program {
  static const int blocks = 110, n = blocks * 256, size = 1 << 21;
  int part;
  float* mould = device<float>(size);
  std::vector<float> host = std::vector<float>(size, 1.0f);
  Program(char form) : part(form == 'a' ? size : size / 4) {}
  void step(int) {
    pour<<<blocks, 256>>>(mould, 80000);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), mould, part * 4, cudaMemcpyDeviceToHost));
  }
  std::vector<float> result() { return std::vector<float>(host.begin(), host.begin() + n); }
};
KEY_MAIN(Program)
