// Asian options by Monte Carlo. a: the paths are computed in double precision, b: in single precision.
#include "key.h"

__global__ void normals(float* out, int n, unsigned seed) {
  unsigned v = blockIdx.x * blockDim.x + threadIdx.x;
  v ^= seed * 2654435761u, v ^= v >> 16, v *= 0x7feb352du, v ^= v >> 15, v *= 0x846ca68bu, v ^= v >> 16;
  float u = (v >> 8) * (1.0f / (1 << 24)) + 1e-7f, w = (v & 0xffff) * (1.0f / 65536);
  out[blockIdx.x * blockDim.x + threadIdx.x] = sqrtf(-2 * logf(u)) * cosf(6.2831853f * w);
}
template <class T>
__global__ void paths(const float* normal, float* payoff, int count, int days) {
  int path = blockIdx.x * blockDim.x + threadIdx.x;
  T price = 100, sum = 0, drift = (T)1e-4, risk = (T)0.0126;
  for (int day = 0; day < days; day++) {
    price *= exp(drift + risk * (T)normal[(size_t)day * count + path]);
    sum += price;
  }
  payoff[path] = fmax(sum / days - 100, (T)0);
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
  static const int count = 1 << 19, days = 252;
  bool twice;
  float *normal = device<float>((size_t)count * days), *payoff = device<float>(count), *price = device<float>(1);
  Program(char form) : twice(form == 'a') {}
  void step(int i) {
    normals<<<(size_t)count * days / 256, 256>>>(normal, count * days, i);
    if (twice) paths<double><<<count / 256, 256>>>(normal, payoff, count, days);
    else paths<float><<<count / 256, 256>>>(normal, payoff, count, days);
    mean<<<264, 256>>>(payoff, count, price);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
