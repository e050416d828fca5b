// Traps, whose tempting fix should win less than 6 %, and kernels near a roof or well built: maps, scans, ledgers, radio, filters, particles, clouds, rows, exams, prices, codebooks, wheels, moons, yeasts, records, disks.
#include "frame.h"

// ---- traps, most beside a full DRAM: a division of 32 bits by a width known at run time for each 16 bytes; literals of doubles; one thread that adds eight
// numbers for each 64 kB; 24 vectors in registers, so that 16 warps fit an SM; 24 steps of a chain; an atomic for each 32 kB; a branch either way;
// stores into shared memory whose lanes meet four by four
template <int V> __global__ void __launch_bounds__(256) shade_maps(const float4* a, const float* __restrict__ relief, float4* out, unsigned width) {
  unsigned i = blockIdx.y * gridDim.x * 256 + blockIdx.x * 256 + threadIdx.x, row = V == 0 ? i / width : blockIdx.y;
  float4 v = a[i];
  float by = relief[row];
  out[i] = {v.x * by, v.y * by, v.z * by, v.w * by};
}
template <class R> __global__ void __launch_bounds__(256) lighten_scans(const float4* a, float4* out) {
  auto lighter = [](float x) { return (float)(x * (R)0.8125 + (R)0.1); };
  float4 v = a[T];
  out[T] = {lighter(v.x), lighter(v.y), lighter(v.z), lighter(v.w)};
}
template <int V> __global__ void __launch_bounds__(256) close_ledgers(const float4* a, float* out) {  // a block 64 kB
  __shared__ float part[8];
  float s[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  s[0] = warp_sum((s[0] + s[1]) + (s[2] + s[3]));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s[0];
  __syncthreads();
  if (V == 0) {
    if (threadIdx.x) return;
    float all = 0;
#pragma unroll 1
    for (int k = 0; k < 8; ++k) all += part[k];
    out[blockIdx.x] = all;
  } else if (threadIdx.x < 8) {
    float all = part[threadIdx.x];
    for (int o = 4; o; o >>= 1) all += __shfl_xor_sync(255, all, o);
    if (threadIdx.x == 0) out[blockIdx.x] = all;
  }
}
template <int V> __global__ void __launch_bounds__(256) level_radios(const float4* a, float4* out) {  // rows of 3072, less their mean: a warp or a block a row
  __shared__ float part[8];
  constexpr int K = V == 0 ? 24 : 3, WIDE = V == 0 ? 32 : 256;
  i64 first = V == 0 ? T / 32 * 768 + (threadIdx.x & 31) : blockIdx.x * 768ll + threadIdx.x;
  float4 v[K];
  float s = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) v[k] = a[first + k * WIDE];
#pragma unroll
  for (int k = 0; k < K; ++k) s += (v[k].x + v[k].y) + (v[k].z + v[k].w);
  s = warp_sum(s);
  if (V == 1) {
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
  s *= 1 / 3072.0f;
#pragma unroll
  for (int k = 0; k < K; ++k) out[first + k * WIDE] = {v[k].x - s, v[k].y - s, v[k].z - s, v[k].w - s};
}
template <int V> __global__ void __launch_bounds__(256) equalise_filters(const float4* a, float4* out) {
  auto filtered = [](float x) {
    float y = 0.5f, z = 0.5f;
    if (V == 0) {
#pragma unroll
      for (int k = 0; k < 24; ++k) y = fmaf(y, x, 0.04f);
      return y;
    }
    float two = x * x;  // the same by even and odd powers
#pragma unroll
    for (int k = 0; k < 12; ++k) y = fmaf(y, two, 0.04f), z = k ? fmaf(z, two, 0.04f) : 0.04f;
    return fmaf(z, x, y);
  };
  float4 v = a[T];
  out[T] = {filtered(v.x), filtered(v.y), filtered(v.z), filtered(v.w)};
}
__global__ void __launch_bounds__(256) mass_of_particles(const float4* a, float* out, int each) {
  __shared__ float part[8];
  float s[4] = {};
#pragma unroll 8
  for (int k = 0; k < each; ++k) {
    float4 v = a[(i64)blockIdx.x * each * 256 + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  s[0] = warp_sum((s[0] + s[1]) + (s[2] + s[3]));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s[0];
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])));
}
template <int V> __global__ void __launch_bounds__(256) clip_clouds(const float4* a, float4* out) {
  float4 v = a[T];
  bool high = v.x > 0.5f;
  if (V == 0) {
    if (high) {
#pragma unroll 1
      for (int k = 0; k < 3; ++k) v.y = fmaf(v.y, 0.9f, 0.01f * v.z), v.z = fmaf(v.z, 0.8f, 0.02f * v.w);
    } else {
#pragma unroll 1
      for (int k = 0; k < 3; ++k) v.y = fmaf(v.y, 0.7f, 0.03f * v.z), v.z = fmaf(v.z, 0.6f, 0.04f * v.w);
    }
  } else {
    float p = high ? 0.9f : 0.7f, q = high ? 0.01f : 0.03f, r = high ? 0.8f : 0.6f, s = high ? 0.02f : 0.04f;
#pragma unroll
    for (int k = 0; k < 3; ++k) v.y = fmaf(v.y, p, q * v.z), v.z = fmaf(v.z, r, s * v.w);
  }
  out[T] = v;
}
template <int V> __global__ void __launch_bounds__(256) shift_rows(const float4* a, float4* out) {
  __shared__ __align__(16) float row[1024];
  int t = threadIdx.x;
  float4 v = a[blockIdx.x * 256ll + t];
  if (V == 0) {
    volatile float* own = row + t * 4;
    own[0] = v.x, own[1] = v.y, own[2] = v.z, own[3] = v.w;
  } else {
    ((float4*)row)[t] = v;
  }
  __syncthreads();
  out[blockIdx.x * 256ll + t] = ((const float4*)row)[t + 37 & 255];
}

