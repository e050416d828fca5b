// Glaze dries on a second stream beside the first half of the next pot, which waits for it. a: 20,000 rounds, b: 5,000.
#include "key.h"

__global__ void turn_pot(float* pot, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = pot[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  pot[i] = v;
}
__global__ void dry_glaze(const float* pot, float* glaze, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + fabsf(pot[i]), v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  glaze[i] = v;
}

struct Program {
  static const int blocks = 60, n = blocks * 256;
  int rounds;
  float *pot = device<float>(n), *done = device<float>(n), *glaze = device<float>(n);
  cudaStream_t work, side;
  cudaEvent_t turned, dried;
  Program(char form) : rounds(form == 'a' ? 20000 : 5000) {
    for (auto* stream : {&work, &side}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&turned, &dried}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    turn_pot<<<blocks, 256, 0, work>>>(pot, 10000);
    CHECK(cudaStreamWaitEvent(work, dried));
    turn_pot<<<blocks, 256, 0, work>>>(done, 5000);
    CHECK(cudaEventRecord(turned, work));
    CHECK(cudaStreamWaitEvent(side, turned));
    dry_glaze<<<blocks, 256, 0, side>>>(done, glaze, rounds);
    CHECK(cudaEventRecord(dried, side));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(glaze, n); }
};
KEY_MAIN(Program)
