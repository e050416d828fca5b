// In one graph, samples go up beside the kernels of a choir, then both are mixed. a: 32 bits a sample, b: 16 (wins nothing).
#include "key.h"

__global__ void sing(float* voices, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = voices[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  voices[i] = v;
}
template <class T>
__global__ void mix_samples(const T* samples, float* voices) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  voices[i] += 1e-6f * samples[4 * i];
}
template <class T>
static void* ramp(int count) {
  T* data;
  CHECK(cudaMallocHost(&data, count * sizeof(T)));
  for (int i = 0; i < count; i++) data[i] = i % 1000;
  return data;
}

struct Program {
  static const int n = 1 << 20;
  float* voices = device<float>(n);
  int* samples = device<int>(4 * n);
  cudaStream_t one, two;
  cudaEvent_t begun, here;
  cudaGraphExec_t all;
  Program(char form) {
    cudaGraph_t graph;
    void* host = form == 'a' ? ramp<int>(4 * n) : ramp<short>(4 * n);
    for (auto* stream : {&one, &two}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (auto* event : {&begun, &here}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(begun, one));
    CHECK(cudaStreamWaitEvent(two, begun));
    CHECK(cudaMemcpyAsync(samples, host, 4 * n * (form == 'a' ? 4 : 2), cudaMemcpyHostToDevice, two));
    CHECK(cudaEventRecord(here, two));
    for (int i = 0; i < 4; i++) sing<<<n / 256, 256, 0, one>>>(voices, 1000);
    CHECK(cudaStreamWaitEvent(one, here));
    if (form == 'a') mix_samples<<<n / 256, 256, 0, one>>>(samples, voices);
    else mix_samples<<<n / 256, 256, 0, one>>>((short*)samples, voices);
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
  }
  void step(int) { CHECK(cudaGraphLaunch(all, one)); }
};
KEY_MAIN(Program)
