// A verdict on each hearing is read on a second stream; the host waits for that of two steps ago. b: not read (wins nothing).
#include "key.h"

__global__ void hear(float* words, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = words[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v + k);
  words[i] = v;
}

struct Program {
  static const int n = 1 << 20, few = 4096;
  char form;
  float *words = device<float>(n), *verdict;
  cudaStream_t work, down;
  cudaEvent_t heard[2], here[2];
  Program(char form) : form(form) {
    CHECK(cudaMallocHost(&verdict, 2 * few * 4));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&heard[0], &heard[1], &here[0], &here[1]})
      CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int number) {
    int now = number % 2;
    if (form == 'a') CHECK(cudaEventSynchronize(here[now]));
    for (int i = 0; i < 3; i++) hear<<<n / 256, 256, 0, work>>>(words, 1300);
    CHECK(cudaGetLastError());
    if (form == 'b') return;
    CHECK(cudaEventRecord(heard[now], work));
    CHECK(cudaStreamWaitEvent(down, heard[now]));
    CHECK(cudaMemcpyAsync(verdict + now * few, words, few * 4, cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(here[now], down));
  }
  std::vector<float> result() { return home(words, n); }
};
KEY_MAIN(Program)
