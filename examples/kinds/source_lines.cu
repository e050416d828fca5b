// Two kernels compiled with -lineinfo: which line of each is slow, and what did the compiler make of it?
//
// Run        nvcc -O3 -lineinfo -arch=native source_lines.cu -o source_lines && ./source_lines [rounds]

#include <cstdio>
#include <cstdlib>

constexpr int kSide = 4096, kTile = 32, kRows = 8;

// Each warp writes one float to each of 32 rows: a sector of 32 bytes for 4 of them.
__global__ void transpose(const float* in, float* out) {
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int i = 0; i < kTile; i += kRows) out[x * kSide + y + i] = in[(y + i) * kSide + x];
}

// Every warp adds to one of 16 counters: most of the adds wait for another.
__global__ void histogram(const float* in, int* counts) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kSide * kSide; i += gridDim.x * blockDim.x) {
    const float value = in[i];
    const int bin = min(15, max(0, int(value * 16.0f)));
    atomicAdd(&counts[bin], 1);
  }
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 20;
  float *in, *out;
  int *counts, total = 0, host[16];
  cudaMalloc(&in, sizeof(float) * kSide * kSide);
  cudaMalloc(&out, sizeof(float) * kSide * kSide);
  cudaMalloc(&counts, sizeof host);
  cudaMemset(in, 0, sizeof(float) * kSide * kSide);
  for (int round = 0; round < rounds; ++round) {
    cudaMemsetAsync(counts, 0, sizeof host);
    transpose<<<dim3(kSide / kTile, kSide / kTile), dim3(kTile, kRows)>>>(in, out);
    histogram<<<528, 256>>>(out, counts);
    cudaMemcpy(host, counts, sizeof host, cudaMemcpyDeviceToHost);
    for (int bin : host) total += bin;
  }
  printf("%s\n", total == rounds * kSide * kSide ? "correct" : "WRONG");
  return cudaGetLastError() != cudaSuccess || total != rounds * kSide * kSide;
}
