// Clean: the parity of four disks, 16 bytes a thread at a time. Memory is the limit.
#include "key.h"

__global__ void parity(const uint4* a, const uint4* b, const uint4* c, const uint4* d, uint4* out) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  uint4 w = a[i], x = b[i], y = c[i], z = d[i];
  out[i] = make_uint4(w.x ^ x.x ^ y.x ^ z.x, w.y ^ x.y ^ y.y ^ z.y, w.z ^ x.z ^ y.z ^ z.z, w.w ^ x.w ^ y.w ^ z.w);
}

struct Program {
  static const size_t n = 1 << 26; // 1 GiB of each disk
  uint4 *disks[4], *out = device<uint4>(n);
  Program(char) {
    for (uint4*& disk : disks) disk = device<uint4>(n);
  }
  void step(int) {
    parity<<<n / 256, 256>>>(disks[0], disks[1], disks[2], disks[3], out);
    CHECK(cudaGetLastError());
  }
};
KEY_MAIN(Program)
