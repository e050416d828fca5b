// A multigrid cycle of 120 small kernels as a CUDA graph. a: captured and instantiated in each step, b: once.
#include "key.h"

__global__ void smooth_level(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 0.25f * (in[(i + 1) % n] + in[(i + n - 1) % n]) + 0.5f * in[i];
}

struct Program {
  static const int n = 1 << 16;
  bool each;
  float *x = device<float>(n), *y = device<float>(n);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  Program(char form) : each(form == 'a') {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (!each) make();
  }
  void make() {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < 120; k++) {
      int count = n >> (k % 8);
      smooth_level<<<(count + 127) / 128, 128, 0, stream>>>(k % 2 ? y : x, k % 2 ? x : y, count);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
  }
  void step(int) {
    if (each) make();
    CHECK(cudaGraphLaunch(ready, stream));
    if (each) {
      CHECK(cudaGraphExecDestroy(ready));
      CHECK(cudaGraphDestroy(graph));
    }
  }
};
KEY_MAIN(Program)
