// Cells of a comb are put side by side on the GPU, then filled. a: 64 copies of 64 KB, b: one copy of all.
#include "key.h"

__global__ void fill_comb(const float* comb, float* honey, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = comb[i] + honey[i];
  for (int k = 0; k < rounds; k++) v = v * 0.96f + __sinf(v + k);
  honey[i] = v;
}

struct Program {
  static const int cells = 64, each = 1 << 14, n = cells * each;
  int copies;
  float *cell = device<float>(n), *comb = device<float>(n), *honey = device<float>(n);
  cudaStream_t stream;
  Program(char form) : copies(form == 'a' ? cells : 1) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0, size = n / copies; i < copies; i++)
      CHECK(cudaMemcpyAsync(comb + i * size, cell + i * size, size * 4, cudaMemcpyDeviceToDevice, stream));
    fill_comb<<<n / 256, 256, 0, stream>>>(comb, honey, 1000);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(honey, n); }
};
KEY_MAIN(Program)
