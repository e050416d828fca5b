// A lagoon's levels, a kernel at the roof of memory; a second stream keeps a copy of the last levels meanwhile. b: no copy.
#include "key.h"

__global__ void level(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.5f * in[i] + 0.25f * (in[(i + 1) % n] + in[(i + n - 1) % n]);
}

struct Program {
  static const int n = 1 << 25;
  char form;
  float *now = device<float>(n), *next = device<float>(n), *snapshot = device<float>(n);
  cudaStream_t work, keep;
  cudaEvent_t begun, kept;
  Program(char form) : form(form) {
    for (auto* stream : {&work, &keep}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &kept}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    for (int i = 0; i < 4; i++) {
      CHECK(cudaEventRecord(begun, work));
      CHECK(cudaStreamWaitEvent(keep, begun));
      if (form == 'a') CHECK(cudaMemcpyAsync(snapshot, now, n * 4, cudaMemcpyDeviceToDevice, keep));
      CHECK(cudaEventRecord(kept, keep));
      level<<<n / 256, 256, 0, work>>>(now, next, n);
      CHECK(cudaStreamWaitEvent(work, kept));
      std::swap(now, next);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
