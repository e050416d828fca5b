// Clean: a triad over large arrays with wide loads. Memory is the limit.
#include "key.h"

__global__ void triad(const float4* a, const float4* b, float4* c, float scale) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  float4 x = a[i], y = b[i];
  c[i] = make_float4(x.x + scale * y.x, x.y + scale * y.y, x.z + scale * y.z, x.w + scale * y.w);
}

struct Program {
  static const size_t n = (size_t)1 << 27;
  float4 *a = device<float4>(n), *b = device<float4>(n), *c = device<float4>(n);
  Program(char) {}
  void step(int) {
    triad<<<n / 256, 256>>>(a, b, c, 0.5f);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
