// Landmarks are tracked by a few blocks for a long time, and a map is drawn by many. a: in turn, b: on two streams.
#include "key.h"

__global__ void track(float* marks, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = marks[i], v = 0;
  for (int k = 0; k < rounds; k++) v += 0.01f * __sinf(x + k), x += v * 0.001f;
  marks[i] = x;
}
__global__ void draw_map(float* map, const float* heights, int n, int rounds) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float h = heights[i];
    for (int k = 0; k < rounds; k++) h = h * 0.999f + 0.001f * __cosf(h * k);
    map[i] = h;
  }
}
__global__ void overlay(const float* map, const float* marks, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = map[i] + 0.1f * marks[i % 1024];
}

struct Program {
  static const int n = 1 << 23;
  float *marks = device<float>(1024), *map = device<float>(n), *heights = device<float>(n), *out = device<float>(n);
  cudaStream_t work, other;
  cudaEvent_t before, tracked;
  Program(char form) {
    CHECK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    other = work;
    if (form == 'b') CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (auto* event : {&before, &tracked}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(before, work));
    CHECK(cudaStreamWaitEvent(other, before));
    track<<<8, 128, 0, other>>>(marks, 40000);
    CHECK(cudaEventRecord(tracked, other));
    draw_map<<<1056, 256, 0, work>>>(map, heights, n, 500);
    CHECK(cudaStreamWaitEvent(work, tracked));
    overlay<<<n / 256, 256, 0, work>>>(map, marks, out, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
