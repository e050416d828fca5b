// Defects of products: Gram matrices, convolutions, tensor cores; calls of libraries are none in this set.
#include "set.h"

using namespace nvcuda;

// ---- the Gram matrix of short columns
template <int V> __global__ void __launch_bounds__(256) gram(const float* x, float* g, int n, int depth) {
  if (V == 0) {
    int i = blockIdx.y * 16 + threadIdx.x / 16, j = blockIdx.x * 16 + (threadIdx.x & 15);
    float s = 0;
    for (int k = 0; k < depth; ++k) s = fmaf(x[(i64)k * n + i], x[(i64)k * n + j], s);
    g[(i64)i * n + j] = s;
  } else {  // 64 x 64 outputs a block, 4 x 4 a thread
    __shared__ __align__(16) float p[16][64], q[16][64];
    int ty = threadIdx.x / 16, tx = threadIdx.x & 15;
    float s[4][4] = {};
    for (int k0 = 0; k0 < depth; k0 += 16) {
      for (int i = threadIdx.x; i < 1024; i += 256) {
        p[i / 64][i & 63] = x[(i64)(k0 + i / 64) * n + blockIdx.y * 64 + (i & 63)];
        q[i / 64][i & 63] = x[(i64)(k0 + i / 64) * n + blockIdx.x * 64 + (i & 63)];
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        float4 u = *(float4*)&p[k][ty * 4], v = *(float4*)&q[k][tx * 4];
        float a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) s[i][j] = fmaf(a[i], b[j], s[i][j]);
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) g[(i64)(blockIdx.y * 64 + ty * 4 + i) * n + blockIdx.x * 64 + tx * 4 + j] = s[i][j];
  }
}
// ---- a filter of 64 taps over a row in shared memory
template <int V> __global__ void __launch_bounds__(256) long_filter(const float* a, float* out, int rows) {
  __shared__ float x[2048 + 64], taps[64];
  if (threadIdx.x < 64) taps[threadIdx.x] = a[threadIdx.x] * 0.05f;
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    __syncthreads();
    for (int i = threadIdx.x; i < 2112; i += 256) x[i] = a[(i64)r * 2048 + i];
    __syncthreads();
    if (V == 0) {
      for (int o = 0; o < 8; ++o) {
        float s = 0;
#pragma unroll 16
        for (int k = 0; k < 64; ++k) s = fmaf(x[o * 256 + threadIdx.x + k], taps[k], s);
        out[(i64)r * 2048 + o * 256 + threadIdx.x] = s;
      }
    } else {  // a thread computes each 256th output: one tap serves eight
      float s[8] = {};
#pragma unroll 4
      for (int k = 0; k < 64; k += 4) {
        float4 t = *(const float4*)&taps[k];
#pragma unroll
        for (int o = 0; o < 8; ++o) {
          const float* at = x + o * 256 + threadIdx.x + k;
          s[o] = fmaf(at[0], t.x, fmaf(at[1], t.y, fmaf(at[2], t.z, fmaf(at[3], t.w, s[o]))));
        }
      }
      for (int o = 0; o < 8; ++o) out[(i64)r * 2048 + o * 256 + threadIdx.x] = s[o];
    }
  }
}
// ---- weights of 16 bits times activations of 16 bits, sums of 32
__global__ void narrow(const float* a, __half* h, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) h[i] = __float2half(a[i] * 0.1f);
}
template <int V> __global__ void __launch_bounds__(256) project(const __half* w, const __half* x, float* y, int n) {
  __shared__ __align__(16) __half ws[64][40], xs[32][72];
  int bx = blockIdx.x * 64, by = blockIdx.y * 64, ty = threadIdx.x / 16, tx = threadIdx.x & 15, warp = threadIdx.x / 32;
  float s[4][4] = {};
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2];
  wmma::fill_fragment(acc[0], 0.0f), wmma::fill_fragment(acc[1], 0.0f);
  for (int k0 = 0; k0 < n; k0 += 32) {
    *(uint4*)&ws[threadIdx.x / 4][(threadIdx.x & 3) * 8] = *(const uint4*)&w[(i64)(by + threadIdx.x / 4) * n + k0 + (threadIdx.x & 3) * 8];
    *(uint4*)&xs[threadIdx.x / 8][(threadIdx.x & 7) * 8] = *(const uint4*)&x[(i64)(k0 + threadIdx.x / 8) * n + bx + (threadIdx.x & 7) * 8];
    __syncthreads();
    if (V == 0) {
#pragma unroll 8
      for (int k = 0; k < 32; ++k) {
        float p[4], q[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = __half2float(ws[ty * 4 + i][k]), q[i] = __half2float(xs[k][tx * 4 + i]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) s[i][j] = fmaf(p[i], q[j], s[i][j]);
      }
    } else {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> f;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> g;
      for (int k = 0; k < 32; k += 16) {
        wmma::load_matrix_sync(f, &ws[warp / 2 * 16][k], 40);
        for (int j = 0; j < 2; ++j) {
          wmma::load_matrix_sync(g, &xs[k][(warp & 1) * 32 + j * 16], 72);
          wmma::mma_sync(acc[j], f, g, acc[j]);
        }
      }
    }
    __syncthreads();
  }
  if (V == 0) {
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) y[(i64)(by + ty * 4 + i) * n + bx + tx * 4 + j] = s[i][j];
  } else {
    for (int j = 0; j < 2; ++j) wmma::store_matrix_sync(&y[(i64)(by + warp / 2 * 16) * n + bx + (warp & 1) * 32 + j * 16], acc[j], n, wmma::mem_row_major);
  }
}
// ---- the same product, whose tensor cores take each operand from global memory, or from tiles
__global__ void __launch_bounds__(256) project_direct(const __half* w, const __half* x, float* y, int n) {
  int warp = threadIdx.x / 32, row = blockIdx.y * 64 + warp / 2 * 16, col = blockIdx.x * 32 + (warp & 1) * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0f);
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> f;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> g;
  for (int k = 0; k < n; k += 16) {
    wmma::load_matrix_sync(f, w + (i64)row * n + k, n);
    wmma::load_matrix_sync(g, x + (i64)k * n + col, n);
    wmma::mma_sync(acc, f, g, acc);
  }
  wmma::store_matrix_sync(y + (i64)row * n + col, acc, n, wmma::mem_row_major);
}

