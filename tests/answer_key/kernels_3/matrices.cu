// Products and filters in bytes, FP8, halves, floats and doubles; tensor cores; and cuBLAS called in the wrong type.
#include <cuda_fp8.h>

#include "set.h"

#include <dlfcn.h>

using namespace nvcuda;

namespace {

// Bytes times bytes into integers: a (m x k) by rows, b (n x k) by rows. A thread reads its two rows, or a block stages tiles.
template <int FIXED>
__global__ void __launch_bounds__(256) byte_product(const int* a, const int* b, int* c, int n, int words) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  if (!FIXED) {
    const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    int sum = 0;
    for (int k = 0; k < words; ++k) sum = __dp4a(a[i64(row) * words + k], b[i64(column) * words + k], sum);
    c[i64(row) * n + column] = sum;
    return;
  }
  __shared__ int as[16][65], bs[16][65];
  int sum[4][4] = {};
  for (int k0 = 0; k0 < words; k0 += 16) {
    for (int i = threadIdx.x; i < 1024; i += 256) {
      as[i % 16][i / 16] = a[i64(blockIdx.y * 64 + i / 16) * words + k0 + i % 16];
      bs[i % 16][i / 16] = b[i64(blockIdx.x * 64 + i / 16) * words + k0 + i % 16];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k)
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int q = 0; q < 4; ++q) sum[r][q] = __dp4a(as[k][y + 16 * r], bs[k][x + 16 * q], sum[r][q]);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 4; ++r)
#pragma unroll
    for (int q = 0; q < 4; ++q) c[i64(blockIdx.y * 64 + y + 16 * r) * n + blockIdx.x * 64 + x + 16 * q] = sum[r][q];
}

// Doubles times doubles, with operands from global memory for each output, or from tiles of 64 x 16.
template <int FIXED>
__global__ void __launch_bounds__(256) double_product(const double* a, const double* b, double* c, int n) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  if (!FIXED) {
    const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    double sum = 0;
    for (int k = 0; k < n; ++k) sum = fma(a[i64(row) * n + k], b[i64(k) * n + column], sum);
    c[i64(row) * n + column] = sum;
    return;
  }
  __shared__ double as[16][65], bs[16][64];
  double sum[4][4] = {};
  for (int k0 = 0; k0 < n; k0 += 16) {
    for (int i = threadIdx.x; i < 1024; i += 256) {
      as[i % 16][i / 16] = a[i64(blockIdx.y * 64 + i / 16) * n + k0 + i % 16];
      bs[i / 64][i % 64] = b[i64(k0 + i / 64) * n + blockIdx.x * 64 + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k)
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int q = 0; q < 4; ++q) sum[r][q] = fma(as[k][y + 16 * r], bs[k][x + 16 * q], sum[r][q]);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 4; ++r)
#pragma unroll
    for (int q = 0; q < 4; ++q) c[i64(blockIdx.y * 64 + y + 16 * r) * n + blockIdx.x * 64 + x + 16 * q] = sum[r][q];
}

// A layer of 1 x 1 convolutions in halves, 64 x 64 outputs a block from staged tiles: with FP32 units, or with tensor cores.
template <int FIXED>
__global__ void __launch_bounds__(256) pointwise_layer(const __half* a, const __half* b, float* c, int n, int depth) {
  __shared__ __align__(32) __half as[64][40], bs[64][40];  // both by rows of 32 along the depth
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 32;
  float sum[4][4] = {};
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> tile[2];
  for (auto& one : tile) wmma::fill_fragment(one, 0.0f);
  for (int k0 = 0; k0 < depth; k0 += 32) {
    const int r = threadIdx.x / 4, k = threadIdx.x % 4 * 8;
    *(uint4*)&as[r][k] = *(const uint4*)(a + i64(blockIdx.y * 64 + r) * depth + k0 + k);
    *(uint4*)&bs[r][k] = *(const uint4*)(b + i64(blockIdx.x * 64 + r) * depth + k0 + k);
    __syncthreads();
    if (FIXED) {
#pragma unroll
      for (int s = 0; s < 32; s += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
        wmma::load_matrix_sync(fa, &as[row][s], 40);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
          wmma::load_matrix_sync(fb, &bs[column + 16 * j][s], 40);
          wmma::mma_sync(tile[j], fa, fb, tile[j]);
        }
      }
    } else {
#pragma unroll
      for (int s = 0; s < 32; s += 2) {
        float2 p[4], q[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) p[j] = __half22float2(*(__half2*)&as[y + 16 * j][s]), q[j] = __half22float2(*(__half2*)&bs[x + 16 * j][s]);
#pragma unroll
        for (int u = 0; u < 4; ++u)
#pragma unroll
          for (int v = 0; v < 4; ++v) sum[u][v] = fmaf(p[u].x, q[v].x, fmaf(p[u].y, q[v].y, sum[u][v]));
      }
    }
    __syncthreads();
  }
  if (FIXED) for (int j = 0; j < 2; ++j) wmma::store_matrix_sync(c + i64(blockIdx.y * 64 + row) * n + blockIdx.x * 64 + column + 16 * j, tile[j], n, wmma::mem_row_major);
  else for (int u = 0; u < 4; ++u) for (int v = 0; v < 4; ++v) c[i64(blockIdx.y * 64 + y + 16 * u) * n + blockIdx.x * 64 + x + 16 * v] = sum[u][v];
}

