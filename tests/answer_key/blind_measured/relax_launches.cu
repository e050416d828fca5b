// A smoother of many short launches: the host is slower than the GPU. b: the kernel does half the work (wins nothing).
#include "key.h"

__global__ void relax(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v);
  out[i] = v;
}

struct Program {
  static const int n = 1 << 14;
  int rounds;
  float *x = device<float>(n), *y = device<float>(n);
  Program(char form) : rounds(form == 'a' ? 24 : 12) {}
  void step(int) {
    for (int i = 0; i < 200; i++) {
      cudaFuncAttributes of;
      CHECK(cudaFuncGetAttributes(&of, relax));  // what a cautious library asks before each launch
      CHECK(cudaFuncSetCacheConfig(relax, of.maxThreadsPerBlock > 0 ? cudaFuncCachePreferL1 : cudaFuncCachePreferNone));
      relax<<<n / 256, 256>>>(x, y, rounds);
      std::swap(x, y);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
