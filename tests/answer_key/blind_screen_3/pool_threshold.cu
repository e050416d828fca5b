// A blur of volumes with temporary memory of a pool, its peak read after each. a: the pool gives all back each time, b: keeps it.
#include "key.h"

__global__ void blur(const float* in, float* out, int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.25f * in[max(0, i - stride)] + 0.5f * in[i] + 0.25f * in[min(n - 1, i + stride)];
}
__global__ void peak(const float* in, int n, unsigned* out) {
  float most = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) most = fmaxf(most, in[i]);
  atomicMax(out, __float_as_uint(most));
}

struct Program {
  static const int side = 384, n = side * side * side;
  cudaMemPool_t pool;
  cudaStream_t stream;
  float *volume = device<float>(n), *result = device<float>(n);
  unsigned *found = device<unsigned>(1), *read;
  Program(char form) {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, 0};
    CHECK(cudaMemPoolCreate(&pool, &props));
    unsigned long long kept = form == 'b' ? ~0ull : 0;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocHost(&read, sizeof(unsigned)));
  }
  void step(int) {
    float* part[2];
    for (auto& one : part) CHECK(cudaMallocFromPoolAsync((void**)&one, sizeof(float) * n, pool, stream));
    blur<<<n / 256, 256, 0, stream>>>(volume, part[0], n, 1);
    blur<<<n / 256, 256, 0, stream>>>(part[0], part[1], n, side);
    blur<<<n / 256, 256, 0, stream>>>(part[1], result, n, side * side);
    for (auto& one : part) CHECK(cudaFreeAsync(one, stream));
    peak<<<1056, 256, 0, stream>>>(result, n, found);
    CHECK(cudaMemcpyAsync(read, found, sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
};
KEY_MAIN(Program)
