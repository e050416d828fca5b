// Traps, whose tempting fix should win less than 6 %, and clean kernels: invoices, masks, errors, volumes, residuals, pages, caches, lengths; traces, frames, drones, bonds, codes, cranes, clips, genes, grades, tiles, versions, arms.
#include "frame.h"

// ---- traps, all beside a full DRAM: a remainder by a number known at run time for each 16 bytes; an exponential and a reciprocal an element; one atomic for each
// 128 kB; a barrier that guards nothing; a branch by the data with a few instructions on either side; lanes that meet in pairs in shared memory; a table of
// pages that tells where 16 kB lie; a length of 64 bits for each 4 kB
template <int V> __global__ void __launch_bounds__(256) tax_invoices(const float4* a, const float* __restrict__ rate, float4* out, unsigned branches, unsigned by) {
  unsigned i = blockIdx.x * 256 + threadIdx.x, key = i >> 3, branch = V == 0 ? key % branches : key - __umulhi(key, by) * branches;
  float4 v = a[i];
  float r = rate[branch >= branches ? branch - branches : branch];
  out[i] = {v.x * r, v.y * r, v.z * r, v.w * r};
}
template <int V> __global__ void __launch_bounds__(256) soften_masks(const float4* a, float4* out) {
  auto soft = [](float x) { return V == 0 ? inverse_of(1 + raise_two(-1.442695f * x)) : fmaf(0.5f, soft_sign(0.5f * x), 0.5f); };
  float4 v = a[T];
  out[T] = {soft(v.x), soft(v.y), soft(v.z), soft(v.w)};
}
__global__ void __launch_bounds__(256) total_of_errors(const float4* a, const float4* b, float* out, int each) {
  __shared__ float part[8];
  float s = 0;
#pragma unroll 4
  for (int k = 0; k < each; ++k) {
    i64 at = ((i64)blockIdx.x * each + k) * 256 + threadIdx.x;
    float4 u = a[at], v = b[at];
    s += (fabsf(u.x - v.x) + fabsf(u.y - v.y)) + (fabsf(u.z - v.z) + fabsf(u.w - v.w));
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])));
}
template <int V> __global__ void __launch_bounds__(256) window_volumes(const float4* a, float4* out) {
  float4 u = a[blockIdx.x * 512ll + threadIdx.x], v = a[blockIdx.x * 512ll + 256 + threadIdx.x];
  if (V == 0) __syncthreads();
  auto window = [](float x) { return __saturatef(fmaf(x, 1.6f, -0.3f)); };
  out[blockIdx.x * 512ll + threadIdx.x] = {window(u.x), window(u.y), window(u.z), window(u.w)};
  if (V == 0) __syncthreads();
  out[blockIdx.x * 512ll + 256 + threadIdx.x] = {window(v.x), window(v.y), window(v.z), window(v.w)};
}
template <int V> __global__ void __launch_bounds__(256) weigh_residuals(const float4* a, float4* out) {  // Huber's weights: a loop either way, or a choice
  float4 v = a[T];
  float size = v.x + v.y;
  if (V == 0) {
    if (size > 1) {
#pragma unroll 1
      for (int k = 0; k < 2; ++k) v.x *= 0.75f, v.y *= 0.75f, v.z = fmaf(v.z, 0.5f, 0.1f);
    } else {
#pragma unroll 1
      for (int k = 0; k < 2; ++k) v.x *= 0.5f, v.y *= 0.5f, v.w = fmaf(v.w, 0.5f, 0.2f);
    }
  } else {
    bool far = size > 1;
    float by = far ? 0.5625f : 0.25f, z = fmaf(v.z, 0.25f, 0.15f), w = fmaf(v.w, 0.25f, 0.3f);
    v = {v.x * by, v.y * by, far ? z : v.z, far ? v.w : w};
  }
  out[T] = v;
}
template <int V> __global__ void __launch_bounds__(256) fold_leaflets(const float4* a, float4* out) {  // each thread gives one word of its four to the 64th next
  __shared__ float room[512];
  int t = threadIdx.x;
  auto place = [](int i) { return V == 0 ? i * 2 : i; };
  float4 v = a[T];
  room[place(t)] = v.x;
  __syncthreads();
  v.x = room[place(t + 64 & 255)];
  out[T] = v;
}
template <int V> __global__ void __launch_bounds__(256) read_page_tables(const float4* cache, const int* page, float* out) {  // a block 16 kB
  int at = V == 0 ? page[blockIdx.x] : (int)(blockIdx.x * 5077 & 16383);
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float4 v = cache[at * 1024ll + k * 256 + threadIdx.x];
    s += fmaf(v.x, 0.1f, v.y * 0.2f) + fmaf(v.z, 0.3f, v.w * 0.4f);
  }
  out[T] = s;
}
template <class LENGTH> __global__ void __launch_bounds__(256) mean_of_sentences(const float4* a, const LENGTH* length, float4* out) {  // a block 4 kB: a row by its length
  LENGTH n = length[blockIdx.x];
  float by = __fdividef(1.0f, (float)n);
  float4 v = a[T];
  out[T] = {v.x * by, v.y * by, v.z * by, v.w * by};
}
__global__ void make_pages(int* page) {
  if (T < 16384) page[T] = (int)(T * 5077 & 16383);
}
__global__ void make_lengths(i64* wide, int* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = 1 + (int)(mix((unsigned)i) & 511);
}

