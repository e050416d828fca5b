// Scrolls go up, are translated and come down on three streams; the way down limits. a: 32 bits, b: 16, and the kernel limits.
#include "key.h"

template <class T>
__global__ void translate(const float* scroll, T* text, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + scroll[i % (1 << 21)], v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  text[i] = 100 * v;
}

struct Program {
  static const int few = 1 << 21, n = 1 << 23;
  char form;
  float *host, *scroll[2];
  int *home_text, *text[2];
  cudaStream_t up, work, down;
  cudaEvent_t here[2], read[2], gone[2];
  Program(char form) : form(form) {
    CHECK(cudaMallocHost(&host, few * 4));
    CHECK(cudaMallocHost(&home_text, n * 4));
    for (int i = 0; i < few; i++) host[i] = i % 23;
    for (auto* stream : {&up, &work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      scroll[i] = device<float>(few), text[i] = device<int>(n);
      for (auto* event : {&here[i], &read[i], &gone[i]})
        CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(up, read[now]));
    CHECK(cudaMemcpyAsync(scroll[now], host, few * 4, cudaMemcpyHostToDevice, up));
    CHECK(cudaEventRecord(here[now], up));
    CHECK(cudaStreamWaitEvent(work, here[now]));
    CHECK(cudaStreamWaitEvent(work, gone[now]));
    if (form == 'a') translate<<<n / 256, 256, 0, work>>>(scroll[now], text[now], 200);
    else translate<<<n / 256, 256, 0, work>>>(scroll[now], (short*)text[now], 200);
    CHECK(cudaEventRecord(read[now], work));
    CHECK(cudaStreamWaitEvent(down, read[now]));
    CHECK(cudaMemcpyAsync(home_text, text[now], n * (form == 'a' ? 4 : 2), cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(gone[now], down));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() {
    CHECK(cudaDeviceSynchronize());
    if (form == 'a') return std::vector<float>(home_text, home_text + n);
    return std::vector<float>((short*)home_text, (short*)home_text + n);
  }
};
KEY_MAIN(Program)