static __half *W, *X;
static void halves() {
  if (W) return;
  W = device<__half>(1 << 24), X = device<__half>(1 << 24);
  narrow<<<1056, 256>>>(A, W, 1 << 24), narrow<<<1056, 256>>>(B, X, 1 << 24);
}
void product_cases() {
  cases.push_back({"gram", "no_tile", "", [] { gram<0><<<dim3(128, 128), 256>>>(A, C, 2048, 512); }, [] { gram<1><<<dim3(32, 32), 256>>>(A, C, 2048, 512); }, C, 1 << 22});
  cases.push_back({"long_filter", "shared_instruction_bound", "", [] { long_filter<0><<<1056, 256>>>(A, C, 8192); }, [] { long_filter<1><<<1056, 256>>>(A, C, 8192); }, C, 1 << 24});
  cases.push_back({"project", "fp32_for_matrix", "", [] { project<0><<<dim3(32, 32), 256>>>(W, X, C, 2048); }, [] { project<1><<<dim3(32, 32), 256>>>(W, X, C, 2048); }, C, 1 << 22, false, halves});
  cases.push_back({"project_direct", "tensor_starved", "", [] { project_direct<<<dim3(64, 32), 256>>>(W, X, C, 2048); }, [] { project<1><<<dim3(32, 32), 256>>>(W, X, C, 2048); }, C, 1 << 22, false, halves});
}
void library_cases() {}
