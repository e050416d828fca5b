// A step before and after a change, for `make ab`: `before` transposes by scattered writes, `after` through shared memory.
//
// Run        nvcc -O3 -lineinfo -arch=native before_after.cu -o before_after && ./before_after before [steps]

#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int kSide = 4096, kTile = 32, kRows = 8;

__global__ void scale(const float* in, float* out, float by) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = by * in[at];
}

__global__ void transpose_scattered(const float* in, float* out) {
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int i = 0; i < kTile; i += kRows) out[x * kSide + y + i] = in[(y + i) * kSide + x];
}

__global__ void transpose_tiled(const float* in, float* out) {
  __shared__ float tile[kTile][kTile + 1];
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int i = 0; i < kTile; i += kRows) tile[threadIdx.y + i][threadIdx.x] = in[(y + i) * kSide + x];
  __syncthreads();
  for (int i = 0; i < kTile; i += kRows)
    out[(blockIdx.x * kTile + threadIdx.y + i) * kSide + blockIdx.y * kTile + threadIdx.x] =
        tile[threadIdx.x][threadIdx.y + i];
}

int main(int argc, char** argv) {
  const bool before = argc > 1 && !strcmp(argv[1], "before");
  const int steps = argc > 2 ? atoi(argv[2]) : 40, count = kSide * kSide;
  float *a, *b;
  cudaMalloc(&a, sizeof(float) * count);
  cudaMalloc(&b, sizeof(float) * count);
  cudaMemset(a, 0, sizeof(float) * count);
  const dim3 grid(kSide / kTile, kSide / kTile), block(kTile, kRows);
  for (int step = 0; step < steps; ++step) {
    nvtxRangePushA("step");
    scale<<<count / 256, 256>>>(a, b, 1.5f);
    if (before)
      transpose_scattered<<<grid, block>>>(b, a);
    else
      transpose_tiled<<<grid, block>>>(b, a);
    scale<<<count / 256, 256>>>(a, b, 0.5f);
    cudaDeviceSynchronize();
    nvtxRangePop();
  }
  puts(cudaGetLastError() == cudaSuccess ? "done" : "FAILED");
  return cudaGetLastError() != cudaSuccess;
}
