// DRAM's roof, element by element: copies, reads, writes, updates in place, gathers and scatters of rows, turned tiles, rings and bulk copies.
// The line above a kernel names its roof and the count behind it, before any run. DRAM is taken as 4.2 TB/s: 18 bytes a cycle and SM.
#include "frame.h"

#include <cuda_fp8.h>

// at the roof of DRAM, because 512 MB take 128 us and 16 bytes need 12 FMAs
__global__ void __launch_bounds__(256) tone_film_negatives(const float4* a, float4* out) {
  auto tone = [](float x) { return fmaf(fmaf(fmaf(-0.31f, x, 0.84f), x, -1.47f), x, 0.97f); };
  float4 v = a[T];
  out[T] = {tone(v.x), tone(v.y), tone(v.z), tone(v.w)};
}
// at the roof of DRAM, because three streams of 128 MB take 96 us; eight BF16 a thread
__global__ void __launch_bounds__(256) merge_dusk_exposures(const uint4* a, const uint4* b, uint4* out) {
  uint4 p = a[T], q = b[T];
  auto two = [](unsigned x, unsigned y) {
    __nv_bfloat162 u = *(__nv_bfloat162*)&x, v = *(__nv_bfloat162*)&y, w = __hfma2(__hsub2(v, u), __float2bfloat162_rn(0.375f), u);
    return *(unsigned*)&w;
  };
  out[T] = {two(p.x, q.x), two(p.y, q.y), two(p.z, q.z), two(p.w, q.w)};
}
// at the roof of DRAM, because 256 MB are read once, in 64 us, by one full wave with eight loads a thread in flight
__global__ void __launch_bounds__(256, 4) weigh_cargo_bays(const float4* a, float* out, int each) {
  float s[4] = {};
  const float4* own = a + T;
#pragma unroll 8
  for (int k = 0; k < each; ++k) {
    float4 v = own[k * STRIDE];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// at the roof of DRAM, because 256 MB of bytes are read once, in 64 us; a word needs three instructions
__global__ void __launch_bounds__(256) count_frosty_days(const uint4* a, int* out) {
  int s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint4 v = a[blockIdx.x * 2048ll + k * 256 + threadIdx.x];
    s += __popc(v.x & 0x80808080u) + __popc(v.y & 0x80808080u) + __popc(v.z & 0x80808080u) + __popc(v.w & 0x80808080u);
  }
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) out[T / 32] = s;
}
// at the roof of DRAM, because 256 MB are written, in 64 us, from coordinates
__global__ void __launch_bounds__(256) lay_sky_gradient(float4* out, float slope, float tilt) {  // 4096 rows of 4096 vectors
  float y = blockIdx.y * tilt, x = (blockIdx.x * 256 + threadIdx.x) * slope + y;
  out[(blockIdx.y * 16 + blockIdx.x) * 256ll + threadIdx.x] = {x, x + y, x - y, 1.0f};
}
// at the roof of DRAM, because 256 MB are written, in 64 us; a word needs four integer instructions
__global__ void __launch_bounds__(256) sprinkle_stage_snow(uint4* out, unsigned seed) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    unsigned i = blockIdx.x * 1024 + k * 256 + threadIdx.x, x = i * 0x9e3779b9u + seed;
    x ^= x >> 15;
    unsigned y = x * 0x85ebca6bu;
    out[i] = {y, y ^ x, y + 0x7f4a7c15u, y ^ y >> 13};
  }
}
// at the roof of DRAM, because 256 MB are read and written in place, in 128 us
__global__ void __launch_bounds__(256) dry_river_silt(float4* bed) { bed[T] = scaled(bed[T], 0.97f, 0.01f); }
// at the roof of DRAM, because 256 MB of doubles are read and written in place, in 128 us; 1 DFMA for 8 bytes
__global__ void __launch_bounds__(256) drain_lock_basins(double2* level) {
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    double2 v = level[blockIdx.x * 512ll + k * 256 + threadIdx.x];
    level[blockIdx.x * 512ll + k * 256 + threadIdx.x] = {fma(v.x, 0.99609375, 0.001953125), fma(v.y, 0.99609375, 0.001953125)};
  }
}
// at the roof of DRAM, because two streams of 128 MB of halves take 64 us; 4 HFMA2 for 4 bytes
__global__ void __launch_bounds__(256) cure_resin_layers(const uint4* a, uint4* out) {
  auto cured = [](unsigned w) {
    __half2 x = *(__half2*)&w, p = __float2half2_rn(0.21f), q = __float2half2_rn(-0.6f), r = __float2half2_rn(1.3f);
    x = __hfma2(__hfma2(__hfma2(p, x, q), x, r), x, p);
    return *(unsigned*)&x;
  };
  uint4 v = a[T];
  out[T] = {cured(v.x), cured(v.y), cured(v.z), cured(v.w)};
}
// at the roof of DRAM, because two streams of 64 MB of FP8 take 32 us; two conversions for two bytes
__global__ void __launch_bounds__(256) clamp_fp8_synapses(const uint4* a, uint4* out) {
  auto pair = [](unsigned short w) {
    __half2 x = __half2(__nv_cvt_fp8x2_to_halfraw2(w, __NV_E4M3));
    x = __hmin2(__hfma2(x, __float2half2_rn(0.75f), __float2half2_rn(0.125f)), __float2half2_rn(1.5f));
    return (unsigned)__nv_cvt_halfraw2_to_fp8x2(x, __NV_SATFINITE, __NV_E4M3);
  };
  auto four = [&](unsigned w) { return pair((unsigned short)w) | pair((unsigned short)(w >> 16)) << 16; };
  uint4 v = a[T];
  out[T] = {four(v.x), four(v.y), four(v.z), four(v.w)};
}
// at the roof of DRAM, because three streams of 256 MB take 192 us
__global__ void __launch_bounds__(256) net_till_balances(const int4* a, const int4* b, int4* out) {
  int4 p = a[T], q = b[T];
  out[T] = {p.x * 3 - (q.x >> 2), p.y * 3 - (q.y >> 2), p.z * 3 - (q.z >> 2), p.w * 3 - (q.w >> 2)};
}
// at the roof of DRAM, because two streams of 256 MB of bytes take 128 us; a word needs three instructions
__global__ void __launch_bounds__(256) soften_drum_hits(const uint4* a, uint4* out) {
  auto halved = [](unsigned w) { return (w >> 1 & 0x7f7f7f7fu) + 0x20202020u; };
  uint4 v = a[T];
  out[T] = {halved(v.x), halved(v.y), halved(v.z), halved(v.w)};
}
// at the roof of DRAM, because four streams of 256 MB of doubles take 256 us
__global__ void __launch_bounds__(256) fuse_gyro_axes(const double2* a, const double2* b, const double2* c, double2* out) {
  double2 p = a[T], q = b[T], r = c[T];
  out[T] = {fma(p.x, q.x, r.x), fma(p.y, q.y, r.y)};
}
// at the roof of DRAM, because 128 MB x (3 read, 3 written) and 64 MB of gradients take 208 us
__global__ void __launch_bounds__(256) train_language_weights(float4* weight, float4* mean, float4* square, const uint2* gradient, float rate, float keep, float keep2) {
  float4 w = weight[T], m = mean[T], s = square[T];
  uint2 h = gradient[T];
  float2 p = two_of(h.x), q = two_of(h.y);
  auto step = [&](float& w, float& m, float& s, float g) {
    m = fmaf(keep, m - g, g), s = fmaf(keep2, s - g * g, g * g);
    w = fmaf(-rate * m, rsqrtf(s + 1e-8f), w);
  };
  step(w.x, m.x, s.x, p.x), step(w.y, m.y, s.y, p.y), step(w.z, m.z, s.z, q.x), step(w.w, m.w, s.w, q.y);
  weight[T] = w, mean[T] = m, square[T] = s;
}
// at the roof of DRAM, because 128 MB x (3 read, 2 written) take 160 us
__global__ void __launch_bounds__(256) steer_sign_momentum(float4* weight, float4* mean, const float4* gradient, float rate) {
  float4 w = weight[T], m = mean[T], g = gradient[T];
  auto step = [&](float& w, float& m, float g) { w -= copysignf(rate, fmaf(0.9f, m - g, g)), m = fmaf(0.99f, m - g, g); };
  step(w.x, m.x, g.x), step(w.y, m.y, g.y), step(w.z, m.z, g.z), step(w.w, m.w, g.w);
  weight[T] = w, mean[T] = m;
}
// at the roof of DRAM, because whole rows of 1 kB are gathered and written once, 512 MB in 128 us; four rows a warp in flight
__global__ void __launch_bounds__(256) fetch_museum_records(const float4* a, const int* from, float4* out) {
  i64 first = T / 32 * 4;
  int lane = threadIdx.x & 31;
  int4 r = *(const int4*)&from[first];
  const float4 *p = a + r.x * 64ll + lane, *q = a + r.y * 64ll + lane, *s = a + r.z * 64ll + lane, *u = a + r.w * 64ll + lane;
  float4 v[8] = {p[0], p[32], q[0], q[32], s[0], s[32], u[0], u[32]};
#pragma unroll
  for (int k = 0; k < 8; ++k) out[first * 64 + k * 32 + lane] = v[k];
}
// at the roof of DRAM, because rows of 512 bytes are read in order and written to a permuted place, 512 MB in 128 us
__global__ void __launch_bounds__(256) deal_library_cards(const float4* a, const int* to, float4* out) {
  i64 first = T / 32 * 4;
  int lane = threadIdx.x & 31;
  int4 r = *(const int4*)&to[first];
  float4 p = a[first * 32 + lane], q = a[first * 32 + 32 + lane], s = a[first * 32 + 64 + lane], u = a[first * 32 + 96 + lane];
  out[r.x * 32ll + lane] = p, out[r.y * 32ll + lane] = q, out[r.z * 32ll + lane] = s, out[r.w * 32ll + lane] = u;
}
// at the roof of DRAM, because pieces of 256 bytes, eight whole sectors, are written to a permuted place, 256 MB in 64 us
__global__ void __launch_bounds__(256) file_ocean_floats(const float4* a, const int* to, float4* out) {
  float4 p = a[T], q = a[STRIDE + T];
  int r = to[T / 16], s = to[(STRIDE + T) / 16];
  out[r * 16ll + (threadIdx.x & 15)] = p, out[s * 16ll + (threadIdx.x & 15)] = q;
}
// at the roof of DRAM, because 512 MB take 128 us; tiles of 64 x 64 lie padded in shared memory, and 16 loads a thread are in flight
__global__ void __launch_bounds__(256) turn_weather_grids(const float* a, float* out, int side) {
  __shared__ float tile[64][65];
  int x = threadIdx.x & 63, y = threadIdx.x / 64;
#pragma unroll
  for (int k = 0; k < 64; k += 4) tile[y + k][x] = a[(blockIdx.y * 64ll + y + k) * side + blockIdx.x * 64 + x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 64; k += 4) out[(blockIdx.x * 64ll + y + k) * side + blockIdx.y * 64 + x] = tile[x][y + k];
}
constexpr int TAPE = 24576;
// at the roof of DRAM, because 519 MB are copied in 124 us; one thread an SM keeps six bulk copies of 24 kB in flight
__global__ void __launch_bounds__(32) relay_archive_tapes(const unsigned char* a, unsigned char* out, int pieces) {
  extern __shared__ __align__(128) unsigned char room[];
  __shared__ u64 full[8];
  if (threadIdx.x) return;
  for (int d = 0; d < 8; ++d) expect(&full[d], 1);
  show_barriers();
  auto place_of = [&](int n) { return ((i64)n * gridDim.x + blockIdx.x) * TAPE; };
  auto request = [&](int n) {
    if (n >= pieces) return;
    announce(&full[n & 7], TAPE);
    load_bulk(room + (n & 7) * TAPE, a + place_of(n), TAPE, &full[n & 7]);
  };
  for (int n = 0; n < 6; ++n) request(n);
#pragma unroll 1
  for (int n = 0; n < pieces; ++n) {
    wait(&full[n & 7], n / 8 & 1);
    store_bulk(out + place_of(n), room + (n & 7) * TAPE, TAPE);
    asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory");
    request(n + 6);
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// at the roof of DRAM, because 268 MB are read in 64 us; one warp asks for eight pieces of 16 kB ahead, and eight warps add them
__global__ void __launch_bounds__(288) weigh_grain_wagons(const float4* a, float* out, int pieces) {
  extern __shared__ __align__(128) float4 wagons[];
  __shared__ u64 full[8], empty[8];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  if (t == 0) {
    for (int d = 0; d < 8; ++d) expect(&full[d], 1), expect(&empty[d], 8);
    show_barriers();
  }
  __syncthreads();
  if (warp == 8) {
    if (lane == 0)
      for (int n = 0; n < pieces; ++n) {
        int d = n & 7;
        if (n >= 8) wait(&empty[d], (n / 8 - 1) & 1);
        announce(&full[d], 16384);
        load_bulk(wagons + d * 1024, a + ((i64)n * gridDim.x + blockIdx.x) * 1024, 16384, &full[d]);
      }
    return;
  }
  float s[4] = {};
#pragma unroll 1
  for (int n = 0; n < pieces; ++n) {
    int d = n & 7;
    wait(&full[d], n / 8 & 1);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float4 v = wagons[d * 1024 + k * 256 + t];
      s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
    }
    __syncwarp();
    if (lane == 0) arrive(&empty[d]);
  }
  out[blockIdx.x * 256 + t] = (s[0] + s[1]) + (s[2] + s[3]);
}
// at the roof of DRAM, because 536 MB are read and written in 128 us; each thread copies four of its vectors ahead, 96 kB an SM
__global__ void __launch_bounds__(256) smooth_tidal_gauges(const float4* a, float4* out, int pieces) {
  __shared__ float4 room[4][256];
  int t = threadIdx.x;
  i64 first = (i64)blockIdx.x * pieces * 256 + t;
  auto request = [&](int n) {
    if (n < pieces) __pipeline_memcpy_async(&room[n & 3][t], &a[first + n * 256], 16);
    __pipeline_commit();
  };
  request(0), request(1), request(2);
  float4 s = {0, 0, 0, 0};
#pragma unroll 4
  for (int n = 0; n < pieces; ++n) {
    request(n + 3);
    __pipeline_wait_prior(3);
    float4 v = room[n & 3][t];
    s = {fmaf(0.8f, s.x, v.x), fmaf(0.8f, s.y, v.y), fmaf(0.8f, s.z, v.z), fmaf(0.8f, s.w, v.w)};
    out[first + n * 256] = s;
  }
}
// at the roof of DRAM, because three streams of 256 MB take 192 us; the grid is one wave of 1056 blocks, and a thread has eight loads in flight
__global__ void __launch_bounds__(256, 4) average_twin_barometers(const float4* a, const float4* b, float4* out, int n) {
  int i = (int)T, step = (int)STRIDE;
  for (; i + 3 * step < n; i += 4 * step) {
    float4 p[4], q[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) p[k] = a[i + k * step], q[k] = b[i + k * step];
#pragma unroll
    for (int k = 0; k < 4; ++k) out[i + k * step] = {0.5f * (p[k].x + q[k].x), 0.5f * (p[k].y + q[k].y), 0.5f * (p[k].z + q[k].z), 0.5f * (p[k].w + q[k].w)};
  }
  for (; i < n; i += step) {
    float4 p = a[i], q = b[i];
    out[i] = {0.5f * (p.x + q.x), 0.5f * (p.y + q.y), 0.5f * (p.z + q.z), 0.5f * (p.w + q.w)};
  }
}
// at the roof of DRAM, because 512 MB take 128 us; blocks of 1024 threads make 15.5 waves, and an SM has 128 kB of loads in flight
__global__ void __launch_bounds__(1024, 2) copy_glacier_cores(const float4* a, float4* out) {
  float4 v[4];
  i64 first = blockIdx.x * 4096ll + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = __ldcs(&a[first + k * 1024]);
#pragma unroll
  for (int k = 0; k < 4; ++k) __stcs(&out[first + k * 1024], v[k]);
}
// at the roof of DRAM, because 16-bit heights of 128 MB become floats of 256 MB in 96 us
__global__ void __launch_bounds__(256) restore_ridge_heights(const short4* a, float4* out, const float* scale) {
  float by = __ldg(&scale[blockIdx.x >> 4]);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    short4 v = a[blockIdx.x * 1024ll + k * 256 + threadIdx.x];
    out[blockIdx.x * 1024ll + k * 256 + threadIdx.x] = {v.x * by, v.y * by, v.z * by, v.w * by};
  }
}
// at the roof of DRAM, because two streams of 256 MB are compared in 128 us, and a block writes one word
__global__ void __launch_bounds__(256) compare_scroll_copies(const uint4* a, const uint4* b, int* out) {
  unsigned s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint4 p = a[blockIdx.x * 1024ll + k * 256 + threadIdx.x], q = b[blockIdx.x * 1024ll + k * 256 + threadIdx.x];
    s |= (p.x ^ q.x) | (p.y ^ q.y) | (p.z ^ q.z) | (p.w ^ q.w);
  }
  int any = __syncthreads_or(s != 0);
  if (threadIdx.x == 0) out[blockIdx.x] = any;
}
// at the roof of DRAM, because 512 MB and 64 MB of masks take 144 us
__global__ void __launch_bounds__(256) hide_cloudy_fields(const float4* a, const uchar4* cloud, float4* out, float empty) {
  float4 v = a[T];
  uchar4 m = cloud[T];
  out[T] = {m.x > 127 ? empty : v.x, m.y > 127 ? empty : v.y, m.z > 127 ? empty : v.z, m.w > 127 ? empty : v.w};
}
// at the roof of DRAM, because three streams of 256 MB of complex numbers take 192 us; 4 FMAs for 24 bytes
__global__ void __launch_bounds__(256) rotate_radar_pulses(const float4* a, const float4* b, float4* out) {
  float4 p = a[T], q = b[T];
  out[T] = {fmaf(p.x, q.x, p.y * q.y), fmaf(p.y, q.x, -p.x * q.y), fmaf(p.z, q.z, p.w * q.w), fmaf(p.w, q.z, -p.z * q.w)};
}

