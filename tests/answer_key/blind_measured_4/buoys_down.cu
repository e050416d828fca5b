// Drift of 48 buoys; the host waits for their tracks in each step. a: one copy home for each buoy, b: one for all.
#include "key.h"

__global__ void drift_buoys(float* tracks, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = tracks[i] + i * 1e-6f;
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v - k);
  tracks[i] = v;
}

struct Program {
  static const int buoys = 48, each = 4096, n = buoys * each;
  int copies;
  float *tracks = device<float>(n), *home;
  cudaStream_t stream;
  Program(char form) : copies(form == 'a' ? buoys : 1) {
    CHECK(cudaMallocHost(&home, n * 4));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    drift_buoys<<<n / 256, 256, 0, stream>>>(tracks, 800);
    for (int i = 0, size = n / copies; i < copies; i++)
      CHECK(cudaMemcpyAsync(home + i * size, tracks + i * size, size * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  std::vector<float> result() { return std::vector<float>(home, home + n); }
};
KEY_MAIN(Program)
