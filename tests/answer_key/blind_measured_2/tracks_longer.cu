// A tracker predicts and associates on two streams; associating takes longer. b: it takes 40 %, then predicting is longer.
#include "key.h"

__global__ void predict_tracks(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  out[i] = v;
}
__global__ void associate(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  out[i] = v;
}
__global__ void join_tracks(float* x, const float* y, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - y[i]);
  x[i] = v;
}

struct Program {
  static const int n = 40 * 256;
  int rounds;
  float *x = device<float>(n), *y = device<float>(n), *z = device<float>(n);
  cudaStream_t one, two;
  cudaEvent_t begun, done;
  Program(char form) : rounds(form == 'a' ? 10000 : 4000) {
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &done}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(begun, one));
    CHECK(cudaStreamWaitEvent(two, begun));
    associate<<<n / 256, 256, 0, one>>>(x, y, rounds);
    predict_tracks<<<n / 256, 256, 0, two>>>(x, z, 6000);
    CHECK(cudaEventRecord(done, two));
    CHECK(cudaStreamWaitEvent(one, done));
    join_tracks<<<n / 256, 256, 0, one>>>(y, z, 2000);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
