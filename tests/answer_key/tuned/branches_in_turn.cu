// Four sensors' filters, each too small for the GPU, then one fusion kernel. a: all on one stream, b: one stream each.
#include "key.h"

template <int K>
__global__ void filter_sensor(const float* in, float* out, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i % n];
  for (int k = 0; k < rounds; k++) v = v * 0.99f + __sinf(v + k);
  out[i % n] = v;
}
template <int K>
__global__ void blur_sensor(const float* in, float* out, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = 0;
  for (int k = 0; k < rounds; k++) v += in[(i + k) % n] * 0.01f;
  out[i % n] = v;
}
__global__ void fuse_sensors(float* const* parts, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float v = 0;
    for (int k = 0; k < 400; k++) v += __cosf(parts[k % 4][i] + k);
    out[i] = v;
  }
}

struct Program {
  static const int n = 24 * 256;
  bool beside;
  float *in[4], *mid[4], *out[4], *all = device<float>(n), **parts = device<float*>(4);
  cudaStream_t streams[4];
  cudaEvent_t begin, ends[4];
  Program(char form) : beside(form == 'b') {
    CHECK(cudaEventCreateWithFlags(&begin, cudaEventDisableTiming));
    for (int k = 0; k < 4; k++) {
      in[k] = device<float>(n), mid[k] = device<float>(n), out[k] = device<float>(n);
      CHECK(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&ends[k], cudaEventDisableTiming));
    }
    CHECK(cudaMemcpy(parts, out, sizeof out, cudaMemcpyHostToDevice));
  }
  template <int K>
  void branch() {
    cudaStream_t stream = beside ? streams[K] : streams[0];
    if (beside && K) CHECK(cudaStreamWaitEvent(stream, begin));
    filter_sensor<K><<<n / 256, 256, 0, stream>>>(in[K], mid[K], n, 4000);
    blur_sensor<K><<<n / 256, 256, 0, stream>>>(mid[K], out[K], n, 1000);
    if (beside && K) {
      CHECK(cudaEventRecord(ends[K], stream));
      CHECK(cudaStreamWaitEvent(streams[0], ends[K]));
    }
  }
  void step(int) {
    cudaStream_t main = streams[0];
    if (beside) CHECK(cudaEventRecord(begin, main));
    branch<0>(), branch<1>(), branch<2>(), branch<3>();
    fuse_sensors<<<24, 256, 0, main>>>(parts, all, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
