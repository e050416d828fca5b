// Beads are threaded by 60 kernels in a row, which take longer than their launches. b: by one kernel with all of their rounds.
#include "key.h"

__global__ void thread_beads(float* beads, int from, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = beads[i];
  for (int k = from; k < from + rounds; k++) v = v * 0.97f + __sinf(v - k);
  beads[i] = v;
}

struct Program {
  static const int total = 30000, blocks = 90, n = blocks * 256;
  int count;
  float* beads = device<float>(n);
  cudaStream_t stream;
  Program(char form) : count(form == 'a' ? 60 : 1) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0; i < count; i++) thread_beads<<<blocks, 256, 0, stream>>>(beads, i * (total / count), total / count);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(beads, n); }
};
KEY_MAIN(Program)
