// Heat in a plate with probes. a: the plate is managed memory and the host reads the probes there, b: a kernel gathers them.
#include "key.h"

__global__ void diffuse(const float* from, float* to, int side) {
  int x = blockIdx.x * 256 + threadIdx.x, y = blockIdx.y, at = y * side + x;
  if (x == 0 || y == 0 || x == side - 1 || y == side - 1) return;
  to[at] = from[at] + 0.2f * (from[at - 1] + from[at + 1] + from[at - side] + from[at + side] - 4 * from[at]);
}

__global__ void gather(const float* plate, float* values, int side) {
  values[threadIdx.x] = plate[(size_t)threadIdx.x * 16 * side + side / 2];
}

struct Program {
  static const int side = 4096, probes = 256;
  bool managed;
  float *now, *then, *values = device<float>(probes), *host, total = 0;
  Program(char form) : managed(form == 'a') {
    size_t bytes = (size_t)side * side * sizeof(float);
    for (float** plate : {&now, &then}) {
      if (managed)
        CHECK(cudaMallocManaged(plate, bytes));
      else
        *plate = device<float>((size_t)side * side);
      CHECK(cudaMemset(*plate, 0, bytes));
    }
    CHECK(cudaMallocHost(&host, probes * sizeof(float)));
  }
  void step(int) {
    for (int k = 0; k < 10; k++) {
      diffuse<<<dim3(side / 256, side), 256>>>(now, then, side);
      std::swap(now, then);
    }
    if (!managed) {
      gather<<<1, probes>>>(now, values, side);
      CHECK(cudaMemcpyAsync(host, values, probes * sizeof(float), cudaMemcpyDeviceToHost));
    }
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < probes; k++) total += managed ? now[(size_t)k * 16 * side + side / 2] : host[k];
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