// ---- clean kernels
__global__ void __launch_bounds__(256) peak_of_traces(const float4* a, float* out) {  // a warp 8 kB
  const float4* own = a + T / 32 * 512 + (threadIdx.x & 31);
  float peak = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = own[k * 32];
    peak = fmaxf(peak, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
  }
  unsigned top = __reduce_max_sync(~0u, __float_as_uint(peak));
  if ((threadIdx.x & 31) == 0) out[T / 32] = __uint_as_float(top);
}
__global__ void __launch_bounds__(256) decode_frames(const uint2* a, float4* out) {  // four halves to four floats, four times a thread
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 at = blockIdx.x * 1024ll + k * 256 + threadIdx.x;
    uint2 v = a[at];
    float2 p = __half22float2(*(__half2*)&v.x), q = __half22float2(*(__half2*)&v.y);
    out[at] = {p.x, p.y, q.x, q.y};
  }
}
__global__ void __launch_bounds__(256) fly_drones(const float* a, float* out, int steps) {
  float wind = a[T], x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = 0.1f * k + wind;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], fmaf(-0.25f, x[k], 0.9f), wind);
  out[T] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
__global__ void __launch_bounds__(256) bend_bonds(const float* a, float* out, int terms) {
  double rate = 0.5 + 0.4 * a[T], s[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) s[k] = 0.25 * k;
#pragma unroll 4
  for (int n = 0; n < terms; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) s[k] = fma(s[k], rate, 0.0625);
  out[T] = (float)(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
}
__global__ void __launch_bounds__(256) scramble_codes(const unsigned* a, unsigned* out, int rounds) {
  unsigned x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[T] ^ k * 0x85ebca6bu;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = (x[k] & x[k + 3 & 7]) + (x[k] ^ x[k + 5 & 7]);
  out[T] = ((x[0] ^ x[1]) + (x[2] ^ x[3])) ^ ((x[4] ^ x[5]) + (x[6] ^ x[7]));
}
__global__ void __launch_bounds__(256) swing_cranes(const float* a, float* out, int steps) {  // a power of two and the inverse of a root a step, in four cranes
  float load = 0.5f + a[T], x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.2f * k;
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = rsqrtf(load + raise_two(-x[k]));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void __launch_bounds__(32) stream_clips(const unsigned char* a, unsigned char* out, int pieces) {  // bulk copies in and out, three pieces of 32 kB ahead
  extern __shared__ __align__(128) unsigned char clip[];
  __shared__ u64 full[4];
  const int PIECE = 32768;
  if (threadIdx.x) return;
  for (int d = 0; d < 4; ++d) gate_open(&full[d], 1);
  gates_ready();
  a += (i64)blockIdx.x * pieces * PIECE, out += (i64)blockIdx.x * pieces * PIECE;
  auto bring = [&](int n) {
    if (n >= pieces) return;
    gate_bytes(&full[n & 3], PIECE), bulk_in(clip + (n & 3) * PIECE, a + (i64)n * PIECE, PIECE, &full[n & 3]);
  };
  bring(0), bring(1), bring(2);
#pragma unroll 1
  for (int n = 0; n < pieces; ++n) {
    gate_pass(&full[n & 3], n / 4 & 1);
    bulk_out(out + (i64)n * PIECE, clip + (n & 3) * PIECE, PIECE);
    bulk_read_until<1>();
    bring(n + 3);
  }
  bulk_done_until<0>();
}
__global__ void __launch_bounds__(256) weigh_genes(const int* a, int* out, int rounds) {  // dot products of bytes, in eight sums
  int gene = a[T], s[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) s[k] = k * 7;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) s[k] = __dp4a(gene, s[k], s[k]);
  out[T] = ((s[0] ^ s[1]) + (s[2] ^ s[3])) ^ ((s[4] ^ s[5]) + (s[6] ^ s[7]));
}
__global__ void __launch_bounds__(256) grade_films(const __half2* a, __half2* out, int rounds) {  // packed halves, in eight chains
  __half2 by = a[T], x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = __floats2half2_rn(0.1f * k, 0.05f * k);
#pragma unroll 4
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __hfma2(x[k], by, by);
  out[T] = __hadd2(__hadd2(__hadd2(x[0], x[1]), __hadd2(x[2], x[3])), __hadd2(__hadd2(x[4], x[5]), __hadd2(x[6], x[7])));
}
__global__ void __launch_bounds__(256) gather_tiles(const float4* a, float4* out, unsigned tiles) {  // 1 kB a warp from anywhere, four times
  unsigned warp = (unsigned)(T / 32), lane = threadIdx.x & 31;
  float4 v[8], s = {0, 0, 0, 0};
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    const float4* own = a + (mix(warp * 4 + k) & (tiles - 1)) * 64ll + lane;
    v[k * 2] = own[0], v[k * 2 + 1] = own[32];
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) s = {s.x + v[k].x, s.y + v[k].y, s.z + v[k].z, s.w + v[k].w};
  out[T] = s;
}
__global__ void bump_version(int* version) { ++*version; }
__global__ void pick_arm(const float* reward, int* out) {  // the best of 32
  unsigned best = __reduce_max_sync(~0u, (__float_as_uint(reward[threadIdx.x]) & ~31u) | threadIdx.x);
  if (threadIdx.x == 0) *out = (int)(best & 31);
}

