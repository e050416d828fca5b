// A thread logs what each assembly decided, in a quarter of the time that the GPU needs for one. b: 0.3 of its work (wins nothing).
#include "key.h"

#include <condition_variable>
#include <mutex>
#include <thread>

__global__ void assemble(float* votes, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = votes[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v - k);
  votes[i] = v;
}

struct Program {
  static const int slots = 4, blocks = 110, n = blocks * 256;
  int lines;
  float *votes = device<float>(n), *minutes[slots];
  volatile float text = 0;
  cudaStream_t stream;
  cudaEvent_t decided[slots];
  long ready = 0, logged = 0;
  bool over = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::thread clerk;
  Program(char form) : lines(form == 'a' ? 140000 : 42000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto& one : minutes) CHECK(cudaMallocHost(&one, n * 4));
    for (auto& one : decided) CHECK(cudaEventCreateWithFlags(&one, cudaEventDisableTiming));
    clerk = std::thread(&Program::keep, this);
  }
  ~Program() {
    {
      std::lock_guard<std::mutex> held(mutex);
      over = true;
    }
    changed.notify_all();
    clerk.join();
  }
  void keep() {
    std::unique_lock<std::mutex> held(mutex);
    for (;;) {
      changed.wait(held, [&] { return over || logged < ready; });
      if (over) return;
      held.unlock();
      nvtxRangePushA("log minutes");
      text = minutes[logged % slots][0];
      for (int k = 0; k < lines; k++) text = text * 0.98f + 0.1f;
      nvtxRangePop();
      held.lock();
      logged++;
      changed.notify_all();
    }
  }
  void step(int number) {
    for (int i = 0; i < 4; i++) assemble<<<blocks, 256, 0, stream>>>(votes, 42000);
    CHECK(cudaMemcpyAsync(minutes[number % slots], votes, n * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaEventRecord(decided[number % slots], stream));
    CHECK(cudaGetLastError());
    if (number < 1) return;
    CHECK(cudaEventSynchronize(decided[(number - 1) % slots]));
    std::unique_lock<std::mutex> held(mutex);
    ready = number;
    changed.notify_all();
    changed.wait(held, [&] { return logged > ready - 2; }); // one before its last
  }
  std::vector<float> result() { return home(votes, n); }
};
KEY_MAIN(Program)
