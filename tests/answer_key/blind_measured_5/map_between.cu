// The host draws a map after each launch of four kernels, for longer than these take. b: 0.3 of its work; then the GPU limits.
#include "key.h"

__global__ void walk(float* paths, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = paths[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v + k);
  paths[i] = v;
}

struct Program {
  static const int blocks = 100, n = blocks * 256;
  int points;
  volatile float map = 0;
  float* paths = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t walked[2];
  Program(char form) : points(form == 'a' ? 500000 : 150000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& event : walked) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  void step(int number) {
    CHECK(cudaEventSynchronize(walked[number % 2]));
    for (int i = 0; i < 4; i++) walk<<<blocks, 256, 0, stream>>>(paths, 10000);
    CHECK(cudaEventRecord(walked[number % 2], stream));
    nvtxRangePushA("draw map");
    for (int k = 0; k < points; k++) map = map * 0.98f + 0.1f;
    nvtxRangePop();
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(paths, n); }
};
KEY_MAIN(Program)
