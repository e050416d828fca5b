// A shock tube on a large grid: flux and update, four times a step. a: launched one by one, b: as a CUDA graph (wins nothing).
#include "key.h"

__global__ void flux(const float4* state, float4* flow, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 s = state[i], t = state[min(i + 1, n - 1)];
  float left = s.y / (s.x + 1), right = t.y / (t.x + 1), fast = fmaxf(fabsf(left), fabsf(right)) + 1;
  flow[i] = {0.5f * (s.y + t.y - fast * (t.x - s.x)), 0.5f * (s.y * left + t.y * right - fast * (t.y - s.y)),
             0.5f * (s.z * left + t.z * right - fast * (t.z - s.z)), 0.5f * (s.w + t.w)};
}
__global__ void update(float4* state, const float4* flow, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 s = state[i], in = flow[max(i - 1, 0)], out = flow[i];
  state[i] = {s.x + 0.1f * (in.x - out.x), s.y + 0.1f * (in.y - out.y), s.z + 0.1f * (in.z - out.z), s.w + 0.1f * (in.w - out.w)};
}

struct Program {
  static const int n = 1 << 25;
  bool graph;
  float4 *state = device<float4>(n), *flow = device<float4>(n);
  cudaStream_t stream;
  cudaGraphExec_t exec;
  void launch() {
    for (int k = 0; k < 4; k++) {
      flux<<<n / 256, 256, 0, stream>>>(state, flow, n);
      update<<<n / 256, 256, 0, stream>>>(state, flow, n);
    }
  }
  Program(char form) : graph(form == 'b') {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t made;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launch();
    CHECK(cudaStreamEndCapture(stream, &made));
    CHECK(cudaGraphInstantiate(&exec, made, 0));
  }
  void step(int) {
    if (graph) CHECK(cudaGraphLaunch(exec, stream));
    else launch();
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
