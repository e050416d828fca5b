// Traps, whose tempting fix should win less than 6 %, and kernels near a roof or well built: qubits, tiles, tracks, votes, galaxies, stars, weights, oscillators.
#include "set.h"

// ---- traps, most beside a full DRAM: sines; a division and a remainder; a base four bytes off; conflicts of two lanes; sums of doubles;
// small blocks of independent chains; two ways in a warp; an atomic a block at one address, or a second launch
template <int V> __global__ void __launch_bounds__(256) rotate_qubits(const float4* low, const float4* high, float4* to_low, float4* to_high, float step, const float4* cosine, const float4* sine) {
  float4 p = low[T], q = high[T], c, s;
  if (V == 0) {
    float angle = step * (float)(threadIdx.x * 4);
    __sincosf(angle, &s.x, &c.x), __sincosf(angle + step, &s.y, &c.y), __sincosf(angle + 2 * step, &s.z, &c.z), __sincosf(angle + 3 * step, &s.w, &c.w);
  } else {
    c = cosine[threadIdx.x], s = sine[threadIdx.x];
  }
  to_low[T] = {c.x * p.x - s.x * q.x, c.y * p.y - s.y * q.y, c.z * p.z - s.z * q.z, c.w * p.w - s.w * q.w};
  to_high[T] = {s.x * p.x + c.x * q.x, s.y * p.y + c.y * q.y, s.z * p.z + c.z * q.z, s.w * p.w + c.w * q.w};
}
template <int V> __global__ void __launch_bounds__(256) light_tiles(const float4* a, float4* out, int width, int height) {
  int i = (int)T, y = V == 0 ? i / width : i >> 11, x = V == 0 ? i % width : i & 2047;
  float by = 1 + 0.001f * (float)(x + y * (height & 1));
  float4 v = a[i];
  out[i] = {v.x * by, v.y * by, v.z * by, v.w * by};
}
__global__ void __launch_bounds__(256) delay_tracks(const float* a, float* out, int n) {
#pragma unroll 8
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = a[i] * 0.5f;
}
template <int V> __global__ void __launch_bounds__(256) swap_votes(const float4* a, float4* out, int each) {
  __shared__ float2 all[512 + 32];
  int t = threadIdx.x;
  auto place = [](int k) { return V == 0 ? k : k + k / 16; };
  for (int k = 0; k < each; ++k) {
    i64 i = ((i64)blockIdx.x * each + k) * 256 + t;
    float4 v = a[i];
    all[place(t * 2)] = {v.x, v.y}, all[place(t * 2 + 1)] = {v.z, v.w};
    __syncthreads();
    float2 p = all[place(t)], q = all[place(t + 256)];
    out[i] = {p.x, p.y, q.x, q.y};
    __syncthreads();
  }
}
template <class R> __global__ void __launch_bounds__(256) mass_of_galaxies(const float4* a, float* out, int n) {
  R s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float4 v = a[i];
    s += ((R)v.x + (R)v.y) + ((R)v.z + (R)v.w);
  }
  out[T] = (float)s;
}
__global__ void march_waves(const float* a, float* out, int steps) {
  float x[8], r = a[T] * 0.5f;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = 0.2f * k;
#pragma unroll 8
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], r, 0.4f);
  out[T] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
template <int V> __global__ void __launch_bounds__(256) bound_forecasts(const float4* a, float4* out, i64 n) {
  auto bounded = [](float v) {
    float low = fmaf(v, fmaf(v, fmaf(v, 0.2f, 0.1f), 0.5f), 0.05f), high = fmaf(v, fmaf(v, -0.3f, 0.9f), 0.1f);
    if (V == 1) return v < 0.5f ? low : high;
    if (v < 0.5f) {
      asm volatile("" : "+f"(low));
      return low;
    }
    asm volatile("" : "+f"(high));
    return high;
  };
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i];
    out[i] = {bounded(v.x), bounded(v.y), bounded(v.z), bounded(v.w)};
  }
}
template <int V> __global__ void __launch_bounds__(256) count_stars(const float4* a, int* out, int n) {
  __shared__ int all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  int s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float4 v = a[i];
    s += (v.x > 0.9f) + (v.y > 0.9f) + (v.z > 0.9f) + (v.w > 0.9f);
  }
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) atomicAdd(&all, s);
  __syncthreads();
  if (threadIdx.x) return;
  if (V == 0) atomicAdd(out, all);
  else out[64 + blockIdx.x] = all;
}
__global__ void __launch_bounds__(1024) sum_of_counts(const int* part, int* out, int n) {
  int s = 0;
  for (int i = threadIdx.x; i < n; i += 1024) s += part[i];
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}

