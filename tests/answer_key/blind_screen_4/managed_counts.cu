// Counts of a city's sensors in managed memory: the host writes all of them, the GPU smooths. a: pages fault, b: pinned and copied.
#include "key.h"

__global__ void smooth_counts(const float* counts, float* out, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = counts[i];
  for (int k = 0; k < rounds; k++) x = 0.98f * x + 0.02f * counts[(i + k * 37) % n];
  out[i] = x;
}

struct Program {
  static const int n = 1 << 21;
  bool managed;
  float *counts, *host, *out = device<float>(n);
  Program(char form) : managed(form == 'a') {
    if (managed) {
      CHECK(cudaMallocManaged(&counts, n * sizeof(float)));
      host = counts;
    } else {
      counts = device<float>(n);
      CHECK(cudaMallocHost(&host, n * sizeof(float)));
    }
    memset(host, 0, n * sizeof(float));
  }
  void step(int i) {
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < n; k += 512) host[k] = i + k;
    if (!managed) CHECK(cudaMemcpyAsync(counts, host, n * sizeof(float), cudaMemcpyHostToDevice));
    smooth_counts<<<n / 256, 256>>>(counts, out, n, 64);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
