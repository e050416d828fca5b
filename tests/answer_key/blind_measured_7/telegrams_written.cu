// A host function on a second stream writes a telegram beside four kernels that take five times as long. b: 0.3 of it (wins nothing).
#include "key.h"

__global__ void wire(float* pulses, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = pulses[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  pulses[i] = v;
}

struct Telegram {
  int letters;
  volatile float sum = 0;
};

static void CUDART_CB write_telegram(void* data) {
  auto* one = (Telegram*)data;
  nvtxRangePushA("write telegram");
  for (int k = 0; k < one->letters; k++) one->sum = one->sum * 0.98f + 0.1f;
  nvtxRangePop();
}

struct Program {
  static const int blocks = 100, n = blocks * 256;
  Telegram telegram;
  float* pulses = device<float>(n);
  cudaStream_t work, side;
  cudaEvent_t begun, written;
  Program(char form) {
    telegram.letters = form == 'a' ? 100000 : 30000;
    for (auto* stream : {&work, &side}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &written}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  void step(int) {
    CHECK(cudaEventRecord(begun, work));
    CHECK(cudaStreamWaitEvent(side, begun));
    CHECK(cudaLaunchHostFunc(side, write_telegram, &telegram));
    CHECK(cudaEventRecord(written, side));
    for (int i = 0; i < 4; i++) wire<<<blocks, 256, 0, work>>>(pulses, 40000);
    CHECK(cudaStreamWaitEvent(work, written));
    wire<<<blocks, 256, 0, work>>>(pulses, 3000);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(pulses, n); }
};
KEY_MAIN(Program)