// ---- clean kernels
__global__ void __launch_bounds__(256) average_weights(const float4* weight, const float4* mean, float4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = weight[i], m = mean[i];
    out[i] = {fmaf(0.01f, v.x - m.x, m.x), fmaf(0.01f, v.y - m.y, m.y), fmaf(0.01f, v.z - m.z, m.z), fmaf(0.01f, v.w - m.w, m.w)};
  }
}
__global__ void __launch_bounds__(256) log_partitions(const float4* logit, float* out) {  // a warp a row of 1024
  int lane = threadIdx.x & 31;
  const float4* own = logit + T / 32 * 256;
  float4 v[8];
  float most = -1e30f, s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = own[k * 32 + lane], most = fmaxf(most, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
  for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
#pragma unroll
  for (int k = 0; k < 8; ++k) s += (__expf(v[k].x - most) + __expf(v[k].y - most)) + (__expf(v[k].z - most) + __expf(v[k].w - most));
  s = warp_sum(s);
  if (lane == 0) out[T / 32] = most + __logf(s);
}
__global__ void __launch_bounds__(256) ink_of_pages(const uint4* page, int* out, int n) {
  int s[2] = {0, 0};
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint4 v = page[i];
    s[0] = __dp4a(v.x, 0x01010101u, (unsigned)s[0]), s[1] = __dp4a(v.y, 0x01010101u, (unsigned)s[1]);
    s[0] = __dp4a(v.z, 0x01010101u, (unsigned)s[0]), s[1] = __dp4a(v.w, 0x01010101u, (unsigned)s[1]);
  }
  out[T] = s[0] + s[1];
}
__global__ void __launch_bounds__(256) seed_lattice(float4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned h = (unsigned)i * 2654435761u;
    out[i] = {(float)(h & 255), (float)(h >> 8 & 255), (float)(h >> 16 & 255), (float)(h >> 24)};
  }
}
__global__ void __launch_bounds__(256) iterate_julia(const float2* a, float2* out, int steps) {
  float x[4], y[4];
  float2 p = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = p.x * 0.1f + 0.05f * k, y[k] = p.y * 0.1f;
#pragma unroll 4
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float u = fmaf(x[k], x[k], -0.2f), v = fmaf(x[k], y[k], 0.1f);
      x[k] = fmaf(-y[k], y[k], u), y[k] = fmaf(x[k], 0.1f, v);
    }
  out[T] = {(x[0] + x[1]) + (x[2] + x[3]), (y[0] + y[1]) + (y[2] + y[3])};
}
__global__ void __launch_bounds__(256) mix_digests(unsigned* out, int steps) {
  unsigned x[4], all = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = (unsigned)T * 4 + k + 1;
#pragma unroll 4
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] ^= x[k] << 13, x[k] ^= x[k] >> 17, x[k] ^= x[k] << 5;
#pragma unroll
  for (int k = 0; k < 4; ++k) all ^= x[k];
  out[T] = all;
}
__global__ void __launch_bounds__(256) squash_neurons(const float* a, float* out, int steps) {  // each state needs the one before
  float x[4], r = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = r + 0.2f * k;
#pragma unroll 8
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) asm volatile("tanh.approx.f32 %0, %1;" : "=f"(x[k]) : "f"(x[k]));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void __launch_bounds__(256) march_geodesics(const double* a, double* out, int steps) {
  double x[4], v[4], by = a[T] * 1e-3;
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 1 + 0.2 * k, v[k] = 0.1 * k;
#pragma unroll 4
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fma(v[k], by, x[k]), v[k] = fma(x[k], -by, v[k]);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void raise_flag(int* flag, int step) {
  if (threadIdx.x == 0) *flag = step;
}
__global__ void __launch_bounds__(128) swap_heads(const float4* a, float4* out) { out[T] = a[T ^ 1]; }

void trap_cases() {
  static float4 *cosines, *sines;
  static float* headed;
  cases.push_back({"rotate_qubits", "special_functions", "", [] { rotate_qubits<0><<<32768, 256>>>((float4*)A, (float4*)B, (float4*)C, (float4*)D, 0.003f, nullptr, nullptr); }, [] { rotate_qubits<1><<<32768, 256>>>((float4*)A, (float4*)B, (float4*)C, (float4*)D, 0, cosines, sines); }, C, 1 << 25, false, [] {
    std::vector<float> c(1024), s(1024);
    for (int k = 0; k < 1024; ++k) c[k] = std::cos(0.003f * k), s[k] = std::sin(0.003f * k);
    cosines = (float4*)upload(c), sines = (float4*)upload(s);
  }});
  cases.push_back({"light_tiles", "integer_division", "", [] { light_tiles<0><<<65536, 256>>>((float4*)A, (float4*)C, 2048, 8192); }, [] { light_tiles<1><<<65536, 256>>>((float4*)A, (float4*)C, 2048, 8192); }, C, N});
  cases.push_back({"delay_tracks", "misaligned_base", "", [] { delay_tracks<<<1056, 256>>>(headed + 1, C, (int)N); }, [] { delay_tracks<<<1056, 256>>>(A, C, (int)N); }, C, N, false, [] {
    headed = device<float>(N + 8);
    CHECK(cudaMemcpy(headed + 1, A, N * 4, cudaMemcpyDefault));
  }});
  cases.push_back({"swap_votes", "shared_bank_conflicts", "", [] { swap_votes<0><<<4096, 256>>>((float4*)A, (float4*)C, 16); }, [] { swap_votes<1><<<4096, 256>>>((float4*)A, (float4*)C, 16); }, C, N});
  cases.push_back({"mass_of_galaxies", "fp64_by_accident", "", [] { mass_of_galaxies<double><<<1056, 256>>>((float4*)A, C, 1 << 24); }, [] { mass_of_galaxies<float><<<1056, 256>>>((float4*)A, C, 1 << 24); }, C, 1056 * 256});
  cases.push_back({"march_waves", "occupancy_block_size", "", [] { march_waves<<<8448, 32>>>(A, C, 2048); }, [] { march_waves<<<1056, 256>>>(A, C, 2048); }, C, 1056 * 256});
  cases.push_back({"bound_forecasts", "divergence", "", [] { bound_forecasts<0><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, [] { bound_forecasts<1><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, C, N});
  cases.push_back({"count_stars", "global_atomics_one_address", "", [] { count_stars<0><<<1056, 256>>>((float4*)A, (int*)C, 1 << 24); }, [] {
    count_stars<1><<<1056, 256>>>((float4*)A, (int*)C, 1 << 24);
    sum_of_counts<<<1, 1024>>>((int*)C + 64, (int*)C, 1056);
  }, C, 1, true});
}
void clean_cases() {
  static double* doubles;
  cases.push_back({"average_weights", "none_at_roof", "", [] { average_weights<<<1056, 256>>>((float4*)A, (float4*)B, (float4*)C, N / 4); }, nullptr});
  cases.push_back({"log_partitions", "none_at_roof", "", [] { log_partitions<<<8192, 256>>>((float4*)A, C); }, nullptr});
  cases.push_back({"ink_of_pages", "none_at_roof", "", [] { ink_of_pages<<<1056, 256>>>((uint4*)A, (int*)C, 1 << 24); }, nullptr});
  cases.push_back({"seed_lattice", "none_at_roof", "", [] { seed_lattice<<<1056, 256>>>((float4*)C, N / 4); }, nullptr});
  cases.push_back({"iterate_julia", "none_at_roof", "", [] { iterate_julia<<<1056, 256>>>((float2*)A, (float2*)C, 1024); }, nullptr});
  cases.push_back({"mix_digests", "none_at_roof", "", [] { mix_digests<<<1056, 256>>>((unsigned*)C, 1024); }, nullptr});
  cases.push_back({"squash_neurons", "none_at_roof", "", [] { squash_neurons<<<1056, 256>>>(A, C, 1024); }, nullptr});
  cases.push_back({"march_geodesics", "none_at_roof", "", [] { march_geodesics<<<1056, 256>>>(doubles, (double*)C, 512); }, nullptr, nullptr, 0, false, [] {
    std::vector<double> v(1056 * 256);
    for (int k = 0; k < 1056 * 256; ++k) v[k] = 0.3 + 1e-7 * k;
    doubles = upload(v);
  }});
  cases.push_back({"raise_flag", "launch_latency", "", [] { raise_flag<<<1, 32>>>((int*)C, 7); }, nullptr});
  cases.push_back({"swap_heads", "launch_latency", "", [] { swap_heads<<<4, 128>>>((float4*)A, (float4*)C); }, nullptr});
}
