// Sixteen chunks of a file go up on one stream and are decoded on another. a: the host waits for each, b: events do.
#include "key.h"

__global__ void decode(const float* chunk, float* text, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = chunk[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __cosf(v + k);
  text[i] += v;
}

struct Program {
  static const int n = 1 << 17, chunks = 16;
  char form;
  float *host, *chunk = device<float>(n), *text = device<float>(n);
  cudaStream_t up, work;
  cudaEvent_t here, read;
  Program(char form) : form(form) {
    CHECK(cudaMallocHost(&host, chunks * n * 4));
    for (int i = 0; i < chunks * n; i++) host[i] = i % 13;
    for (auto* stream : {&up, &work}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&here, &read}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void hand(cudaStream_t from, cudaStream_t to, cudaEvent_t event) {
    CHECK(cudaEventRecord(event, from));
    CHECK(cudaStreamWaitEvent(to, event));
    if (form == 'a') CHECK(cudaStreamSynchronize(from));
  }
  void step(int) {
    for (int i = 0; i < chunks; i++) {
      CHECK(cudaMemcpyAsync(chunk, host + i * n, n * 4, cudaMemcpyHostToDevice, up));
      hand(up, work, here);
      decode<<<n / 256, 256, 0, work>>>(chunk, text, 600);
      hand(work, up, read);
    }
  }
  std::vector<float> result() {
    std::vector<float> found(n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(found.data(), text, n * 4, cudaMemcpyDeviceToHost));
    return found;
  }
};
KEY_MAIN(Program)
