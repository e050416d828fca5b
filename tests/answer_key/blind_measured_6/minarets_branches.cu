// Three minarets rise on three streams; the first takes longest. a: 20,000 rounds, b: 6,000, and the second limits.
#include "key.h"

__device__ float raised(float v, int rounds) {
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  return v;
}
__device__ float carved(float x, int rounds) {
  float v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  return v;
}
__global__ void carve_first(float* stone, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  stone[i] = carved(2 + i % 19, rounds);
}
__global__ void carve_other(float* stone, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  stone[i] = carved(3 + i % 23, rounds);
}
__global__ void raise_all(float* one, const float* two, const float* three, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  one[i] = raised(one[i] + two[i] + three[i], rounds);
}

struct Program {
  static const int blocks = 40, n = blocks * 256;
  int rounds;
  float* stone[3];
  cudaStream_t stream[3];
  cudaEvent_t begun, done[3];
  Program(char form) : rounds(form == 'a' ? 20000 : 6000) {
    CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    for (int i = 0; i < 3; i++) {
      stone[i] = device<float>(n);
      CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
    }
  }
  void step(int) {
    CHECK(cudaEventRecord(begun, stream[0]));
    carve_first<<<blocks, 256, 0, stream[0]>>>(stone[0], rounds);
    for (int i = 1; i < 3; i++) {
      CHECK(cudaStreamWaitEvent(stream[i], begun));
      carve_other<<<blocks, 256, 0, stream[i]>>>(stone[i], i == 1 ? 13000 : 9000);
      CHECK(cudaEventRecord(done[i], stream[i]));
      CHECK(cudaStreamWaitEvent(stream[0], done[i]));
    }
    raise_all<<<blocks, 256, 0, stream[0]>>>(stone[0], stone[1], stone[2], 8000);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(stone[0], n); }
};
KEY_MAIN(Program)
