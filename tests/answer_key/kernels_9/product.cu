// Products, filters and pipelines: waves, queries, modes, features, spectra, hidden states, scans.
#include "set.h"

using namespace nvcuda;
using bf16 = __nv_bfloat16;
__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- propagate_waves: a stencil of 25 points, all loaded from global memory by each thread; or planes in shared memory and a queue of registers; expected 1.5 times
constexpr int NX = 512, NY = 512, NZ = 256, PLANE = NX * NY;
__device__ inline bool inside(int x, int y, int z) { return x >= 4 && x < NX - 4 && y >= 4 && y < NY - 4 && z >= 4 && z < NZ - 4; }
__global__ void __launch_bounds__(512) propagate_waves(const float* a, float* out) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, z = blockIdx.z;
  const float* p = a + z * PLANE + y * NX + x;
  float s = 0;
  if (inside(x, y, z)) {
    const float by[5] = {-8.54f, 1.6f, -0.2f, 0.0254f, -0.0018f};
    s = by[0] * p[0];
#pragma unroll
    for (int k = 1; k <= 4; ++k) s = fmaf(by[k], ((p[k] + p[-k]) + (p[k * NX] + p[-k * NX])) + (p[k * PLANE] + p[-k * PLANE]), s);
  }
  out[z * PLANE + y * NX + x] = s;
}
__global__ void __launch_bounds__(512) propagate_waves_in_planes(const float* a, float* out, int each) {
  __shared__ float tile[24][40];
  int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 32 + tx, y = blockIdx.y * 16 + ty, begin = blockIdx.z * each;
  const float by[5] = {-8.54f, 1.6f, -0.2f, 0.0254f, -0.0018f}, *own = a + y * NX + x;
  float q[9];
#pragma unroll
  for (int k = 0; k < 8; ++k) q[k + 1] = begin - 4 + k >= 0 ? own[(begin - 4 + k) * PLANE] : 0;
#pragma unroll 8
  for (int z = begin; z < begin + each; ++z) {
#pragma unroll
    for (int k = 0; k < 8; ++k) q[k] = q[k + 1];
    q[8] = z + 4 < NZ ? own[(z + 4) * PLANE] : 0;
    __syncthreads();
    tile[ty + 4][tx + 4] = q[4];
    if (ty < 4) tile[ty][tx + 4] = y >= 4 ? own[z * PLANE - 4 * NX] : 0, tile[ty + 20][tx + 4] = y + 16 < NY ? own[z * PLANE + 16 * NX] : 0;
    if (tx < 4) tile[ty + 4][tx] = x >= 4 ? own[z * PLANE - 4] : 0, tile[ty + 4][tx + 36] = x + 32 < NX ? own[z * PLANE + 32] : 0;
    __syncthreads();
    float s = 0;
    if (inside(x, y, z)) {
      s = by[0] * q[4];
#pragma unroll
      for (int k = 1; k <= 4; ++k) s = fmaf(by[k], ((tile[ty + 4][tx + 4 + k] + tile[ty + 4][tx + 4 - k]) + (tile[ty + 4 + k][tx + 4] + tile[ty + 4 - k][tx + 4])) + (q[4 + k] + q[4 - k]), s);
    }
    out[z * PLANE + y * NX + x] = s;
  }
}
// ---- combine_modes: the tile of 32 x 32 of the textbook, with two loads from shared memory for each multiply-add; or 16 sums a thread; expected 2.5 times
__global__ void __launch_bounds__(1024) combine_modes(const float* x, const float* w, float* out, int depth, int columns) {
  __shared__ float left[32][32], right[32][32];
  int c = threadIdx.x, r = threadIdx.y, row = blockIdx.y * 32 + r, column = blockIdx.x * 32 + c;
  float s = 0;
  for (int k = 0; k < depth; k += 32) {
    left[r][c] = x[row * depth + k + c], right[r][c] = w[(k + r) * columns + column];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 32; ++j) s = fmaf(left[r][j], right[j][c], s);
    __syncthreads();
  }
  out[row * columns + column] = s;
}
// Tiles of 64 x 64 by 256 threads of 4 x 4 sums, on FP32 units
__global__ void __launch_bounds__(256) combine_features(const float* x, const float* w, float* out, int depth, int columns) {
  __shared__ __align__(16) float left[16][68], right[16][68];
  int row = blockIdx.y * 64, column = blockIdx.x * 64, r = threadIdx.x / 16, c = threadIdx.x & 15;
  float s[4][4] = {};
  for (int k = 0; k < depth; k += 16) {
    float4 p = *(const float4*)&x[(row + threadIdx.x / 4) * depth + k + (threadIdx.x & 3) * 4], q = *(const float4*)&w[(k + r) * columns + column + c * 4];
    __syncthreads();
    left[(threadIdx.x & 3) * 4][threadIdx.x / 4] = p.x, left[(threadIdx.x & 3) * 4 + 1][threadIdx.x / 4] = p.y;
    left[(threadIdx.x & 3) * 4 + 2][threadIdx.x / 4] = p.z, left[(threadIdx.x & 3) * 4 + 3][threadIdx.x / 4] = p.w;
    *(float4*)&right[r][c * 4] = q;
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
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + r * 4 + i) * columns + column + c * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- combine_features: the same on FP32 units for operands that TF32 would serve; or TF32 tensor cores; expected 2.5 times
__global__ void __launch_bounds__(256) combine_features_in_tf32(const float* x, const float* w, float* out, int depth, int columns) {
  __shared__ __align__(32) float left[2][128][20], right[2][16][136];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = warp / 2 * 32, c = (warp & 1) * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> s[2][4];
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> p[2];
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> q;
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::fill_fragment(s[i / 4][i & 3], 0.0f);
  auto request = [&](int k, int to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = threadIdx.x + h * 256;
      __pipeline_memcpy_async(&left[to][i / 4][(i & 3) * 4], &x[(row + i / 4) * depth + k + (i & 3) * 4], 16);
      __pipeline_memcpy_async(&right[to][i / 32][(i & 31) * 4], &w[(k + i / 32) * columns + column + (i & 31) * 4], 16);
    }
    __pipeline_commit();
  };
  request(0, 0);
  for (int k = 0; k < depth; k += 16) {
    int now = k / 16 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 16 < depth) request(k + 16, now ^ 1);
#pragma unroll
    for (int j = 0; j < 16; j += 8) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        wmma::load_matrix_sync(p[h], &left[now][y + h * 16][j], 20);
#pragma unroll
        for (int e = 0; e < p[h].num_elements; ++e) p[h].x[e] = wmma::__float_to_tf32(p[h].x[e]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wmma::load_matrix_sync(q, &right[now][j][c + i * 16], 136);
#pragma unroll
        for (int e = 0; e < q.num_elements; ++e) q.x[e] = wmma::__float_to_tf32(q.x[e]);
        wmma::mma_sync(s[0][i], p[0], q, s[0][i]), wmma::mma_sync(s[1][i], p[1], q, s[1][i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::store_matrix_sync(out + (row + y + i / 4 * 16) * columns + column + c + (i & 3) * 16, s[i / 4][i & 3], columns, wmma::mem_row_major);
}
// ---- smooth_spectra: a load from shared memory for each of 33 taps; or loads of four values for four outputs; expected 2 times
__constant__ float TAP[36];
template <int V> __global__ void __launch_bounds__(256) smooth_spectra(const float4* a, float* out) {
  __shared__ __align__(16) float tile[1024 + 32];
  int t = threadIdx.x;
  ((float4*)tile)[t] = a[blockIdx.x * 256ll + t];
  if (t < 8) ((float4*)tile)[256 + t] = a[blockIdx.x * 256ll + 256 + t];
  __syncthreads();
  if (V == 0) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float s = 0;
#pragma unroll
      for (int k = 0; k < 33; ++k) s = fmaf(TAP[k], tile[t + r * 256 + k], s);
      out[blockIdx.x * 1024ll + r * 256 + t] = s;
    }
  } else {
    float v[36], s[4] = {};
#pragma unroll
    for (int k = 0; k < 9; ++k) *(float4*)&v[k * 4] = ((const float4*)tile)[t + k];
#pragma unroll
    for (int k = 0; k < 33; ++k)
#pragma unroll
      for (int r = 0; r < 4; ++r) s[r] = fmaf(TAP[k], v[k + r], s[r]);
    ((float4*)out)[blockIdx.x * 256ll + t] = {s[0], s[1], s[2], s[3]};
  }
}
// ---- hidden_states: tensor cores fed by tiles of 64 x 64, copied two bytes at a time; or tiles of 128 x 128 copied ahead, 16 bytes at a time; expected 3 times
__global__ void __launch_bounds__(128) hidden_states(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  __shared__ __align__(32) bf16 left[64][24], right[16][72];
  int row = blockIdx.y * 64, column = blockIdx.x * 64, warp = threadIdx.x / 32, y = warp / 2 * 32, c = (warp & 1) * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> s[2][2];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> p;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> q;
#pragma unroll
  for (int i = 0; i < 4; ++i) wmma::fill_fragment(s[i / 2][i & 1], 0.0f);
  for (int k = 0; k < depth; k += 16) {
#pragma unroll
    for (int i = threadIdx.x; i < 1024; i += 128) {
      left[i / 16][i & 15] = x[(row + i / 16) * depth + k + (i & 15)];
      right[i / 64][i & 63] = w[(k + i / 64) * columns + column + (i & 63)];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      wmma::load_matrix_sync(p, &left[y + i * 16][0], 24);
#pragma unroll
      for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(q, &right[0][c + j * 16], 72), wmma::mma_sync(s[i][j], p, q, s[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) wmma::store_matrix_sync(out + (row + y + i / 2 * 16) * columns + column + c + (i & 1) * 16, s[i / 2][i & 1], columns, wmma::mem_row_major);
}
__global__ void __launch_bounds__(256) states_in_tiles(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  __shared__ __align__(32) bf16 left[2][128][48], right[2][32][144];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = warp / 2 * 32, c = (warp & 1) * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> s[2][4];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> p[2];
  wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> q;
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::fill_fragment(s[i / 4][i & 3], 0.0f);
  auto request = [&](int k, int to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = threadIdx.x + h * 256;
      __pipeline_memcpy_async(&left[to][i / 4][(i & 3) * 8], &x[(row + i / 4) * depth + k + (i & 3) * 8], 16);
      __pipeline_memcpy_async(&right[to][i / 16][(i & 15) * 8], &w[(k + i / 16) * columns + column + (i & 15) * 8], 16);
    }
    __pipeline_commit();
  };
  request(0, 0);
  for (int k = 0; k < depth; k += 32) {
    int now = k / 32 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 32 < depth) request(k + 32, now ^ 1);
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
  for (int i = 0; i < 8; ++i) wmma::store_matrix_sync(out + (row + y + i / 4 * 16) * columns + column + c + (i & 3) * 16, s[i / 4][i & 3], columns, wmma::mem_row_major);
}
__global__ void narrowed_to(const float* a, bf16* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2bfloat16(a[i] - 0.25f);
}
// ---- denoise_scans: a bulk copy of 64 kB, then work on it, then the next copy; or the next copy during the work; expected 1.6 times
constexpr int CHUNK = 16384;  // floats
template <int STAGES> __global__ void __launch_bounds__(512) denoise_scans(const float* a, float* out, int chunks) {
  extern __shared__ __align__(128) float room[];
  __shared__ u64 full[2];
  int t = threadIdx.x;
  if (t == 0) {
    for (int d = 0; d < STAGES; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[d])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto request = [&](int n) {
    if (t || n >= chunks) return;
    int d = n % STAGES;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&full[d])), "r"(CHUNK * 4) : "memory");
    for (int k = 0; k < CHUNK; k += CHUNK / 4)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(room + d * CHUNK + k)), "l"(a + ((i64)n * gridDim.x + blockIdx.x) * CHUNK + k), "r"(CHUNK), "r"(place(&full[d])) : "memory");
  };
  float s = 0;
  request(0);
  for (int n = 0; n < chunks; ++n) {
    int d = n % STAGES, seen = 0;
    if (STAGES == 2) request(n + 1);
    while (!seen)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(&full[d])), "r"(n / STAGES & 1) : "memory");
    const float* own = room + d * CHUNK;
