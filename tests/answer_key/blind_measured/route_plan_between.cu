// The host plans routes before each launch can begin, as its result is an argument. b: no planning.
#include <cmath>

#include "key.h"

__global__ void walk_routes(float* x, int rounds, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + by);
  x[i] = v;
}

struct Program {
  static const int n = 1 << 16;
  int plans;
  float* x = device<float>(n);
  Program(char form) : plans(form == 'a' ? 20000 : 0) {}
  void step(int i) {
    float by = (float)i;
    nvtxRangePushA("plan routes");
    for (int k = 0; k < plans; k++) by += 1e-3f * std::sin(by);
    nvtxRangePop();
    walk_routes<<<n / 256, 256>>>(x, 8000, by);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  }
};
KEY_MAIN(Program)
