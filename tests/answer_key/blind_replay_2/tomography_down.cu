// Back projection of slices, each downloaded to pinned memory. a: on the stream of the kernels, b: on another one.
#include "key.h"

__global__ void back_project(const float* sinogram, float* slice, int width, int angles) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = i % width - width / 2, y = i / width - width / 2, sum = 0;
  for (int k = 0; k < angles; k++) {
    float at = x * __cosf(k * 0.01f) + y * __sinf(k * 0.01f) + width;
    sum += sinogram[(k * width + (int)at % width)];
  }
  slice[i] = sum;
}

struct Program {
  static const int width = 2048, n = width * width, angles = 180;
  bool apart;
  float *host, *sinogram = device<float>(angles * width), *slice[2] = {device<float>(n), device<float>(n)};
  cudaStream_t work, down;
  cudaEvent_t made[2], saved[2];
  Program(char form) : apart(form == 'b') {
    CHECK(cudaMallocHost(&host, n * sizeof(float)));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&made[0], &made[1], &saved[0], &saved[1]})
      CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int i) {
    int k = i % 2;
    if (apart) CHECK(cudaStreamWaitEvent(work, saved[k]));
    back_project<<<n / 256, 256, 0, work>>>(sinogram, slice[k], width, angles);
    if (apart) {
      CHECK(cudaEventRecord(made[k], work));
      CHECK(cudaStreamWaitEvent(down, made[k]));
    }
    CHECK(cudaMemcpyAsync(host, slice[k], n * sizeof(float), cudaMemcpyDeviceToHost, apart ? down : work));
    if (apart) CHECK(cudaEventRecord(saved[k], down));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
