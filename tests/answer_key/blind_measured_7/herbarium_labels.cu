// Labels of pressed plants come down in 40 copies on a second stream beside three long kernels. b: in one copy (wins nothing).
#include "key.h"

__global__ void press(float* sheets, float* labels, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = sheets[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __cosf(v + k);
  sheets[i] = v, labels[i] = v;
}

struct Program {
  static const int blocks = 120, n = blocks * 256, size = 40 << 12;
  int count;
  float *sheets = device<float>(n), *labels[2], *host;
  cudaStream_t work, down;
  cudaEvent_t pressed[2], gone[2];
  Program(char form) : count(form == 'a' ? 40 : 1) {
    CHECK(cudaMallocHost(&host, size * 4));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      labels[i] = device<float>(size);
      for (auto* event : {&pressed[i], &gone[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2, part = size / count;
    CHECK(cudaStreamWaitEvent(work, gone[now]));
    for (int i = 0; i < 3; i++) press<<<blocks, 256, 0, work>>>(sheets, labels[now], 48000);
    CHECK(cudaEventRecord(pressed[now], work));
    CHECK(cudaStreamWaitEvent(down, pressed[now]));
    for (int i = 0; i < count; i++)
      CHECK(cudaMemcpyAsync(host + i * part, labels[now] + i * part, part * 4, cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(gone[now], down));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(labels[0], n); }
};
KEY_MAIN(Program)
