// Five cameras of a vehicle, each with a kernel of its own on 24 blocks. a: one stream, b: one stream for each camera.
#include "key.h"

__device__ float blurred(float x, int rounds) {
  for (int k = 0; k < rounds; k++) x = 0.999f * x + sinf(x) * 1e-3f;
  return x;
}
#define CAMERA(name, rounds)                                          \
  __global__ void name(float* pixels) {                               \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                    \
    pixels[i] = blurred(pixels[i], rounds);                           \
  }
CAMERA(camera_front, 9000)
CAMERA(camera_rear, 8000)
CAMERA(camera_left, 7000)
CAMERA(camera_right, 7000)
CAMERA(camera_roof, 6000)
__global__ void join_views(float* pixels) { pixels[threadIdx.x] *= 0.5f; }

struct Program {
  static const int cameras = 5, blocks = 24, threads = 256;
  float* pixels = device<float>(cameras * blocks * threads);
  cudaStream_t main, streams[cameras];
  cudaEvent_t begun, done[cameras];
  Program(char form) {
    CHECK(cudaStreamCreateWithFlags(&main, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    for (int k = 0; k < cameras; k++) {
      streams[k] = main;
      if (form == 'b') CHECK(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&done[k], cudaEventDisableTiming));
    }
  }
  void step(int) {
    void (*kernels[cameras])(float*) = {camera_front, camera_rear, camera_left, camera_right, camera_roof};
    CHECK(cudaEventRecord(begun, main));
    for (int k = 0; k < cameras; k++) {
      if (streams[k] != main) CHECK(cudaStreamWaitEvent(streams[k], begun));
      kernels[k]<<<blocks, threads, 0, streams[k]>>>(pixels + k * blocks * threads);
      CHECK(cudaEventRecord(done[k], streams[k]));
      if (streams[k] != main) CHECK(cudaStreamWaitEvent(main, done[k]));
    }
    join_views<<<1, threads, 0, main>>>(pixels);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
