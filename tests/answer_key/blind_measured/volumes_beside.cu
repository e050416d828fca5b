// The next volume is uploaded while this one is segmented. b: half the bytes (wins nothing).
#include "key.h"

__global__ void segment(const float* in, float* out, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + k);
  out[i] = v;
}

struct Program {
  static const int n = 1 << 23;
  size_t bytes;
  float *host, *buffers[2] = {device<float>(n), device<float>(n)}, *out = device<float>(n);
  cudaStream_t work, up;
  cudaEvent_t uploaded, used;
  Program(char form) : bytes(form == 'a' ? n * 4 : n * 2) {
    CHECK(cudaMallocHost(&host, n * 4));
    memset(host, 0, n * 4);
    for (auto* stream : {&work, &up}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&uploaded, &used}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int i) {
    CHECK(cudaStreamWaitEvent(up, used));
    CHECK(cudaMemcpyAsync(buffers[i % 2], host, bytes, cudaMemcpyHostToDevice, up));
    segment<<<n / 256, 256, 0, work>>>(buffers[1 - i % 2], out, 600);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(used, work));
    CHECK(cudaEventRecord(uploaded, up));
    CHECK(cudaStreamWaitEvent(work, uploaded));
  }
};
KEY_MAIN(Program)
