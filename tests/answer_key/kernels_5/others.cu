// Traps, whose tempting fix should win less than 6 %, and kernels at a roof: nights, soils, lattices, lenses, tracks, pictures.
#include "set.h"

// ---- traps
__global__ void __launch_bounds__(256) middle_of_nights(const float4* a, const float4* b, const float4* c, float4* out, i64 n) {
  extern __shared__ float window[];  // leaves room for half of the warps, which suffice; the other form asks for none
  auto middle = [](float x, float y, float z) { return fmaxf(fminf(x, y), fminf(fmaxf(x, y), z)); };
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 u = a[i], v = b[i], w = c[i];
    out[i] = {middle(u.x, v.x, w.x), middle(u.y, v.y, w.y), middle(u.z, v.z, w.z), middle(u.w, v.w, w.w)};
  }
  if (n < 0) out[0].x = window[threadIdx.x];
}
__global__ void make_places(int* id, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) id[i] = (int)(mix((unsigned)i + 7) & (unsigned)(N - 1));
}
__global__ void read_soils(const int4* place, const float* soil, float* out, int n) {  // 32 blocks of a warp an SM, or 8 of 8
  for (i64 i = T; i < n / 8; i += STRIDE) {
    int4 p = place[i], q = place[i + n / 8];
    out[i] = ((soil[p.x] + soil[p.y]) + (soil[p.z] + soil[p.w])) + ((soil[q.x] + soil[q.y]) + (soil[q.z] + soil[q.w]));
  }
}
template <int LIVE, int LEAST> __global__ void __launch_bounds__(256, LEAST) move_lattice(double* out, int n) {  // the FP64 units are full with 8 warps
  double s[LIVE];
#pragma unroll
  for (int k = 0; k < LIVE; ++k) s[k] = 0.01 * (k + (int)threadIdx.x);
#pragma unroll 1
  for (int i = 0; i < n * 96 / LIVE; ++i)
#pragma unroll
    for (int k = 0; k < LIVE; ++k) s[k] = s[k] * 0.999 + 0.5;
  double t = 0;
#pragma unroll
  for (int k = 0; k < LIVE; ++k) t += s[k];
  out[T] = t;
}
template <int RAYS> __global__ void __launch_bounds__(256) trace_lens(float* out, int n) {  // 4.07 waves, but the FMA units are full to the end
  for (int k = 0; k < RAYS; ++k) {
    i64 ray = ((i64)blockIdx.x * RAYS + k) * 256 + threadIdx.x;
    float x = 1e-6f * ray, y = 0.5f, z = 0.25f, w = 0.125f;
#pragma unroll 16
    for (int i = 0; i < n; ++i) x = fmaf(x, 0.999f, 0.001f), y = fmaf(y, 0.998f, 0.001f), z = fmaf(z, 0.997f, 0.002f), w = fmaf(w, 0.996f, 0.003f);
    out[ray] = x + y + z + w;
  }
}

