// Terrain drawn with an atlas of textures in a cudaArray. a: the atlas goes up for each frame, b: it is there.
#include "key.h"

__global__ void draw(cudaTextureObject_t atlas, float4* frame, int width, int height, float turn) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float u = (float)x / width, v = (float)y / height;
  float4 total = make_float4(0, 0, 0, 0);
  for (int k = 0; k < 160; k++) {
    float4 one = tex2D<float4>(atlas, u + turn * k, v * (1 + 0.01f * k));
    total.x += one.x, total.y += one.y, total.z += one.z, total.w += one.w;
  }
  frame[y * width + x] = total;
}

struct Program {
  static const int side = 4096, width = 2560, height = 1440;
  bool again;
  uchar4* host;
  cudaArray_t array;
  cudaTextureObject_t atlas;
  float4* frame = device<float4>(width * height);
  Program(char form) : again(form == 'a') {
    CHECK(cudaMallocHost(&host, (size_t)side * side * sizeof(uchar4)));
    for (int i = 0; i < side * side; i++) host[i] = make_uchar4(i * 7, i / 5, i / 999, 255);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
    CHECK(cudaMallocArray(&array, &format, side, side));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc texture = {};
    texture.addressMode[0] = texture.addressMode[1] = cudaAddressModeWrap;
    texture.filterMode = cudaFilterModeLinear;
    texture.readMode = cudaReadModeNormalizedFloat;
    texture.normalizedCoords = 1;
    CHECK(cudaCreateTextureObject(&atlas, &resource, &texture, nullptr));
    upload();
  }
  void upload() {
    size_t row = side * sizeof(uchar4);
    CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, host, row, row, side, cudaMemcpyHostToDevice));
  }
  void step(int i) {
    if (again) upload();
    draw<<<dim3(width / 32, height / 8), dim3(32, 8)>>>(atlas, frame, width, height, 1e-4f * (i % 50));
    CHECK(cudaGetLastError());
  }
  std::vector<float> result() {
    std::vector<float> values(width * height * 4);
    CHECK(cudaMemcpy(values.data(), frame, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }
};
KEY_MAIN(Program)
