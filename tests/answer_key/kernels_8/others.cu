// Traps, whose tempting fix should win less than 6 %, and kernels near a roof or well built: keys, documents, pages, queries, tokens, colours, orbits.
#include <cooperative_groups/reduce.h>

#include "set.h"

// ---- traps, most beside a full DRAM: conflicts of four lanes; 192 kB of shared memory of which half is used; an array indexed at run time;
// spread atomics; one chain of multiplies in 64 warps; four bytes a thread; documents of any length in many blocks; a sum by one thread
template <int V> __global__ void __launch_bounds__(256) swap_quads(const float4* a, float4* out, int each) {
  __shared__ float all[1024 + 32];
  int t = threadIdx.x;
  auto place = [](int k) { return V == 0 ? k : k + k / 32; };
  for (int k = 0; k < each; ++k) {
    i64 i = ((i64)blockIdx.x * each + k) * 256 + t;
    float4 v = a[i];
    all[place(t * 4)] = v.x, all[place(t * 4 + 1)] = v.y, all[place(t * 4 + 2)] = v.z, all[place(t * 4 + 3)] = v.w;
    __syncthreads();
    out[i] = {all[place(t)], all[place(t + 256)], all[place(t + 512)], all[place(t + 768)]};
    __syncthreads();
  }
}
constexpr int RING = 2048, STAGES = 3;  // of 16 bytes, 32 kB
__global__ void __launch_bounds__(256) stream_in_rings(const float4* a, float4* out, int tiles) {
  extern __shared__ float4 ring[];
  auto request = [&](int t) {
    if (t < tiles)
#pragma unroll
      for (int k = 0; k < 8; ++k) __pipeline_memcpy_async(&ring[t % STAGES * RING + k * 256 + threadIdx.x], &a[((i64)t * gridDim.x + blockIdx.x) * RING + k * 256 + threadIdx.x], 16);
    __pipeline_commit();
  };
  float4 s = {0, 0, 0, 0};
  request(0), request(1);
  for (int t = 0; t < tiles; ++t) {
    request(t + 2);
    __pipeline_wait_prior(2);  // a thread reads only what it has copied itself
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float4 v = ring[t % STAGES * RING + k * 256 + threadIdx.x];
      s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
    }
  }
  float all = (s.x + s.y) + (s.z + s.w);
  out[T] = {all, s.x, s.y, s.z};
}
template <int V> __global__ void __launch_bounds__(256) route_samples(const float4* a, const float* gain, float4* out, i64 n) {
  __shared__ float shared[16];
  float own[16];
  if (V == 0) {
#pragma unroll
    for (int k = 0; k < 16; ++k) own[k] = gain[k];
  } else {
    if (threadIdx.x < 16) shared[threadIdx.x] = gain[threadIdx.x];
    __syncthreads();
  }
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i];
    int of = (int)(i >> 10) & 15;
    float by = V == 0 ? own[of] : shared[of];
    out[i] = {v.x * by, v.y * by, v.z * by, v.w * by};
  }
}
template <int COPIES> __global__ void __launch_bounds__(256) bin_records(const uint4* record, int* out, int n) {
  __shared__ int bin[128 * COPIES];
  for (int i = threadIdx.x; i < 128 * COPIES; i += 256) bin[i] = 0;
  __syncthreads();
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint4 v = record[i];
    unsigned h = mix(v.x ^ v.y ^ v.z ^ v.w);
    atomicAdd(&bin[(h & 127) * COPIES + (threadIdx.x & (COPIES - 1))], 1 + (int)(h >> 30));
  }
  __syncthreads();
  if (threadIdx.x >= 128) return;
  int s = 0;
  for (int k = 0; k < COPIES; ++k) s += bin[threadIdx.x * COPIES + k];
  out[blockIdx.x * 128 + threadIdx.x] = s;
}
template <int LEAPS> __global__ void __launch_bounds__(256) turn_keys(unsigned* out, int steps) {
  const unsigned BY = 22695477, ADD = 12345;
  unsigned by = 1, add = 0, x[LEAPS], s = 0;
#pragma unroll
  for (int k = 0; k < LEAPS; ++k) x[k] = (k ? x[k - 1] : mix((unsigned)T)) * BY + ADD, by *= BY, add = add * BY + ADD;
#pragma unroll 8
  for (int i = 0; i < steps; i += LEAPS)
#pragma unroll
    for (int k = 0; k < LEAPS; ++k) s ^= x[k], x[k] = x[k] * by + add;
  out[T] = s;
}
template <class X> __device__ inline X blended(X a, X b) { return {fmaf(a.x, 0.5f, b.x), fmaf(a.y, 0.5f, b.y), fmaf(a.z, 0.5f, b.z), fmaf(a.w, 0.5f, b.w)}; }
template <> __device__ inline float blended(float a, float b) { return fmaf(a, 0.5f, b); }
template <class X> __global__ void __launch_bounds__(256) blend_layers(const X* a, const X* b, X* out, i64 n) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) out[i] = blended(a[i], b[i]);
}
__global__ void __launch_bounds__(256) sum_documents(const float* word, const int* begin, const int* order, float* out) {
  __shared__ float part[8];
  int of = order[blockIdx.x], end = begin[of + 1];
  float s = 0;
#pragma unroll 4
  for (int i = begin[of] + threadIdx.x; i < end; i += 256) s += word[i];
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) out[of] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
template <int V> __global__ void __launch_bounds__(256) norms_of_pages(const float4* a, float* out, int each) {
  __shared__ float part[256];
  float s = 0;
#pragma unroll 4
  for (int k = 0; k < each; ++k) {
    float4 v = a[((i64)blockIdx.x * each + k) * 256 + threadIdx.x];
    s = fmaf(v.x, v.x, s), s = fmaf(v.y, v.y, s), s = fmaf(v.z, v.z, s), s = fmaf(v.w, v.w, s);
  }
  if (V == 1) s = warp_sum(s);
  part[threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.x) return;
  for (int k = V == 0 ? 1 : 32; k < 256; k += V == 0 ? 1 : 32) s += part[k];
  out[blockIdx.x] = s;
}

