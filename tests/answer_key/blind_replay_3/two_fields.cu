// Temperature and salt of an ocean are carried by the same current. a: one after the other, b: on two streams (wins nothing).
#include "key.h"

template <int FIELD>
__global__ void carry(const float* in, const float* current, float* out, int n, int row) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < row || i >= n - row) return;
  float v = current[i], upwind = v > 0 ? in[i - 1] : in[i + 1];
  out[i] = in[i] + 0.1f * fabsf(v) * (upwind - in[i]) + (FIELD ? 0.02f : 0.05f) * (in[i - row] + in[i + row] - 2 * in[i]);
}

struct Program {
  static const int row = 16384, n = row * 8192;
  float *heat = device<float>(n), *heat_new = device<float>(n), *salt = device<float>(n), *salt_new = device<float>(n);
  float* current = device<float>(n);
  cudaStream_t work, other;
  cudaEvent_t before, done;
  Program(char form) {
    CHECK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    other = work;
    if (form == 'b') CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (auto* event : {&before, &done}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(before, work));
    CHECK(cudaStreamWaitEvent(other, before));
    carry<0><<<n / 256, 256, 0, work>>>(heat, current, heat_new, n, row);
    carry<1><<<n / 256, 256, 0, other>>>(salt, current, salt_new, n, row);
    CHECK(cudaEventRecord(done, other));
    CHECK(cudaStreamWaitEvent(work, done));
    CHECK(cudaGetLastError());
    std::swap(heat, heat_new), std::swap(salt, salt_new);
  }
};
KEY_MAIN(Program)
