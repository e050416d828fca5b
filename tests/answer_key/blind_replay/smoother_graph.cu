// A multigrid V-cycle on small grids: 44 kernels of some microseconds. a: launched one by one, b: as a CUDA graph.
#include "key.h"

__global__ void smooth(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 0.25f * (in[(i + n - 1) % n] + 2 * in[i] + in[(i + 1) % n]);
}
__global__ void restrict_grid(const float* fine, float* coarse, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) coarse[i] = 0.5f * (fine[2 * i] + fine[2 * i + 1]);
}
__global__ void prolong(const float* coarse, float* fine, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) fine[i] += 0.3f * coarse[i / 2];
}

struct Program {
  static const int n = 1 << 16, levels = 7;
  float *grids[levels], *spare = device<float>(n);
  cudaStream_t stream;
  cudaGraphExec_t graph = nullptr;
  Program(char form) {
    for (int k = 0; k < levels; k++) grids[k] = device<float>(n >> k);
    CHECK(cudaStreamCreate(&stream));
    if (form == 'b') {
      cudaGraph_t recorded;
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
      cycle();
      CHECK(cudaStreamEndCapture(stream, &recorded));
      CHECK(cudaGraphInstantiate(&graph, recorded, 0));
    }
  }
  void twice(int k) {
    int size = n >> k, blocks = (size + 127) / 128;
    smooth<<<blocks, 128, 0, stream>>>(grids[k], spare, size);
    smooth<<<blocks, 128, 0, stream>>>(spare, grids[k], size);
  }
  void cycle() {
    for (int k = 0; k + 1 < levels; k++) {
      twice(k);
      int size = n >> (k + 1);
      restrict_grid<<<(size + 127) / 128, 128, 0, stream>>>(grids[k], grids[k + 1], size);
    }
    for (int k = 0; k < 4; k++) twice(levels - 1);
    for (int k = levels - 2; k >= 0; k--) {
      int size = n >> k;
      prolong<<<(size + 127) / 128, 128, 0, stream>>>(grids[k + 1], grids[k], size);
      twice(k);
    }
  }
  void step(int) {
    if (graph) CHECK(cudaGraphLaunch(graph, stream));
    else cycle();
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
