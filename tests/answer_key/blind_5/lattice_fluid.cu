// A lattice Boltzmann fluid of 1792 x 1792 cells. a: collisions and their propagation are two kernels, b: one.
#include "key.h"

__device__ const int shift_x[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, shift_y[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
__device__ const float share[9] = {4 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 36.f, 1 / 36.f, 1 / 36.f, 1 / 36.f};

__device__ void relax(float* f) {
  float density = 0, x = 0, y = 0;
  for (int k = 0; k < 9; k++) density += f[k], x += f[k] * shift_x[k], y += f[k] * shift_y[k];
  x /= density + 1e-9f, y /= density + 1e-9f;
  float square = 1.5f * (x * x + y * y);
  for (int k = 0; k < 9; k++) {
    float along = 3 * (shift_x[k] * x + shift_y[k] * y);
    f[k] += 0.6f * (share[k] * density * (1 + along + 0.5f * along * along - square) - f[k]);
  }
}
__global__ void collide(float* cells, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = side * side;
  float f[9];
  for (int k = 0; k < 9; k++) f[k] = cells[k * n + i];
  relax(f);
  for (int k = 0; k < 9; k++) cells[k * n + i] = f[k];
}
__global__ void propagate(const float* cells, float* out, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = side * side, x = i % side, y = i / side;
  for (int k = 0; k < 9; k++)
    out[k * n + (y + shift_y[k] + side) % side * side + (x + shift_x[k] + side) % side] = cells[k * n + i];
}
__global__ void collide_propagate(const float* cells, float* out, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = side * side, x = i % side, y = i / side;
  float f[9];
  for (int k = 0; k < 9; k++) f[k] = cells[k * n + i];
  relax(f);
  for (int k = 0; k < 9; k++) out[k * n + (y + shift_y[k] + side) % side * side + (x + shift_x[k] + side) % side] = f[k];
}

struct Program {
  static const int side = 1792, n = side * side;
  bool one;
  float *now = device<float>(9 * n), *next = device<float>(9 * n);
  Program(char form) : one(form == 'b') {}
  void step(int) {
    if (one) collide_propagate<<<n / 256, 256>>>(now, next, side);
    else {
      collide<<<n / 256, 256>>>(now, side);
      propagate<<<n / 256, 256>>>(now, next, side);
    }
    std::swap(now, next);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
