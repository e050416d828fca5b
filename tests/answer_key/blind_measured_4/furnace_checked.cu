// Heat in a furnace as one graph of ten sweeps. a: a debugging kernel looks for infinities after each sweep, b: none does.
#include "key.h"

__global__ void sweep_heat(float* heat, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = heat[i] + 1e-6f * i;
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  heat[i] = v;
}
__global__ void all_finite(const float* heat, int* wrong) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (!isfinite(heat[i])) atomicAdd(wrong, 1);
}

struct Program {
  static const int n = 1 << 20;
  float* heat = device<float>(n);
  int* wrong = device<int>(1);
  cudaStream_t stream;
  cudaGraphExec_t all;
  Program(char form) {
    cudaGraph_t graph;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 10; i++) {
      sweep_heat<<<n / 256, 256, 0, stream>>>(heat, 60);
      if (form == 'a') all_finite<<<n / 256, 256, 0, stream>>>(heat, wrong);
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
  }
  void step(int) { CHECK(cudaGraphLaunch(all, stream)); }
  std::vector<float> result() {
    std::vector<float> found(n);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(found.data(), heat, n * 4, cudaMemcpyDeviceToHost));
    return found;
  }
};
KEY_MAIN(Program)
