// A graph with two branches that join. b: the kernel of the shorter branch takes half the time (wins nothing).
#include "key.h"

__global__ void main_branch(float* x, int rounds) {
  float v = x[threadIdx.x + blockIdx.x * blockDim.x];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  x[threadIdx.x + blockIdx.x * blockDim.x] = v;
}
__global__ void side_branch(float* x, int rounds) {
  float v = x[threadIdx.x + blockIdx.x * blockDim.x];
  for (int k = 0; k < rounds; k++) v = v * 0.96f + __cosf(v + k);
  x[threadIdx.x + blockIdx.x * blockDim.x] = v;
}
__global__ void join(float* x, const float* y) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  x[i] += y[i];
}

struct Program {
  static const int n = 40 * 256;
  float *x = device<float>(n), *y = device<float>(n);
  cudaStream_t one, two;
  cudaGraphExec_t step_graph;
  Program(char form) {
    int fast = form == 'b', long_rounds = 16000, short_rounds = 9000;
    short_rounds /= 1 + fast;
    cudaEvent_t begun, done;
    cudaGraph_t graph;
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &done}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    CHECK(cudaEventRecord(begun, one));
    CHECK(cudaStreamWaitEvent(two, begun));
    main_branch<<<n / 256, 256, 0, one>>>(x, long_rounds);
    side_branch<<<n / 256, 256, 0, two>>>(y, short_rounds);
    CHECK(cudaEventRecord(done, two));
    CHECK(cudaStreamWaitEvent(one, done));
    join<<<n / 256, 256, 0, one>>>(x, y);
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&step_graph, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  void step(int) { CHECK(cudaGraphLaunch(step_graph, one)); }
};
KEY_MAIN(Program)
