// Dunes move; before each step the host waits for the end of the step three before. b: it never waits (wins nothing).
#include "key.h"

__global__ void move_dunes(float* dunes, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = dunes[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v + k);
  dunes[i] = v;
}

struct Program {
  static const int n = 1 << 20, behind = 3;
  char form;
  float* dunes = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t ended[behind];
  Program(char form) : form(form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& event : ended) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  void step(int number) {
    cudaEvent_t last = ended[number % behind];
    if (form == 'a') CHECK(cudaEventSynchronize(last));
    for (int i = 0; i < 3; i++) move_dunes<<<n / 256, 256, 0, stream>>>(dunes, 1500);
    CHECK(cudaEventRecord(last, stream));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
