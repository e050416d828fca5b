// A thread decodes samples into three pinned slots, faster than the GPU uses them. b: a quarter of its work (wins nothing).
#include "key.h"

#include <condition_variable>
#include <mutex>
#include <thread>

__global__ void train(const float* sample, float* model, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = model[i] * 0.5f + sample[i % (1 << 16)];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v - k);
  model[i] = v;
}

struct Slots { // lives as long as the process, since its thread does
  static const int count = 3, size = 1 << 16;
  float* slot[count];
  long made = 0, freed = count;
  std::mutex mutex;
  std::condition_variable changed;
  void decode(int rounds) {
    for (long number = 0;; number++) {
      std::unique_lock<std::mutex> held(mutex);
      changed.wait(held, [&] { return number < freed; });
      held.unlock();
      nvtxRangePushA("decode sample");
      volatile float v = number % 5;
      for (int k = 0; k < rounds; k++) v = v * 0.98f + 0.1f;
      for (int i = 0; i < size; i++) slot[number % count][i] = (number + i) % 13;
      nvtxRangePop();
      held.lock();
      made = number + 1;
      changed.notify_all();
    }
  }
};

struct Program {
  static const int n = 1 << 20;
  Slots* slots = new Slots;
  float *sample[2], *model = device<float>(n);
  cudaStream_t stream;
  cudaEvent_t read[Slots::count];
  Program(char form) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& one : slots->slot) CHECK(cudaMallocHost(&one, Slots::size * 4));
    for (auto& one : sample) one = device<float>(Slots::size);
    for (auto& one : read) CHECK(cudaEventCreateWithFlags(&one, cudaEventDisableTiming));
    std::thread(&Slots::decode, slots, form == 'a' ? 200000 : 50000).detach();
  }
  void step(int number) {
    std::unique_lock<std::mutex> held(slots->mutex);
    slots->changed.wait(held, [&] { return number < slots->made; });
    held.unlock();
    float* here = sample[number % 2];
    CHECK(cudaMemcpyAsync(here, slots->slot[number % Slots::count], Slots::size * 4, cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(read[number % Slots::count], stream));
    train<<<n / 256, 256, 0, stream>>>(here, model, 8000);
    CHECK(cudaGetLastError());
    if (number < 1) return;
    CHECK(cudaEventSynchronize(read[(number - 1) % Slots::count]));
    held.lock();
    slots->freed = number - 1 + 1 + Slots::count;
    slots->changed.notify_all();
  }
  std::vector<float> result() { return home(model, n); }
};
KEY_MAIN(Program)
