// Migration of seismic slabs. a: each slab is read from the disk, past the page cache, b: all slabs stay in memory.
#include "key.h"

__global__ void migrate_slab(const short* slab, float* image, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = image[i];
  for (int k = 0; k < 1200; k++) sum += slab[(i * 3 + k * 1021) & (n - 1)] * __sinf(k * 0.01f + i);
  image[i] = sum;
}

struct Program {
  static const int n = 1 << 22, slabs = 4;
  static const size_t bytes = n * sizeof(short);
  bool disk;
  int file;
  short *host, *slab = device<short>(n);
  float* image = device<float>(n);
  Program(char form) : disk(form == 'a') {
    CHECK(cudaMallocHost(&host, slabs * bytes));
    memset(host, 3, slabs * bytes);
    file = open(disk ? "slabs.bin" : "slabs_b.bin", O_RDWR | O_CREAT, 0600);
    if (write(file, host, slabs * bytes) != (ssize_t)(slabs * bytes)) exit(1);
    fsync(file);
  }
  void step(int i) {
    int k = i % slabs;
    if (disk) {
      nvtxRangePushA("read slab");
      posix_fadvise(file, k * bytes, bytes, POSIX_FADV_DONTNEED);
      if (pread(file, host + (size_t)k * n, bytes, k * bytes) != (ssize_t)bytes) exit(1);
      nvtxRangePop();
    }
    nvtxRangePushA("migrate");
    CHECK(cudaMemcpyAsync(slab, host + (size_t)k * n, bytes, cudaMemcpyHostToDevice));
    migrate_slab<<<n / 256, 256>>>(slab, image, n);
    CHECK(cudaDeviceSynchronize());
    nvtxRangePop();
  }
};
KEY_MAIN(Program)
