// What the files of this set share: a case, the buffers that every process fills, and small device functions.
#pragma once
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

using i64 = long long;
using u64 = unsigned long long;
#define CHECK(call)                                                                               \
  do {                                                                                            \
    cudaError_t s_ = (call);                                                                      \
    if (s_ != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(s_)); \
      std::exit(1);                                                                               \
    }                                                                                             \
  } while (0)
#define T (blockIdx.x * (i64)blockDim.x + threadIdx.x)
#define STRIDE ((i64)gridDim.x * blockDim.x)

struct Case {
  const char *name, *cause, *also;      // `also`: causes that are as right, separated by |
  std::function<void()> slow, fixed;    // no fixed one: clean
  void* out = nullptr;                  // both forms write the same `count` values of 4 bytes here
  i64 count = 0;
  bool ints = false;
  std::function<void()> setup, before;  // once a process; before each launch
};
extern std::vector<Case> cases;
extern float *A, *B, *C, *D;  // 256 MB each, uniform in [0, 1)
extern bool PROFILED;         // one launch a form
const i64 N = 1 << 26;
void memory_cases(), sync_cases(), compute_cases(), product_cases(), library_cases(), trap_cases(), clean_cases();

template <class X> X* device(i64 count) {
  X* p;
  CHECK(cudaMalloc(&p, count * sizeof(X)));
  return p;
}
template <class X> X* upload(const std::vector<X>& v) {
  X* p = device<X>(v.size());
  CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(X), cudaMemcpyDefault));
  return p;
}
template <class F> void dynamic_shared(F f, int bytes) { CHECK(cudaFuncSetAttribute((const void*)f, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)); }

__host__ __device__ inline uint32_t mix(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ (x >> 16);
}
__device__ inline float warp_sum(float v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  return v;
}