void stream_cases() {
  static bf16* dusk;
  static double* basins;
  static __half* resin;
  static float *weight, *mean, *square;
  static bf16* gradient;
  static int *records, *cards, *floats;
  cases.push_back({"tone_film_negatives", "none_at_roof", "", [] { tone_film_negatives<<<65536, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"merge_dusk_exposures", "none_at_roof", "", [] { merge_dusk_exposures<<<32768, 256>>>((uint4*)dusk, (uint4*)(dusk + N), (uint4*)C); }, nullptr, nullptr, 0, false, [] {
    dusk = device<bf16>(2 * N);
    convert<<<1056, 256>>>(A, dusk, N, 0.0f), convert<<<1056, 256>>>(B, dusk + N, N, 0.0f);
  }});
  cases.push_back({"weigh_cargo_bays", "none_at_roof", "", [] { weigh_cargo_bays<<<528, 256>>>((float4*)A, C, 124); }, nullptr});
  cases.push_back({"count_frosty_days", "none_at_roof", "", [] { count_frosty_days<<<8192, 256>>>((uint4*)B, (int*)C); }, nullptr});
  cases.push_back({"lay_sky_gradient", "none_at_roof", "", [] { lay_sky_gradient<<<dim3(16, 4096), 256>>>((float4*)C, 0.001f, 0.002f); }, nullptr});
  cases.push_back({"sprinkle_stage_snow", "none_at_roof", "", [] { sprinkle_stage_snow<<<16384, 256>>>((uint4*)C, 77u); }, nullptr});
  cases.push_back({"dry_river_silt", "none_at_roof", "", [] { dry_river_silt<<<65536, 256>>>((float4*)C); }, nullptr});
  cases.push_back({"drain_lock_basins", "none_at_roof", "", [] { drain_lock_basins<<<32768, 256>>>((double2*)basins); }, nullptr, nullptr, 0, false, [] { basins = converted<double>(A, N / 2, 0); }});
  cases.push_back({"cure_resin_layers", "none_at_roof", "", [] { cure_resin_layers<<<32768, 256>>>((uint4*)resin, (uint4*)C); }, nullptr, nullptr, 0, false, [] { resin = converted<__half>(A, N, 0); }});
  cases.push_back({"clamp_fp8_synapses", "none_at_roof", "", [] { clamp_fp8_synapses<<<16384, 256>>>((uint4*)B, (uint4*)C); }, nullptr});
  cases.push_back({"net_till_balances", "none_at_roof", "", [] { net_till_balances<<<65536, 256>>>((int4*)A, (int4*)B, (int4*)C); }, nullptr});
  cases.push_back({"soften_drum_hits", "none_at_roof", "", [] { soften_drum_hits<<<65536, 256>>>((uint4*)A, (uint4*)C); }, nullptr});
  cases.push_back({"fuse_gyro_axes", "none_at_roof", "", [] { fuse_gyro_axes<<<65536, 256>>>((double2*)A, (double2*)B, (double2*)D, (double2*)C); }, nullptr});
  auto make_weights = [] {
    if (weight) return;
    weight = converted<float>(A, N / 2, 0.5f), mean = converted<float>(B, N / 2, 0.5f), square = converted<float>(D, N / 2, 0), gradient = converted<bf16>(A + N / 2, N / 2, 0.5f);
  };
  cases.push_back({"train_language_weights", "none_at_roof", "", [] { train_language_weights<<<32768, 256>>>((float4*)weight, (float4*)mean, (float4*)square, (uint2*)gradient, 1e-3f, 0.9f, 0.99f); }, nullptr, nullptr, 0, false, make_weights});
  cases.push_back({"steer_sign_momentum", "none_at_roof", "", [] { steer_sign_momentum<<<32768, 256>>>((float4*)weight, (float4*)mean, (float4*)B, 1e-3f); }, nullptr, nullptr, 0, false, make_weights});
  cases.push_back({"fetch_museum_records", "none_at_roof", "", [] { fetch_museum_records<<<8192, 256>>>((float4*)A, records, (float4*)C); }, nullptr, nullptr, 0, false, [] { records = permutation(1 << 18); }});
  cases.push_back({"deal_library_cards", "none_at_roof", "", [] { deal_library_cards<<<16384, 256>>>((float4*)A, cards, (float4*)C); }, nullptr, nullptr, 0, false, [] { cards = permutation(1 << 19); }});
  cases.push_back({"file_ocean_floats", "none_at_roof", "", [] { file_ocean_floats<<<16384, 256>>>((float4*)B, floats, (float4*)C); }, nullptr, nullptr, 0, false, [] { floats = permutation(1 << 19); }});
  cases.push_back({"turn_weather_grids", "none_at_roof", "", [] { turn_weather_grids<<<dim3(128, 128), 256>>>(A, C, 8192); }, nullptr});
  cases.push_back({"relay_archive_tapes", "none_at_roof", "", [] {
    dynamic_shared(relay_archive_tapes, 8 * TAPE);
    relay_archive_tapes<<<132, 32, 8 * TAPE>>>((unsigned char*)A, (unsigned char*)C, 80);
  }, nullptr});
  cases.push_back({"weigh_grain_wagons", "none_at_roof", "", [] {
    dynamic_shared(weigh_grain_wagons, 8 * 16384);
    weigh_grain_wagons<<<132, 288, 8 * 16384>>>((float4*)B, C, 124);
  }, nullptr});
  cases.push_back({"smooth_tidal_gauges", "none_at_roof", "", [] { smooth_tidal_gauges<<<1056, 256>>>((float4*)A, (float4*)C, 62); }, nullptr});
  cases.push_back({"average_twin_barometers", "none_at_roof", "", [] { average_twin_barometers<<<528, 256>>>((float4*)A, (float4*)B, (float4*)C, (int)(N / 4)); }, nullptr});
  cases.push_back({"copy_glacier_cores", "none_at_roof", "", [] { copy_glacier_cores<<<4096, 1024>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"restore_ridge_heights", "none_at_roof", "", [] { restore_ridge_heights<<<16384, 256>>>((short4*)A, (float4*)C, B); }, nullptr});
  cases.push_back({"compare_scroll_copies", "none_at_roof", "", [] { compare_scroll_copies<<<16384, 256>>>((uint4*)A, (uint4*)D, (int*)C); }, nullptr});
  cases.push_back({"hide_cloudy_fields", "none_at_roof", "", [] { hide_cloudy_fields<<<65536, 256>>>((float4*)A, (uchar4*)B, (float4*)C, -1.0f); }, nullptr});
  cases.push_back({"rotate_radar_pulses", "none_at_roof", "", [] { rotate_radar_pulses<<<65536, 256>>>((float4*)A, (float4*)B, (float4*)C); }, nullptr});
}
