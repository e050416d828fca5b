// A table that never changes is built before each of three passes over an alloy. b: it was built once.
#include "key.h"

__global__ void build_table(float* table, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i * 1e-6f;
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  table[i] = v;
}
__global__ void mix(const float* table, float* alloy, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = alloy[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + table[i]);
  alloy[i] = v;
}

struct Program {
  static const int n = 1 << 20;
  char form;
  float *table = device<float>(n), *alloy = device<float>(n);
  Program(char form) : form(form) { build_table<<<n / 256, 256>>>(table, 900); }
  void step(int) {
    for (int i = 0; i < 3; i++) {
      if (form == 'a') build_table<<<n / 256, 256>>>(table, 900);
      mix<<<n / 256, 256>>>(table, alloy, 1500);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
