// Rays through a map. a: the same map goes up again for the next step, on a second stream, b: it is there (wins nothing: hidden).
#include "key.h"

__global__ void rays(const float* map, size_t pitch, float* out, int width, int rounds) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  float height = map[y * (pitch / sizeof(float)) + x], light = 1;
  for (int k = 0; k < rounds; k++) {
    light = light * 0.999f + height * 1e-3f;
    height = height * light + 1e-3f;
  }
  out[(size_t)y * width + x] = light;
}

struct Program {
  static const int width = 4096, height = 4000;
  bool again;
  float *host, *maps[2], *out = device<float>((size_t)width * height);
  size_t pitch;
  cudaStream_t main, copies;
  cudaEvent_t there[2], read[2];
  Program(char form) : again(form == 'a') {
    CHECK(cudaMallocHost(&host, (size_t)width * height * sizeof(float)));
    for (size_t i = 0; i < (size_t)width * height; i++) host[i] = i * 7919 % 1000 / 1000.0f;
    CHECK(cudaStreamCreateWithFlags(&main, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    for (int k = 0; k < 2; k++) {
      CHECK(cudaMallocPitch(&maps[k], &pitch, width * sizeof(float), height));
      CHECK(cudaEventCreateWithFlags(&there[k], cudaEventDisableTiming));
      CHECK(cudaEventCreateWithFlags(&read[k], cudaEventDisableTiming));
      upload(k);
    }
  }
  void upload(int k) {
    size_t row = width * sizeof(float);
    CHECK(cudaMemcpy2DAsync(maps[k], pitch, host, row, row, height, cudaMemcpyHostToDevice, copies));
    CHECK(cudaEventRecord(there[k], copies));
  }
  void step(int i) {
    int k = i % 2;
    CHECK(cudaStreamWaitEvent(main, there[k]));
    rays<<<dim3(width / 256, height), 256, 0, main>>>(maps[k], pitch, out, width, 3000);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(read[k], main));
    if (!again) return;
    CHECK(cudaStreamWaitEvent(copies, read[1 - k])); // of the step before
    upload(1 - k);
  }
  std::vector<float> result() {
    std::vector<float> values((size_t)width * height);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values.data(), out, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
