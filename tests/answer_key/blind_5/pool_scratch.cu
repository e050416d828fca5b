// Long integrals with scratch from the stream's pool in each step. b: the scratch is allocated once (wins nothing).
#include "key.h"

__global__ void integrate(float* scratch, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = i * 1e-6f;
  for (int k = 0; k < rounds; k++) x = 0.999f * x + sinf(x) * 1e-3f;
  scratch[i] = x;
}
__global__ void gathered(const float* scratch, float* out) { out[threadIdx.x] += scratch[threadIdx.x * 1024]; }

struct Program {
  static const int n = 1 << 20;
  bool fresh;
  float *scratch = nullptr, *out = device<float>(256);
  cudaStream_t stream;
  Program(char form) : fresh(form == 'a') {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (!fresh) CHECK(cudaMalloc(&scratch, n * sizeof(float)));
  }
  void step(int) {
    for (int k = 0; k < 4; k++) {
      if (fresh) CHECK(cudaMallocAsync(&scratch, n * sizeof(float), stream));
      integrate<<<n / 256, 256, 0, stream>>>(scratch, 1500);
      gathered<<<1, 256, 0, stream>>>(scratch, out);
      if (fresh) CHECK(cudaFreeAsync(scratch, stream));
    }
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
