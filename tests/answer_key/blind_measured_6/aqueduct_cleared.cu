// A scratch of 256 MB is cleared on a second stream beside long kernels, then overwritten. b: not cleared (wins nothing).
#include "key.h"

__global__ void flow(float* water, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = water[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  water[i] = v;
}
__global__ void overwrite(const float* water, float* scratch) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[i] = 0.5f * water[i];
}

struct Program {
  static const int blocks = 60, n = blocks * 256, size = 1 << 26;
  char form;
  float *water = device<float>(n), *scratch = device<float>(size);
  cudaStream_t work, side;
  cudaEvent_t written, cleared;
  Program(char form) : form(form) {
    for (auto* stream : {&work, &side}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&written, &cleared}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaStreamWaitEvent(side, written));
    if (form == 'a') CHECK(cudaMemsetAsync(scratch, 0, size * 4ul, side));
    CHECK(cudaEventRecord(cleared, side));
    for (int i = 0; i < 2; i++) flow<<<blocks, 256, 0, work>>>(water, 12000);
    CHECK(cudaStreamWaitEvent(work, cleared));
    overwrite<<<blocks, 256, 0, work>>>(water, scratch);
    CHECK(cudaEventRecord(written, work));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(scratch, n); }
};
KEY_MAIN(Program)
