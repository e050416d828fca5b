// Sixty short updates of cells a step, as fast as the host can launch them. b: half the work in each (wins nothing).
#include "key.h"

__global__ void divide(float* cells, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = cells[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + 0.01f * k;
  cells[i] = v;
}

struct Program {
  static const int n = 1 << 14;
  int rounds;
  float* cells = device<float>(n);
  Program(char form) : rounds(form == 'a' ? 40 : 4) {}
  void step(int) {
    for (int i = 0; i < 60; i++) divide<<<n / 256, 256>>>(cells, rounds);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
