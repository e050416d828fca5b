// Heat in blocks of a machine, whose boundary values come from the host. a: one small copy for each block, b: one for all.
#include "key.h"

__global__ void heat(const float* edges, const float* in, float* out, int width, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sides = in[(i + 1) % n] + in[(i + n - 1) % n] + in[(i + width) % n] + in[(i + n - width) % n];
  out[i] = 0.24f * sides + 0.04f * edges[i % 6144];
}

struct Program {
  static const int blocks = 96, values = 64, width = 2048, n = width * 2048;
  bool apart;
  float *host, *edges = device<float>(blocks * values), *x = device<float>(n), *y = device<float>(n);
  cudaStream_t stream;
  Program(char form) : apart(form == 'a') {
    CHECK(cudaMallocHost(&host, blocks * values * sizeof(float)));
    memset(host, 0, blocks * values * sizeof(float));
    CHECK(cudaStreamCreate(&stream));
  }
  void step(int) {
    int size = values * sizeof(float), count = apart ? blocks : 1;
    if (!apart) size *= blocks;
    for (int k = 0; k < count; k++)
      CHECK(cudaMemcpyAsync(edges + k * values, host + k * values, size, cudaMemcpyHostToDevice, stream));
    for (int k = 0; k < 12; k++) heat<<<n / 256, 256, 0, stream>>>(edges, k % 2 ? y : x, k % 2 ? x : y, width, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
