// A solver of small kernels, captured once as a graph. a: instantiates it for each step, b: once.
#include "key.h"

__global__ void axpy_small(float* x, const float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += a * y[i];
}

struct Program {
  static const int n = 1 << 15, kernels = 200;
  bool each;
  float *x = device<float>(n), *y = device<float>(n);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  Program(char form) : each(form == 'a') {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < kernels; k++) axpy_small<<<n / 256, 256, 0, stream>>>(k % 2 ? x : y, k % 2 ? y : x, 1e-3f, n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
  }
  void step(int) {
    if (each) {
      CHECK(cudaGraphExecDestroy(ready));
      CHECK(cudaGraphInstantiate(&ready, graph, 0));
    }
    CHECK(cudaGraphLaunch(ready, stream));
  }
};
KEY_MAIN(Program)
