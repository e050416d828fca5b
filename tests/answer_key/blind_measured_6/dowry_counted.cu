// The host counts a dowry after each launch of four kernels that take twice as long. b: 0.3 of its work (wins nothing).
#include "key.h"

__global__ void weave(float* cloth, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = cloth[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __cosf(v + k);
  cloth[i] = v;
}

struct Program {
  static const int blocks = 110, n = blocks * 256;
  int coins;
  volatile float dowry = 0;
  float* cloth = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t woven[2];
  Program(char form) : coins(form == 'a' ? 200000 : 60000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& event : woven) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  void step(int number) {
    CHECK(cudaEventSynchronize(woven[number % 2]));
    for (int i = 0; i < 4; i++) weave<<<blocks, 256, 0, stream>>>(cloth, 30000);
    CHECK(cudaEventRecord(woven[number % 2], stream));
    nvtxRangePushA("count dowry");
    for (int k = 0; k < coins; k++) dowry = dowry * 0.98f + 0.1f;
    nvtxRangePop();
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(cloth, n); }
};
KEY_MAIN(Program)
