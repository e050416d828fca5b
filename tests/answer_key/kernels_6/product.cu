// Products and neighbourhoods: shortest paths, voxels, distances between cities, layers of a network.
#include "set.h"

using namespace nvcuda;

// ---- best_paths: a thread an entry of a min-plus product, from global memory, or tiles of 64 x 64; expected 3 times
constexpr int SIDE = 1024;
__global__ void __launch_bounds__(256) best_paths(const float* a, const float* b, float* c) {
  int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  float best = 1e9f;
#pragma unroll 4
  for (int k = 0; k < SIDE; ++k) best = fminf(best, a[row * SIDE + k] + b[k * SIDE + column]);
  c[row * SIDE + column] = best;
}
__global__ void __launch_bounds__(256) best_paths_by_tiles(const float* a, const float* b, float* c) {
  __shared__ __align__(16) float left[16][68], right[16][64];  // left turned
  int x = threadIdx.x & 15, y = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float best[4][4];
#pragma unroll
  for (int i = 0; i < 16; ++i) best[i / 4][i & 3] = 1e9f;
  for (int k = 0; k < SIDE; k += 16) {
    float4 u = *(const float4*)&a[(row + threadIdx.x / 4) * SIDE + k + (threadIdx.x & 3) * 4], v = *(const float4*)&b[(k + y) * SIDE + column + x * 4];
    __syncthreads();
    int first = (threadIdx.x & 3) * 4, of = threadIdx.x / 4;
    left[first][of] = u.x, left[first + 1][of] = u.y, left[first + 2][of] = u.z, left[first + 3][of] = u.w;
    *(float4*)&right[y][x * 4] = v;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 p = *(const float4*)&left[j][y * 4], q = *(const float4*)&right[j][x * 4];
      float r[4] = {p.x, p.y, p.z, p.w}, s[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) best[i / 4][i & 3] = fminf(best[i / 4][i & 3], r[i / 4] + s[i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&c[(row + y * 4 + i) * SIDE + column + x * 4] = {best[i][0], best[i][1], best[i][2], best[i][3]};
}
// ---- smooth_voxels: 27 loads a voxel, or planes in shared memory and two sums of planes in registers; expected 1.6 times
constexpr int CUBE = 256, EDGE = CUBE + 2;
template <int V> __global__ void __launch_bounds__(256) smooth_voxels(const float* in, float* out) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  if (V == 0) {
    int z = blockIdx.z;
    const float* corner = in + ((i64)z * EDGE + y) * EDGE + x;
    float s = 0;
#pragma unroll
    for (int k = 0; k < 27; ++k) s += corner[(k / 9 * EDGE + k / 3 % 3) * EDGE + k % 3];
    out[((i64)z * CUBE + y) * CUBE + x] = s / 27;
  } else {
    __shared__ float plane[2][10][34];
    int t = threadIdx.y * 32 + threadIdx.x, first = blockIdx.z * 32;
    float before = 0, now = 0;
    for (int z = 0; z < 34; ++z) {
      float (*p)[34] = plane[z & 1];
      const float* from = in + ((i64)(first + z) * EDGE + blockIdx.y * 8) * EDGE + blockIdx.x * 32;
      for (int i = t; i < 340; i += 256) p[i / 34][i % 34] = from[i / 34 * EDGE + i % 34];
      __syncthreads();
      float next = 0;
#pragma unroll
      for (int k = 0; k < 9; ++k) next += p[threadIdx.y + k / 3][threadIdx.x + k % 3];
      if (z >= 2) out[((i64)(first + z - 2) * CUBE + y) * CUBE + x] = (before + now + next) / 27;
      before = now, now = next;
    }
  }
}
// ---- city_blocks: tiles of 16 x 16, so two loads from shared memory for each term, or 4 x 4 entries a thread; expected 2.5 times
constexpr int CITIES = 2048, TRAITS = 256;
__global__ void __launch_bounds__(256) city_blocks(const float* a, const float* b, float* out) {
  __shared__ float own[16][16], other[16][17];
  int x = threadIdx.x & 15, y = threadIdx.x / 16, row = blockIdx.y * 16, column = blockIdx.x * 16;
  float s = 0;
  for (int k = 0; k < TRAITS; k += 16) {
    __syncthreads();
    own[y][x] = a[(row + y) * TRAITS + k + x], other[x][y] = b[(column + y) * TRAITS + k + x];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) s += fabsf(own[y][j] - other[j][x]);
  }
  out[(row + y) * CITIES + column + x] = s;
}
__global__ void __launch_bounds__(256) city_blocks_by_four(const float* a, const float* b, float* out) {
  __shared__ __align__(16) float own[16][68], other[16][68];
  int x = threadIdx.x & 15, y = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float s[4][4] = {};
  for (int k = 0; k < TRAITS; k += 16) {
    int of = threadIdx.x / 4, first = (threadIdx.x & 3) * 4;
    float4 u = *(const float4*)&a[(row + of) * TRAITS + k + first], v = *(const float4*)&b[(column + of) * TRAITS + k + first];
    __syncthreads();
    own[first][of] = u.x, own[first + 1][of] = u.y, own[first + 2][of] = u.z, own[first + 3][of] = u.w;
    other[first][of] = v.x, other[first + 1][of] = v.y, other[first + 2][of] = v.z, other[first + 3][of] = v.w;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 p = *(const float4*)&own[j][y * 4], q = *(const float4*)&other[j][x * 4];
      float r[4] = {p.x, p.y, p.z, p.w}, t[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] += fabsf(r[i / 4] - t[i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + y * 4 + i) * CITIES + column + x * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- dense_layer: halves multiplied by FMA instructions; expected 4 times. dense_layer_bf16: a warp a tile of 16 x 16, whose operands
// come from global memory for each product; expected 3 times. Both fixed forms have tiles of 128 x 128 in shared memory, of eight warps.
constexpr int M = 2048, K = 1024;
__global__ void __launch_bounds__(256) dense_layer(const __half* a, const __half* b, float* c) {
  __shared__ __align__(16) float left[16][68], right[16][64];
  int x = threadIdx.x & 15, y = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float s[4][4] = {};
  for (int k = 0; k < K; k += 16) {
    int of = threadIdx.x / 4, first = (threadIdx.x & 3) * 4;
    const __half2 *u = (const __half2*)&a[(row + of) * K + k + first], *v = (const __half2*)&b[(k + y) * M + column + x * 4];
    float2 u0 = __half22float2(u[0]), u1 = __half22float2(u[1]), v0 = __half22float2(v[0]), v1 = __half22float2(v[1]);
    __syncthreads();
    left[first][of] = u0.x, left[first + 1][of] = u0.y, left[first + 2][of] = u1.x, left[first + 3][of] = u1.y;
    *(float4*)&right[y][x * 4] = {v0.x, v0.y, v1.x, v1.y};
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 p = *(const float4*)&left[j][y * 4], q = *(const float4*)&right[j][x * 4];
      float r[4] = {p.x, p.y, p.z, p.w}, t[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(r[i / 4], t[i & 3], s[i / 4][i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&c[(row + y * 4 + i) * M + column + x * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
template <class R> __global__ void __launch_bounds__(128) layer_by_warps(const R* a, const R* b, float* c) {
  int tile = (int)(T / 32), row = tile / (M / 16) * 16, column = tile % (M / 16) * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> s;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, R, wmma::row_major> p;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, R, wmma::row_major> q;
  wmma::fill_fragment(s, 0.0f);
  for (int k = 0; k < K; k += 16) {
    wmma::load_matrix_sync(p, a + row * K + k, K), wmma::load_matrix_sync(q, b + k * M + column, M);
    wmma::mma_sync(s, p, q, s);
  }
  wmma::store_matrix_sync(c + row * M + column, s, M, wmma::mem_row_major);
}
template <class R> __global__ void __launch_bounds__(256) layer_by_tiles(const R* a, const R* b, float* c) {
  __shared__ __align__(32) R left[2][128][48], right[2][32][144];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = warp / 2 * 32, x = (warp & 1) * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> s[2][4];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, R, wmma::row_major> p[2];
  wmma::fragment<wmma::matrix_b, 16, 16, 16, R, wmma::row_major> q;
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::fill_fragment(s[i / 4][i & 3], 0.0f);
  auto request = [&](int k, int to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = threadIdx.x + h * 256;
      __pipeline_memcpy_async(&left[to][i / 4][(i & 3) * 8], &a[(row + i / 4) * K + k + (i & 3) * 8], 16);
      __pipeline_memcpy_async(&right[to][i / 16][(i & 15) * 8], &b[(k + i / 16) * M + column + (i & 15) * 8], 16);
    }
    __pipeline_commit();
  };
  request(0, 0);
  for (int k = 0; k < K; k += 32) {
    int now = k / 32 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 32 < K) request(k + 32, now ^ 1);
#pragma unroll
    for (int j = 0; j < 32; j += 16) {
      wmma::load_matrix_sync(p[0], &left[now][y][j], 48), wmma::load_matrix_sync(p[1], &left[now][y + 16][j], 48);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wmma::load_matrix_sync(q, &right[now][j][x + i * 16], 144);
        wmma::mma_sync(s[0][i], p[0], q, s[0][i]), wmma::mma_sync(s[1][i], p[1], q, s[1][i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::store_matrix_sync(c + (row + y + i / 4 * 16) * M + column + x + (i & 3) * 16, s[i / 4][i & 3], M, wmma::mem_row_major);
}
template <class R> __global__ void fill_layer(const float* a, R* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = (R)a[i];
}

void product_cases() {
  static __half* halves;
  static __nv_bfloat16* bf16;
  cases.push_back({"best_paths", "no_tile", "", [] { best_paths<<<dim3(32, 128), dim3(32, 8)>>>(A, B, C); }, [] { best_paths_by_tiles<<<dim3(16, 16), 256>>>(A, B, C); }, C, SIDE * SIDE});
  cases.push_back({"smooth_voxels", "no_tile", "", [] { smooth_voxels<0><<<dim3(8, 32, 256), dim3(32, 8)>>>(A, C); }, [] { smooth_voxels<1><<<dim3(8, 32, 8), dim3(32, 8)>>>(A, C); }, C, CUBE * CUBE * CUBE});
  cases.push_back({"city_blocks", "shared_instruction_bound", "", [] { city_blocks<<<dim3(128, 128), 256>>>(A, B, C); }, [] { city_blocks_by_four<<<dim3(32, 32), 256>>>(A, B, C); }, C, CITIES * CITIES});
  cases.push_back({"dense_layer", "fp32_for_matrix", "", [] { dense_layer<<<dim3(32, 32), 256>>>(halves, halves + M * K, C); }, [] { layer_by_tiles<__half><<<dim3(16, 16), 256>>>(halves, halves + M * K, C); }, C, M * M, false, [] {
    halves = device<__half>(2 * M * K);
    fill_layer<<<1056, 256>>>(A, halves, 2 * M * K);
  }});
  cases.push_back({"dense_layer_bf16", "tensor_starved", "no_tile", [] { layer_by_warps<__nv_bfloat16><<<M / 16 * M / 16 / 4, 128>>>(bf16, bf16 + M * K, C); }, [] { layer_by_tiles<__nv_bfloat16><<<dim3(16, 16), 256>>>(bf16, bf16 + M * K, C); }, C, M * M, false, [] {
    bf16 = device<__nv_bfloat16>(2 * M * K);
    fill_layer<<<1056, 256>>>(A, bf16, 2 * M * K);
  }});
}
