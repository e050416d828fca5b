// Frames of a fractal flight, each downloaded to pinned memory beside the next one. b: without the download (wins nothing).
#include "key.h"

__global__ void fractal(uchar4* frame, int width, int n, float zoom) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x0 = (i % width) * zoom - 0.2f, y0 = (i / width) * zoom - 0.2f, x = 0, y = 0;
  int most = 0;
  for (int k = 0; k < 3000; k++) {
    float next = x * x - y * y + x0 * 0.3f;
    y = 2 * x * y + y0 * 0.3f, x = next;
    most += x * x + y * y < 4;
  }
  frame[i] = make_uchar4(most, most >> 4, most >> 8, 255);
}

struct Program {
  static const int width = 3840, n = width * 2160;
  bool saves;
  uchar4 *host, *frame[2] = {device<uchar4>(n), device<uchar4>(n)};
  cudaStream_t work, down;
  cudaEvent_t drawn[2], saved[2];
  Program(char form) : saves(form == 'a') {
    CHECK(cudaMallocHost(&host, n * sizeof(uchar4)));
    for (auto* stream : {&work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&drawn[0], &drawn[1], &saved[0], &saved[1]})
      CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int i) {
    int k = i % 2;
    CHECK(cudaStreamWaitEvent(work, saved[k]));
    fractal<<<n / 256, 256, 0, work>>>(frame[k], width, n, 1e-4f);
    CHECK(cudaEventRecord(drawn[k], work));
    CHECK(cudaStreamWaitEvent(down, drawn[k]));
    if (saves) CHECK(cudaMemcpyAsync(host, frame[k], n * sizeof(uchar4), cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(saved[k], down));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
