// A filter over the samples of many channels, then their power. a: a thread for each channel, b: a thread for each sample.
#include "key.h"

static const int TAPS = 32;
__constant__ float taps[TAPS];

__global__ void fir(const float* in, float* out, int channels, int samples, int each) {
  int channel = blockIdx.x * blockDim.x + threadIdx.x, from = blockIdx.y * each;
  for (int t = from; t < from + each; t++) {
    float total = 0;
    for (int k = 0; k < TAPS; k++) total += taps[k] * in[(size_t)(t + k) * channels + channel];
    out[(size_t)t * channels + channel] = total;
  }
}
__global__ void power(const float* in, float* out, int channels, int rounds) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i], total = 0;
  for (int k = 0; k < rounds; k++) total += __cosf(x + k) * x;
  out[i] = total;
}

struct Program {
  static const int channels = 2048, samples = 4096;
  int each;
  float* in = device<float>((size_t)channels * (samples + TAPS));
  float *out = device<float>((size_t)channels * samples), *powers = device<float>((size_t)channels * samples);
  Program(char form) : each(form == 'a' ? samples : 4) {
    std::vector<float> given(TAPS), waves((size_t)channels * (samples + TAPS));
    for (int k = 0; k < TAPS; k++) given[k] = 1.0f / (1 + k);
    for (size_t i = 0; i < waves.size(); i++) waves[i] = i * 7919 % 1000 / 1000.0f - 0.5f;
    CHECK(cudaMemcpyToSymbol(taps, given.data(), sizeof(taps)));
    CHECK(cudaMemcpy(in, waves.data(), waves.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  void step(int) {
    fir<<<dim3(channels / 64, samples / each), 64>>>(in, out, channels, samples, each);
    power<<<(size_t)channels * samples / 256, 256>>>(out, powers, channels, 300);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() {
    std::vector<float> values((size_t)channels * samples);
    CHECK(cudaMemcpy(values.data(), powers, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
