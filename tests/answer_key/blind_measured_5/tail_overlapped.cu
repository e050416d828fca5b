// The index of a volume is written on a second stream while the next volume is scanned. b: in fewer rounds (wins nothing).
#include "key.h"

__global__ void scan_volume(float* volume, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = volume[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  volume[i] = v;
}
__global__ void write_index(const float* volume, float* index, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + fabsf(volume[i]), v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  index[i] = v;
}

struct Program {
  static const int blocks = 50, n = blocks * 256;
  int rounds;
  float *volume[2], *index = device<float>(n);
  cudaStream_t work, tail;
  cudaEvent_t scanned[2], written[2];
  Program(char form) : rounds(form == 'a' ? 12000 : 3600) {
    for (auto* stream : {&work, &tail}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      volume[i] = device<float>(n);
      for (auto* event : {&scanned[i], &written[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(work, written[now]));
    for (int i = 0; i < 2; i++) scan_volume<<<blocks, 256, 0, work>>>(volume[now], 12000);
    CHECK(cudaEventRecord(scanned[now], work));
    CHECK(cudaStreamWaitEvent(tail, scanned[now]));
    write_index<<<blocks, 256, 0, tail>>>(volume[now], index, rounds);
    CHECK(cudaEventRecord(written[now], tail));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(index, n); }
};
KEY_MAIN(Program)
