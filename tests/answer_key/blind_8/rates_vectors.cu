// Short rates of many paths. a: thrust::device_vector for what is needed in between, made in each step, b: made once.
#include "key.h"
#include <thrust/device_vector.h>

__global__ void shocks(const float* seeds, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = seeds[i];
  for (int k = 0; k < 16; k++) x = 0.7f * x + sinf(12.9f * x + k);
  out[i] = x;
}
__global__ void paths(const float* shock, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float rate = 0.03f;
  for (int k = 0; k < 16; k++) rate += 0.1f * (0.04f - rate) + 0.01f * sqrtf(fabsf(rate)) * sinf(shock[i] + k);
  out[i] = rate;
}
__global__ void discounts(const float* rate, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = expf(-rate[i] * 10);
}

struct Program {
  static const int n = 1 << 24;
  bool each;
  float *seeds = device<float>(n), *out = device<float>(n);
  thrust::device_vector<float> kept_shock, kept_rate;
  Program(char form) : each(form == 'a') {
    if (!each) kept_shock.resize(n), kept_rate.resize(n);
  }
  void prices(thrust::device_vector<float>& shock, thrust::device_vector<float>& rate) {
    shocks<<<n / 256, 256>>>(seeds, shock.data().get(), n);
    paths<<<n / 256, 256>>>(shock.data().get(), rate.data().get(), n);
    discounts<<<n / 256, 256>>>(rate.data().get(), out, n);
    CHECK(cudaGetLastError());
  }
  void step(int) {
    if (!each) return prices(kept_shock, kept_rate);
    thrust::device_vector<float> shock(n), rate(n);
    prices(shock, rate);
  }
  std::vector<float> result() {
    std::vector<float> values(n);
    CHECK(cudaMemcpy(values.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
