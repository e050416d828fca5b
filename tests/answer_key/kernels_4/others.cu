// Traps, whose fix wins little though the pattern of a defect is there, and clean kernels.
#include "set.h"

using namespace nvcuda;

// ---- traps
template <class R> __global__ void gamma_correct(const float4* a, float4* out, i64 n) {  // FP64 beside a full DRAM
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i];
    out[i] = {(float)(v.x * (R)0.7), (float)(v.y * (R)0.7), (float)(v.z * (R)0.7), (float)(v.w * (R)0.7)};
  }
}
template <int V> __global__ void tile_rows(const float4* a, float4* out, unsigned n, unsigned period) {  // a division beside a full DRAM
  for (unsigned i = (unsigned)T; i < n; i += (unsigned)STRIDE) {
    float4 v = a[i];
    float gain = V == 0 ? (i % period == 0 ? 2.0f : 1.0f) : ((i & (period - 1)) == 0 ? 2.0f : 1.0f);
    out[i] = {v.x * gain, v.y * gain, v.z * gain, v.w * gain};
  }
}
template <int PAD> __global__ void turn_then_work(const float* a, float* out, int work) {  // conflicts, but only at the start
  __shared__ float tile[32][32 + PAD];
  for (int i = threadIdx.x; i < 1024; i += 256) tile[i / 32][i & 31] = a[(i64)blockIdx.x * 1024 + i];
  __syncthreads();
  for (int i = threadIdx.x; i < 1024; i += 256) {
    float v = tile[i & 31][i / 32], w = v * 0.5f, x = v * 0.25f, y = v * 0.125f;
    for (int k = 0; k < work; ++k) v = fmaf(v, 0.999f, 0.001f), w = fmaf(w, 0.998f, 0.002f), x = fmaf(x, 0.997f, 0.003f), y = fmaf(y, 0.996f, 0.004f);
    out[(i64)blockIdx.x * 1024 + i] = v + w + x + y;
  }
}
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) wide_mill(float* out, int n) {  // few warps, but the pipe is full
  float s[LEAST == 1 ? 64 : 16];
  constexpr int LIVE = LEAST == 1 ? 64 : 16;
#pragma unroll
  for (int k = 0; k < LIVE; ++k) s[k] = 0.01f * (k + threadIdx.x);
  for (int i = 0; i < n * 16 / LIVE * 4; ++i)
#pragma unroll
    for (int k = 0; k < LIVE; ++k) s[k] = fmaf(s[k], 0.999f, 0.5f);
  float t = 0;
#pragma unroll
  for (int k = 0; k < LIVE; ++k) t += s[k];
  out[T] = t;
}

// ---- clean kernels
__global__ void saxpby(const float4* a, const float4* b, float4* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float4 u = a[i], v = b[i];
    out[i] = {2 * u.x + v.x, 2 * u.y + v.y, 2 * u.z + v.z, 2 * u.w + v.w};
  }
}
__global__ void norm_squared(const float4* a, float* out, i64 n) {
  float s = 0;
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i];
    s += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) out[T / 32] = s;
}
template <class R, int ROUNDS> __global__ void horner_mill(R* out) {
  R x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = (R)0.001 * (k + (int)threadIdx.x);
  for (int i = 0; i < ROUNDS; ++i)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = x[k] * (R)0.9995 + (R)0.25;
  R s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) s += x[k];
  out[T] = s;
}
__global__ void half_mill(__half2* out, int n) {
  __half2 x[8], c = __float2half2_rn(0.99f), d = __float2half2_rn(0.125f);
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = __float2half2_rn(0.01f * (k + (threadIdx.x & 15)));
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __hfma2(x[k], c, d);
  __half2 s = x[0];
#pragma unroll
  for (int k = 1; k < 8; ++k) s = __hadd2(s, x[k]);
  out[T] = s;
}
__global__ void matrix_mill(float* out, int n) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
  wmma::fill_fragment(a, __float2half(0.01f)), wmma::fill_fragment(b, __float2half(0.02f));
  for (int k = 0; k < 4; ++k) wmma::fill_fragment(acc[k], 0.1f * k);
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < 4; ++k) wmma::mma_sync(acc[k], a, b, acc[k]);
  for (int k = 1; k < 4; ++k)
    for (int e = 0; e < acc[0].num_elements; ++e) acc[0].x[e] += acc[k].x[e];
  wmma::store_matrix_sync(out + T / 32 * 256, acc[0], 16, wmma::mem_row_major);
}
__global__ void mix_mill(uint4* out, int n) {  // the integer pipe
  uint4 x = {(unsigned)T, (unsigned)T * 3, (unsigned)T * 5, (unsigned)T * 7};
  for (int i = 0; i < n; ++i) {
    x.x ^= __funnelshift_l(x.x, x.x, 7) ^ i, x.y ^= __funnelshift_l(x.y, x.y, 9) ^ i;
    x.z ^= __funnelshift_l(x.z, x.z, 13) ^ i, x.w ^= __funnelshift_l(x.w, x.w, 18) ^ i;
  }
  out[T] = x;
}
__global__ void scale_few(float* a) { a[T] = a[T] * 1.5f + 2; }
__global__ void zero_few(int* a) {
  if (threadIdx.x == 0) a[blockIdx.x] = 0;
}

void trap_cases() {
  cases.push_back({"gamma_correct", "fp64_by_accident", "", [] { gamma_correct<double><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, [] { gamma_correct<float><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, C, N});
  cases.push_back({"tile_rows", "integer_division", "", [] { tile_rows<0><<<1056, 256>>>((float4*)A, (float4*)C, N / 4, 64); }, [] { tile_rows<1><<<1056, 256>>>((float4*)A, (float4*)C, N / 4, 64); }, C, N});
  cases.push_back({"turn_then_work", "shared_bank_conflicts", "", [] { turn_then_work<0><<<4096, 256>>>(A, C, 1024); }, [] { turn_then_work<1><<<4096, 256>>>(A, C, 1024); }, C, 1 << 22});
  cases.push_back({"wide_mill", "occupancy_registers", "", [] { wide_mill<1><<<1056, 256>>>(C, 1024); }, [] { wide_mill<4><<<1056, 256>>>(C, 1024); }});
}
void clean_cases() {
  cases.push_back({"saxpby", "none_at_roof", "", [] { saxpby<<<2112, 256>>>((float4*)A, (float4*)B, (float4*)C, N / 4); }, nullptr});
  cases.push_back({"norm_squared", "none_at_roof", "", [] { norm_squared<<<2112, 256>>>((float4*)A, C, N / 4); }, nullptr});
  cases.push_back({"horner_float", "none_at_roof", "", [] { horner_mill<float, 8192><<<1056, 256>>>(C); }, nullptr});
  cases.push_back({"horner_double", "none_at_roof", "", [] { horner_mill<double, 4096><<<1056, 256>>>((double*)C); }, nullptr});
  cases.push_back({"half_mill", "none_at_roof", "", [] { half_mill<<<1056, 256>>>((__half2*)C, 8192); }, nullptr});
  cases.push_back({"matrix_mill", "none_at_roof", "", [] { matrix_mill<<<1056, 256>>>(C, 2048); }, nullptr});
  cases.push_back({"mix_mill", "none_at_roof", "", [] { mix_mill<<<1056, 256>>>((uint4*)C, 4096); }, nullptr});
  cases.push_back({"scale_few", "launch_latency", "", [] { scale_few<<<16, 256>>>(C); }, nullptr});
  cases.push_back({"zero_few", "launch_latency", "", [] { zero_few<<<64, 32>>>((int*)C); }, nullptr});
}
