// Radiation fills the GPU; twelve small kernels of an orbit run beside it, then both join. b: one kernel (wins nothing).
#include "key.h"

__device__ float orbit(float v, int k) { return v + 0.01f * __sinf(v + k); }
__global__ void orbit_one(float* x, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = orbit(x[i], k);
}
__global__ void orbit_all(float* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < 12; k++) v = orbit(v, k);
  x[i] = v;
}
__global__ void radiation(float* x, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float a = x[i], b = a + 1, c = a - 1, d = 0.5f;
  for (int k = 0; k < rounds; k++) a = a * d + b, b = b * d - c, c = c * d + a, d = d * 0.999f + 1e-4f;
  x[i] = a + b + c;
}
__global__ void join(float* x, const float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += y[i % 2048];
}

struct Program {
  static const int n = 1 << 22, small = 2048;
  bool apart;
  float *x = device<float>(n), *y = device<float>(small);
  cudaStream_t one, two;
  cudaEvent_t begin, end;
  Program(char form) : apart(form == 'a') {
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&two, cudaStreamNonBlocking, -5));
    for (auto* event : {&begin, &end}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(begin, one));
    CHECK(cudaStreamWaitEvent(two, begin));
    if (apart)
      for (int k = 0; k < 12; k++) orbit_one<<<small / 128, 128, 0, two>>>(y, k);
    else orbit_all<<<small / 128, 128, 0, two>>>(y);
    CHECK(cudaEventRecord(end, two));
    radiation<<<n / 256, 256, 0, one>>>(x, 3000);
    CHECK(cudaStreamWaitEvent(one, end));
    join<<<n / 256, 256, 0, one>>>(x, y, n);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
