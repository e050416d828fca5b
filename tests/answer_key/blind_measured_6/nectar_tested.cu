// Nectar is tested after each of five harvests, though nobody reads the verdicts. b: never tested.
#include "key.h"

__global__ void harvest(float* nectar, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = nectar[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __cosf(v - k);
  nectar[i] = v;
}
__global__ void test_nectar(const float* nectar, float* verdict, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = nectar[i];
  for (int k = 0; k < rounds; k++) v = v * 0.96f + __cosf(v + k);
  verdict[i] = v;
}

struct Program {
  static const int n = 1 << 19;
  char form;
  float *nectar = device<float>(n), *verdict = device<float>(n);
  cudaStream_t stream;
  Program(char form) : form(form) { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void step(int) {
    for (int i = 0; i < 5; i++) {
      harvest<<<n / 256, 256, 0, stream>>>(nectar, 1600);
      if (form == 'a') test_nectar<<<n / 256, 256, 0, stream>>>(nectar, verdict, 300);
    }
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(nectar, n); }
};
KEY_MAIN(Program)
