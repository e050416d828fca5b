// A thread kneads dough into three pinned slots, more slowly than the GPU bakes it. b: 0.4 of its work, and the GPU limits.
#include "key.h"

#include <condition_variable>
#include <mutex>
#include <thread>

__global__ void bake(const float* dough, float* bread, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = bread[i] * 0.5f + dough[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v - k);
  bread[i] = v;
}

struct Program {
  static const int count = 3, blocks = 100, n = blocks * 256;
  int rounds;
  float *slot[count], *dough[2], *bread = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t taken[count];
  long made = 0, freed = count;
  bool over = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::thread baker;
  Program(char form) : rounds(form == 'a' ? 350000 : 140000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& one : slot) CHECK(cudaMallocHost(&one, n * 4));
    for (auto& one : dough) one = device<float>(n);
    for (auto& one : taken) CHECK(cudaEventCreateWithFlags(&one, cudaEventDisableTiming));
    baker = std::thread(&Program::knead, this);
  }
  ~Program() {
    {
      std::lock_guard<std::mutex> held(mutex);
      over = true;
    }
    changed.notify_all();
    baker.join();
  }
  void knead() {
    for (long number = 0;; number++) {
      std::unique_lock<std::mutex> held(mutex);
      changed.wait(held, [&] { return over || number < freed; });
      if (over) return;
      held.unlock();
      nvtxRangePushA("knead dough");
      volatile float v = number % 5;
      for (int k = 0; k < rounds; k++) v = v * 0.98f + 0.1f;
      for (int i = 0; i < n; i++) slot[number % count][i] = (number + i) % 13;
      nvtxRangePop();
      held.lock();
      made = number + 1;
      changed.notify_all();
    }
  }
  void step(int number) {
    std::unique_lock<std::mutex> held(mutex);
    changed.wait(held, [&] { return number < made; });
    held.unlock();
    float* here = dough[number % 2];
    CHECK(cudaMemcpyAsync(here, slot[number % count], n * 4, cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(taken[number % count], stream));
    for (int i = 0; i < 4; i++) bake<<<blocks, 256, 0, stream>>>(here, bread, 14000);
    CHECK(cudaGetLastError());
    if (number < 1) return;
    CHECK(cudaEventSynchronize(taken[(number - 1) % count]));
    held.lock();
    freed = number + count;
    changed.notify_all();
  }
  std::vector<float> result() { return home(bread, n); }
};
KEY_MAIN(Program)
