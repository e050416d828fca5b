// Relaxation whose host reads a norm in managed memory and writes the sources there. b: sources in pinned memory, copied.
#include "key.h"

__global__ void relax(const float* source, const float* x, float* y, int width, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sides = x[(i + 1) % n] + x[(i + n - 1) % n] + x[(i + width) % n] + x[(i + n - width) % n];
  y[i] = 0.25f * (sides + source[i % (1 << 20)]);
}

struct Program {
  static const int width = 4096, n = width * 4096, sources = 1 << 20;
  bool managed;
  float *host, *source, *x = device<float>(n), *y = device<float>(n);
  Program(char form) : managed(form == 'a') {
    if (managed) CHECK(cudaMallocManaged(&host, sources * sizeof(float)));
    else CHECK(cudaMallocHost(&host, sources * sizeof(float)));
    memset(host, 0, sources * sizeof(float));
    source = managed ? host : device<float>(sources);
  }
  void step(int i) {
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < sources; k += 256) host[k] = i;
    if (!managed) CHECK(cudaMemcpyAsync(source, host, sources * sizeof(float), cudaMemcpyHostToDevice));
    for (int k = 0; k < 20; k++) relax<<<n / 256, 256>>>(source, k % 2 ? y : x, k % 2 ? x : y, width, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
