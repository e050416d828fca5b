// Ivory keys go up and are tuned by a kernel on the same stream. a: 32 bits a key, b: 16.
#include "key.h"

template <class T>
__global__ void tune_keys(const T* keys, float* tone, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + keys[i], v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  tone[i] = v;
}

struct Program {
  static const int n = 1 << 22;
  char form;
  int *host, *keys = device<int>(n);
  float* tone = device<float>(n);
  cudaStream_t stream;
  Program(char form) : form(form) {
    CHECK(cudaMallocHost(&host, n * 4));
    for (int i = 0; i < n; i++) form == 'a' ? host[i] = i % 88 : ((short*)host)[i] = i % 88;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    CHECK(cudaMemcpyAsync(keys, host, n * (form == 'a' ? 4 : 2), cudaMemcpyHostToDevice, stream));
    if (form == 'a') tune_keys<<<n / 256, 256, 0, stream>>>(keys, tone, 200);
    else tune_keys<<<n / 256, 256, 0, stream>>>((short*)keys, tone, 200);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(tone, n); }
};
KEY_MAIN(Program)
