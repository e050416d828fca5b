// In one graph, a side branch copies six maps that nobody reads beside a longer branch. b: no copies (wins nothing).
#include "key.h"

__global__ void signal(float* beacons, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = beacons[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  beacons[i] = v;
}

struct Program {
  static const int blocks = 80, n = blocks * 256, size = 1 << 23;
  float *beacons = device<float>(n), *map = device<float>(size), *copied = device<float>(size);
  cudaStream_t one, two;
  cudaEvent_t begun, kept;
  cudaGraphExec_t all;
  Program(char form) {
    cudaGraph_t graph;
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &kept}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    signal<<<blocks, 256, 0, one>>>(beacons, 3000);
    if (form == 'a') {
      CHECK(cudaEventRecord(begun, one));
      CHECK(cudaStreamWaitEvent(two, begun));
      for (int i = 0; i < 6; i++) CHECK(cudaMemcpyAsync(copied, map, size * 4, cudaMemcpyDeviceToDevice, two));
      CHECK(cudaEventRecord(kept, two));
    }
    for (int i = 0; i < 3; i++) signal<<<blocks, 256, 0, one>>>(beacons, 12000);
    if (form == 'a') CHECK(cudaStreamWaitEvent(one, kept));
    signal<<<blocks, 256, 0, one>>>(beacons, 3000);
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
  }
  void step(int) { CHECK(cudaGraphLaunch(all, one)); }
  std::vector<float> result() { return home(beacons, n); }
};
KEY_MAIN(Program)
