// Waves fill the GPU for long; the tide of one harbour runs beside them in one block. b: the tide four times as fast (wins nothing).
#include "key.h"

__global__ void tide(float* level, int rounds) {
  float x = level[threadIdx.x];
  for (int k = 0; k < rounds; k++) x = 0.999f * x + 0.001f * __sinf(x + k);
  level[threadIdx.x] = x;
}
__global__ void waves(const float* in, float* out, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i];
  for (int k = 0; k < rounds; k++) x = x * 0.99f + 0.01f * x * x;
  out[i] = x;
}

struct Program {
  static const int n = 1 << 24;
  int rounds;
  float *in = device<float>(n), *out = device<float>(n), *level = device<float>(128);
  cudaStream_t work, beside;
  cudaEvent_t before, after;
  Program(char form) : rounds(form == 'a' ? 20000 : 5000) {
    CHECK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    for (auto* event : {&before, &after}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(before, work));
    CHECK(cudaStreamWaitEvent(beside, before));
    tide<<<1, 128, 0, beside>>>(level, rounds);
    CHECK(cudaEventRecord(after, beside));
    for (int k = 0; k < 3; k++) waves<<<n / 256, 256, 0, work>>>(in, out, n, 2000);
    CHECK(cudaStreamWaitEvent(work, after));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
