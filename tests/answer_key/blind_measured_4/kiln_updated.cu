// A kiln's firing as a graph of twelve kernels. a: each step sets the same parameters of all nodes again, b: none (wins nothing).
#include "key.h"

__global__ void fire_clay(float* clay, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = clay[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v - k);
  clay[i] = v;
}

struct Program {
  static const int n = 1 << 20, count = 12;
  char form;
  float* clay = device<float>(n);
  cudaStream_t stream;
  cudaGraphNode_t nodes[count];
  cudaKernelNodeParams set[count];
  cudaGraphExec_t all;
  Program(char form) : form(form) {
    cudaGraph_t graph;
    size_t found = count;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < count; i++) fire_clay<<<n / 256, 256, 0, stream>>>(clay, 250);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
    CHECK(cudaGraphGetNodes(graph, nodes, &found));
    for (int i = 0; i < count; i++) CHECK(cudaGraphKernelNodeGetParams(nodes[i], &set[i]));
  }
  void step(int) {
    for (int i = 0; form == 'a' && i < count; i++) CHECK(cudaGraphExecKernelNodeSetParams(all, nodes[i], &set[i]));
    CHECK(cudaGraphLaunch(all, stream));
  }
};
KEY_MAIN(Program)
