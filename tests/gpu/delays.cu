// A program whose slopes are known, and which checks its own results: ./delays CASE STEPS
//   eager    `exposed` (200 us) on one stream, `hidden` (60 us) beside it on another; both end before the next step
//   graph    the same, captured into a graph
//   launches 100 launches of `tiny`, 8 us of host work before each: the host is slower than the GPU
//   queued   `exposed` alone, 20 times a step, without waiting at the end of a step
//   copies   an upload beside nothing, then `exposed`
//   ten      `part<0>` to `part<4>` (2 ms) on one stream, `part<5>` to `part<9>` (1 ms) beside them on another
// Each step adds 1 to every element; the program ends with 1 if one has another value, unless UNCHECKED is set. It
// prints the time of a step.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <vector>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    cudaError_t error_ = (call);                                                               \
    if (error_) printf("%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(error_)), exit(2); \
  } while (0)

__device__ void wait_ns(long long ns) {
  long long start, t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  while (t - start < ns);
}
__global__ void exposed(float* x, int n, long long ns) {
  wait_ns(ns);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1;
}
__global__ void hidden(float* x, int n, long long ns) {
  wait_ns(ns);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1;
}
__global__ void tiny(float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1;
}

template <int WHICH>
__global__ void part(float* x, int n, long long ns) {
  wait_ns(ns);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1;
}

static const int n = 4096;
static float *x, *y, *up, *host;
static cudaStream_t one, two;
static cudaEvent_t begun, done;

static void both() {
  CHECK(cudaEventRecord(begun, one));
  CHECK(cudaStreamWaitEvent(two, begun));
  exposed<<<4, 256, 0, one>>>(x, n, 200000);
  hidden<<<4, 256, 0, two>>>(y, n, 60000);
  CHECK(cudaEventRecord(done, two));
  CHECK(cudaStreamWaitEvent(one, done));
}

template <int WHICH>
static void parts() {
  if constexpr (WHICH < 5) {
    part<WHICH><<<4, 256, 0, one>>>(x, n, 2000000);
    part<WHICH + 5><<<4, 256, 0, two>>>(y, n, 1000000);
    parts<WHICH + 1>();
  }
}

static void ten() {
  CHECK(cudaEventRecord(begun, one));
  CHECK(cudaStreamWaitEvent(two, begun));
  parts<0>();
  CHECK(cudaEventRecord(done, two));
  CHECK(cudaStreamWaitEvent(one, done));
}

int main(int argc, char** argv) {
  const char* which = argc > 1 ? argv[1] : "eager";
  long steps = argc > 2 ? atol(argv[2]) : 1000, adds = 1;
  CHECK(cudaMalloc(&x, n * 4));
  CHECK(cudaMalloc(&y, n * 4));
  CHECK(cudaMalloc(&up, 8 << 20));
  CHECK(cudaMallocHost(&host, 8 << 20));
  CHECK(cudaMemset(x, 0, n * 4));
  CHECK(cudaMemset(y, 0, n * 4));
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  CHECK(cudaDeviceSynchronize());
  cudaGraphExec_t graph = NULL;
  if (!strcmp(which, "graph")) {
    cudaGraph_t captured;
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    both();
    CHECK(cudaStreamEndCapture(one, &captured));
    CHECK(cudaGraphInstantiate(&graph, captured, 0));
    CHECK(cudaGraphDestroy(captured));
  }
  auto start = std::chrono::steady_clock::now();
  for (long step = 1; step <= steps; step++) {
    if (graph)
      CHECK(cudaGraphLaunch(graph, one));
    else if (!strcmp(which, "eager"))
      both();
    else if (!strcmp(which, "ten"))
      ten(), adds = 5;
    else if (!strcmp(which, "launches")) {
      adds = 100;
      for (int i = 0; i < 100; i++) {
        for (auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(8);
             std::chrono::steady_clock::now() < until;) {
        }
        tiny<<<16, 256, 0, one>>>(x, n);
      }
    } else if (!strcmp(which, "queued")) {
      adds = 20;
      for (int i = 0; i < 20; i++) exposed<<<4, 256, 0, one>>>(x, n, 10000);
    } else {
      CHECK(cudaMemcpyAsync(up, host, 8 << 20, cudaMemcpyHostToDevice, one));
      exposed<<<4, 256, 0, one>>>(x, n, 50000);
    }
    CHECK(cudaGetLastError());
    if (strcmp(which, "queued")) CHECK(cudaStreamSynchronize(one));
    if (step % 5000 && step < steps) continue;
    CHECK(cudaDeviceSynchronize());
    double us = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e6;
    std::vector<float> got(n);
    CHECK(cudaMemcpy(got.data(), x, n * 4, cudaMemcpyDeviceToHost));
    for (float value : got)
      if (value != (float)(adds * step) && adds * step < 1 << 24 && !getenv("UNCHECKED"))
        return printf("wrong: %f after %ld\n", value, step), 1;
    long since = step % 5000 ? step % 5000 : 5000;
    printf("%s right after %ld steps, %.2f us a step\n", which, step, us / since);
    fflush(stdout);
    start = std::chrono::steady_clock::now();
  }
  return 0;
}
