// A boat is rowed on a stream and its wake comes down on another. a: in 36,000 rounds, b: 10,800; then the copy limits.
#include "key.h"

__global__ void row_boat(float* wake, int number, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + (i + number) % 37, v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  wake[i] = v;
}

struct Program {
  static const int blocks = 130, n = blocks * 256, size = 6 << 20;
  int rounds;
  float *host, *wake[2];
  cudaStream_t work, down;
  cudaEvent_t rowed[2], gone[2];
  Program(char form) : rounds(form == 'a' ? 36000 : 10800) {
    CHECK(cudaMallocHost(&host, size * 4));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      wake[i] = device<float>(size);
      for (auto* event : {&rowed[i], &gone[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(work, gone[now]));
    row_boat<<<blocks, 256, 0, work>>>(wake[now], number, rounds);
    CHECK(cudaEventRecord(rowed[now], work));
    CHECK(cudaStreamWaitEvent(down, rowed[now]));
    CHECK(cudaMemcpyAsync(host, wake[now], size * 4, cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(gone[now], down));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(wake[0], n); }
};
KEY_MAIN(Program)
