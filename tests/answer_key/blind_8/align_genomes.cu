// Alignment of reads to three genomes of unlike length, then the best of all. a: on one stream, b: a stream for each genome.
#include "key.h"

template <int GENOME>
__global__ void align(const int* reads, int* scores, int length) {
  int read = blockIdx.x * blockDim.x + threadIdx.x, letter = reads[read], here = 0, best = 0;
  for (int k = 0; k < length; k++) {
    unsigned base = (k * 2654435761u + GENOME * 40503u) >> 30;
    here = max(0, here + (base == ((letter >> (k % 15 * 2)) & 3) ? 2 : -1));
    best = max(best, here);
  }
  scores[read] = best;
}
__global__ void best_of(const int* scores, float* out, int reads) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = max(scores[i], max(scores[reads + i], scores[2 * reads + i]));
}

struct Program {
  static const int reads = 40 * 128;
  int *letters = device<int>(reads), *scores = device<int>(3 * reads);
  float* out = device<float>(reads);
  cudaStream_t main, streams[3];
  cudaEvent_t begun, done[3];
  Program(char form) {
    std::vector<int> made(reads);
    for (int i = 0; i < reads; i++) made[i] = i * 2654435761u >> 2;
    CHECK(cudaMemcpy(letters, made.data(), reads * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaStreamCreateWithFlags(&main, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    for (int k = 0; k < 3; k++) {
      streams[k] = main;
      if (form == 'b') CHECK(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&done[k], cudaEventDisableTiming));
    }
  }
  template <int GENOME>
  void aligned(int length) {
    cudaStream_t stream = streams[GENOME];
    if (stream != main) CHECK(cudaStreamWaitEvent(stream, begun));
    align<GENOME><<<reads / 128, 128, 0, stream>>>(letters, scores + GENOME * reads, length);
    if (stream != main) {
      CHECK(cudaEventRecord(done[GENOME], stream));
      CHECK(cudaStreamWaitEvent(main, done[GENOME]));
    }
  }
  void step(int) {
    CHECK(cudaEventRecord(begun, main));
    aligned<0>(90000), aligned<1>(50000), aligned<2>(30000);
    best_of<<<reads / 128, 128, 0, main>>>(scores, out, reads);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() {
    std::vector<float> values(reads);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values.data(), out, reads * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
