// Products, filters and pipelines: templates, INT8 features, passages and experts, routes, echoes, residuals.
#include "set.h"

using namespace nvcuda;
using s8 = signed char;

// ---- correlate_templates: 121 loads from global memory for each pixel; or a tile in shared memory and eight pixels a thread; expected 3 times
constexpr int WIDE = 2048, HIGH = 2048, PITCH = 2064;
__constant__ float TEMPLATE[121];
template <int V> __global__ void __launch_bounds__(256) correlate_templates(const float* image, float* out) {
  if constexpr (V == 0) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    const float* own = image + y * PITCH + x;
    float s = 0;
#pragma unroll
    for (int i = 0; i < 11; ++i)
#pragma unroll
      for (int j = 0; j < 11; ++j) s = fmaf(TEMPLATE[i * 11 + j], own[i * PITCH + j], s);
    out[y * WIDE + x] = s;
  } else {
    __shared__ float tile[74][42];
    int x = threadIdx.x, y = threadIdx.y * 8, left = blockIdx.x * 32, top = blockIdx.y * 64;
    for (int i = threadIdx.y * 32 + threadIdx.x; i < 74 * 42; i += 256) tile[i / 42][i % 42] = image[(top + i / 42) * PITCH + left + i % 42];
    __syncthreads();
    float s[8] = {};
#pragma unroll
    for (int i = 0; i < 18; ++i)
#pragma unroll
      for (int j = 0; j < 11; ++j) {
        float v = tile[y + i][x + j];
#pragma unroll
        for (int r = 0; r < 8; ++r)
          if (i >= r && i - r < 11) s[r] = fmaf(TEMPLATE[(i - r) * 11 + j], v, s[r]);
      }
#pragma unroll
    for (int r = 0; r < 8; ++r) out[(top + y + r) * WIDE + left + x] = s[r];
  }
}
// ---- match_int8_features: two loads from global memory for each product of four bytes; or tiles in shared memory and 16 sums a thread; expected 3 times
template <int V> __global__ void __launch_bounds__(256) match_int8_features(const int* x, const int* w, int* out, int depth, int columns) {  // depth in fours; w has fours side by side
  if constexpr (V == 0) {
    int column = blockIdx.x * 32 + (threadIdx.x & 31), row = blockIdx.y * 8 + threadIdx.x / 32, s = 0;
#pragma unroll 8
    for (int k = 0; k < depth; ++k) s = __dp4a(x[row * depth + k], w[k * columns + column], s);
    out[row * columns + column] = s;
  } else {
    __shared__ __align__(16) int left[16][68], right[16][68];
    int row = blockIdx.y * 64, column = blockIdx.x * 64, r = threadIdx.x / 16, c = threadIdx.x & 15, s[4][4] = {};
    for (int k = 0; k < depth; k += 16) {
      int4 p = *(const int4*)&x[(row + threadIdx.x / 4) * depth + k + (threadIdx.x & 3) * 4], q = *(const int4*)&w[(k + r) * columns + column + c * 4];
      __syncthreads();
      int to = (threadIdx.x & 3) * 4, at = threadIdx.x / 4;
      left[to][at] = p.x, left[to + 1][at] = p.y, left[to + 2][at] = p.z, left[to + 3][at] = p.w;
      *(int4*)&right[r][c * 4] = q;
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        int4 u = *(const int4*)&left[j][r * 4], v = *(const int4*)&right[j][c * 4];
        int a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = __dp4a(a[i / 4], b[i & 3], s[i / 4][i & 3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) *(int4*)&out[(row + r * 4 + i) * columns + column + c * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
  }
}
// ---- shortest_routes: two loads from shared memory for each sum and minimum; or 16 outputs a thread; expected 2 times
template <int V> __global__ void __launch_bounds__(256) shortest_routes(const float* x, const float* w, float* out, int depth, int columns) {
  if constexpr (V == 0) {
    __shared__ float left[16][17], right[16][17];
    int r = threadIdx.x / 16, c = threadIdx.x & 15, row = blockIdx.y * 16 + r, column = blockIdx.x * 16 + c;
    float s = 1e30f;
    for (int k = 0; k < depth; k += 16) {
      left[r][c] = x[row * depth + k + c], right[r][c] = w[(k + r) * columns + column];
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 16; ++j) s = fminf(s, left[r][j] + right[j][c]);
      __syncthreads();
    }
    out[row * columns + column] = s;
  } else {
    __shared__ __align__(16) float left[16][68], right[16][68];
    int row = blockIdx.y * 64, column = blockIdx.x * 64, r = threadIdx.x / 16, c = threadIdx.x & 15;
    float s[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = 1e30f;
    for (int k = 0; k < depth; k += 16) {
      float4 p = *(const float4*)&x[(row + threadIdx.x / 4) * depth + k + (threadIdx.x & 3) * 4], q = *(const float4*)&w[(k + r) * columns + column + c * 4];
      __syncthreads();
      int to = (threadIdx.x & 3) * 4, at = threadIdx.x / 4;
      left[to][at] = p.x, left[to + 1][at] = p.y, left[to + 2][at] = p.z, left[to + 3][at] = p.w;
      *(float4*)&right[r][c * 4] = q;
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        float4 u = *(const float4*)&left[j][r * 4], v = *(const float4*)&right[j][c * 4];
        float a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fminf(s[i / 4][i & 3], a[i / 4] + b[i & 3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) *(float4*)&out[(row + r * 4 + i) * columns + column + c * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
  }
}
// Tiles of 128 x 128 by eight warps on INT8 tensor cores, copied ahead, 16 bytes at a time: x row by row, w column by column
__global__ void __launch_bounds__(256) int8_in_tiles(const s8* x, const s8* w, int* out, int depth, int columns) {
  __shared__ __align__(128) s8 left[2][128][80], right[2][128][80];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = warp / 2 * 32, c = (warp & 1) * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> s[2][4];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, s8, wmma::row_major> p[2];
  wmma::fragment<wmma::matrix_b, 16, 16, 16, s8, wmma::col_major> q;
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::fill_fragment(s[i / 4][i & 3], 0);
  auto request = [&](int k, int to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = threadIdx.x + h * 256;
      __pipeline_memcpy_async(&left[to][i / 4][(i & 3) * 16], &x[(i64)(row + i / 4) * depth + k + (i & 3) * 16], 16);
      __pipeline_memcpy_async(&right[to][i / 4][(i & 3) * 16], &w[(i64)(column + i / 4) * depth + k + (i & 3) * 16], 16);
    }
    __pipeline_commit();
  };
  request(0, 0);
  for (int k = 0; k < depth; k += 64) {
    int now = k / 64 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 64 < depth) request(k + 64, now ^ 1);
#pragma unroll
    for (int j = 0; j < 64; j += 16) {
      wmma::load_matrix_sync(p[0], &left[now][y][j], 80), wmma::load_matrix_sync(p[1], &left[now][y + 16][j], 80);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wmma::load_matrix_sync(q, &right[now][c + i * 16][j], 80);
        wmma::mma_sync(s[0][i], p[0], q, s[0][i]), wmma::mma_sync(s[1][i], p[1], q, s[1][i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::store_matrix_sync(out + (i64)(row + y + i / 4 * 16) * columns + column + c + (i & 3) * 16, s[i / 4][i & 3], columns, wmma::mem_row_major);
}
// ---- rank_passages: INT8 operands as floats on FP32 units; or on tensor cores; expected 8 times
__global__ void __launch_bounds__(256) rank_passages(const s8* x, const s8* w, int* out, int depth, int columns) {
  __shared__ __align__(16) float left[16][68], right[16][68];
  int row = blockIdx.y * 64, column = blockIdx.x * 64, r = threadIdx.x / 16, c = threadIdx.x & 15, at = threadIdx.x / 4, to = (threadIdx.x & 3) * 4;
  float s[4][4] = {};
  for (int k = 0; k < depth; k += 16) {
    char4 p = *(const char4*)&x[(i64)(row + at) * depth + k + to], q = *(const char4*)&w[(i64)(column + at) * depth + k + to];
    __syncthreads();
    left[to][at] = p.x, left[to + 1][at] = p.y, left[to + 2][at] = p.z, left[to + 3][at] = p.w;
    right[to][at] = q.x, right[to + 1][at] = q.y, right[to + 2][at] = q.z, right[to + 3][at] = q.w;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 u = *(const float4*)&left[j][r * 4], v = *(const float4*)&right[j][c * 4];
      float a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(a[i / 4], b[i & 3], s[i / 4][i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(int4*)&out[(row + r * 4 + i) * columns + column + c * 4] = {(int)s[i][0], (int)s[i][1], (int)s[i][2], (int)s[i][3]};
}
// ---- route_experts: INT8 tensor cores fed from global memory, one tile of 16 x 16 a warp; or tiles of 128 x 128 in shared memory; expected 4 times
__global__ void __launch_bounds__(256) route_experts(const s8* x, const s8* w, int* out, int depth, int columns) {
  int warp = (int)(T / 32), row = warp / (columns / 16) * 16, column = warp % (columns / 16) * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> s;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, s8, wmma::row_major> p;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, s8, wmma::col_major> q;
  wmma::fill_fragment(s, 0);
#pragma unroll 4
  for (int k = 0; k < depth; k += 16) {
    wmma::load_matrix_sync(p, x + (i64)row * depth + k, depth), wmma::load_matrix_sync(q, w + (i64)column * depth + k, depth);
    wmma::mma_sync(s, p, q, s);
  }
  wmma::store_matrix_sync(out + (i64)row * columns + column, s, columns, wmma::mem_row_major);
}
// ---- render_echoes: an asynchronous copy of 64 kB, a wait, then work on it; or the copy of the next one during the work; expected 1.5 times
constexpr int BLOCK = 16384;  // samples
template <int STAGES> __global__ void __launch_bounds__(512) render_echoes(const float* a, float* out, int blocks) {
  extern __shared__ __align__(16) float room[];
  int t = threadIdx.x;
  float s = 0;
  auto request = [&](int n) {
    if (n < blocks)
#pragma unroll
      for (int k = 0; k < BLOCK / 4; k += 512) __pipeline_memcpy_async((float4*)(room + n % STAGES * BLOCK) + k + t, (const float4*)(a + ((i64)n * gridDim.x + blockIdx.x) * BLOCK) + k + t, 16);
    __pipeline_commit();
  };
  request(0);
  for (int n = 0; n < blocks; ++n) {
    if (STAGES == 2) {
      request(n + 1);
      __pipeline_wait_prior(1);
    } else {
      __pipeline_wait_prior(0);
    }
    __syncthreads();
    const float* own = room + n % STAGES * BLOCK;
#pragma unroll 4
    for (int i = t; i < BLOCK; i += 512) {
      float v = own[i], w = own[i ^ 1024], p = v;
#pragma unroll
      for (int k = 0; k < 10; ++k) p = fmaf(p, w, v), w = fmaf(w, 0.7f, 0.1f);
      s = fmaf(p, 0.01f, s);
    }
    __syncthreads();
    if (STAGES == 1) request(n + 1);
  }
  out[T] = s;
}
// ---- decode_residuals: four warps load for twelve that compute, and both share one buffer; or two buffers; expected 1.5 times
template <int STAGES> __global__ void __launch_bounds__(512) decode_residuals(const float4* a, float* out, int pieces) {
  extern __shared__ __align__(16) float4 buffer[];  // a piece is 3072 x 16 bytes
  int t = threadIdx.x;
  auto arrive = [](int which) { asm volatile("bar.arrive %0, 512;" ::"r"(which) : "memory"); };
  auto wait = [](int which) { asm volatile("bar.sync %0, 512;" ::"r"(which) : "memory"); };
  // barriers 1 and 2: a buffer is full; 3 and 4: it is free
  if (t < 128) {
    for (int n = 0; n < pieces; ++n) {
      int d = n % STAGES;
      if (n >= STAGES) wait(3 + d);
      const float4* from = a + ((i64)n * gridDim.x + blockIdx.x) * 3072;
#pragma unroll 8
      for (int i = t; i < 3072; i += 128) buffer[d * 3072 + i] = from[i];
      __threadfence_block();
      arrive(1 + d);
    }
  } else {
    float s = 0;
    for (int n = 0; n < pieces; ++n) {
      int d = n % STAGES;
      wait(1 + d);
#pragma unroll 4
      for (int i = t - 128; i < 3072; i += 384) {
        float4 v = buffer[d * 3072 + i];
        float p[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 16; ++k)
#pragma unroll
          for (int j = 0; j < 4; ++j) p[j] = fmaf(p[j], v.x, 0.05f * k);
        s += (p[0] + p[1]) + (p[2] + p[3]);
      }
      if (n + STAGES < pieces) arrive(3 + d);
    }
    out[blockIdx.x * 384 + t - 128] = s;
  }
}

void product_cases() {
  cases.push_back({"correlate_templates", "no_tile", "", [] { correlate_templates<0><<<dim3(WIDE / 32, HIGH / 8), dim3(32, 8)>>>(A, C); }, [] { correlate_templates<1><<<dim3(WIDE / 32, HIGH / 64), dim3(32, 8)>>>(A, C); }, C, WIDE * HIGH, false, [] {
    std::vector<float> v(121);
    for (int k = 0; k < 121; ++k) v[k] = (float)(mix(k) >> 8) * 0x1p-24f;
    CHECK(cudaMemcpyToSymbol(TEMPLATE, v.data(), 121 * 4));
  }});
  cases.push_back({"match_int8_features", "no_tile", "fp32_for_matrix", [] { match_int8_features<0><<<dim3(32, 128), 256>>>((int*)A, (int*)B, (int*)C, 512, 1024); }, [] { match_int8_features<1><<<dim3(16, 16), 256>>>((int*)A, (int*)B, (int*)C, 512, 1024); }, C, 1 << 20, true});
  cases.push_back({"shortest_routes", "shared_instruction_bound", "", [] { shortest_routes<0><<<dim3(64, 64), 256>>>(A, B, C, 1024, 1024); }, [] { shortest_routes<1><<<dim3(16, 16), 256>>>(A, B, C, 1024, 1024); }, C, 1 << 20});
  cases.push_back({"rank_passages", "fp32_for_matrix", "", [] { rank_passages<<<dim3(32, 32), 256>>>((s8*)A, (s8*)B, (int*)C, 1024, 2048); }, [] { int8_in_tiles<<<dim3(16, 16), 256>>>((s8*)A, (s8*)B, (int*)C, 1024, 2048); }, C, 1 << 22, true});
  cases.push_back({"route_experts", "tensor_starved", "no_tile", [] { route_experts<<<4096, 256>>>((s8*)A, (s8*)B, (int*)C, 1024, 4096); }, [] { int8_in_tiles<<<dim3(32, 16), 256>>>((s8*)A, (s8*)B, (int*)C, 1024, 4096); }, C, 1 << 23, true});
  cases.push_back({"render_echoes", "no_overlap", "", [] {
    dynamic_shared(render_echoes<1>, BLOCK * 4);
    render_echoes<1><<<132, 512, BLOCK * 4>>>(A, C, 31);
  }, [] {
    dynamic_shared(render_echoes<2>, BLOCK * 8);
    render_echoes<2><<<132, 512, BLOCK * 8>>>(A, C, 31);
  }, C, 132 * 512});
  cases.push_back({"decode_residuals", "no_overlap", "", [] {
    dynamic_shared(decode_residuals<1>, 3072 * 16);
    decode_residuals<1><<<132, 512, 3072 * 16>>>((float4*)A, C, 40);
  }, [] {
    dynamic_shared(decode_residuals<2>, 3072 * 32);
    decode_residuals<2><<<132, 512, 3072 * 32>>>((float4*)A, C, 40);
  }, C, 132 * 384});
}
