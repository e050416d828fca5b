// Escape times of a fractal in large frames. a: the host waits after each launch to look for errors, b: it does not (wins nothing).
#include "key.h"

__global__ void escape(int* out, int width, float zoom, int most) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, k = 0;
  float cx = -0.74f + zoom * (i % width - width / 2), cy = 0.1f + zoom * (i / width - width / 2), x = 0, y = 0;
  while (k < most && x * x + y * y < 4) {
    float t = x * x - y * y + cx;
    y = 2 * x * y + cy, x = t, k++;
  }
  out[i] = k;
}

struct Program {
  static const int width = 4096, n = width * width;
  bool waits;
  int* out = device<int>(n);
  Program(char form) : waits(form == 'a') {}
  void step(int) {
    for (int k = 0; k < 2; k++) {
      escape<<<n / 256, 256>>>(out, width, 1e-7f, 1000);
      CHECK(cudaGetLastError());
      if (waits) CHECK(cudaDeviceSynchronize());
    }
  }
};
KEY_MAIN(Program)