#pragma unroll 4
    for (int i = t; i < CHUNK; i += 512) {
      float v = own[i], p = v, q = 1 - v;
#pragma unroll
      for (int k = 0; k < 12; ++k) p = fmaf(p, v, 0.1f), q = fmaf(q, v, 0.2f);
      s += p * q;
    }
    __syncthreads();
    if (STAGES == 1) request(n + 1);
  }
  out[T] = s;
}
// ---- attend_pages: a key and its query come from global memory for each product; or tiles of 64 keys, and the query in registers; expected 2.5 times
constexpr int AXES = 64, QUERIES = 16384, KEYS = 1024;
template <int V> __global__ void __launch_bounds__(256) attend_pages(const float* query, const float* key, float* out) {  // the greatest product of each query
  __shared__ __align__(16) float tile[V == 0 ? 1 : 64 * AXES];
  float most = -1e30f;
  if constexpr (V == 0) {
    int q = (int)(T / 8), part = threadIdx.x & 7;
    for (int k = part; k < KEYS; k += 8) {
      float s = 0;
#pragma unroll 4
      for (int d = 0; d < AXES; d += 4) {
        float4 u = *(const float4*)&query[q * AXES + d], v = *(const float4*)&key[k * AXES + d];
        s = fmaf(u.x, v.x, s), s = fmaf(u.y, v.y, s), s = fmaf(u.z, v.z, s), s = fmaf(u.w, v.w, s);
      }
      most = fmaxf(most, s);
    }
    for (int o = 4; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    if (part == 0) out[q] = most;
  } else {
    int q = (int)(T / 8), part = threadIdx.x & 7;
    float own[AXES];
#pragma unroll
    for (int d = 0; d < AXES; d += 4) *(float4*)&own[d] = *(const float4*)&query[q * AXES + d];
    for (int from = 0; from < KEYS; from += 64) {
      __syncthreads();
      for (int i = threadIdx.x; i < 64 * AXES / 4; i += 256) ((float4*)tile)[(i / 16) * 16 + ((i & 15) ^ (i / 16 & 7))] = ((const float4*)&key[from * AXES])[i];
      __syncthreads();
      for (int k = part; k < 64; k += 8) {
        float s = 0;
#pragma unroll
        for (int d = 0; d < AXES; d += 4) {
          float4 v = ((const float4*)tile)[k * 16 + ((d / 4) ^ (k & 7))];
          s = fmaf(own[d], v.x, s), s = fmaf(own[d + 1], v.y, s), s = fmaf(own[d + 2], v.z, s), s = fmaf(own[d + 3], v.w, s);
        }
        most = fmaxf(most, s);
      }
    }
    for (int o = 4; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    if (part == 0) out[q] = most;
  }
}

void product_cases() {
  static bf16* states;
  cases.push_back({"propagate_waves", "no_tile", "", [] { propagate_waves<<<dim3(NX / 32, NY / 16, NZ), dim3(32, 16)>>>(A, C); }, [] { propagate_waves_in_planes<<<dim3(NX / 32, NY / 16, 4), dim3(32, 16)>>>(A, C, 64); }, C, N});
  cases.push_back({"attend_pages", "no_tile", "uncoalesced_loads", [] { attend_pages<0><<<QUERIES / 32, 256>>>(A, B, C); }, [] { attend_pages<1><<<QUERIES / 32, 256>>>(A, B, C); }, C, QUERIES});
  cases.push_back({"combine_modes", "shared_instruction_bound", "fp32_for_matrix", [] { combine_modes<<<dim3(32, 64), dim3(32, 32)>>>(A, B, C, 1024, 1024); }, [] { combine_features<<<dim3(16, 32), 256>>>(A, B, C, 1024, 1024); }, C, 2048 * 1024});
  cases.push_back({"smooth_spectra", "shared_instruction_bound", "", [] { smooth_spectra<0><<<32768, 256>>>((float4*)A, C); }, [] { smooth_spectra<1><<<32768, 256>>>((float4*)A, C); }, C, 1 << 25, false, [] {
    std::vector<float> v(36);
    for (int k = 0; k < 33; ++k) v[k] = 0.001f * (33 - std::abs(k - 16));
    CHECK(cudaMemcpyToSymbol(TAP, v.data(), 36 * 4));
  }});
  cases.push_back({"combine_features", "fp32_for_matrix", "precision", [] { combine_features<<<dim3(32, 64), 256>>>(A, B, C, 1024, 2048); }, [] { combine_features_in_tf32<<<dim3(16, 32), 256>>>(A, B, C, 1024, 2048); }, C, 4096 * 2048});
  cases.push_back({"hidden_states", "tensor_starved", "no_overlap|narrow_accesses", [] { hidden_states<<<dim3(32, 64), 128>>>(states, states + (1 << 22), C, 1024, 2048); }, [] { states_in_tiles<<<dim3(16, 32), 256>>>(states, states + (1 << 22), C, 1024, 2048); }, C, 4096 * 2048, false, [] {
    states = device<bf16>(6 << 20);
    narrowed_to<<<1056, 256>>>(A, states, 6 << 20);
  }});
  cases.push_back({"denoise_scans", "no_overlap", "", [] { denoise_scans<1><<<132, 512, CHUNK * 8>>>(A, C, 30); }, [] { denoise_scans<2><<<132, 512, CHUNK * 8>>>(A, C, 30); }, C, 132 * 512, false, [] { dynamic_shared(denoise_scans<1>, CHUNK * 8), dynamic_shared(denoise_scans<2>, CHUNK * 8); }});
}
