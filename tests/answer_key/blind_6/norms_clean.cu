// Clean: the norms of long vectors, four values a load, one block a vector. Memory is the limit.
#include "key.h"

__global__ void norms(const float4* vectors, float* out, int length) {
  const float4* mine = vectors + (size_t)blockIdx.x * length;
  float sum = 0;
#pragma unroll 4
  for (int k = threadIdx.x; k < length; k += 512) {
    float4 v = mine[k];
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  __shared__ float warps[16];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 16; warp++) sum += warps[warp];
    out[blockIdx.x] = sqrtf(sum);
  }
}

struct Program {
  static const int vectors = 132 * 4 * 32, length = 16384;  // 32 full waves, 4.4 GB
  float4* data = device<float4>((size_t)vectors * length);
  float* out = device<float>(vectors);
  Program(char) {}
  void step(int) {
    norms<<<vectors, 512>>>(data, out, length);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
