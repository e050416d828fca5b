// A kite flies in 180 short kernels a step. b: all of them in one CUDA graph.
#include "key.h"

__global__ void gust(float* kite, int number) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  kite[i] = kite[i] * 0.97f + __sinf(kite[i] + number);
}

struct Program {
  static const int blocks = 16, n = blocks * 256;
  float* kite = device<float>(n);
  cudaStream_t stream;
  cudaGraphExec_t all = nullptr;
  Program(char form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (form == 'a') return;
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fly();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
  }
  void fly() {
    for (int i = 0; i < 180; i++) gust<<<blocks, 256, 0, stream>>>(kite, i);
  }
  void step(int) {
    if (all) CHECK(cudaGraphLaunch(all, stream));
    else fly();
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(kite, n); }
};
KEY_MAIN(Program)