// ---- clean kernels
__global__ void __launch_bounds__(256) turn_queries(const uint4* x, const float4* angle, uint4* out) {  // bf16, a token of 8192 values a block
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int i = threadIdx.x + k * 256;
    uint4 v = x[blockIdx.x * 1024ll + i];
    const float4* by = &angle[((blockIdx.x & 4095) * 16 + (i & 15)) * 2];
    float4 p = by[0], q = by[1];
    float c[4] = {p.x, p.z, q.x, q.z}, s[4] = {p.y, p.w, q.y, q.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned w = (&v.x)[j];
      float a = __uint_as_float(w << 16), b = __uint_as_float(w & 0xffff0000u);
      __nv_bfloat162 both = __floats2bfloat162_rn(a * c[j] - b * s[j], a * s[j] + b * c[j]);
      (&v.x)[j] = *(unsigned*)&both;
    }
    out[blockIdx.x * 1024ll + i] = v;
  }
}
__global__ void __launch_bounds__(256) combine_doubles(const double2* a, const double2* b, double2* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    double2 v = a[i], w = b[i];
    out[i] = {fma(v.x, 0.75, w.x), fma(v.y, 0.75, w.y)};
  }
}
__global__ void make_pairs(const float* a, double2* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = {a[i] * 1.0000001, a[i] + 1e-9};
}
__global__ void __launch_bounds__(256) normalise_tokens(const float4* x, const float4* weight, float4* out) {  // a warp a token of 1024
  int lane = threadIdx.x & 31;
  const float4* own = x + T / 32 * 256;
  float4 v[8];
  float s = 0, q = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = own[k * 32 + lane], s += (v[k].x + v[k].y) + (v[k].z + v[k].w);
  float mean = warp_sum(s) * (1 / 1024.0f);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    v[k].x -= mean, v[k].y -= mean, v[k].z -= mean, v[k].w -= mean;
    q += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
  }
  float by = rsqrtf(warp_sum(q) * (1 / 1024.0f) + 1e-5f);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float4 w = weight[k * 32 + lane];
    out[T / 32 * 256 + k * 32 + lane] = {v[k].x * by * w.x, v[k].y * by * w.y, v[k].z * by * w.z, v[k].w * by * w.w};
  }
}
__global__ void __launch_bounds__(256) energy_of_bf16(const uint4* x, float* out, int n) {
  auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  float s[2] = {0, 0};
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint4 v = x[i];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned w = (&v.x)[k];
      float a = __uint_as_float(w << 16), b = __uint_as_float(w & 0xffff0000u);
      s[0] = fmaf(a, a, s[0]), s[1] = fmaf(b, b, s[1]);
    }
  }
  float all = cooperative_groups::reduce(warp, s[0] + s[1], cooperative_groups::plus<float>());
  if (warp.thread_rank() == 0) out[T / 32] = all;
}
__global__ void __launch_bounds__(256) luma_of_planes(const uint4* r, const uint4* g, const uint4* b, uint4* out, int n) {  // 16 pixels a thread
#pragma unroll 2
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint4 x = r[i], y = g[i], z = b[i], w;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned p = (&x.x)[k], q = (&y.x)[k], o = (&z.x)[k], mask = 0x00ff00ffu;
      unsigned even = (p & mask) * 77 + (q & mask) * 150 + (o & mask) * 29, odd = (p >> 8 & mask) * 77 + (q >> 8 & mask) * 150 + (o >> 8 & mask) * 29;
      (&w.x)[k] = __byte_perm(even, odd, 0x7351);
    }
    out[i] = w;
  }
}
__global__ void __launch_bounds__(256) shorten_floats(const float4* a, uint4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i * 2], w = a[i * 2 + 1];
    __nv_bfloat162 p[4] = {__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w), __floats2bfloat162_rn(w.x, w.y), __floats2bfloat162_rn(w.z, w.w)};
    out[i] = {*(unsigned*)&p[0], *(unsigned*)&p[1], *(unsigned*)&p[2], *(unsigned*)&p[3]};
  }
}
__global__ void __launch_bounds__(256) spread_keys(u64* out, int steps) {  // the last part of MurmurHash3
  u64 x[4], all = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = T * 4 + k;
#pragma unroll 4
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] ^= x[k] >> 33, x[k] *= 0xff51afd7ed558ccdull, x[k] ^= x[k] >> 33, x[k] *= 0xc4ceb9fe1a85ec53ull;
#pragma unroll
  for (int k = 0; k < 4; ++k) all ^= x[k];
  out[T] = all;
}
__global__ void __launch_bounds__(256) precess_orbits(const double* a, double* out, int steps) {
  double x[4], v[4], by = a[T] * 0.001;
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 1 + k * 0.1, v[k] = 0.2 * k;
#pragma unroll 4
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = fma(x[k], -by, v[k]), x[k] = fma(v[k], by, x[k]);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void __launch_bounds__(256) settle_populations(const float* a, float* out, int steps) {  // each power needs the one before
  float x[4], r = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = r + 0.1f * k;
#pragma unroll 8
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(x[k]) : "f"(-x[k]));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void __launch_bounds__(256) iterate_maps(const float* a, float* out, int steps) {
  float x[8], r = a[T] - 0.5f;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = 0.1f * k;
#pragma unroll 8
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], r, 0.3f);
  out[T] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
