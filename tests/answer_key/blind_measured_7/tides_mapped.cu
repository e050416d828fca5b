// A kernel reads a log of tides from mapped host memory beside longer kernels on other multiprocessors. b: a quarter of it (wins nothing).
#include "key.h"

__global__ void roll_sea(float* sea, const float* highest, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = sea[i] + 1e-3f * highest[i % 4096];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  sea[i] = v;
}
__global__ void read_tide_log(const int* log, float* highest, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x, most = 0;
#pragma unroll 8
  for (int k = i; k < count; k += all) most = max(most, log[k]);
  highest[i] = most;
}

struct Program {
  static const int blocks = 80, n = blocks * 256, size = 1 << 22;
  int count, *log, *mapped;
  float *sea = device<float>(n), *highest[2] = {device<float>(4096), device<float>(4096)};
  cudaStream_t work, side;
  cudaEvent_t used[2], found[2];
  Program(char form) : count(form == 'a' ? size : size / 4) {
    CHECK(cudaHostAlloc(&log, size * 4, cudaHostAllocMapped));
    for (int i = 0; i < size; i++) log[i] = i < size / 4 ? i % 4096 : 0; // the highest tides stand in the first quarter
    CHECK(cudaHostGetDevicePointer(&mapped, log, 0));
    for (auto* stream : {&work, &side}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* events : {used, found})
      for (int i = 0; i < 2; i++) CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(side, used[now]));
    read_tide_log<<<16, 256, 0, side>>>(mapped, highest[now], count);
    CHECK(cudaEventRecord(found[now], side));
    for (int i = 0; i < 3; i++) {
      if (i == 2) CHECK(cudaStreamWaitEvent(work, found[now]));
      roll_sea<<<blocks, 256, 0, work>>>(sea, highest[i == 2 ? now : 1 - now], 50000);
    }
    CHECK(cudaEventRecord(used[1 - now], work));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(sea, n); }
};
KEY_MAIN(Program)
