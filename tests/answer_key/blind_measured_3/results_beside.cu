// Each step's result goes down on a second stream while the next step computes. b: half of it goes down (wins nothing).
#include "key.h"

__global__ void advance(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v + k);
  out[i] = v;
}

struct Program {
  static const int n = 1 << 21;
  size_t bytes;
  float *host, *state = device<float>(n), *kept[2];
  cudaStream_t work, down;
  cudaEvent_t made, gone[2];
  Program(char form) : bytes(form == 'a' ? n * 4 : n * 2) {
    CHECK(cudaMallocHost(&host, n * 4));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
      kept[i] = device<float>(n);
      CHECK(cudaEventCreateWithFlags(&gone[i], cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(work, gone[now]));
    advance<<<n / 256, 256, 0, work>>>(state, kept[now], 450);
    CHECK(cudaEventRecord(made, work));
    CHECK(cudaStreamWaitEvent(down, made));
    CHECK(cudaMemcpyAsync(host, kept[now], bytes, cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(gone[now], down));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
