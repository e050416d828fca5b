// Prices by Monte Carlo on a volatility surface. a: the surface goes to the GPU before each price, b: once.
#include "key.h"

__device__ unsigned mix(unsigned v) {
  v ^= v >> 16, v *= 0x7feb352du, v ^= v >> 15, v *= 0x846ca68bu;
  return v ^ (v >> 16);
}
__global__ void walk(const float* surface, int rows, int columns, float* out, int steps, unsigned seed) {
  int path = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned state = mix(path + seed * 7919u);
  float price = 1;
  for (int t = 0; t < steps; t++) {
    state = mix(state + t);
    float u = (state >> 8) * (1.0f / (1 << 24)) + 1e-7f, v = (mix(state) >> 8) * (1.0f / (1 << 24));
    float normal = sqrtf(-2 * __logf(u)) * __cosf(6.2831853f * v);
    int column = min(columns - 1, (int)(price * columns * 0.25f));
    price *= __expf(surface[(size_t)(t * rows / steps) * columns + column] * normal * 0.06f);
  }
  out[path] = fmaxf(price - 1, 0);
}
__global__ void mean(const float* values, int n, float* out) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += values[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (!threadIdx.x) atomicAdd(out, part[0] / n);
}

struct Program {
  static const int rows = 2048, columns = 8192, paths = 1 << 20;
  bool again;
  float *host, *surface = device<float>(rows * columns), *values = device<float>(paths), *price = device<float>(1);
  Program(char form) : again(form == 'a') {
    CHECK(cudaMallocHost(&host, sizeof(float) * rows * columns));
    for (int i = 0; i < rows * columns; i++) host[i] = 0.2f + 0.1f * (i % 97) / 97;
    CHECK(cudaMemcpy(surface, host, sizeof(float) * rows * columns, cudaMemcpyHostToDevice));
  }
  void step(int i) {
    if (again) CHECK(cudaMemcpyAsync(surface, host, sizeof(float) * rows * columns, cudaMemcpyHostToDevice));
    walk<<<paths / 256, 256>>>(surface, rows, columns, values, 512, i);
    mean<<<264, 256>>>(values, paths, price);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
