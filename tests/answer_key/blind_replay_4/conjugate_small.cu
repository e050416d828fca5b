// Conjugate gradients on a small grid, twelve iterations of four kernels. a: launched one by one, b: as a CUDA graph.
#include "key.h"

__global__ void apply_grid(const float* p, float* q, int width, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  q[i] = 4.1f * p[i] - p[(i + 1) % n] - p[(i + n - 1) % n] - p[(i + width) % n] - p[(i + n - width) % n];
}
__global__ void inner(const float* a, const float* b, float* out, int n) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
  for (int k = 16; k; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void advance_x(float* x, float* r, const float* p, const float* q, const float* sums) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float alpha = sums[0] / (sums[1] + 1e-6f);
  x[i] += alpha * p[i], r[i] -= alpha * q[i];
}
__global__ void advance_p(float* p, const float* r, const float* sums) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  p[i] = r[i] + sums[1] / (sums[0] + 1e-6f) * p[i];
}

struct Program {
  static const int width = 128, n = width * width;
  float *x = device<float>(n), *r = device<float>(n), *p = device<float>(n), *q = device<float>(n), *sums = device<float>(2);
  bool graphed;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  Program(char form) : graphed(form == 'b') {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (!graphed) return;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    iterate();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
  }
  void iterate() {
    for (int k = 0; k < 12; k++) {
      apply_grid<<<n / 128, 128, 0, stream>>>(p, q, width, n);
      inner<<<32, 128, 0, stream>>>(p, q, sums + k % 2, n);
      advance_x<<<n / 128, 128, 0, stream>>>(x, r, p, q, sums);
      advance_p<<<n / 128, 128, 0, stream>>>(p, r, sums);
    }
  }
  void step(int) {
    if (graphed) CHECK(cudaGraphLaunch(ready, stream));
    else iterate();
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