// INT8 on tensor cores straight from global memory: a warp makes 16 x 16 outputs, or 64 x 64.
template <int TILES>
__global__ void __launch_bounds__(128) integer_layer(const signed char* a, const signed char* b, int* c, int n, int depth) {
  const int warp = threadIdx.x / 32, row = (blockIdx.y * 2 + warp / 2) * 16 * TILES, column = (blockIdx.x * 2 + warp % 2) * 16 * TILES;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> tile[TILES][TILES];
  for (auto& r : tile) for (auto& one : r) wmma::fill_fragment(one, 0);
  for (int k = 0; k < depth; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa[TILES];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> fb[TILES];
#pragma unroll
    for (int i = 0; i < TILES; ++i) wmma::load_matrix_sync(fa[i], a + i64(row + 16 * i) * depth + k, depth), wmma::load_matrix_sync(fb[i], b + i64(column + 16 * i) * depth + k, depth);
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
      for (int j = 0; j < TILES; ++j) wmma::mma_sync(tile[i][j], fa[i], fb[j], tile[i][j]);
  }
  for (int i = 0; i < TILES; ++i)
    for (int j = 0; j < TILES; ++j) wmma::store_matrix_sync(c + i64(row + 16 * i) * n + column + 16 * j, tile[i][j], n, wmma::mem_row_major);
}

// A vector through a matrix of FP8 weights, a warp a row: one weight a lane and load, or 16.
template <int FIXED>
__global__ void __launch_bounds__(256) fp8_times_vector(const __nv_fp8_e4m3* weight, const float* x, float* y, int rows, int columns) {
  const int row = int(T / 32), lane = threadIdx.x % 32;
  if (row >= rows) return;
  const __nv_fp8_e4m3* own = weight + i64(row) * columns;
  float sum = 0;
  if (FIXED) {
    for (int k = lane * 16; k < columns; k += 512) {
      union { uint4 raw; __nv_fp8_e4m3 w[16]; } u;
      u.raw = *(const uint4*)(own + k);
#pragma unroll
      for (int j = 0; j < 16; j += 4) {
        const float4 v = *(const float4*)(x + k + j);
        sum += float(u.w[j]) * v.x + float(u.w[j + 1]) * v.y + float(u.w[j + 2]) * v.z + float(u.w[j + 3]) * v.w;
      }
    }
  } else {
    for (int k = lane; k < columns; k += 32) sum += float(own[k]) * x[k];
  }
  sum = warp_sum(sum);
  if (lane == 0) y[row] = sum;
}

// Matches a template of 16 x 16 against an image tile; both lie in shared memory. A thread makes one place, or eight in a row.
template <int FIXED>
__global__ void __launch_bounds__(256) match_template(const float* image, const float* pattern, float* out, int width) {
  constexpr int EACH = FIXED ? 8 : 1, W = FIXED ? 256 : 32;  // places of a block: 32 x 8, or 256 x 8
  __shared__ float tile[23][W + 17], own[16][16];
  const i64 x0 = i64(blockIdx.x) * W, y0 = blockIdx.y * 8;
  own[threadIdx.x / 16][threadIdx.x % 16] = pattern[threadIdx.x];
  for (int i = threadIdx.x; i < 23 * (W + 15); i += 256) tile[i / (W + 15)][i % (W + 15)] = image[(y0 + i / (W + 15)) * width + x0 + i % (W + 15)];
  __syncthreads();
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  float sum[EACH] = {};
  for (int v = 0; v < 16; ++v) {
    float p[16];
    if (FIXED)
#pragma unroll
      for (int u = 0; u < 16; ++u) p[u] = own[v][u];
    if (FIXED) {
      float t[EACH + 15];
#pragma unroll
      for (int u = 0; u < EACH + 15; ++u) t[u] = tile[y + v][x * EACH + u];
#pragma unroll
      for (int u = 0; u < 16; ++u)
#pragma unroll
        for (int e = 0; e < EACH; ++e) sum[e] = fmaf(t[u + e], p[u], sum[e]);
    } else {
#pragma unroll
      for (int u = 0; u < 16; ++u) sum[0] = fmaf(tile[y + v][x + u], own[v][u], sum[0]);
    }
  }
#pragma unroll
  for (int e = 0; e < EACH; ++e) out[(y0 + y) * width + x0 + x * EACH + e] = sum[e];
}

