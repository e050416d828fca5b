// A short pulse is shaped, its phases are solved by Newton's rounds, then it is detected. a: 400 rounds, b: 160 are enough.
#include "key.h"

__global__ void shape_pulse(float* pulse, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i * 1e-5f;
  for (int k = 0; k < rounds; k++) v = v * 0.97f + 0.1f * __sinf(v + k);
  pulse[i] = v;
}
__global__ void solve_phase(const float* pulse, float* phase, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float mean = pulse[i], v = mean;
  for (int k = 0; k < rounds; k++) v -= (v - 0.3f * __sinf(v) - mean) / (1.0f - 0.3f * __cosf(v));
  phase[i] = v;
}
__global__ void detect(const float* phase, float* found) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  found[i] = phase[i] > 0.5f ? phase[i] : 0.0f;
}

struct Program {
  static const int n = 1 << 16;
  int rounds;
  float *pulse = device<float>(n), *phase = device<float>(n), *found = device<float>(n);
  Program(char form) : rounds(form == 'a' ? 400 : 160) {}
  void step(int) {
    shape_pulse<<<n / 256, 256>>>(pulse, 500);
    solve_phase<<<n / 256, 256>>>(pulse, phase, rounds);
    detect<<<n / 256, 256>>>(phase, found);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() {
    std::vector<float> all(n);
    CHECK(cudaMemcpy(all.data(), phase, n * 4, cudaMemcpyDeviceToHost));
    return all;
  }
};
KEY_MAIN(Program)
