// Windows of a large picture. a: a 2D copy packs each window before its kernel, b: the kernel reads it where it is.
#include "key.h"

__global__ void tones(const float* window, size_t pitch, float* out, int width, int rounds) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  float light = window[y * pitch + x], tone = 0;
  for (int k = 0; k < rounds; k++) tone += __cosf(light * k) * 0.1f;
  out[(size_t)y * width + x] = tone;
}

struct Program {
  static const int side = 16384, width = 6144, height = 6144, windows = 6;
  bool packs;
  float *picture = device<float>((size_t)side * side), *packed = device<float>((size_t)width * height);
  float* out = device<float>((size_t)width * height);
  Program(char form) : packs(form == 'a') {
    std::vector<float> made((size_t)side * side);
    for (size_t i = 0; i < made.size(); i++) made[i] = i * 7919 % 1000 / 1000.0f;
    CHECK(cudaMemcpy(picture, made.data(), made.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  void step(int) {
    for (int k = 0; k < windows; k++) {
      const float* window = picture + (size_t)k * 1024 * side + k * 1504;
      size_t pitch = side;
      if (packs) {
        size_t row = width * sizeof(float);
        CHECK(cudaMemcpy2DAsync(packed, row, window, side * sizeof(float), row, height, cudaMemcpyDeviceToDevice));
        window = packed, pitch = width;
      }
      tones<<<dim3(width / 256, height), 256>>>(window, pitch, out, width, 24);
      CHECK(cudaGetLastError());
    }
  }
  std::vector<float> result() {
    std::vector<float> values((size_t)width * height);
    CHECK(cudaMemcpy(values.data(), out, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
