// Embers smolder in 24 short kernels on a second stream beside one long kernel. b: in one kernel (wins nothing).
#include "key.h"

__global__ void burn_log(float* log, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = log[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  log[i] = v;
}
__global__ void smolder(float* embers, int from, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = embers[i];
  for (int k = from; k < from + rounds; k++) v = v * 0.96f + __cosf(v - k);
  embers[i] = v;
}

struct Program {
  static const int blocks = 50, n = blocks * 256, total = 12000;
  int count;
  float *log = device<float>(n), *embers = device<float>(n);
  cudaStream_t work, side;
  cudaEvent_t lit, out;
  Program(char form) : count(form == 'a' ? 24 : 1) {
    for (auto* stream : {&work, &side}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&lit, &out}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(lit, work));
    CHECK(cudaStreamWaitEvent(side, lit));
    burn_log<<<blocks, 256, 0, work>>>(log, 40000);
    for (int i = 0; i < count; i++) smolder<<<blocks, 256, 0, side>>>(embers, i * (total / count), total / count);
    CHECK(cudaEventRecord(out, side));
    CHECK(cudaStreamWaitEvent(work, out));
    burn_log<<<blocks, 256, 0, work>>>(embers, 2000);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(embers, n); }
};
KEY_MAIN(Program)
