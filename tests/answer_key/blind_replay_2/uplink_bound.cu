// Video from pinned memory over the full link, detection of the frame before beside it. b: a faster kernel (wins nothing).
#include "key.h"

__global__ void detect(const unsigned char* frame, float* found, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = frame[i], w = frame[(i + 97) % n];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + w);
  found[i] = v;
}

struct Program {
  static const int n = 48 << 20;
  int rounds;
  unsigned char *host, *frame[2] = {device<unsigned char>(n), device<unsigned char>(n)};
  float* found = device<float>(n);
  cudaStream_t up, work;
  cudaEvent_t loaded[2], used[2];
  Program(char form) : rounds(form == 'a' ? 40 : 12) {
    CHECK(cudaMallocHost(&host, n));
    memset(host, 9, n);
    for (auto* stream : {&up, &work}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&loaded[0], &loaded[1], &used[0], &used[1]})
      CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int i) {
    int k = i % 2;
    CHECK(cudaStreamWaitEvent(up, used[k]));
    CHECK(cudaMemcpyAsync(frame[k], host, n, cudaMemcpyHostToDevice, up));
    CHECK(cudaEventRecord(loaded[k], up));
    CHECK(cudaStreamWaitEvent(work, loaded[k]));
    detect<<<n / 256, 256, 0, work>>>(frame[k], found, n, rounds);
    CHECK(cudaEventRecord(used[k], work));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
