// Frames are sharpened, and each step also stores its input in an archive that nobody reads. b: no archive.
#include "key.h"

__global__ void blur(const float* in, float* out, int n, int reach) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = -reach; k <= reach; k++) sum += in[min(max(i + k, 0), n - 1)];
  out[i] = sum / (2 * reach + 1);
}
__global__ void sharpen(const float* in, const float* soft, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i] + 0.6f * (in[i] - soft[i]);
}
__global__ void archive(const float* in, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];
}

struct Program {
  static const int n = 1 << 25;
  bool archives;
  float *in = device<float>(n), *soft = device<float>(n), *out = device<float>(n), *kept = device<float>(n);
  Program(char form) : archives(form == 'a') {}
  void step(int) {
    blur<<<n / 256, 256>>>(in, soft, n, 3);
    if (archives) archive<<<n / 256, 256>>>(in, kept);
    sharpen<<<n / 256, 256>>>(in, soft, out);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
