// The next frames come into one of two buffers while the last ones are searched. b: frames of half the bytes (wins nothing).
#include "key.h"

__global__ void search(const float* frames, float* found, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = frames[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  found[i] = v;
}

struct Program {
  static const int n = 1 << 22;
  size_t bytes;
  float *host, *frames[2], *found = device<float>(n);
  cudaStream_t copies, work;
  cudaEvent_t here[2], read[2];
  Program(char form) : bytes(form == 'a' ? n * 4 : n * 2) {
    CHECK(cudaMallocHost(&host, n * 4));
    memset(host, 0, n * 4);
    for (auto* stream : {&copies, &work}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      frames[i] = device<float>(n);
      CHECK(cudaEventCreateWithFlags(&here[i], cudaEventDisableTiming));
      CHECK(cudaEventCreateWithFlags(&read[i], cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(copies, read[now]));
    CHECK(cudaMemcpyAsync(frames[now], host, bytes, cudaMemcpyHostToDevice, copies));
    CHECK(cudaEventRecord(here[now], copies));
    CHECK(cudaStreamWaitEvent(work, here[now]));
    search<<<n / 256, 256, 0, work>>>(frames[now], found, 400);
    CHECK(cudaEventRecord(read[now], work));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
