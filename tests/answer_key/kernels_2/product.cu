// Defects of matrix products and pipelines.
#include "set.h"

using namespace nvcuda;
using bf16 = __nv_bfloat16;

template <int V> __global__ void __launch_bounds__(256) pairwise_distance(const float* x, const float* y, float* out, int n, int k) {
  // squared distances of n points to n others in k dimensions
  int tx = threadIdx.x & 15, ty = threadIdx.x / 16;
  if (V == 0) {
    int cx = blockIdx.x * 16 + tx, cy = blockIdx.y * 16 + ty;
    float s = 0;
    for (int i = 0; i < k; ++i) { float d = x[(i64)i * n + cy] - y[(i64)i * n + cx]; s = fmaf(d, d, s); }
    out[(i64)cy * n + cx] = s;
  } else {
    __shared__ __align__(16) float xs[16][64], ys[16][64];
    int bx = blockIdx.x * 64, by = blockIdx.y * 64;
    float s[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
      *(float4*)&xs[ty][tx * 4] = *(const float4*)(x + (i64)(k0 + ty) * n + by + tx * 4);
      *(float4*)&ys[ty][tx * 4] = *(const float4*)(y + (i64)(k0 + ty) * n + bx + tx * 4);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float p[4], q[4];
        *(float4*)p = *(float4*)&xs[i][ty * 4], *(float4*)q = *(float4*)&ys[i][tx * 4];
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
          for (int c = 0; c < 4; ++c) { float d = p[r] - q[c]; s[r][c] = fmaf(d, d, s[r][c]); }
      }
      __syncthreads();
    }
    for (int r = 0; r < 4; ++r) *(float4*)(out + (i64)(by + ty * 4 + r) * n + bx + tx * 4) = make_float4(s[r][0], s[r][1], s[r][2], s[r][3]);
  }
}
template <int V> __global__ void __launch_bounds__(256) conv3x3(const float* in, const float* weights, float* out, int w, int h, int channels) {
  // 3 x 3 convolution, planes of w x h; a thread makes one output, or eight channels of it with weights in shared memory
  const int M = V == 0 ? 1 : 8;
  __shared__ float own[V == 0 ? 1 : 8 * 64 * 9];
  int x = blockIdx.x * 32 + (threadIdx.x & 31), y = blockIdx.y * 8 + threadIdx.x / 32, first = blockIdx.z * M;
  if (V == 1) {
    for (int i = threadIdx.x; i < M * channels * 9; i += 256) own[i] = weights[(i64)first * channels * 9 + i];
    __syncthreads();
  }
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
  float s[M] = {};
  for (int c = 0; c < channels; ++c) {
    float v[9];
#pragma unroll
    for (int k = 0; k < 9; ++k) v[k] = in[((i64)c * h + y + k / 3 - 1) * w + x + k % 3 - 1];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int k = 0; k < 9; ++k) s[m] = fmaf(v[k], V == 0 ? weights[((i64)first * channels + c) * 9 + k] : own[V == 0 ? 0 : (m * channels + c) * 9 + k], s[m]);
  }
