// Sixty short updates of a lung's airways in each step, each launched by itself. b: a graph of them.
#include "key.h"

__global__ void breathe(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.5f * in[i] + 0.25f * (in[(i + 32) % n] + in[(i + n - 32) % n]);
}

struct Program {
  static const int n = 1 << 15;
  char form;
  float *x = device<float>(n), *y = device<float>(n);
  cudaStream_t stream;
  cudaGraphExec_t all;
  Program(char form) : form(form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (form == 'a') return;
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
  }
  void launch() {
    for (int i = 0; i < 60; i++) {
      breathe<<<n / 256, 256, 0, stream>>>(x, y, n);
      std::swap(x, y);
    }
    CHECK(cudaGetLastError());
  }
  void step(int) { form == 'a' ? launch() : replay(); }
  void replay() { CHECK(cudaGraphLaunch(all, stream)); }
};
KEY_MAIN(Program)
