// Products and neighbourhoods: channels of a picture, tokens in INT8, orbitals in FP64, disparities of two pictures.
#include "set.h"

using namespace nvcuda;

// ---- mix_channels: bf16 multiplied by FMA instructions, or by tensor cores in tiles of 128 x 128; expected 4 times
constexpr int PIXELS = 4096, INPUTS = 512, OUTPUTS = 2048;
__global__ void __launch_bounds__(256) mix_channels(const __nv_bfloat16* x, const __nv_bfloat16* w, float* out) {
  __shared__ __align__(16) float left[16][68], right[16][64];
  int c = threadIdx.x & 15, r = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float s[4][4] = {};
  for (int k = 0; k < INPUTS; k += 16) {
    int of = threadIdx.x / 4, first = (threadIdx.x & 3) * 4;
    const __nv_bfloat162 *u = (const __nv_bfloat162*)&x[(row + of) * INPUTS + k + first], *v = (const __nv_bfloat162*)&w[(k + r) * OUTPUTS + column + c * 4];
    float2 u0 = __bfloat1622float2(u[0]), u1 = __bfloat1622float2(u[1]), v0 = __bfloat1622float2(v[0]), v1 = __bfloat1622float2(v[1]);
    __syncthreads();
    left[first][of] = u0.x, left[first + 1][of] = u0.y, left[first + 2][of] = u1.x, left[first + 3][of] = u1.y;
    *(float4*)&right[r][c * 4] = {v0.x, v0.y, v1.x, v1.y};
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 p = *(const float4*)&left[j][r * 4], q = *(const float4*)&right[j][c * 4];
      float a[4] = {p.x, p.y, p.z, p.w}, b[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(a[i / 4], b[i & 3], s[i / 4][i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + r * 4 + i) * OUTPUTS + column + c * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
__global__ void __launch_bounds__(256) mix_channels_in_tiles(const __nv_bfloat16* x, const __nv_bfloat16* w, float* out) {
  __shared__ __align__(32) __nv_bfloat16 left[2][128][48], right[2][32][144];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = warp / 2 * 32, c = (warp & 1) * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> s[2][4];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> p[2];
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> q;
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::fill_fragment(s[i / 4][i & 3], 0.0f);
  auto request = [&](int k, int to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = threadIdx.x + h * 256;
      __pipeline_memcpy_async(&left[to][i / 4][(i & 3) * 8], &x[(row + i / 4) * INPUTS + k + (i & 3) * 8], 16);
      __pipeline_memcpy_async(&right[to][i / 16][(i & 15) * 8], &w[(k + i / 16) * OUTPUTS + column + (i & 15) * 8], 16);
    }
    __pipeline_commit();
  };
  request(0, 0);
  for (int k = 0; k < INPUTS; k += 32) {
    int now = k / 32 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 32 < INPUTS) request(k + 32, now ^ 1);
#pragma unroll
    for (int j = 0; j < 32; j += 16) {
      wmma::load_matrix_sync(p[0], &left[now][y][j], 48), wmma::load_matrix_sync(p[1], &left[now][y + 16][j], 48);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wmma::load_matrix_sync(q, &right[now][j][c + i * 16], 144);
        wmma::mma_sync(s[0][i], p[0], q, s[0][i]), wmma::mma_sync(s[1][i], p[1], q, s[1][i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::store_matrix_sync(out + (row + y + i / 4 * 16) * OUTPUTS + column + c + (i & 3) * 16, s[i / 4][i & 3], OUTPUTS, wmma::mem_row_major);
}
__global__ void fill_channels(const float* a, __nv_bfloat16* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = __float2bfloat16(a[i]);
}
// ---- score_tokens: INT8 tensor cores that take operands of 4 bytes from global memory for each product, or from tiles in shared memory; expected 3 times
constexpr int QUERIES = 2048, KEYS = 4096, DEPTH = 1024, ROW = 80;
__device__ inline void multiply(int (&s)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void put(int* out, int row, int column, const int (&s)[4]) {
  *(int2*)&out[(i64)row * KEYS + column] = {s[0], s[1]}, *(int2*)&out[(i64)(row + 8) * KEYS + column] = {s[2], s[3]};
}
__global__ void __launch_bounds__(256) score_tokens(const unsigned char* query, const unsigned char* key, int* out) {  // a warp 16 x 32
  int tile = (int)(T / 32), row = tile / (KEYS / 32) * 16, column = tile % (KEYS / 32) * 32, g = threadIdx.x >> 2 & 7, t = (threadIdx.x & 3) * 4;
  int s[4][4] = {};
  const unsigned char *own = query + (row + g) * DEPTH + t, *other = key + (column + g) * DEPTH + t;
  for (int k = 0; k < DEPTH; k += 32) {
    unsigned a[4] = {*(const unsigned*)(own + k), *(const unsigned*)(own + 8 * DEPTH + k), *(const unsigned*)(own + k + 16), *(const unsigned*)(own + 8 * DEPTH + k + 16)};
#pragma unroll
    for (int j = 0; j < 4; ++j) multiply(s[j], a, *(const unsigned*)(other + j * 8 * DEPTH + k), *(const unsigned*)(other + j * 8 * DEPTH + k + 16));
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) put(out, row + g, column + j * 8 + t / 2, s[j]);
}
__global__ void __launch_bounds__(256, 2) score_tokens_in_tiles(const unsigned char* query, const unsigned char* key, int* out) {  // a block 128 x 128
  __shared__ __align__(16) unsigned char left[2][128 * ROW], right[2][128 * ROW];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = (warp >> 1) * 32, x = (warp & 1) * 64, g = threadIdx.x >> 2 & 7, t = (threadIdx.x & 3) * 4;
  int s[2][8][4] = {};
  auto request = [&](int k, int to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = threadIdx.x + h * 256, r = i / 4, c = (i & 3) * 16;
      __pipeline_memcpy_async(&left[to][r * ROW + c], &query[(row + r) * DEPTH + k + c], 16);
      __pipeline_memcpy_async(&right[to][r * ROW + c], &key[(column + r) * DEPTH + k + c], 16);
    }
    __pipeline_commit();
  };
  request(0, 0);
  for (int k = 0; k < DEPTH; k += 64) {
    int now = k / 64 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 64 < DEPTH) request(k + 64, now ^ 1);
#pragma unroll
    for (int j = 0; j < 64; j += 32) {
      unsigned a[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i / 4][i & 3] = *(const unsigned*)&left[now][(y + i / 4 * 16 + (i & 1) * 8 + g) * ROW + j + (i & 2) * 8 + t];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const unsigned char* from = &right[now][(x + i * 8 + g) * ROW + j + t];
        unsigned b0 = *(const unsigned*)from, b1 = *(const unsigned*)(from + 16);
        multiply(s[0][i], a[0], b0, b1), multiply(s[1][i], a[1], b0, b1);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) put(out, row + y + i / 8 * 16 + g, column + x + (i & 7) * 8 + t / 2, s[i / 8][i & 7]);
}
__global__ void fill_tokens(const float* a, unsigned char* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = (unsigned char)(a[i] * 255);
}
// ---- overlap_integrals: tiles of 16 x 16 of doubles, so two loads from shared memory for each FMA, or 4 x 4 entries a thread; expected 3 times
constexpr int ORBITALS = 1024;
template <int EACH> __global__ void __launch_bounds__(256) overlap_integrals(const double* a, const double* b, float* out) {
  constexpr int EDGE = 16 * EACH;
  __shared__ double left[16][EDGE + 1], right[16][EDGE];
  int x = threadIdx.x & 15, y = threadIdx.x / 16, row = blockIdx.y * EDGE, column = blockIdx.x * EDGE;
  double s[EACH][EACH] = {};
  for (int k = 0; k < ORBITALS; k += 16) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; ++i) left[x][y + i * 16] = a[(row + y + i * 16) * ORBITALS + k + x], right[y][x + i * 16] = b[(k + y) * ORBITALS + column + x + i * 16];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      double p[EACH], q[EACH];
#pragma unroll
      for (int i = 0; i < EACH; ++i) p[i] = left[j][y + i * 16], q[i] = right[j][x + i * 16];
#pragma unroll
      for (int i = 0; i < EACH * EACH; ++i) s[i / EACH][i % EACH] = fma(p[i / EACH], q[i % EACH], s[i / EACH][i % EACH]);
    }
  }
#pragma unroll
  for (int i = 0; i < EACH * EACH; ++i) out[(row + y + i / EACH * 16) * ORBITALS + column + x + i % EACH * 16] = (float)s[i / EACH][i % EACH];
}
__global__ void fill_orbitals(const float* a, double* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = a[i];
}
// ---- disparities: 98 loads from global memory a cost of a window of 7 x 7, or eight costs a thread from a tile in shared memory; expected 3 times
constexpr int WIDTH = 1024, HEIGHT = 512, LAGS = 32, LINE = WIDTH + 40;
__global__ void __launch_bounds__(256) disparities(const float* left, const float* right, float* out) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, lag = blockIdx.z;
  const float *l = left + y * LINE + x, *r = right + y * LINE + x + lag;
  float s = 0;
#pragma unroll
  for (int k = 0; k < 49; ++k) s += fabsf(l[k / 7 * LINE + k % 7] - r[k / 7 * LINE + k % 7]);
  out[(lag * HEIGHT + y) * WIDTH + x] = s;
}
__global__ void __launch_bounds__(256) disparities_in_tiles(const float* left, const float* right, float* out) {
  __shared__ float l[14][40], r[14][48];
  int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 32, row = blockIdx.y * 8, lag = blockIdx.z * 8;
  for (int i = y; i < 14; i += 8) {
    for (int j = x; j < 38; j += 32) l[i][j] = left[(row + i) * LINE + column + j];
    for (int j = x; j < 45; j += 32) r[i][j] = right[(row + i) * LINE + column + lag + j];
  }
  __syncthreads();
  float s[8] = {};
#pragma unroll
  for (int i = 0; i < 7; ++i) {
    float p[7], q[14];
#pragma unroll
    for (int j = 0; j < 7; ++j) p[j] = l[y + i][x + j];
#pragma unroll
    for (int j = 0; j < 14; ++j) q[j] = r[y + i][x + j];
#pragma unroll
    for (int j = 0; j < 7; ++j)
#pragma unroll
      for (int d = 0; d < 8; ++d) s[d] += fabsf(p[j] - q[j + d]);
  }
#pragma unroll
  for (int d = 0; d < 8; ++d) out[((lag + d) * HEIGHT + row + y) * WIDTH + column + x] = s[d];
}

void product_cases() {
  static __nv_bfloat16* channels;
  static unsigned char* tokens;
  static double* orbitals;
  cases.push_back({"mix_channels", "fp32_for_matrix", "", [] { mix_channels<<<dim3(OUTPUTS / 64, PIXELS / 64), 256>>>(channels, channels + PIXELS * INPUTS, C); }, [] { mix_channels_in_tiles<<<dim3(OUTPUTS / 128, PIXELS / 128), 256>>>(channels, channels + PIXELS * INPUTS, C); }, C, PIXELS * OUTPUTS, false, [] {
    channels = device<__nv_bfloat16>((PIXELS + OUTPUTS) * INPUTS);
    fill_channels<<<1056, 256>>>(A, channels, (PIXELS + OUTPUTS) * INPUTS);
  }});
  cases.push_back({"score_tokens", "tensor_starved", "no_tile", [] { score_tokens<<<QUERIES / 16 * KEYS / 32 / 8, 256>>>(tokens, tokens + QUERIES * DEPTH, (int*)C); }, [] { score_tokens_in_tiles<<<dim3(KEYS / 128, QUERIES / 128), 256>>>(tokens, tokens + QUERIES * DEPTH, (int*)C); }, C, QUERIES * KEYS, true, [] {
    tokens = device<unsigned char>((QUERIES + KEYS) * DEPTH);
    fill_tokens<<<1056, 256>>>(A, tokens, (QUERIES + KEYS) * DEPTH);
  }});
  cases.push_back({"overlap_integrals", "shared_instruction_bound", "", [] { overlap_integrals<1><<<dim3(64, 64), 256>>>(orbitals, orbitals + ORBITALS * ORBITALS, C); }, [] { overlap_integrals<4><<<dim3(16, 16), 256>>>(orbitals, orbitals + ORBITALS * ORBITALS, C); }, C, ORBITALS * ORBITALS, false, [] {
    orbitals = device<double>(2 * ORBITALS * ORBITALS);
    fill_orbitals<<<1056, 256>>>(A, orbitals, 2 * ORBITALS * ORBITALS);
  }});
  cases.push_back({"disparities", "no_tile", "", [] { disparities<<<dim3(WIDTH / 32, HEIGHT / 8, LAGS), dim3(32, 8)>>>(A, B, C); }, [] { disparities_in_tiles<<<dim3(WIDTH / 32, HEIGHT / 8, LAGS / 8), dim3(32, 8)>>>(A, B, C); }, C, LAGS * WIDTH * HEIGHT});
}