#pragma unroll
  for (int m = 0; m < M; ++m) out[((i64)(first + m) * h + y) * w + x] = s[m];
}
template <int V> __global__ void __launch_bounds__(256) attention_scores(const bf16* q, const bf16* k, float* out, int n, float scale) {
  // scores of a head of 128: q times k transposed, a tile of 64 x 64 a block
  __shared__ __align__(32) bf16 qs[64][128 + 8], ks[64][128 + 8];
  int bx = blockIdx.x * 64, by = blockIdx.y * 64;
  q += (i64)blockIdx.z * n * 128, k += (i64)blockIdx.z * n * 128, out += (i64)blockIdx.z * n * n;
  for (int i = threadIdx.x; i < 1024; i += 256) {
    *(uint4*)&qs[i / 16][(i & 15) * 8] = *(const uint4*)(q + (i64)(by + i / 16) * 128 + (i & 15) * 8);
    *(uint4*)&ks[i / 16][(i & 15) * 8] = *(const uint4*)(k + (i64)(bx + i / 16) * 128 + (i & 15) * 8);
  }
  __syncthreads();
  if (V == 0) {
    int tx = threadIdx.x & 15, ty = threadIdx.x / 16;
    float s[4][4] = {};
    for (int i = 0; i < 128; i += 2) {
      float2 p[4], r[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) p[j] = __bfloat1622float2(*(__nv_bfloat162*)&qs[ty * 4 + j][i]), r[j] = __bfloat1622float2(*(__nv_bfloat162*)&ks[tx + 16 * j][i]);
#pragma unroll
      for (int u = 0; u < 4; ++u)
#pragma unroll
        for (int v = 0; v < 4; ++v) s[u][v] = fmaf(p[u].x, r[v].x, fmaf(p[u].y, r[v].y, s[u][v]));
    }
    for (int u = 0; u < 4; ++u) for (int v = 0; v < 4; ++v) out[(i64)(by + ty * 4 + u) * n + bx + tx + 16 * v] = s[u][v] * scale;
  } else {
    int w = threadIdx.x / 32, row = w / 2 * 16, column = (w & 1) * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2];
    for (auto& f : acc) wmma::fill_fragment(f, 0.0f);
    for (int i = 0; i < 128; i += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> fa;
      wmma::load_matrix_sync(fa, &qs[row][i], 136);
      for (int j = 0; j < 2; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::col_major> fb;
        wmma::load_matrix_sync(fb, &ks[column + 16 * j][i], 136);
        wmma::mma_sync(acc[j], fa, fb, acc[j]);
      }
    }
    for (int j = 0; j < 2; ++j) {
      for (auto& e : acc[j].x) e *= scale;
      wmma::store_matrix_sync(out + (i64)(by + row) * n + bx + column + 16 * j, acc[j], n, wmma::mem_row_major);
    }
  }
}
template <int BM, int BN, int WM, int WN, int STAGES>
__device__ __forceinline__ void tensor_product(const bf16* a, const bf16* b, float* c, int n) {
  // a block makes BM x BN outputs, a warp 16 WM x 16 WN of them, from STAGES tiles of depth 32
  extern __shared__ __align__(128) char raw[];
  const int WARPS = BM * BN / (256 * WM * WN), LA = 32 + 8, LB = BN + 8;
  bf16 *as = (bf16*)raw, *bs = as + STAGES * BM * LA;
  int w = threadIdx.x / 32, row = w / (BN / (16 * WN)) * 16 * WM, column = w % (BN / (16 * WN)) * 16 * WN;
  i64 bx = (i64)blockIdx.x * BN, by = (i64)blockIdx.y * BM;
  auto load = [&](int t) {
    if (t < n / 32) {
      bf16 *to = as + (t % STAGES) * BM * LA, *bt = bs + (t % STAGES) * 32 * LB;
      for (int i = threadIdx.x; i < BM * 4; i += 32 * WARPS) __pipeline_memcpy_async(to + i / 4 * LA + (i & 3) * 8, a + (by + i / 4) * n + t * 32 + (i & 3) * 8, 16);
      for (int i = threadIdx.x; i < BN * 4; i += 32 * WARPS) __pipeline_memcpy_async(bt + i / (BN / 8) * LB + i % (BN / 8) * 8, b + (i64)(t * 32 + i / (BN / 8)) * n + bx + i % (BN / 8) * 8, 16);
    }
    __pipeline_commit();
  };
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[WM][WN];
  for (auto& r : acc) for (auto& f : r) wmma::fill_fragment(f, 0.0f);
  for (int t = 0; t < STAGES - 1; ++t) load(t);
  for (int t = 0; t < n / 32; ++t) {
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    const bf16 *ta = as + (t % STAGES) * BM * LA, *tb = bs + (t % STAGES) * 32 * LB;
#pragma unroll
    for (int k = 0; k < 32; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> fa[WM];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> fb[WN];
#pragma unroll
      for (int i = 0; i < WM; ++i) wmma::load_matrix_sync(fa[i], ta + (row + 16 * i) * LA + k, LA);
#pragma unroll
      for (int j = 0; j < WN; ++j) wmma::load_matrix_sync(fb[j], tb + k * LB + column + 16 * j, LB);
#pragma unroll
      for (int i = 0; i < WM; ++i)
#pragma unroll
        for (int j = 0; j < WN; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < WM; ++i)
    for (int j = 0; j < WN; ++j) wmma::store_matrix_sync(c + (by + row + 16 * i) * n + bx + column + 16 * j, acc[i][j], n, wmma::mem_row_major);
}
template <int V> __global__ void __launch_bounds__(V == 0 ? 512 : 256) small_warp_tiles(const bf16* a, const bf16* b, float* c, int n) {
  if (V == 0) tensor_product<64, 64, 1, 1, 3>(a, b, c, n); else tensor_product<128, 128, 2, 4, 3>(a, b, c, n);
}
template <int V> __global__ void __launch_bounds__(256, 1) unstaged_product(const bf16* a, const bf16* b, float* c, int n) {
  tensor_product<128, 256, 4, 4, V == 0 ? 1 : 4>(a, b, c, n);
}
template <int V> __global__ void __launch_bounds__(512, 1) fir_strips(const float* a, const float* taps, float* out, int strips) {
  // a block per SM filters strips of 8192 samples with 16 taps; one buffer, or three
  extern __shared__ __align__(16) float ring[];
  const int S = V == 0 ? 1 : 3;
  float t16[16];
  for (int k = 0; k < 16; ++k) t16[k] = taps[k];
  i64 base = (i64)blockIdx.x * strips * 3072;
  auto load = [&](int t) {
    if (t < strips) for (int i = threadIdx.x; i < 772; i += 512) __pipeline_memcpy_async((float4*)(ring + (t % S) * 3088) + i, (const float4*)(a + base + (i64)t * 3072) + i, 16);
    __pipeline_commit();
  };
  for (int t = 0; t < S - 1; ++t) load(t);
  for (int t = 0; t < strips; ++t) {
    load(t + S - 1);
    __pipeline_wait_prior(S - 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 3072; i += 512) {
      float s = 0;
#pragma unroll
      for (int k = 0; k < 16; ++k) s = fmaf(ring[(t % S) * 3088 + i + k], t16[k], s);
      out[base + (i64)t * 3072 + i] = s;
    }
    __syncthreads();
  }
}
__global__ void fill_bf16(bf16* a, i64 n, int seed) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = __float2bfloat16((int)(mix((uint32_t)i + seed) & 15) * 0.125f - 0.9375f);
}

void product_cases() {
  static bf16 *p, *q;
  auto halves = [] {
    if (p) return;
    p = device<bf16>(1 << 24), q = device<bf16>(1 << 24);
    fill_bf16<<<2112, 256>>>(p, 1 << 24, 1), fill_bf16<<<2112, 256>>>(q, 1 << 24, 2);
  };
  cases.push_back({"pairwise_distance", "no_tile", "", [] { pairwise_distance<0><<<dim3(256, 256), 256>>>(A, B, C, 4096, 128); }, [] { pairwise_distance<1><<<dim3(64, 64), 256>>>(A, B, C, 4096, 128); }, C, 1 << 24});
  cases.push_back({"conv3x3", "no_tile", "", [] { conv3x3<0><<<dim3(8, 32, 64), 256>>>(A, B, C, 256, 256, 64); }, [] { conv3x3<1><<<dim3(8, 32, 8), 256>>>(A, B, C, 256, 256, 64); }, C, 1 << 22});
  cases.push_back({"attention_scores", "fp32_for_matrix", "", [] { attention_scores<0><<<dim3(32, 32, 8), 256>>>(p, q, C, 2048, 0.088f); }, [] { attention_scores<1><<<dim3(32, 32, 8), 256>>>(p, q, C, 2048, 0.088f); }, C, 1 << 25, false, halves});
  cases.push_back({"small_warp_tiles", "tensor_starved", "shared_instruction_bound", [] { small_warp_tiles<0><<<dim3(64, 64), 512, 3 * (64 * 40 + 32 * 72) * 2>>>(p, q, C, 4096); }, [] { small_warp_tiles<1><<<dim3(32, 32), 256, 3 * (128 * 40 + 32 * 136) * 2>>>(p, q, C, 4096); }, C, 1 << 24, false, [halves] {
    halves();
    dynamic_shared(small_warp_tiles<0>, 100000), dynamic_shared(small_warp_tiles<1>, 100000);
  }});
  cases.push_back({"unstaged_product", "no_overlap", "tensor_starved", [] { unstaged_product<0><<<dim3(16, 32), 256, (128 * 40 + 32 * 264) * 2>>>(p, q, C, 4096); }, [] { unstaged_product<1><<<dim3(16, 32), 256, 4 * (128 * 40 + 32 * 264) * 2>>>(p, q, C, 4096); }, C, 1 << 24, false, [halves] {
    halves();
    dynamic_shared(unstaged_product<0>, 200000), dynamic_shared(unstaged_product<1>, 200000);
  }});
  cases.push_back({"fir_strips", "no_overlap", "", [] { fir_strips<0><<<132, 512, 3 * 3088 * 4>>>(A, B, C, 150); }, [] { fir_strips<1><<<132, 512, 3 * 3088 * 4>>>(A, B, C, 150); }, C, 1 << 25});
}
