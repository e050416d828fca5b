// Parcels in ordinary memory go up and are weighed; the host waits. a: their memory is pinned for each step, b: once.
#include "key.h"

__global__ void weigh(const float* parcels, float* weights, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = parcels[i];
  for (int k = 0; k < rounds; k++) v = v * 0.96f + __sinf(v + k);
  weights[i] = v;
}

struct Program {
  static const int n = 1 << 21;
  char form;
  float *host, *parcels = device<float>(n), *weights = device<float>(n);
  cudaStream_t stream;
  Program(char form) : form(form), host((float*)aligned_alloc(4096, n * 4)) {
    for (int i = 0; i < n; i++) host[i] = i % 31;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (form == 'b') CHECK(cudaHostRegister(host, n * 4, cudaHostRegisterDefault));
  }
  void step(int) {
    if (form == 'a') CHECK(cudaHostRegister(host, n * 4, cudaHostRegisterDefault));
    CHECK(cudaMemcpyAsync(parcels, host, n * 4, cudaMemcpyHostToDevice, stream));
    weigh<<<n / 256, 256, 0, stream>>>(parcels, weights, 500);
    CHECK(cudaStreamSynchronize(stream));
    if (form == 'a') CHECK(cudaHostUnregister(host));
  }
};
KEY_MAIN(Program)