void trap_cases() {
  static int *pages, *lengths32;
  static i64* lengths64;
  cases.push_back({"tax_invoices", "integer_division", "", [] { tax_invoices<0><<<65536, 256>>>((float4*)A, B, (float4*)C, 1009, 4256657); }, [] { tax_invoices<1><<<65536, 256>>>((float4*)A, B, (float4*)C, 1009, 4256657); }, C, N});
  cases.push_back({"soften_masks", "special_functions", "", [] { soften_masks<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { soften_masks<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"total_of_errors", "global_atomics_one_address", "", [] { total_of_errors<<<4096, 256>>>((float4*)A, (float4*)B, C, 16); }, [] { total_of_errors<<<1024, 256>>>((float4*)A, (float4*)B, C, 64); }, C, 1});
  cases.push_back({"window_volumes", "needless_barriers", "", [] { window_volumes<0><<<32768, 256>>>((float4*)A, (float4*)C); }, [] { window_volumes<1><<<32768, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"weigh_residuals", "divergence", "", [] { weigh_residuals<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { weigh_residuals<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"fold_leaflets", "shared_bank_conflicts", "", [] { fold_leaflets<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { fold_leaflets<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"read_page_tables", "pointer_chasing", "", [] { read_page_tables<0><<<16384, 256>>>((float4*)A, pages, C); }, [] { read_page_tables<1><<<16384, 256>>>((float4*)A, nullptr, C); }, C, 1 << 22, false, [] {
    pages = device<int>(16384);
    make_pages<<<64, 256>>>(pages);
  }});
  cases.push_back({"mean_of_sentences", "wide_data", "", [] { mean_of_sentences<<<65536, 256>>>((float4*)A, lengths64, (float4*)C); }, [] { mean_of_sentences<<<65536, 256>>>((float4*)A, lengths32, (float4*)C); }, C, N, false, [] {
    lengths64 = device<i64>(65536), lengths32 = device<int>(65536);
    make_lengths<<<64, 256>>>(lengths64, lengths32, 65536);
  }});
}
void clean_cases() {
  cases.push_back({"peak_of_traces", "none_at_roof", "", [] { peak_of_traces<<<4096, 256>>>((float4*)A, C); }, nullptr});
  cases.push_back({"decode_frames", "none_at_roof", "", [] { decode_frames<<<16384, 256>>>((uint2*)A, (float4*)C); }, nullptr});
  cases.push_back({"fly_drones", "none_at_roof", "", [] { fly_drones<<<1056, 256>>>(A, C, 512); }, nullptr});
  cases.push_back({"bend_bonds", "none_at_roof", "", [] { bend_bonds<<<1056, 256>>>(A, C, 512); }, nullptr});
  cases.push_back({"scramble_codes", "none_at_roof", "", [] { scramble_codes<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 512); }, nullptr});
  cases.push_back({"swing_cranes", "none_at_roof", "", [] { swing_cranes<<<1056, 256>>>(A, C, 256); }, nullptr});
  cases.push_back({"stream_clips", "none_at_roof", "", [] {
    dynamic_shared(stream_clips, 131072);
    stream_clips<<<132, 32, 131072>>>((unsigned char*)A, (unsigned char*)C, 62);
  }, nullptr});
  cases.push_back({"weigh_genes", "none_at_roof", "", [] { weigh_genes<<<1056, 256>>>((int*)A, (int*)C, 512); }, nullptr});
  cases.push_back({"grade_films", "none_at_roof", "", [] { grade_films<<<1056, 256>>>((__half2*)A, (__half2*)C, 1024); }, nullptr});
  cases.push_back({"gather_tiles", "none_at_roof", "", [] { gather_tiles<<<8192, 256>>>((float4*)A, (float4*)C, 1u << 18); }, nullptr});
  cases.push_back({"bump_version", "launch_latency", "", [] { bump_version<<<1, 1>>>((int*)C); }, nullptr});
  cases.push_back({"pick_arm", "launch_latency", "", [] { pick_arm<<<1, 32>>>(A, (int*)C); }, nullptr});
}
