// A short update of a mesh; each step makes and destroys 64 events that nothing records. b: none are made.
#include "key.h"

__global__ void smooth(float* mesh, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = mesh[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __sinf(v + k);
  mesh[i] = v;
}

struct Program {
  static const int n = 1 << 16;
  char form;
  float* mesh = device<float>(n);
  cudaStream_t stream;
  Program(char form) : form(form) { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void step(int) {
    cudaEvent_t events[64];
    for (auto& event : events)
      if (form == 'a') CHECK(cudaEventCreate(&event));
    for (int i = 0; i < 4; i++) smooth<<<n / 256, 256, 0, stream>>>(mesh, 100);
    for (auto& event : events)
      if (form == 'a') CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamSynchronize(stream));
  }
};
KEY_MAIN(Program)
