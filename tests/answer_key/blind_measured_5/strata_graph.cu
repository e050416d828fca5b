// In one graph, strata are folded on one branch and dated on another. a: folded in 12,000 rounds, b: 3,000; then dating limits.
#include "key.h"

__global__ void fold(const float* strata, float* folded, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + fabsf(strata[i]), v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  folded[i] = v;
}
__global__ void settle(float* strata, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = strata[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  strata[i] = v;
}
__global__ void date_layers(const float* strata, float* age, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 3 + fabsf(strata[i]), v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  age[i] = v;
}

struct Program {
  static const int blocks = 56, n = blocks * 256;
  float *strata = device<float>(n), *folded = device<float>(n), *age = device<float>(n);
  cudaStream_t one, two;
  cudaEvent_t begun, dated;
  cudaGraphExec_t all;
  Program(char form) {
    cudaGraph_t graph;
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &dated}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    settle<<<blocks, 256, 0, one>>>(strata, 6000);
    CHECK(cudaEventRecord(begun, one));
    CHECK(cudaStreamWaitEvent(two, begun));
    date_layers<<<blocks, 256, 0, two>>>(strata, age, 12000);
    CHECK(cudaEventRecord(dated, two));
    fold<<<blocks, 256, 0, one>>>(strata, folded, form == 'a' ? 12000 : 3000);
    fold<<<blocks, 256, 0, one>>>(folded, folded, form == 'a' ? 4000 : 1000);
    CHECK(cudaStreamWaitEvent(one, dated));
    settle<<<blocks, 256, 0, one>>>(folded, 2000);
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
  }
  void step(int) { CHECK(cudaGraphLaunch(all, one)); }
  std::vector<float> result() { return home(folded, n); }
};
KEY_MAIN(Program)
