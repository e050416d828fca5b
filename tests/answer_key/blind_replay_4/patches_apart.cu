// An adaptive grid of 40 patches, each advanced by a launch of its own. a: 40 launches a step, b: one launch for all patches.
#include "key.h"

__global__ void patch_advance(const float* in, float* out, int size, int first) {
  int patch = first + blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* from = in + (size_t)patch * size;
  out[(size_t)patch * size + i] = 0.5f * from[i] + 0.25f * (from[(i + 1) % size] + from[(i + size - 1) % size]);
}
__global__ void exchange(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.9f * in[i] + 0.1f * in[(i + 4096) % n];
}

struct Program {
  static const int patches = 40, size = 64 * 64, n = patches * size;
  bool apart;
  float *x = device<float>(n), *y = device<float>(n);
  Program(char form) : apart(form == 'a') {}
  void step(int) {
    if (apart)
      for (int k = 0; k < patches; k++) patch_advance<<<dim3(size / 256, 1), 256>>>(x, y, size, k);
    else patch_advance<<<dim3(size / 256, patches), 256>>>(x, y, size, 0);
    exchange<<<n / 256, 256>>>(y, x, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