__global__ void commit_step(float* state) {
  if (threadIdx.x < 4) state[threadIdx.x] = fmaf(state[threadIdx.x], 0.5f, 0.01f);
}
__global__ void __launch_bounds__(256) clear_marks(uint4* mark) { mark[T] = {0, 0, 0, 0}; }

void trap_cases() {
  static int *begins, *plain, *longest;
  cases.push_back({"swap_quads", "shared_bank_conflicts", "", [] { swap_quads<0><<<4096, 256>>>((float4*)A, (float4*)C, 16); }, [] { swap_quads<1><<<4096, 256>>>((float4*)A, (float4*)C, 16); }, C, N});
  cases.push_back({"stream_in_rings", "occupancy_shared", "", [] { stream_in_rings<<<132, 256, 192 << 10>>>((float4*)A, (float4*)C, 60); }, [] { stream_in_rings<<<264, 256, 96 << 10>>>((float4*)A, (float4*)C, 30); }, nullptr, 0, false, [] { dynamic_shared(stream_in_rings, 192 << 10); }});
  cases.push_back({"route_samples", "local_array", "", [] { route_samples<0><<<1056, 256>>>((float4*)A, B, (float4*)C, N / 4); }, [] { route_samples<1><<<1056, 256>>>((float4*)A, B, (float4*)C, N / 4); }, C, N});
  cases.push_back({"bin_records", "shared_atomics_one_address", "", [] { bin_records<1><<<1056, 256>>>((uint4*)A, (int*)C, 1 << 24); }, [] { bin_records<4><<<1056, 256>>>((uint4*)A, (int*)C, 1 << 24); }, C, 1056 * 128, true});
  cases.push_back({"turn_keys", "dependent_chain", "", [] { turn_keys<1><<<1056, 256>>>((unsigned*)C, 8192); }, [] { turn_keys<2><<<1056, 256>>>((unsigned*)C, 8192); }, C, 1056 * 256, true});
  cases.push_back({"blend_layers", "narrow_accesses", "", [] { blend_layers<<<1056, 256>>>(A, B, C, N); }, [] { blend_layers<<<1056, 256>>>((float4*)A, (float4*)B, (float4*)C, N / 4); }, C, N});
  cases.push_back({"sum_documents", "uneven_blocks", "", [] { sum_documents<<<14000, 256>>>(A, begins, plain, C); }, [] { sum_documents<<<14000, 256>>>(A, begins, longest, C); }, C, 14000, false, [] {
    std::vector<int> begin(14001), order(14000);
    for (int k = 0; k < 14000; ++k) begin[k + 1] = begin[k] + 512 * (1 + (int)(mix(k + 5) & 15)), order[k] = k;
    begins = upload(begin), plain = upload(order);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return begin[a + 1] - begin[a] > begin[b + 1] - begin[b]; });
    longest = upload(order);
  }});
  cases.push_back({"norms_of_pages", "one_warp_reduction", "", [] { norms_of_pages<0><<<1024, 256>>>((float4*)A, C, 64); }, [] { norms_of_pages<1><<<1024, 256>>>((float4*)A, C, 64); }, C, 1024});
}
void clean_cases() {
  static double2* pairs;
  cases.push_back({"turn_queries", "none_at_roof", "", [] { turn_queries<<<16384, 256>>>((uint4*)A, (float4*)B, (uint4*)C); }, nullptr});
  cases.push_back({"combine_doubles", "none_at_roof", "", [] { combine_doubles<<<1056, 256>>>(pairs, pairs + (1 << 23), (double2*)C, 1 << 23); }, nullptr, nullptr, 0, false, [] {
    pairs = device<double2>(1 << 24);
    make_pairs<<<1056, 256>>>(A, pairs, 1 << 24);
  }});
  cases.push_back({"normalise_tokens", "none_at_roof", "", [] { normalise_tokens<<<8192, 256>>>((float4*)A, (float4*)B, (float4*)C); }, nullptr});
  cases.push_back({"energy_of_bf16", "none_at_roof", "", [] { energy_of_bf16<<<1056, 256>>>((uint4*)A, C, 1 << 24); }, nullptr});
  cases.push_back({"luma_of_planes", "none_at_roof", "", [] { luma_of_planes<<<1056, 256>>>((uint4*)A, (uint4*)B, (uint4*)D, (uint4*)C, 1 << 22); }, nullptr});
  cases.push_back({"shorten_floats", "none_at_roof", "", [] { shorten_floats<<<1056, 256>>>((float4*)A, (uint4*)C, N / 8); }, nullptr});
  cases.push_back({"spread_keys", "none_at_roof", "", [] { spread_keys<<<1056, 256>>>((u64*)C, 512); }, nullptr});
  cases.push_back({"precess_orbits", "none_at_roof", "", [] { precess_orbits<<<1056, 256>>>((double*)A, (double*)C, 512); }, nullptr});
  cases.push_back({"settle_populations", "none_at_roof", "", [] { settle_populations<<<1056, 256>>>(A, C, 1024); }, nullptr});
  cases.push_back({"iterate_maps", "none_at_roof", "", [] { iterate_maps<<<1056, 256>>>(A, C, 2048); }, nullptr});
  cases.push_back({"commit_step", "launch_latency", "", [] { commit_step<<<1, 32>>>(C); }, nullptr});
  cases.push_back({"clear_marks", "launch_latency", "", [] { clear_marks<<<8, 256>>>((uint4*)C); }, nullptr});
}
