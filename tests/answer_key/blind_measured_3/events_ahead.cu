// Long kernels are queued ahead, and the host asks two hundred times whether an event has passed. b: never (wins nothing).
#include "key.h"

__global__ void anneal(float* spins, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = spins[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  spins[i] = v;
}

struct Program {
  static const int n = 1 << 20;
  char form;
  float* spins = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t passed;
  Program(char form) : form(form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
  }
  void step(int) {
    for (int i = 0; i < 4; i++) anneal<<<n / 256, 256, 0, stream>>>(spins, 2500);
    CHECK(cudaEventRecord(passed, stream));
    for (int i = 0; form == 'a' && i < 200; i++) (void)cudaEventQuery(passed);
    (void)cudaGetLastError();  // "not ready" is no error
  }
};
KEY_MAIN(Program)
