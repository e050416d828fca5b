// A signal processed in chunks: upload, filter, download, from pinned memory. a: on one stream, b: on three.
#include "key.h"

__global__ void filter_chunk(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = 0;
  for (int k = 0; k < 192; k++) v += in[(i + k) % n] * __sinf(k * 0.1f + in[i]);
  out[i] = v;
}

struct Program {
  static const int n = 1 << 21, slots = 3;
  bool apart;
  float *host, *back, *in[slots], *out[slots];
  cudaStream_t up, work, down;
  cudaEvent_t loaded[slots], filtered[slots], saved[slots];
  Program(char form) : apart(form == 'b') {
    CHECK(cudaMallocHost(&host, n * sizeof(float)));
    CHECK(cudaMallocHost(&back, n * sizeof(float)));
    memset(host, 0, n * sizeof(float));
    for (auto* stream : {&up, &work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int k = 0; k < slots; k++) {
      in[k] = device<float>(n), out[k] = device<float>(n);
      for (auto* event : {&loaded[k], &filtered[k], &saved[k]}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int i) {
    int k = i % slots;
    cudaStream_t first = apart ? up : work, last = apart ? down : work;
    if (apart) CHECK(cudaStreamWaitEvent(up, filtered[k]));
    CHECK(cudaMemcpyAsync(in[k], host, n * sizeof(float), cudaMemcpyHostToDevice, first));
    if (apart) {
      CHECK(cudaEventRecord(loaded[k], up));
      CHECK(cudaStreamWaitEvent(work, loaded[k]));
      CHECK(cudaStreamWaitEvent(work, saved[k]));
    }
    filter_chunk<<<n / 256, 256, 0, work>>>(in[k], out[k], n);
    if (apart) {
      CHECK(cudaEventRecord(filtered[k], work));
      CHECK(cudaStreamWaitEvent(down, filtered[k]));
    }
    CHECK(cudaMemcpyAsync(back, out[k], n * sizeof(float), cudaMemcpyDeviceToHost, last));
    if (apart) CHECK(cudaEventRecord(saved[k], down));
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
