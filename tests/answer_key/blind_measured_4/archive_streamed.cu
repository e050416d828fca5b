// Pages are rendered and go home over the whole link, one step behind. b: without their checksums (wins nothing).
#include "key.h"

__global__ void render_page(float* page, int number, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i * 1e-6f + number % 5;
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v - k);
  page[i] = v;
}
__global__ void checksum(const float* page, unsigned* sums, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = __float_as_uint(page[i]);
  for (int k = 0; k < rounds; k++) sum = sum * 1664525u + 1013904223u + (sum >> 13);
  sums[i] = sum;
}

struct Program {
  static const int n = 1 << 23;
  char form;
  float *home, *pages[2];
  unsigned* sums = device<unsigned>(n);
  cudaStream_t work, down;
  cudaEvent_t made[2], gone[2];
  Program(char form) : form(form) {
    CHECK(cudaMallocHost(&home, n * 4));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      pages[i] = device<float>(n);
      for (auto* event : {&made[i], &gone[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(work, gone[now]));
    render_page<<<n / 256, 256, 0, work>>>(pages[now], number, 40);
    CHECK(cudaEventRecord(made[now], work));
    if (form == 'a') checksum<<<n / 256, 256, 0, work>>>(pages[now], sums, 150);
    CHECK(cudaStreamWaitEvent(down, made[now]));
    CHECK(cudaMemcpyAsync(home, pages[now], n * 4, cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(gone[now], down));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
