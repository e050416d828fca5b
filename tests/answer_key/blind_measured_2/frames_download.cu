// A renderer shades a frame, then downloads it before the next one begins. b: half the bytes.
#include "key.h"

__global__ void shade(float* out, int rounds, int frame) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i + frame;
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + k);
  out[i] = v;
}

struct Program {
  static const int n = 1 << 22;
  size_t bytes;
  float *frame = device<float>(n), *host;
  cudaStream_t stream;
  Program(char form) : bytes(form == 'a' ? n * 4 : n * 2) {
    CHECK(cudaMallocHost(&host, n * 4));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int i) {
    shade<<<n / 256, 256, 0, stream>>>(frame, 400, i);
    CHECK(cudaMemcpyAsync(host, frame, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
};
KEY_MAIN(Program)
