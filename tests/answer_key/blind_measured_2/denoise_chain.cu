// A chain of filters in a graph, one behind the other. b: the median filter takes 40 % of its time.
#include "key.h"

__global__ void gradient(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  out[i] = v;
}
__global__ void median_filter(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  out[i] = v;
}

struct Program {
  static const int n = 128 * 256;
  float *x = device<float>(n), *y = device<float>(n);
  cudaStream_t stream;
  cudaGraphExec_t step_graph;
  Program(char form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4; i++) {
      gradient<<<n / 256, 256, 0, stream>>>(x, y, 3000);
      median_filter<<<n / 256, 256, 0, stream>>>(y, x, form == 'a' ? 2500 : 1000);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&step_graph, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  void step(int) { CHECK(cudaGraphLaunch(step_graph, stream)); }
};
KEY_MAIN(Program)
