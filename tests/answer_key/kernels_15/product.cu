// Products, tiles and pipelines: miniatures, antennas, queries, glyphs, dyes, tea leaves.
#include "frame.h"

// ---- soften_miniatures: each pixel loads the 81 around it from global memory; or tiles of 32 x 64 in shared memory, and eight pixels a thread; expected 3 times
constexpr int PICTURE_X = 4096, PICTURE_Y = 2048, PITCH_X = PICTURE_X + 8;
struct Brush {
  float of[9][9];
};
template <int V> __global__ void __launch_bounds__(256) soften_miniatures(const float* picture, float* out, const Brush brush) {
  int t = threadIdx.x;
  if (V == 0) {
    int x = blockIdx.x * 256 + t, y = blockIdx.y;
    const float* own = picture + y * PITCH_X + x;
    float s = 0;
#pragma unroll
    for (int i = 0; i < 9; ++i)
#pragma unroll
      for (int j = 0; j < 9; ++j) s = fmaf(brush.of[i][j], own[i * PITCH_X + j], s);
    out[y * PICTURE_X + x] = s;
    return;
  }
  __shared__ float tile[V == 0 ? 1 : 72][40];
  int x = blockIdx.x * 32, y = blockIdx.y * 64, lane = t & 31, first = t / 32 * 8;
  for (int i = t; i < 72 * 40; i += 256) tile[i / 40][i % 40] = picture[(y + i / 40) * PITCH_X + x + i % 40];
  __syncthreads();
  float s[8] = {};
#pragma unroll
  for (int r = 0; r < 16; ++r) {
    float v[9];
#pragma unroll
    for (int j = 0; j < 9; ++j) v[j] = tile[first + r][lane + j];
#pragma unroll
    for (int k = 0; k < 8; ++k)
      if (r >= k && r < k + 9)
#pragma unroll
        for (int j = 0; j < 9; ++j) s[k] = fmaf(brush.of[r >= k && r < k + 9 ? r - k : 0][j], v[j], s[k]);
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) out[(y + first + k) * PICTURE_X + x + lane] = s[k];
}
// ---- steer_antennas: complex weights times complex signals, with two loads from global memory for each product; or tiles of 64 x 64; expected 2 times
__device__ inline void add_product(float2& s, float2 p, float2 q) { s = {fmaf(p.x, q.x, fmaf(-p.y, q.y, s.x)), fmaf(p.x, q.y, fmaf(p.y, q.x, s.y))}; }
template <int V> __global__ void __launch_bounds__(256) steer_antennas(const float2* weight, const float2* signal, float2* out, int depth, int columns) {
  __shared__ __align__(16) float2 left[V == 0 ? 1 : 16][66], right[V == 0 ? 1 : 16][64];
  int t = threadIdx.x;
  if (V == 0) {
    int row = blockIdx.y, column = blockIdx.x * 256 + t;
    float2 s = {0, 0};
#pragma unroll 4
    for (int k = 0; k < depth; ++k) add_product(s, weight[row * depth + k], signal[k * columns + column]);
    out[row * columns + column] = s;
    return;
  }
  int row = blockIdx.y * 64, column = blockIdx.x * 64, y = t / 16 * 4, c = t % 16 * 4;
  float2 s[4][4] = {};
#pragma unroll 1
  for (int k = 0; k < depth; k += 16) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      int i = h * 256 + t;
      left[i & 15][i / 16] = weight[(row + i / 16) * depth + k + (i & 15)], right[i / 64][i & 63] = signal[(k + i / 64) * columns + column + (i & 63)];
    }
    __syncthreads();
#pragma unroll 4
    for (int d = 0; d < 16; ++d) {
      float2 p[4], q[4];
#pragma unroll
      for (int n = 0; n < 4; n += 2) *(float4*)&p[n] = *(const float4*)&left[d][y + n], *(float4*)&q[n] = *(const float4*)&right[d][c + n];
#pragma unroll
      for (int n = 0; n < 16; ++n) add_product(s[n / 4][n & 3], p[n / 4], q[n & 3]);
    }
  }
