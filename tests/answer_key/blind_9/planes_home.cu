// Planes of a simulation, drawn into a cudaArray, go home in each step. a: to ordinary memory, b: to pinned memory.
#include "key.h"

__global__ void draw(cudaSurfaceObject_t plane, int rounds, float phase) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  float u = x * 4e-4f + phase, v = y * 4e-4f;
  for (int k = 0; k < rounds; k++) {
    u = u * 0.999f + v * 1e-3f;
    v = v * u + 1e-3f;
  }
  surf2Dwrite(u, plane, x * sizeof(float), y);
}

struct Program {
  static const int side = 2048;
  float* home;
  cudaArray_t array;
  cudaSurfaceObject_t plane;
  Program(char form) {
    size_t bytes = (size_t)side * side * sizeof(float);
    if (form == 'a') home = (float*)malloc(bytes);
    else CHECK(cudaMallocHost(&home, bytes));
    memset(home, 0, bytes);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, side, side, cudaArraySurfaceLoadStore));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    CHECK(cudaCreateSurfaceObject(&plane, &resource));
  }
  void step(int i) {
    draw<<<dim3(side / 32, side / 8), dim3(32, 8)>>>(plane, 9000, i % 5 * 0.01f);
    CHECK(cudaGetLastError());
    size_t row = side * sizeof(float);
    CHECK(cudaMemcpy2DFromArray(home, row, array, 0, 0, row, side, cudaMemcpyDeviceToHost));
  }
  std::vector<float> result() { return std::vector<float>(home, home + (size_t)side * side); }
};
KEY_MAIN(Program)