// ---- clean kernels
__global__ void __launch_bounds__(256) grade_exams(const float4* a, const float4* b, const float4* c, float4* out) {
  float4 u = a[T], v = b[T], w = c[T];
  out[T] = {fmaf(u.x, 0.3f, fmaf(v.x, 0.3f, 0.4f * w.x)), fmaf(u.y, 0.3f, fmaf(v.y, 0.3f, 0.4f * w.y)), fmaf(u.z, 0.3f, fmaf(v.z, 0.3f, 0.4f * w.z)), fmaf(u.w, 0.3f, fmaf(v.w, 0.3f, 0.4f * w.w))};
}
__global__ void __launch_bounds__(256) range_of_prices(const float4* a, float2* out) {  // a warp 8 kB
  const float4* own = a + T / 32 * 512 + (threadIdx.x & 31);
  float least = 2, most = -1;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = own[k * 32];
    least = fminf(least, fminf(fminf(v.x, v.y), fminf(v.z, v.w))), most = fmaxf(most, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
  }
  for (int o = 16; o; o >>= 1) least = fminf(least, __shfl_xor_sync(~0u, least, o)), most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
  if ((threadIdx.x & 31) == 0) out[T / 32] = {least, most};
}
__global__ void __launch_bounds__(256) reread_codebooks(const float4* a, float* out, int rows) {  // 16 MB, of which each block reads 4096 places
  float s[4] = {};
#pragma unroll 8
  for (int k = 0; k < rows; ++k) {
    float4 v = __ldcg(&a[(mix(blockIdx.x * 256 + k) & 4095) * 256 + threadIdx.x]);
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
__global__ void __launch_bounds__(256) turn_wheels(const uint4* a, uint4* out, int rounds) {  // 16 bytes a lane from one of four wheels a round
  __shared__ uint4 wheel[4][256];
  int t = threadIdx.x;
#pragma unroll
  for (int k = 0; k < 4; ++k) wheel[k][t] = a[k * STRIDE + T];
  __syncthreads();
  uint4 s = {1, 2, 3, 4};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    uint4 v = wheel[n & 3][(t + n * 8) & 255];
    s = {s.x ^ v.x, s.y ^ v.y, s.z ^ v.z, s.w ^ v.w};
  }
  out[T] = s;
}
__global__ void __launch_bounds__(256) draw_julias(const float2* a, float2* out, int steps) {
  float2 c = a[T], z[4];
  c = {0.25f * c.x, 0.25f * c.y};
#pragma unroll
  for (int k = 0; k < 4; ++k) z[k] = {0.1f * k, 0.2f};
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float x = fmaf(z[k].x, z[k].x, c.x), y = fmaf(z[k].x, 0.5f * z[k].y, c.y);
      z[k] = {fmaf(-z[k].y, z[k].y, x), fmaf(z[k].x, z[k].y, y)};
    }
  out[T] = {(z[0].x + z[1].x) + (z[2].x + z[3].x), (z[0].y + z[1].y) + (z[2].y + z[3].y)};
}
__global__ void __launch_bounds__(256) place_moons(const float* a, float* out, int steps) {
  double t = a[T], s[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) s[k] = 0.1 * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) s[k] = fma(s[k], t, 0.125);
  out[T] = (float)(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
}
__global__ void __launch_bounds__(256) grow_yeasts(const float* a, float* out, int steps) {  // an exponential and a reciprocal a step, in four cultures
  float r = a[T], x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f + 0.2f * k;
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float y;
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + x[k]));
      x[k] = power_of_two(fmaf(-r, x[k], y));
    }
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void __launch_bounds__(256) sign_transactions(const unsigned* a, unsigned* out, int rounds) {
  unsigned x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[T] + k * 0x9e3779b9u;
#pragma unroll 2
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      unsigned y = x[k + 1 & 7] & x[k + 2 & 7] ^ x[k + 3 & 7];
      x[k] = __funnelshift_l(x[k], x[k], 5 + k) + y;
    }
  out[T] = (x[0] ^ x[1]) + (x[2] ^ x[3]) + (x[4] ^ x[5]) + (x[6] ^ x[7]);
}
__global__ void __launch_bounds__(256) shuffle_records(const float4* a, const int* from, float4* out) {  // 512 bytes a warp
  i64 first = T / 32 * 4;
  int lane = threadIdx.x & 31;
  int4 row = *(const int4*)&from[first];
  float4 p = a[row.x * 32ll + lane], q = a[row.y * 32ll + lane], r = a[row.z * 32ll + lane], s = a[row.w * 32ll + lane];
  out[first * 32 + lane] = p, out[first * 32 + 32 + lane] = q, out[first * 32 + 64 + lane] = r, out[first * 32 + 96 + lane] = s;
}
__global__ void __launch_bounds__(256) check_disks(const uint4* a, unsigned* out, int pieces) {  // asynchronous copies, four deep, each thread its own
  __shared__ uint4 room[4][256];
  int t = threadIdx.x;
  const uint4* own = a + (i64)blockIdx.x * pieces * 256 + t;
  auto request = [&](int n) {
    if (n < pieces) __pipeline_memcpy_async(&room[n & 3][t], &own[n * 256], 16);
    __pipeline_commit();
  };
  request(0), request(1), request(2);
  unsigned s = 0;
#pragma unroll 4
  for (int n = 0; n < pieces; ++n) {
    request(n + 3);
    __pipeline_wait_prior(3);
    uint4 v = room[n & 3][t];
    s ^= (v.x ^ v.y) + (v.z ^ v.w);
  }
  out[T] = s;
}
__global__ void sow_seeds(unsigned* seed) { seed[threadIdx.x] = mix(seed[threadIdx.x] + 1); }
__global__ void norm_of_step(const float* step, float* out) {
  float s = warp_sum(step[threadIdx.x] * step[threadIdx.x]);
  if (threadIdx.x == 0) *out = sqrtf(s);
}

