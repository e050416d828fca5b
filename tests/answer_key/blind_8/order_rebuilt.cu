// Particles sorted by their place at each tenth step. a: the host sorts while the GPU waits, b: on a thread, for later steps.
#include "key.h"
#include <numeric>
#include <thread>

__global__ void places(const float4* particles, float* keys, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  keys[i] = particles[i].x + 100 * floorf(particles[i].y * 100);
}
__global__ void pulls(const float4* particles, const int* order, float* out, int n) {
  int i = order[blockIdx.x * blockDim.x + threadIdx.x];
  float4 mine = particles[i];
  float total = 0;
  for (int k = 0; k < 16384; k++) {
    float4 other = particles[k];
    float x = mine.x - other.x, y = mine.y - other.y, z = mine.z - other.z;
    total += other.w * rsqrtf(x * x + y * y + z * z + 1e-3f);
  }
  out[i] = total;
}

struct Program {
  static const int n = 1 << 16, every = 10;
  bool waits;
  float4* particles = device<float4>(n);
  float *keys = device<float>(n), *out = device<float>(n), *host_keys;
  int *order = device<int>(n), *host_order;
  cudaStream_t stream;
  std::thread sorter;
  Program(char form) : waits(form == 'a') {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&host_keys, n * sizeof(float)));
    CHECK(cudaMallocHost(&host_order, n * sizeof(int)));
    std::vector<float4> made(n);
    for (int i = 0; i < n; i++) made[i] = make_float4(i * 7919 % n / (float)n, i * 104729u % n / (float)n, i % 97 / 97.0f, 1);
    CHECK(cudaMemcpy(particles, made.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    std::iota(host_order, host_order + n, 0);
    upload();
  }
  ~Program() {
    if (sorter.joinable()) sorter.join();
  }
  void upload() { CHECK(cudaMemcpyAsync(order, host_order, n * sizeof(int), cudaMemcpyHostToDevice, stream)); }
  void sort() {
    std::iota(host_order, host_order + n, 0);
    std::sort(host_order, host_order + n, [this](int a, int b) { return host_keys[a] < host_keys[b]; });
  }
  void step(int i) {
    if (i % every == 0) {
      places<<<n / 256, 256, 0, stream>>>(particles, keys, n);
      CHECK(cudaMemcpyAsync(host_keys, keys, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      if (waits) sort(), upload();
      else sorter = std::thread([this] { sort(); });
    }
    if (i % every == every - 1 && !waits) sorter.join(), upload();
    pulls<<<n / 256, 256, 0, stream>>>(particles, order, out, n);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() {
    std::vector<float> values(n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
