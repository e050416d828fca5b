// Notes go up while more sound comes down, each on its own stream. a: 32 bits a note, b: 16 (wins nothing).
#include "key.h"

template <class T>
__global__ void play(const T* notes, float* sound, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = notes[i % (1 << 20)];
  for (int k = 0; k < rounds; k++) v = v * 0.9f + __sinf(v + k);
  sound[i] = v;
}
template <class T>
static void* written(int count) {
  T* data;
  CHECK(cudaMallocHost(&data, count * sizeof(T)));
  for (int i = 0; i < count; i++) data[i] = i % 100;
  return data;
}

struct Program {
  static const int few = 1 << 20, n = 6 << 20;
  char form;
  void* host;
  int* notes[2];
  float *home_sound, *sound[2];
  cudaStream_t up, work, down;
  cudaEvent_t here[2], played[2], gone[2];
  Program(char form) : form(form), host(form == 'a' ? written<int>(few) : written<short>(few)) {
    CHECK(cudaMallocHost(&home_sound, n * 4));
    for (auto* stream : {&up, &work, &down}) CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
      notes[i] = device<int>(few), sound[i] = device<float>(n);
      for (auto* event : {&here[i], &played[i], &gone[i]})
        CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  void step(int number) {
    int now = number % 2;
    CHECK(cudaStreamWaitEvent(up, played[now]));
    CHECK(cudaMemcpyAsync(notes[now], host, few * (form == 'a' ? 4 : 2), cudaMemcpyHostToDevice, up));
    CHECK(cudaEventRecord(here[now], up));
    CHECK(cudaStreamWaitEvent(work, here[now]));
    CHECK(cudaStreamWaitEvent(work, gone[now]));
    if (form == 'a') play<<<n / 256, 256, 0, work>>>(notes[now], sound[now], 40);
    else play<<<n / 256, 256, 0, work>>>((short*)notes[now], sound[now], 40);
    CHECK(cudaEventRecord(played[now], work));
    CHECK(cudaStreamWaitEvent(down, played[now]));
    CHECK(cudaMemcpyAsync(home_sound, sound[now], n * 4, cudaMemcpyDeviceToHost, down));
    CHECK(cudaEventRecord(gone[now], down));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() { return home(sound[0], n); }
};
KEY_MAIN(Program)