#pragma unroll
  for (int n = 0; n < 16; n += 2) *(float4*)&out[(row + y + n / 4) * columns + column + c + (n & 3)] = {s[n / 4][n & 3].x, s[n / 4][n & 3].y, s[n / 4][(n & 3) + 1].x, s[n / 4][(n & 3) + 1].y};
}
// ---- pair_queries: scores of queries and keys in halves on FP32 units, in tiles of 64 x 64; or on tensor cores by fed_product; expected 5 times
__global__ void __launch_bounds__(256) pair_queries(const half* query, const half* key, float* out, int depth, int rows, int columns) {
  __shared__ __align__(16) float left[16][68], right[16][68];
  int t = threadIdx.x, y = t / 16 * 4, c = t % 16 * 4, row = t / 4, part = (t & 3) * 4;
  const half *p = query + (blockIdx.z * (i64)rows + blockIdx.y * 64 + row) * depth + part, *q = key + (blockIdx.z * (i64)columns + blockIdx.x * 64 + row) * depth + part;
  float s[4][4] = {};
#pragma unroll 1
  for (int k = 0; k < depth; k += 16) {
    uint2 u = *(const uint2*)&p[k], v = *(const uint2*)&q[k];
    float2 a = __half22float2(*(half2*)&u.x), b = __half22float2(*(half2*)&u.y), e = __half22float2(*(half2*)&v.x), f = __half22float2(*(half2*)&v.y);
    __syncthreads();
    left[part][row] = a.x, left[part + 1][row] = a.y, left[part + 2][row] = b.x, left[part + 3][row] = b.y;
    right[part][row] = e.x, right[part + 1][row] = e.y, right[part + 2][row] = f.x, right[part + 3][row] = f.y;
    __syncthreads();
#pragma unroll
    for (int d = 0; d < 16; ++d) {
      float4 m = *(const float4*)&left[d][y], n = *(const float4*)&right[d][c];
      float g[4] = {m.x, m.y, m.z, m.w}, h[4] = {n.x, n.y, n.z, n.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(g[i / 4], h[i & 3], s[i / 4][i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(blockIdx.z * (i64)rows + blockIdx.y * 64 + y + i) * columns + blockIdx.x * 64 + c] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- translate_glyphs: warps of 32 x 32 outputs that read the operands of each step of tensor cores from global memory, word by word; or fed_product; expected 5 times
__global__ void __launch_bounds__(128) translate_glyphs(const half* x, const half* w, float* out, int depth, int columns) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = (lane & 3) * 2;
  i64 row = blockIdx.y * 64 + warp / 2 * 32, column = blockIdx.x * 64 + (warp & 1) * 32;
  const half *p = x + (row + g) * depth + c, *q = w + (column + g) * depth + c;
  float s[2][4][4] = {};
#pragma unroll 1
  for (int k = 0; k < depth; k += 16) {
    unsigned a[2][4], b[4][2];
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i / 4][i & 3] = *(const unsigned*)&p[(i64)(i / 4 * 16 + (i & 1) * 8) * depth + k + (i & 2) * 4];
#pragma unroll
    for (int j = 0; j < 8; ++j) b[j / 2][j & 1] = *(const unsigned*)&q[(i64)(j / 2 * 8) * depth + k + (j & 1) * 8];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) multiply_halves(s[i][j], a[i], b[j][0], b[j][1]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float* to = out + (row + i * 16 + g) * columns + column + j * 8 + c;
      *(float2*)to = {s[i][j][0], s[i][j][1]}, *(float2*)(to + 8 * columns) = {s[i][j][2], s[i][j][3]};
    }
}
// ---- mix_dyes: tiles of 32 x 32 in shared memory, from which a thread reads two words for each product; or tiles of 64 x 64 and 16 products for eight words; expected 2.5 times
template <int V> __global__ void __launch_bounds__(V == 0 ? 1024 : 256) mix_dyes(const float* dye, const float* recipe, float* out, int depth, int columns) {
  constexpr int K = V == 0 ? 32 : 16, SIDE = V == 0 ? 32 : 64;
  __shared__ __align__(16) float left[V == 0 ? 32 : 16][V == 0 ? 32 : 68], right[K][SIDE];
  int t = threadIdx.x, row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
  if (V == 0) {
    int y = t / 32, x = t & 31;
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < depth; k += 32) {
      left[y][x] = dye[(row + y) * depth + k + x], right[y][x] = recipe[(k + y) * columns + column + x];
      __syncthreads();
#pragma unroll
      for (int d = 0; d < 32; ++d) s = fmaf(left[y][d], right[d][x], s);
      __syncthreads();
    }
    out[(row + y) * columns + column + x] = s;
  } else {
    int y = t / 16 * 4, x = t % 16 * 4;
    float s[4][4] = {};
#pragma unroll 1
    for (int k = 0; k < depth; k += 16) {
      float4 u = *(const float4*)&dye[(row + t / 4) * depth + k + (t & 3) * 4], v = *(const float4*)&recipe[(k + t / 16) * columns + column + x];
      __syncthreads();
      left[(t & 3) * 4][t / 4] = u.x, left[(t & 3) * 4 + 1][t / 4] = u.y, left[(t & 3) * 4 + 2][t / 4] = u.z, left[(t & 3) * 4 + 3][t / 4] = u.w;
      *(float4*)&right[t / 16][x] = v;
      __syncthreads();
#pragma unroll
      for (int d = 0; d < 16; ++d) {
        float4 m = *(const float4*)&left[d][y], n = *(const float4*)&right[d][x];
        float p[4] = {m.x, m.y, m.z, m.w}, q[4] = {n.x, n.y, n.z, n.w};
#pragma unroll
        for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(p[i / 4], q[i & 3], s[i / 4][i & 3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) *(float4*)&out[(row + y + i) * columns + column + x] = {s[i][0], s[i][1], s[i][2], s[i][3]};
  }
}
// ---- grade_tea_leaves: one warp orders bulk copies of 32 kB and eight warps grade them, but there is one tray, so each side waits for the other; or four trays; expected 1.9 times
constexpr int TRAY = 2048;  // in vectors of four
template <int TRAYS> __global__ void __launch_bounds__(288) grade_tea_leaves(const float4* leaf, float* out, int loads, int looks) {
  extern __shared__ __align__(128) float4 tray[];
  __shared__ u64 full[TRAYS], empty[TRAYS];
  int t = threadIdx.x;
  const float4* own = leaf + (i64)blockIdx.x * loads * TRAY;
  if (t == 0) {
    for (int k = 0; k < TRAYS; ++k) latch_make(&full[k], 1), latch_make(&empty[k], 8);
    latches_made();
  }
  __syncthreads();
  if (t >= 256) {
    if (t > 256) return;
#pragma unroll 1
    for (int n = 0; n < loads; ++n) {
      int k = n % TRAYS;
      if (n >= TRAYS) latch_await(&empty[k], (n / TRAYS - 1) & 1);
      bulk_fetch(tray + k * TRAY, own + (i64)n * TRAY, TRAY * 16, &full[k]);
    }
    return;
  }
  float grade = 0;
#pragma unroll 1
  for (int n = 0; n < loads; ++n) {
    int k = n % TRAYS;
    latch_await(&full[k], n / TRAYS & 1);
#pragma unroll 2
    for (int i = 0; i < TRAY / 256; ++i) {
      float4 v = tray[k * TRAY + i * 256 + t];
#pragma unroll 4
      for (int r = 0; r < looks; ++r) v = {fmaf(v.x, 0.9f, 0.05f), fmaf(v.y, 0.8f, 0.1f), fmaf(v.z, 0.7f, 0.15f), fmaf(v.w, 0.6f, 0.2f)};
      grade = fmaf(0.9f, grade, (v.x + v.y) + (v.z + v.w));
    }
    __syncwarp();
    if ((t & 31) == 0) latch_arrive(&empty[k]);
  }
  out[blockIdx.x * 256 + t] = grade;
}

void product_cases() {
  static half* halves;
  auto make_halves = [] {
    if (!halves) halves = converted<half>(A, 1 << 24, 0.25f);
  };
  static Brush brush;
  cases.push_back({"soften_miniatures", "no_tile", "", [] { soften_miniatures<0><<<dim3(PICTURE_X / 256, PICTURE_Y), 256>>>(A, C, brush); }, [] { soften_miniatures<1><<<dim3(PICTURE_X / 32, PICTURE_Y / 64), 256>>>(A, C, brush); }, C, PICTURE_X * PICTURE_Y, false, [] {
    for (unsigned k = 0; k < 81; ++k) brush.of[k / 9][k % 9] = 0.005f + 0.01f * unit(k);
  }});
  cases.push_back({"steer_antennas", "no_tile", "", [] { steer_antennas<0><<<dim3(4, 1024), 256>>>((float2*)A, (float2*)B, (float2*)C, 512, 1024); }, [] { steer_antennas<1><<<dim3(16, 16), 256>>>((float2*)A, (float2*)B, (float2*)C, 512, 1024); }, C, 1 << 21});
  cases.push_back({"pair_queries", "fp32_for_matrix", "", [] { pair_queries<<<dim3(16, 16, 16), 256>>>(halves, halves + (1 << 22), C, 128, 1024, 1024); }, [] { launch_fed_product(halves, halves + (1 << 22), C, 1024, 1024, 128, 16); }, C, 1 << 24, false, make_halves});
  cases.push_back({"translate_glyphs", "tensor_starved", "uncoalesced_loads|no_tile", [] { translate_glyphs<<<dim3(32, 32), 128>>>(halves, halves + (1 << 22), C, 1536, 2048); }, [] { launch_fed_product(halves, halves + (1 << 22), C, 2048, 2048, 1536, 1); }, C, 1 << 22, false, make_halves});
  cases.push_back({"mix_dyes", "shared_instruction_bound", "", [] { mix_dyes<0><<<dim3(32, 32), 1024>>>(A, B, C, 1024, 1024); }, [] { mix_dyes<1><<<dim3(16, 16), 256>>>(A, B, C, 1024, 1024); }, C, 1 << 20});
  cases.push_back({"grade_tea_leaves", "no_overlap", "", [] {
    dynamic_shared(grade_tea_leaves<1>, TRAY * 16);
    grade_tea_leaves<1><<<132, 288, TRAY * 16>>>((float4*)A, C, 56, 32);
  }, [] {
    dynamic_shared(grade_tea_leaves<4>, TRAY * 64);
    grade_tea_leaves<4><<<132, 288, TRAY * 64>>>((float4*)A, C, 56, 32);
  }, C, 132 * 256});
}
