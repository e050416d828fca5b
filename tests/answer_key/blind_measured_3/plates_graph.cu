// Twelve long updates of plates, launched one by one far ahead of the GPU. b: one graph (wins nothing).
#include "key.h"

__global__ void drift(float* plates, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = plates[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  plates[i] = v;
}

struct Program {
  static const int n = 1 << 20;
  char form;
  float* plates = device<float>(n);
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
    for (int i = 0; i < 12; i++) drift<<<n / 256, 256, 0, stream>>>(plates, 1500);
    CHECK(cudaGetLastError());
  }
  void step(int) { form == 'a' ? launch() : replay(); }
  void replay() { CHECK(cudaGraphLaunch(all, stream)); }
};
KEY_MAIN(Program)
