// Recursive filters of six sensors, which do not depend on each other. a: on one stream, b: a stream for each.
#include "key.h"

__global__ void recursive_filter(const float* in, float* out, int channels, int n, float keep) {
  int channel = blockIdx.x * blockDim.x + threadIdx.x;
  float state = 0;
  for (int i = 0; i < n; i++) {
    state = keep * state + (1 - keep) * in[(size_t)i * channels + channel];
    out[(size_t)i * channels + channel] = state;
  }
}

struct Program {
  static const int sensors = 6, channels = 2048, n = 1500;
  bool apart;
  float *in[sensors], *out[sensors];
  cudaStream_t streams[sensors];
  Program(char form) : apart(form == 'b') {
    for (int k = 0; k < sensors; k++) {
      in[k] = device<float>((size_t)channels * n), out[k] = device<float>((size_t)channels * n);
      CHECK(cudaStreamCreateWithFlags(streams + k, cudaStreamNonBlocking));
    }
  }
  void step(int) {
    for (int k = 0; k < sensors; k++)
      recursive_filter<<<channels / 128, 128, 0, streams[apart ? k : 0]>>>(in[k], out[k], channels, n,
                                                                           0.9f + 0.01f * k);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
