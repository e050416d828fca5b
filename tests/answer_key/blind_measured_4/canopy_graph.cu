// A forest: 30 short kernels of leaves, a long one of light, 30 short ones of roots; the host waits. b: one graph of all.
#include "key.h"

__global__ void leaves(float* trees, float share) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  trees[i] = trees[i] * share + 0.1f;
}
__global__ void light(float* sky, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = sky[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v + k);
  sky[i] = v;
}

struct Program {
  static const int n = 1 << 20, few = 1 << 15;
  char form;
  float *trees = device<float>(few), *sky = device<float>(n);
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
    for (int i = 0; i < 30; i++) leaves<<<few / 256, 256, 0, stream>>>(trees, 0.9f);
    light<<<n / 256, 256, 0, stream>>>(sky, 500);
    for (int i = 0; i < 30; i++) leaves<<<few / 256, 256, 0, stream>>>(trees, 0.8f);
    CHECK(cudaGetLastError());
  }
  void step(int) {
    if (form == 'a') launch();
    else CHECK(cudaGraphLaunch(all, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
};
KEY_MAIN(Program)
