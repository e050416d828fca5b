// In one graph, four pages of vellum are written, and 6 MB go home after each, though nobody reads them. b: none goes home.
#include "key.h"

__global__ void write_page(float* page, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = page[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __cosf(v - k);
  page[i] = v;
}

struct Program {
  static const int blocks = 96, n = blocks * 256, size = 6 << 18;
  float *page = device<float>(size), *host;
  cudaStream_t stream;
  cudaGraphExec_t all;
  Program(char form) {
    cudaGraph_t graph;
    CHECK(cudaMallocHost(&host, size * 4));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4; i++) {
      write_page<<<blocks, 256, 0, stream>>>(page, 14000);
      if (form == 'a') CHECK(cudaMemcpyAsync(host, page, size * 4, cudaMemcpyDeviceToHost, stream));
    }
    write_page<<<blocks, 256, 0, stream>>>(page, 3000);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
  }
  void step(int) { CHECK(cudaGraphLaunch(all, stream)); }
  std::vector<float> result() { return home(page, n); }
};
KEY_MAIN(Program)
