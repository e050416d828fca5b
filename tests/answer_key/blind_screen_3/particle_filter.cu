// A particle filter: move, weigh, sum up, draw. a: one block sums up all weights, b: blocks sum up parts, which are joined.
#include "key.h"

__global__ void move_and_weigh(float* x, float* weights, int n, int t) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i] * 0.98f + __sinf(t * 0.1f + i * 1e-4f);
  for (int k = 0; k < 2000; k++) v += 0.01f * __cosf(v * k);
  x[i] = v, weights[i] = __expf(-v * v * 0.1f);
}
// Each thread sums up `each` weights of its block's part in a row.
__global__ void sums(const float* in, float* out, float* totals, int each) {
  __shared__ float part[1024];
  size_t first = (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * each;
  float sum = 0;
  for (int k = 0; k < each; k++) sum += in[first + k];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int far = 1; far < blockDim.x; far *= 2) {
    float more = threadIdx.x >= far ? part[threadIdx.x - far] : 0;
    __syncthreads();
    part[threadIdx.x] += more;
    __syncthreads();
  }
  float before = threadIdx.x ? part[threadIdx.x - 1] : 0;
  for (int k = 0; k < each; k++) out[first + k] = before += in[first + k];
  if (totals && threadIdx.x == blockDim.x - 1) totals[blockIdx.x] = part[threadIdx.x];
}
__global__ void join(float* out, const float* totals, int of_block) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, block = i / of_block;
  if (block) out[i] += totals[block - 1];
}
__global__ void draw(const float* sums, const float* x, float* drawn, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, low = 0, high = n - 1;
  float wanted = sums[n - 1] * (i + 0.5f) / n;
  while (low < high) {
    int middle = (low + high) / 2;
    sums[middle] < wanted ? low = middle + 1 : high = middle;
  }
  drawn[i] = x[low];
}

struct Program {
  static const int n = 1 << 20;
  bool one;
  float *x = device<float>(n), *weights = device<float>(n), *sum = device<float>(n), *drawn = device<float>(n);
  float* totals = device<float>(1024);
  Program(char form) : one(form == 'a') {}
  void step(int i) {
    move_and_weigh<<<n / 256, 256>>>(x, weights, n, i);
    if (one) sums<<<1, 1024>>>(weights, sum, nullptr, n / 1024);
    else {
      sums<<<1024, 256>>>(weights, sum, totals, n / 1024 / 256);
      sums<<<1, 1024>>>(totals, totals, nullptr, 1);
      join<<<n / 256, 256>>>(sum, totals, n / 1024);
    }
    draw<<<n / 256, 256>>>(sum, x, drawn, n);
    CHECK(cudaGetLastError());
    std::swap(x, drawn);
  }
};
KEY_MAIN(Program)
