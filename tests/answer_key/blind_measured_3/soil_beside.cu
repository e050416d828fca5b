// Water sinks into soil while roots drink on a second stream, half as long. b: roots at a third (wins nothing).
#include "key.h"

__global__ void sink(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  out[i] = v;
}
__global__ void drink(const float* in, float* taken, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i], sum = 0;
  for (int k = 0; k < rounds; k++) sum = sum * 0.9f + __sinf(v + sum + k);
  taken[i] = sum;
}
__global__ void settle(float* out, const float* taken) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] -= 1e-6f * taken[i];
}

struct Program {
  static const int n = 48 * 256;
  int roots;
  float *state = device<float>(n), *next = device<float>(n), *taken = device<float>(n);
  cudaStream_t one, two;
  cudaEvent_t begun, done;
  Program(char form) : roots(form == 'a' ? 4500 : 1500) {
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &done}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    for (int i = 0; i < 4; i++) {
      CHECK(cudaEventRecord(begun, one));
      CHECK(cudaStreamWaitEvent(two, begun));
      sink<<<n / 256, 256, 0, one>>>(state, next, 9000);
      drink<<<n / 256, 256, 0, two>>>(state, taken, roots);
      CHECK(cudaEventRecord(done, two));
      CHECK(cudaStreamWaitEvent(one, done));
      settle<<<n / 256, 256, 0, one>>>(next, taken);
      std::swap(state, next);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
