// Three orchards grow on three streams and are counted together. b: no pruning in the two shorter ones (wins nothing).
#include "key.h"

__global__ void grow(float* trees, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = trees[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  trees[i] = v;
}
__global__ void prune(const float* trees, float* cut, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = trees[i];
  for (int k = 0; k < rounds; k++) v = v * 0.96f + __cosf(v - k);
  cut[i] = v;
}
__global__ void count_all(const float* one, const float* two, const float* three, float* sum) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  sum[i] = one[i] + two[i] + three[i];
}

struct Program {
  static const int blocks = 40, n = blocks * 256;
  char form;
  float *trees[3], *cut = device<float>(2 * n), *sum = device<float>(n);
  cudaStream_t stream[3];
  cudaEvent_t begun, done[3];
  Program(char form) : form(form) {
    CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    for (int i = 0; i < 3; i++) {
      trees[i] = device<float>(n);
      CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
    }
  }
  void step(int) {
    CHECK(cudaEventRecord(begun, stream[0]));
    for (int i = 0; i < 3; i++) {
      if (i) CHECK(cudaStreamWaitEvent(stream[i], begun));
      for (int k = 0; k < 3; k++) grow<<<blocks, 256, 0, stream[i]>>>(trees[i], i ? 5000 : 12000);
      if (i && form == 'a') prune<<<blocks, 256, 0, stream[i]>>>(trees[i], cut + (i - 1) * n, 9000);
      CHECK(cudaEventRecord(done[i], stream[i]));
      if (i) CHECK(cudaStreamWaitEvent(stream[0], done[i]));
    }
    count_all<<<blocks, 256, 0, stream[0]>>>(trees[0], trees[1], trees[2], sum);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(sum, n); }
};
KEY_MAIN(Program)
