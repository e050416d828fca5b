// Cars of a motorway go up in 96 MB a step, which limits; the host sorts tickets meanwhile. b: 0.3 of its work (wins nothing).
#include "key.h"

__global__ void toll(const float* cars, float* paid, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + cars[i], v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  paid[i] = v;
}

struct Program {
  static const int blocks = 120, n = blocks * 256, size = 24 << 20;
  int tickets;
  volatile float sum = 0;
  float *host, *cars[2], *paid = device<float>(n);
  cudaStream_t up, work;
  cudaEvent_t here[2], passed[2];
  Program(char form) : tickets(form == 'a' ? 90000 : 27000) {
    CHECK(cudaMallocHost(&host, size * 4ul));
    for (int i = 0; i < size; i++) host[i] = i % 31;
    for (auto* stream : {&up, &work}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      cars[i] = device<float>(size);
      for (auto* event : {&here[i], &passed[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaEventSynchronize(passed[now]));
    CHECK(cudaMemcpyAsync(cars[now], host, size * 4ul, cudaMemcpyHostToDevice, up));
    CHECK(cudaEventRecord(here[now], up));
    CHECK(cudaStreamWaitEvent(work, here[now]));
    toll<<<blocks, 256, 0, work>>>(cars[now], paid, 8000);
    CHECK(cudaEventRecord(passed[now], work));
    nvtxRangePushA("sort tickets");
    for (int k = 0; k < tickets; k++) sum = sum * 0.98f + 0.1f;
    nvtxRangePop();
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(paid, n); }
};
KEY_MAIN(Program)
