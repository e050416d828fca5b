// Forty short stencils a step, each launched by itself; the host waits for each step. b: one graph.
#include "key.h"

__global__ void stencil(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.25f * (in[i] + in[(i + 1) % n] + in[(i + n - 1) % n] + in[(i + 64) % n]);
}

struct Program {
  static const int n = 1 << 16;
  char form;
  float *x = device<float>(n), *y = device<float>(n);
  cudaStream_t stream;
  cudaGraphExec_t step_graph;
  Program(char form) : form(form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (form == 'a') return;
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&step_graph, graph, 0));
  }
  void launch() {
    for (int i = 0; i < 40; i++) {
      stencil<<<n / 256, 256, 0, stream>>>(x, y, n);
      std::swap(x, y);
    }
    CHECK(cudaGetLastError());
  }
  void step(int) {
    form == 'a' ? launch() : replay();
    CHECK(cudaStreamSynchronize(stream));
  }
  void replay() { CHECK(cudaGraphLaunch(step_graph, stream)); }
};
KEY_MAIN(Program)
