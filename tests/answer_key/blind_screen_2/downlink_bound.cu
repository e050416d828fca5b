// Spectra downloaded over the full link; a small kernel in 4 blocks runs beside. b: the kernel in 1056 (wins nothing).
#include "key.h"

__global__ void make_spectra(float* out, int n, int step) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = sinf(i * 1e-3f + step);
}

struct Program {
  static const int n = 12 << 20;
  int blocks;
  float *host, *spectra[2] = {device<float>(n), device<float>(n)};
  cudaStream_t work, down;
  cudaEvent_t made[2], saved[2];
  Program(char form) : blocks(form == 'a' ? 4 : 1056) {
    CHECK(cudaMallocHost(&host, n * sizeof(float)));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&made[0], &made[1], &saved[0], &saved[1]})
      CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int i) {
    int k = i % 2;
    CHECK(cudaStreamWaitEvent(work, saved[k]));
    make_spectra<<<blocks, 512, 0, work>>>(spectra[k], n, i);
    CHECK(cudaEventRecord(made[k], work));
    CHECK(cudaStreamWaitEvent(down, made[k]));
    CHECK(cudaMemcpyAsync(host, spectra[k], n * sizeof(float), cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(saved[k], down));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
