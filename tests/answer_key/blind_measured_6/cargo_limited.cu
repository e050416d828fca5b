// Cargo goes up in 32 MB a step and is weighed on another stream in half of that time. b: in fewer rounds (wins nothing).
#include "key.h"

__global__ void weigh_cargo(const float* cargo, float* weight, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + cargo[i], v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  weight[i] = v;
}

struct Program {
  static const int blocks = 120, n = blocks * 256, size = 1 << 23;
  int rounds;
  float *host, *cargo[2], *weight = device<float>(n);
  cudaStream_t up, work;
  cudaEvent_t here[2], weighed[2];
  Program(char form) : rounds(form == 'a' ? 10000 : 4000) {
    CHECK(cudaMallocHost(&host, size * 4));
    for (int i = 0; i < size; i++) host[i] = i % 29;
    for (auto* stream : {&up, &work}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      cargo[i] = device<float>(size);
      for (auto* event : {&here[i], &weighed[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(up, weighed[now]));
    CHECK(cudaMemcpyAsync(cargo[now], host, size * 4, cudaMemcpyHostToDevice, up));
    CHECK(cudaEventRecord(here[now], up));
    CHECK(cudaStreamWaitEvent(work, here[now]));
    weigh_cargo<<<blocks, 256, 0, work>>>(cargo[now], weight, rounds);
    CHECK(cudaEventRecord(weighed[now], work));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(weight, n); }
};
KEY_MAIN(Program)
