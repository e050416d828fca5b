// Planets turn in a graph of 24 kernels; two steps are queued. a: the graph is instantiated for each step, b: once (wins nothing).
#include "key.h"

__global__ void turn(float* planets, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = planets[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  planets[i] = v;
}

struct Program {
  static const int blocks = 90, n = blocks * 256;
  char form;
  float* planets = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t turned[2];
  cudaGraph_t graph;
  cudaGraphExec_t year[2];
  Program(char form) : form(form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 24; i++) turn<<<blocks, 256, 0, stream>>>(planets, 7500);
    CHECK(cudaStreamEndCapture(stream, &graph));
    for (int i = 0; i < 2; i++) {
      CHECK(cudaEventCreateWithFlags(&turned[i], cudaEventDisableTiming));
      CHECK(cudaGraphInstantiate(&year[i], graph, 0));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaEventSynchronize(turned[now]));
    if (form == 'a') {
      CHECK(cudaGraphExecDestroy(year[now]));
      CHECK(cudaGraphInstantiate(&year[now], graph, 0));
    }
    CHECK(cudaGraphLaunch(year[now], stream));
    CHECK(cudaEventRecord(turned[now], stream));
  }
  std::vector<float> result() { return home(planets, n); }
};
KEY_MAIN(Program)
