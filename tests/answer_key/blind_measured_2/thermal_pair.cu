// Heat conducts while radiation is summed beside it, both in a graph. b: radiation three times faster (wins nothing).
#include "key.h"

__global__ void conduct(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  out[i] = v;
}
__global__ void radiate(const float* in, float* sums, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i], sum = 0;
  for (int k = 0; k < rounds; k++) sum += __sinf(v + k);
  sums[i] = sum;
}
__global__ void combine(float* out, const float* sums) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] += 1e-6f * sums[i];
}

struct Program {
  static const int n = 40 * 256;
  float *state = device<float>(n), *next = device<float>(n), *sums = device<float>(n);
  cudaStream_t one, two;
  cudaEvent_t begun, told;
  cudaGraphExec_t step_graph;
  Program(char form) {
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &told}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 3; i++) {
      CHECK(cudaEventRecord(begun, one));
      CHECK(cudaStreamWaitEvent(two, begun));
      conduct<<<n / 256, 256, 0, one>>>(state, next, 8000);
      radiate<<<n / 256, 256, 0, two>>>(state, sums, form == 'a' ? 4500 : 1500);
      CHECK(cudaEventRecord(told, two));
      CHECK(cudaStreamWaitEvent(one, told));
      combine<<<n / 256, 256, 0, one>>>(next, sums);
      std::swap(state, next);
    }
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&step_graph, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  void step(int) { CHECK(cudaGraphLaunch(step_graph, one)); }
};
KEY_MAIN(Program)