typedef struct cublasContext* Handle;
int (*gemm_ex)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
Handle handle;
void open_cublas() {
  if (handle) return;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  auto create = library ? (int (*)(Handle*))dlsym(library, "cublasCreate_v2") : nullptr;
  gemm_ex = library ? (decltype(gemm_ex))dlsym(library, "cublasGemmEx") : nullptr;
  if (!create || !gemm_ex || create(&handle)) { std::fprintf(stderr, "cuBLAS does not start\n"); std::exit(1); }
}
template <class X>
void square(int type, int compute, int n, int k, const void* a, const void* b, void* c) {
  const X one = 1, zero = 0;
  const int status = gemm_ex(handle, 0, 0, n, n, k, &one, a, type, n, b, type, k, &zero, c, type, n, compute, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
constexpr int F32 = 0, F64 = 1, IN_F32 = 68, IN_TF32 = 77, IN_F64 = 70;
double *da, *db, *dc;
__global__ void widen(const float* in, double* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = in[i];
}
void doubles() {
  if (da) return;
  da = device<double>(1 << 22), db = device<double>(1 << 22), dc = device<double>(1 << 22);
  widen<<<1056, 256>>>(A, da, 1 << 22), widen<<<1056, 256>>>(B, db, 1 << 22);
}
__half *ha, *hb;
__global__ void narrow(const float* in, __half* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2half(in[i] - 0.5f);
}

}  // namespace

void product_cases() {
  cases.push_back({"byte_product", "no_tile", "uncoalesced_loads", [] { byte_product<0><<<dim3(128, 128), 256>>>((int*)A, (int*)B, (int*)C, 2048, 128); }, [] { byte_product<1><<<dim3(32, 32), 256>>>((int*)A, (int*)B, (int*)C, 2048, 128); }, C, 1 << 22, true});
  cases.push_back({"double_product", "no_tile", "", [] { double_product<0><<<dim3(64, 64), 256>>>(da, db, dc, 1024); }, [] { double_product<1><<<dim3(16, 16), 256>>>(da, db, dc, 1024); }, nullptr, 0, false, doubles});
  cases.push_back({"pointwise_layer", "fp32_for_matrix", "", [] { pointwise_layer<0><<<dim3(64, 64), 256>>>(ha, hb, C, 4096, 512); }, [] { pointwise_layer<1><<<dim3(64, 64), 256>>>(ha, hb, C, 4096, 512); }, C, 1 << 24, false, [] {
    ha = device<__half>(1 << 21), hb = device<__half>(1 << 21);
    narrow<<<1056, 256>>>(A, ha, 1 << 21), narrow<<<1056, 256>>>(B, hb, 1 << 21);
  }});
  cases.push_back({"integer_layer", "tensor_starved", "no_tile", [] { integer_layer<1><<<dim3(128, 128), 128>>>((signed char*)A, (signed char*)B, (int*)C, 4096, 1024); }, [] { integer_layer<4><<<dim3(32, 32), 128>>>((signed char*)A, (signed char*)B, (int*)C, 4096, 1024); }, C, 1 << 24, true});
  cases.push_back({"fp8_times_vector", "narrow_accesses", "", [] { fp8_times_vector<0><<<4096, 256>>>((__nv_fp8_e4m3*)D, B, C, 1 << 15, 8192); }, [] { fp8_times_vector<1><<<4096, 256>>>((__nv_fp8_e4m3*)D, B, C, 1 << 15, 8192); }, C, 1 << 15, false, [] { CHECK(cudaMemset(D, 0x38, 1 << 28)); }});
  cases.push_back({"match_template", "shared_instruction_bound", "", [] { match_template<0><<<dim3(124, 250), 256>>>(A, B, C, 4096); }, [] { match_template<1><<<dim3(15, 250), 256>>>(A, B, C, 4096); }});
}
void library_cases() {
  cases.push_back({"library_doubles", "precision", "fp64_by_accident", [] { square<double>(F64, IN_F64, 2048, 2048, da, db, dc); }, [] { square<float>(F32, IN_F32, 2048, 2048, A, B, C); }, nullptr, 0, false, [] { open_cublas(), doubles(); }});
  cases.push_back({"library_tf32", "none_at_roof", "", [] { square<float>(F32, IN_TF32, 8192, 8192, A, B, C); }, nullptr, nullptr, 0, false, open_cublas});
}
