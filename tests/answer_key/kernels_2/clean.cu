// Kernels as good as they get: each is at a roof, or so short that only its launch is left.
#include "set.h"

using namespace nvcuda;

__global__ void __launch_bounds__(256) softmax_rows(const __half2* a, __half2* out, int rows) {
  // a warp a row of 1024 halfs, in registers
  i64 r = T / 32;
  int lane = threadIdx.x & 31;
  if (r >= rows) return;
  union { uint4 v[4]; __half2 h[16]; } u;
  for (int k = 0; k < 4; ++k) u.v[k] = ((const uint4*)a)[r * 128 + k * 32 + lane];
  float most = -1e30f, s = 0;
  for (auto h : u.h) { float2 f = __half22float2(h); most = fmaxf(most, fmaxf(f.x, f.y)); }
  for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
  for (auto& h : u.h) { float2 f = __half22float2(h); f.x = __expf(f.x - most), f.y = __expf(f.y - most), s += f.x + f.y, h = __float22half2_rn(f); }
  __half2 scale = __float2half2_rn(1 / warp_sum(s));
  for (auto& h : u.h) h = __hmul2(h, scale);
  for (int k = 0; k < 4; ++k) ((uint4*)out)[r * 128 + k * 32 + lane] = u.v[k];
}
__global__ void __launch_bounds__(256) turn_matrix(const float* a, float* out, int n) {
  __shared__ float tile[64][65];
  int x = threadIdx.x & 15, y = threadIdx.x / 16;
  i64 bx = blockIdx.x * 64, by = blockIdx.y * 64;
#pragma unroll
  for (int k = 0; k < 64; k += 16) {
    float4 v = *(const float4*)(a + (by + y + k) * n + bx + x * 4);
    tile[y + k][x * 4] = v.x, tile[y + k][x * 4 + 1] = v.y, tile[y + k][x * 4 + 2] = v.z, tile[y + k][x * 4 + 3] = v.w;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 64; k += 16) *(float4*)(out + (bx + y + k) * n + by + x * 4) = make_float4(tile[x * 4][y + k], tile[x * 4 + 1][y + k], tile[x * 4 + 2][y + k], tile[x * 4 + 3][y + k]);
}
__global__ void __launch_bounds__(256) philox_numbers(uint4* out, i64 n, uint32_t seed) {
  for (i64 i = T; i < n; i += STRIDE) {
    uint4 c = make_uint4((uint32_t)i, 0, seed, 7);
    uint32_t k0 = seed, k1 = seed ^ 77;
#pragma unroll
    for (int r = 0; r < 40; ++r) {
      uint32_t h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x, h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
      c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[i] = c;
  }
}
__global__ void clear_buffer(float4* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = make_float4(0, 0, 0, 0);
}
__global__ void __launch_bounds__(512) resident_sums(const float4* a, float* out, int n, int rounds) {
  // 16 MB again and again: L2 is the limit
  float s = 0;
  for (int r = 0; r < rounds; ++r)
#pragma unroll 8
    for (i64 i = (T + r * 7919ll * 32) % STRIDE; i < n; i += STRIDE) { float4 v = __ldcg(a + i); s += (v.x + v.y) + (v.z + v.w); }
  if (s == -1.0f) out[T] = s;
}
__global__ void __launch_bounds__(256) gravity_double(const double* a, double* out, int n) {
  // a polynomial of data that is FP64 and has to be
  double x[4], c = a[threadIdx.x];
  for (int j = 0; j < 4; ++j) x[j] = a[T % 4096 + j];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = fma(x[j], c, 0.25);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void __launch_bounds__(256) byte_dots(const int* a, int* out, int n) {
  int x[8], w = a[T % 1024];
  for (int j = 0; j < 8; ++j) x[j] = a[(T + j) % 1024];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = __dp4a(x[j], w, k);
  int s = 0;
  for (int v : x) s ^= v;
  out[T] = s;
}
__global__ void add_bias(float* a, const float* bias) { a[T] += bias[threadIdx.x]; }
__global__ void __launch_bounds__(256) adam_step(float4* weights, const float4* gradients, float4* mean, float4* square, i64 n, float rate) {
  for (i64 i = T; i < n; i += STRIDE) {
    float4 w4 = weights[i], g4 = gradients[i], m4 = mean[i], v4 = square[i];
    float *w = &w4.x, *g = &g4.x, *m = &m4.x, *v = &v4.x;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      m[k] = fmaf(0.9f, m[k] - g[k], g[k]), v[k] = fmaf(0.999f, v[k] - g[k] * g[k], g[k] * g[k]);
      w[k] -= rate * m[k] * rsqrtf(v[k] + 1e-8f);
    }
    weights[i] = w4, mean[i] = m4, square[i] = v4;
  }
}

void clean_cases() {
  cases.push_back({"softmax_rows", "none_at_roof", "", [] { softmax_rows<<<1 << 14, 256>>>((__half2*)A, (__half2*)C, 1 << 17); }, nullptr});
  cases.push_back({"turn_matrix", "none_at_roof", "", [] { turn_matrix<<<dim3(128, 128), 256>>>(A, C, 8192); }, nullptr});
  cases.push_back({"philox_numbers", "none_at_roof", "", [] { philox_numbers<<<2112, 256>>>((uint4*)C, 1 << 23, 5); }, nullptr});
  cases.push_back({"clear_buffer", "none_at_roof", "", [] { clear_buffer<<<2112, 256>>>((float4*)C, N / 4); }, nullptr});
  cases.push_back({"resident_sums", "none_at_roof", "", [] { resident_sums<<<528, 512>>>((float4*)A, C, 1 << 20, 64); }, nullptr});
  cases.push_back({"gravity_double", "none_at_roof", "", [] { gravity_double<<<1056, 256>>>((double*)A, (double*)C, 4096); }, nullptr});
  cases.push_back({"byte_dots", "none_at_roof", "", [] { byte_dots<<<2112, 256>>>((int*)A, (int*)C, 2048); }, nullptr});
  cases.push_back({"add_bias", "launch_latency", "", [] { add_bias<<<32, 128>>>(C, B); }, nullptr});
  cases.push_back({"adam_step", "none_at_roof", "", [] { adam_step<<<2112, 256>>>((float4*)A, (float4*)B, (float4*)C, (float4*)D, N / 4, 1e-4f); }, nullptr});
}
