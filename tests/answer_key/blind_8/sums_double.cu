// Sums of long columns of floats, added in double precision (b: in single; wins nothing: memory is the limit).
#include "key.h"

template <class T>
__global__ void column_sums(const float4* in, float4* out, int columns, int rows) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  T x = 0, y = 0, z = 0, w = 0;
#pragma unroll 8
  for (int row = 0; row < rows; row++) {
    float4 one = in[((size_t)blockIdx.y * rows + row) * columns + column];
    x += one.x, y += one.y, z += one.z, w += one.w;
  }
  out[blockIdx.y * columns + column] = make_float4(x, y, z, w);
}

struct Program {
  static const int columns = 8192, rows = 256, parts = 64;
  bool wide;
  float4 *in = device<float4>((size_t)columns * rows * parts), *out = device<float4>(columns * parts);
  Program(char form) : wide(form == 'a') {
    CHECK(cudaMemset(in, 0x3c, (size_t)columns * rows * parts * sizeof(float4)));
  }
  void step(int) {
    dim3 grid(columns / 256, parts);
    if (wide) column_sums<double><<<grid, 256>>>(in, out, columns, rows);
    else column_sums<float><<<grid, 256>>>(in, out, columns, rows);
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() {
    std::vector<float> values(columns * parts * 4);
    CHECK(cudaMemcpy(values.data(), out, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
