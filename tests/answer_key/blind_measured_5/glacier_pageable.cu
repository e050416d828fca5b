// Maps of a glacier go up from pageable memory on a second stream, beside a long kernel. b: from pinned memory (wins nothing).
#include "key.h"

__global__ void melt(const float* map, float* ice, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 1 + map[i % (1 << 19)], v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  ice[i] = v;
}

struct Program {
  static const int n = 1 << 20, size = 1 << 19;
  float *host, *map[2], *ice = device<float>(n);
  cudaStream_t up, work;
  cudaEvent_t here[2], read[2];
  Program(char form) {
    if (form == 'a') host = (float*)malloc(size * 4);
    else CHECK(cudaMallocHost(&host, size * 4));
    for (int i = 0; i < size; i++) host[i] = i % 17;
    for (auto* stream : {&up, &work}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      map[i] = device<float>(size);
      for (auto* event : {&here[i], &read[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(up, read[now]));
    CHECK(cudaMemcpyAsync(map[now], host, size * 4, cudaMemcpyHostToDevice, up));
    CHECK(cudaEventRecord(here[now], up));
    CHECK(cudaStreamWaitEvent(work, here[now]));
    melt<<<n / 256, 256, 0, work>>>(map[now], ice, 7000);
    CHECK(cudaEventRecord(read[now], work));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(ice, n); }
};
KEY_MAIN(Program)
