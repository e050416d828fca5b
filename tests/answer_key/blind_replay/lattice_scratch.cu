// A lattice gas whose step needs scratch memory. a: cudaMalloc and cudaFree in each step, b: once.
#include "key.h"

__global__ void stream_cells(const float* cells, float* scratch, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  for (int d = 0; d < 9; d++) {
    int from_x = (x - d % 3 + 1 + width) % width, from_y = (y - d / 3 + 1 + height) % height;
    scratch[(d * height + y) * width + x] = cells[(d * height + from_y) * width + from_x];
  }
}
__global__ void moments(const float* scratch, float* rho, int cells) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int d = 0; d < 9; d++) sum += scratch[d * cells + i];
  rho[i] = sum;
}
__global__ void collide(const float* scratch, const float* rho, float* cells, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int d = 0; d < 9; d++) cells[d * count + i] = 0.9f * scratch[d * count + i] + 0.1f * rho[i] / 9;
}

struct Program {
  static const int width = 1024, height = 1024, count = width * height;
  bool each;
  float *cells = device<float>(9 * count), *scratch = nullptr, *rho = nullptr;
  Program(char form) : each(form == 'a') {
    if (!each) scratch = device<float>(9 * count), rho = device<float>(count);
  }
  void step(int) {
    if (each) {
      CHECK(cudaMalloc(&scratch, 9 * count * sizeof(float)));
      CHECK(cudaMalloc(&rho, count * sizeof(float)));
    }
    for (int k = 0; k < 4; k++) {
      stream_cells<<<dim3(width / 256, height), 256>>>(cells, scratch, width, height);
      moments<<<count / 256, 256>>>(scratch, rho, count);
      collide<<<count / 256, 256>>>(scratch, rho, cells, count);
    }
    CHECK(cudaGetLastError());
    if (each) {
      CHECK(cudaFree(scratch));
      CHECK(cudaFree(rho));
    }
  }
};
KEY_MAIN(Program)
