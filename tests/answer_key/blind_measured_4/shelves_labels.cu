// Labels of 24 shelves go up on a second stream for the next step, beside a long kernel. b: in one copy (wins nothing).
#include "key.h"

__global__ void read_shelves(const float* labels, float* shelves, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = shelves[i] + labels[i % 24576];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __cosf(v + k);
  shelves[i] = v;
}

struct Program {
  static const int n = 1 << 20, count = 24, each = 1024;
  int copies;
  float *host, *labels[2], *shelves = device<float>(n);
  cudaStream_t up, work;
  cudaEvent_t here[2], read[2];
  Program(char form) : copies(form == 'a' ? count : 1) {
    CHECK(cudaMallocHost(&host, count * each * 4));
    for (int i = 0; i < count * each; i++) host[i] = i % 17;
    for (auto* stream : {&up, &work}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      labels[i] = device<float>(count * each);
      for (auto* event : {&here[i], &read[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(up, read[now]));
    for (int i = 0, size = count * each / copies; i < copies; i++)
      CHECK(cudaMemcpyAsync(labels[now] + i * size, host + i * size, size * 4, cudaMemcpyHostToDevice, up));
    CHECK(cudaEventRecord(here[now], up));
    CHECK(cudaStreamWaitEvent(work, here[now]));
    read_shelves<<<n / 256, 256, 0, work>>>(labels[now], shelves, 5000);
    CHECK(cudaEventRecord(read[now], work));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
