// Clean: waves on a large grid, each block with its cells in shared memory. Memory is the limit.
#include "key.h"

__global__ void wave(const float* now, float* before, int side) {
  __shared__ float tile[18][130];
  int x = blockIdx.x * 128 + threadIdx.x, y0 = blockIdx.y * 16;
  for (int k = 0; k < 18; k++) {
    int y = (y0 + k - 1 + side) % side;
    tile[k][threadIdx.x + 1] = now[(size_t)y * side + x];
    if (threadIdx.x == 0) tile[k][0] = now[(size_t)y * side + (x + side - 1) % side];
    if (threadIdx.x == 127) tile[k][129] = now[(size_t)y * side + (x + 1) % side];
  }
  __syncthreads();
  for (int k = 1; k < 17; k++) {
    size_t at = (size_t)(y0 + k - 1) * side + x;
    float around = tile[k - 1][threadIdx.x + 1] + tile[k + 1][threadIdx.x + 1] + tile[k][threadIdx.x] + tile[k][threadIdx.x + 2];
    before[at] = 2 * tile[k][threadIdx.x + 1] - before[at] + 0.1f * (around - 4 * tile[k][threadIdx.x + 1]);
  }
}

struct Program {
  static const int side = 8192;
  float *now = device<float>((size_t)side * side), *before = device<float>((size_t)side * side);
  Program(char) {}
  void step(int) {
    wave<<<dim3(side / 128, side / 16), 128>>>(now, before, side);
    std::swap(now, before);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
