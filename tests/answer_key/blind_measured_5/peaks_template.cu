// Peaks are smoothed on a coarse grid four times and on a fine one once. a: the fine one in 16,000 rounds, b: in 4,000.
#include "key.h"

struct Coarse {
  static const int shift = 1;
};
struct Fine {
  static const int shift = 0;
};
template <class Grid>
__global__ void smooth(const float* height, float* peaks, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + height[i >> Grid::shift], v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  peaks[i] = 0.5f * (peaks[i] + v);
}

struct Program {
  static const int blocks = 120, n = blocks * 256;
  int fine;
  float *height = device<float>(n), *peaks = device<float>(n);
  cudaStream_t stream;
  Program(char form) : fine(form == 'a' ? 16000 : 4000) {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void step(int) {
    for (int i = 0; i < 4; i++) smooth<Coarse><<<blocks, 256, 0, stream>>>(height, peaks, 3000);
    smooth<Fine><<<blocks, 256, 0, stream>>>(height, peaks, fine);
    CHECK(cudaStreamSynchronize(stream));
  }
  std::vector<float> result() { return home(peaks, n); }
};
KEY_MAIN(Program)
