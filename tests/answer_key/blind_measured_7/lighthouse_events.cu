// A lighthouse turns in four long kernels; the host records 80 events on an idle stream, far ahead. b: none (wins nothing).
#include "key.h"

__global__ void turn_light(float* beams, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = beams[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v + k);
  beams[i] = v;
}

struct Program {
  static const int blocks = 100, n = blocks * 256, count = 80;
  char form;
  float* beams = device<float>(n);
  cudaStream_t work, idle;
  cudaEvent_t seen[count];
  Program(char form) : form(form) {
    for (auto* stream : {&work, &idle}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto& event : seen) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  void step(int) {
    for (int i = 0; i < 4; i++) turn_light<<<blocks, 256, 0, work>>>(beams, 40000);
    if (form == 'a')
      for (auto event : seen) CHECK(cudaEventRecord(event, idle));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(beams, n); }
};
KEY_MAIN(Program)
