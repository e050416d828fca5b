// Combs are drawn on one stream and sealed on another, which takes twice as long. b: drawn in 0.4 of the rounds (wins nothing).
#include "key.h"

__global__ void draw_comb(float* comb, int number, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + (i + number) % 31, v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  comb[i] = v;
}
__global__ void seal_comb(const float* comb, float* hive, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = comb[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  hive[i] = v;
}

struct Program {
  static const int blocks = 64, n = blocks * 256, slots = 3;
  int rounds;
  float *comb[slots], *hive = device<float>(n);
  cudaStream_t one, two;
  cudaEvent_t drawn[slots], sealed[slots];
  Program(char form) : rounds(form == 'a' ? 10000 : 4000) {
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < slots; i++) {
      comb[i] = device<float>(n);
      for (auto* event : {&drawn[i], &sealed[i]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % slots;
    CHECK(cudaStreamWaitEvent(one, sealed[now]));
    draw_comb<<<blocks, 256, 0, one>>>(comb[now], number, rounds);
    CHECK(cudaEventRecord(drawn[now], one));
    CHECK(cudaStreamWaitEvent(two, drawn[now]));
    seal_comb<<<blocks, 256, 0, two>>>(comb[now], hive, 26000);
    CHECK(cudaEventRecord(sealed[now], two));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(hive, n); }
};
KEY_MAIN(Program)
