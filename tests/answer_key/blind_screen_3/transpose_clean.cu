// A large matrix turned with tiles in shared memory, then added to another, near the DRAM roof: nothing is worth doing.
#include "key.h"

__global__ void turn(const float* in, float* out, int side) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(size_t)(y + k) * side + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) out[(size_t)(y + k) * side + x] += tile[threadIdx.x][threadIdx.y + k];
}

struct Program {
  static const int side = 16384;
  float *in = device<float>((size_t)side * side), *out = device<float>((size_t)side * side);
  Program(char) {}
  void step(int) {
    turn<<<dim3(side / 32, side / 32), dim3(32, 8)>>>(in, out, side);
    turn<<<dim3(side / 32, side / 32), dim3(32, 8)>>>(out, in, side);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