// ---- clean kernels
__global__ void __launch_bounds__(256) mix_tracks(const float4* a, const float4* b, const float4* c, float4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 u = a[i], v = b[i], w = c[i];
    out[i] = {u.x * 0.5f + v.x * 0.3f + w.x * 0.2f, u.y * 0.5f + v.y * 0.3f + w.y * 0.2f, u.z * 0.5f + v.z * 0.3f + w.z * 0.2f, u.w * 0.5f + v.w * 0.3f + w.w * 0.2f};
  }
}
__global__ void __launch_bounds__(256) grey_of_rgba(const uint4* a, unsigned* out, i64 n) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    uint4 p = a[i];
    const unsigned w = 0x001d964d;  // 77, 150 and 29 of 256
    out[i] = __dp4a(p.x, w, 0u) >> 8 | __dp4a(p.y, w, 0u) >> 8 << 8 | __dp4a(p.z, w, 0u) >> 8 << 16 | __dp4a(p.w, w, 0u) >> 8 << 24;
  }
}
__global__ void __launch_bounds__(256) fade_halves(const uint4* a, uint4* out, i64 n) {
  __half2 f = __float2half2_rn(0.75f);
  auto fade = [f](unsigned x) {
    __half2 h = __hmul2(*(__half2*)&x, f);
    return *(unsigned*)&h;
  };
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    uint4 v = a[i];
    out[i] = {fade(v.x), fade(v.y), fade(v.z), fade(v.w)};
  }
}
__global__ void __launch_bounds__(256) column_totals(const float4* a, float4* out, int rows) {  // 1024 float4 a row, in four parts
  int col = (blockIdx.x & 3) * 256 + threadIdx.x;
  float4 s = {0, 0, 0, 0};
#pragma unroll 8
  for (int r = blockIdx.x / 4; r < rows; r += gridDim.x / 4) {
    float4 v = a[(i64)r * 1024 + col];
    s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
  }
  out[(i64)(blockIdx.x / 4) * 1024 + col] = s;
}
__global__ void __launch_bounds__(256) chebyshev(float* out, int n) {
  float x[8], p[8], q[8], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = 0.001f * (k + threadIdx.x), p[k] = 1, q[k] = x[k] * 0.5f;
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < 8; ++k) p[k] = fmaf(x[k], q[k], -p[k]), q[k] = fmaf(x[k], p[k], -q[k]);
#pragma unroll
  for (int k = 0; k < 8; ++k) s += p[k] + q[k];
  out[T] = s;
}
__global__ void __launch_bounds__(256) squares_and_sums(unsigned* out, int n) {  // the integer multipliers
  unsigned x[8], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = (unsigned)T * 8 + k;
#pragma unroll 4
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = x[k] * x[k] + 0x9e3779b9u;
#pragma unroll
  for (int k = 0; k < 8; ++k) s ^= x[k];
  out[T] = s;
}
__global__ void stamp_times(int* out, int now) { out[T] = now + (int)threadIdx.x; }

void trap_cases() {
  static int* places;
  cases.push_back({"middle_of_nights", "occupancy_shared", "", [] { middle_of_nights<<<528, 256, 50000>>>((float4*)A, (float4*)B, (float4*)D, (float4*)C, N / 8); }, [] { middle_of_nights<<<1056, 256>>>((float4*)A, (float4*)B, (float4*)D, (float4*)C, N / 8); }, C, N / 2, false, [] { dynamic_shared(middle_of_nights, 50000); }});
  cases.push_back({"read_soils", "occupancy_block_size", "", [] { read_soils<<<1 << 15, 32>>>((int4*)places, A, C, 1 << 23); }, [] { read_soils<<<1 << 12, 256>>>((int4*)places, A, C, 1 << 23); }, C, 1 << 20, false, [] {
    places = device<int>(1 << 23);
    make_places<<<1056, 256>>>(places, 1 << 23);
  }});
  cases.push_back({"move_lattice", "occupancy_registers", "", [] { move_lattice<96, 1><<<1056, 256>>>((double*)C, 192); }, [] { move_lattice<24, 4><<<1056, 256>>>((double*)C, 192); }});
  cases.push_back({"trace_lens", "tail_effect", "", [] { trace_lens<4><<<4300, 256>>>(C, 512); }, [] { trace_lens<1><<<17200, 256>>>(C, 512); }, C, 17200 * 256});
}
void clean_cases() {
  cases.push_back({"mix_tracks", "none_at_roof", "", [] { mix_tracks<<<2112, 256>>>((float4*)A, (float4*)B, (float4*)D, (float4*)C, N / 8); }, nullptr});
  cases.push_back({"grey_of_rgba", "none_at_roof", "", [] { grey_of_rgba<<<1056, 256>>>((uint4*)A, (unsigned*)C, N / 4); }, nullptr});
  cases.push_back({"fade_halves", "none_at_roof", "", [] { fade_halves<<<1056, 256>>>((uint4*)A, (uint4*)C, N / 4); }, nullptr});
  cases.push_back({"column_totals", "none_at_roof", "", [] { column_totals<<<1056, 256>>>((float4*)A, (float4*)C, 16384); }, nullptr});
  cases.push_back({"chebyshev", "none_at_roof", "", [] { chebyshev<<<1056, 256>>>(C, 2048); }, nullptr});
  cases.push_back({"squares_and_sums", "none_at_roof", "", [] { squares_and_sums<<<1056, 256>>>((unsigned*)C, 2048); }, nullptr});
  cases.push_back({"stamp_times", "launch_latency", "", [] { stamp_times<<<8, 128>>>((int*)C, 5); }, nullptr});
}
