// Rendering of frames while the next volume is uploaded on a second stream. b: without the upload (wins nothing).
#include "key.h"

__global__ void cast_rays(const float* volume, float* frame, int n, int depth) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float light = 1, value = 0;
  for (int k = 0; k < depth; k++) {
    float density = volume[(i * 7 + k * 32) % n];
    value += light * __sinf(density + k);
    light *= 0.999f;
  }
  frame[i] = value;
}

struct Program {
  static const int n = 1 << 22, pixels = 1920 * 1080 / 256 * 256;
  bool uploads;
  float *volumes[2], *frame = device<float>(pixels), *host;
  cudaStream_t rays, copies;
  cudaEvent_t done[2], ready[2];
  Program(char form) : uploads(form == 'a') {
    CHECK(cudaMallocHost(&host, n * sizeof(float)));
    memset(host, 0, n * sizeof(float));
    CHECK(cudaStreamCreate(&rays));
    CHECK(cudaStreamCreate(&copies));
    for (int k = 0; k < 2; k++) {
      volumes[k] = device<float>(n);
      CHECK(cudaEventCreateWithFlags(&done[k], cudaEventDisableTiming));
      CHECK(cudaEventCreateWithFlags(&ready[k], cudaEventDisableTiming));
    }
  }
  void step(int i) {
    int now = i % 2, next = 1 - now;
    if (uploads) {
      CHECK(cudaStreamWaitEvent(copies, done[next]));
      CHECK(cudaMemcpyAsync(volumes[next], host, n * sizeof(float), cudaMemcpyHostToDevice, copies));
      CHECK(cudaEventRecord(ready[next], copies));
      CHECK(cudaStreamWaitEvent(rays, ready[now]));
    }
    cast_rays<<<pixels / 256, 256, 0, rays>>>(volumes[now], frame, n, 6000);
    CHECK(cudaEventRecord(done[now], rays));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
