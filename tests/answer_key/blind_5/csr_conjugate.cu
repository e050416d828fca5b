// Conjugate gradients on a sparse matrix, sixteen iterations a step. a: the host reads both products of each, b: they stay.
#include "key.h"

__global__ void spmv(const int* starts, const int* columns, const float* values, const float* p, float* q, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int k = starts[i]; k < starts[i + 1]; k++) sum += values[k] * p[columns[k]];
  q[i] = sum;
}
__global__ void product(const float* a, const float* b, float* out, int n) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
  for (int k = 16; k; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void advance(float* x, float* r, const float* p, const float* q, const float* sums, float given, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float alpha = given != 0 ? given : sums[0] / (sums[1] + 1e-6f);
  if (i < n) x[i] += alpha * p[i], r[i] -= alpha * q[i];
}
__global__ void direct(float* p, const float* r, const float* sums, float given, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float beta = given != 0 ? given : sums[1] / (sums[0] + 1e-6f);
  if (i < n) p[i] = r[i] + beta * p[i];
}

struct Program {
  static const int n = 1 << 17, each = 5;
  bool reads;
  int *starts = device<int>(n + 1), *columns = device<int>(n * each);
  float *values = device<float>(n * each), *x = device<float>(n), *r = device<float>(n);
  float *p = device<float>(n), *q = device<float>(n), *sums = device<float>(2);
  Program(char form) : reads(form == 'a') {
    std::vector<int> first(n + 1), column(n * each);
    std::vector<float> value(n * each), right(n, 1.0f);
    for (int i = 0; i <= n; i++) first[i] = i * each;
    for (int i = 0; i < n * each; i++) {
      int offsets[each] = {0, 1, n - 1, 512, n - 512};
      column[i] = (i / each + offsets[i % each]) % n, value[i] = i % each ? -1.0f : 4.2f;
    }
    CHECK(cudaMemcpy(starts, first.data(), first.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(columns, column.data(), column.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(values, value.data(), value.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(r, right.data(), n * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(p, right.data(), n * 4, cudaMemcpyHostToDevice));
  }
  void step(int) {
    for (int k = 0; k < 16; k++) {
      float rr = 0, pq = 0;
      CHECK(cudaMemsetAsync(sums, 0, 8));
      spmv<<<n / 256, 256>>>(starts, columns, values, p, q, n);
      product<<<64, 256>>>(r, r, sums, n);
      product<<<64, 256>>>(p, q, sums + 1, n);
      if (reads) CHECK(cudaMemcpy(&rr, sums, 4, cudaMemcpyDeviceToHost));
      if (reads) CHECK(cudaMemcpy(&pq, sums + 1, 4, cudaMemcpyDeviceToHost));
      advance<<<n / 256, 256>>>(x, r, p, q, sums, reads ? rr / (pq + 1e-6f) : 0, n);
      direct<<<n / 256, 256>>>(p, r, sums, reads ? pq / (rr + 1e-6f) : 0, n);
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