void trap_cases() {
  cases.push_back({"shade_maps", "integer_division", "", [] { shade_maps<0><<<dim3(16, 4096), 256>>>((float4*)A, B, (float4*)C, 4096); }, [] { shade_maps<1><<<dim3(16, 4096), 256>>>((float4*)A, B, (float4*)C, 4096); }, C, N});
  cases.push_back({"lighten_scans", "fp64_by_accident", "", [] { lighten_scans<double><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { lighten_scans<float><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"close_ledgers", "one_warp_reduction", "", [] { close_ledgers<0><<<4096, 256>>>((float4*)A, C); }, [] { close_ledgers<1><<<4096, 256>>>((float4*)A, C); }, C, 4096});
  cases.push_back({"level_radios", "occupancy_registers", "", [] { level_radios<0><<<2640, 256>>>((float4*)A, (float4*)C); }, [] { level_radios<1><<<21120, 256>>>((float4*)A, (float4*)C); }, C, 21120 * 3072});
  cases.push_back({"equalise_filters", "dependent_chain", "", [] { equalise_filters<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { equalise_filters<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"mass_of_particles", "global_atomics_one_address", "", [] { mass_of_particles<<<8192, 256>>>((float4*)A, C, 8); }, [] { mass_of_particles<<<2048, 256>>>((float4*)A, C, 32); }, C, 1});
  cases.push_back({"clip_clouds", "divergence", "", [] { clip_clouds<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { clip_clouds<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"shift_rows", "shared_bank_conflicts", "shared_instruction_bound", [] { shift_rows<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { shift_rows<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
}
void clean_cases() {
  static int* order;
  cases.push_back({"grade_exams", "none_at_roof", "", [] { grade_exams<<<65536, 256>>>((float4*)A, (float4*)B, (float4*)D, (float4*)C); }, nullptr});
  cases.push_back({"range_of_prices", "none_at_roof", "", [] { range_of_prices<<<4096, 256>>>((float4*)A, (float2*)C); }, nullptr});
  cases.push_back({"reread_codebooks", "none_at_roof", "", [] { reread_codebooks<<<4224, 256>>>((float4*)A, C, 96); }, nullptr});
  cases.push_back({"turn_wheels", "none_at_roof", "", [] { turn_wheels<<<1056, 256>>>((uint4*)A, (uint4*)C, 512); }, nullptr});
  cases.push_back({"draw_julias", "none_at_roof", "", [] { draw_julias<<<1056, 256>>>((float2*)A, (float2*)C, 512); }, nullptr});
  cases.push_back({"place_moons", "none_at_roof", "", [] { place_moons<<<1056, 256>>>(A, C, 512); }, nullptr});
  cases.push_back({"grow_yeasts", "none_at_roof", "", [] { grow_yeasts<<<1056, 256>>>(A, C, 256); }, nullptr});
  cases.push_back({"sign_transactions", "none_at_roof", "", [] { sign_transactions<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 256); }, nullptr});
  cases.push_back({"shuffle_records", "none_at_roof", "", [] { shuffle_records<<<16384, 256>>>((float4*)A, order, (float4*)C); }, nullptr, nullptr, 0, false, [] {
    std::vector<int> v(1 << 19);
    for (int i = 0; i < 1 << 19; ++i) v[i] = i;
    for (unsigned i = (1 << 19) - 1; i; --i) std::swap(v[i], v[mix(i) % (i + 1)]);
    order = upload(v);
  }});
  cases.push_back({"check_disks", "none_at_roof", "", [] { check_disks<<<1056, 256>>>((uint4*)A, (unsigned*)C, 62); }, nullptr});
  cases.push_back({"sow_seeds", "launch_latency", "", [] { sow_seeds<<<1, 64>>>((unsigned*)C); }, nullptr});
  cases.push_back({"norm_of_step", "launch_latency", "", [] { norm_of_step<<<1, 32>>>(A, C); }, nullptr});
}
