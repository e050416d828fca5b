// A vibrating membrane of three time levels. a: levels are copied down after each move, b: their pointers are exchanged.
#include "key.h"

__global__ void vibrate(const float* before, const float* now, float* next, int width, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sides = now[(i + 1) % n] + now[(i + n - 1) % n] + now[(i + width) % n] + now[(i + n - width) % n];
  next[i] = 2 * now[i] - before[i] + 0.2f * (sides - 4 * now[i]);
}

struct Program {
  static const int width = 4096, n = width * 4096;
  bool copies;
  float *before = device<float>(n), *now_ = device<float>(n), *next = device<float>(n);
  Program(char form) : copies(form == 'a') {}
  void step(int) {
    for (int k = 0; k < 4; k++) {
      vibrate<<<n / 256, 256>>>(before, now_, next, width, n);
      if (copies) {
        CHECK(cudaMemcpyAsync(before, now_, n * sizeof(float), cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpyAsync(now_, next, n * sizeof(float), cudaMemcpyDeviceToDevice));
      } else {
        float* old = before;
        before = now_, now_ = next, next = old;
      }
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
