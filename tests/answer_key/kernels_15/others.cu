// Traps, whose tempting fix should win less than 6 %: lanterns, tapes, waves, mirrors, beads, goods, candles, tides. Clean kernels: vintages, sentences, scrolls, gyres,
// exponents, integers, doubles, barges, a gong, an hourglass.
#include "frame.h"

// ---- traps. All but orbit_beads fill DRAM: dim_lanterns multiplies floats by a double; shift_tapes reads from 16 bytes into a sector; in tallest_waves one thread compares
// the eight parts of 64 kB; polish_mirrors takes 100 kB of shared memory a block, and still asks for enough at once; tariff_of_goods looks up four constants;
// pour_candles has one block an SM, each thread of which asks for eight vectors at once; sum_of_tides adds 64 numbers in one chain. orbit_beads stores four words 16 bytes apart, after 1,024 steps
template <int V> __global__ void __launch_bounds__(256) dim_lanterns(const float4* a, float4* out) {
  auto dim = [](float x) { return V == 0 ? (float)(x * 0.85) : x * 0.85f; };
  float4 v = a[T];
  out[T] = {dim(v.x), dim(v.y), dim(v.z), dim(v.w)};
}
__global__ void __launch_bounds__(256) shift_tapes(const float4* __restrict__ tape, float4* __restrict__ out) {
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    i64 i = blockIdx.x * 512ll + k * 256 + threadIdx.x;
    float4 v = tape[i];
    out[i] = {v.y, v.x, v.w, v.z};
  }
}
template <int V> __global__ void __launch_bounds__(256) tallest_waves(const float4* a, float* out) {
  __shared__ float part[8];
  int t = threadIdx.x;
  float most = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + t];
    most = fmaxf(most, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
  }
  for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
  if ((t & 31) == 0) part[t / 32] = most;
  __syncthreads();
  if (V == 0) {
    if (t == 0) {
#pragma unroll 1
      for (int k = 0; k < 8; ++k) most = fmaxf(most, part[k]);
      out[blockIdx.x] = most;
    }
  } else if (t < 32) {
    most = part[t & 7];
    for (int o = 4; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    if (t == 0) out[blockIdx.x] = most;
  }
}
__global__ void __launch_bounds__(512) polish_mirrors(const float4* a, float4* out) {
  extern __shared__ float room[];
  int t = threadIdx.x;
  float4 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = a[blockIdx.x * 2048ll + k * 512 + t];
  room[t] = v[0].x;
  __syncthreads();
  v[0].x = room[t ^ 33];
#pragma unroll
  for (int k = 0; k < 4; ++k) out[blockIdx.x * 2048ll + k * 512 + t] = v[k];
}
template <int V> __global__ void __launch_bounds__(256) orbit_beads(const float* a, float* place, float* out, int steps) {
  float x = a[T], y = 0.2f, u = 0.1f, w = 0.3f;
#pragma unroll 4
  for (int n = 0; n < steps; ++n) {
    u = fmaf(-0.01f, x, u), w = fmaf(-0.01f, y, w), x = fmaf(0.01f, u, x), y = fmaf(0.01f, w, y);
    u = fmaf(-0.001f, y, u), w = fmaf(0.001f, x, w), x = fmaf(0.002f, w, x), y = fmaf(-0.002f, u, y);
  }
  float v[4] = {x, y, u, w};
#pragma unroll
  for (int k = 0; k < 4; ++k) place[V == 0 ? T * 4 + k : k * STRIDE + T] = v[k];
  out[T] = 3 + x + y;
}
__constant__ float TARIFF[4] = {0.05f, 0.19f, 0.07f, 0.25f};
template <int V> __global__ void __launch_bounds__(256) tariff_of_goods(const float4* a, float4* out) {
  float4 v = a[T];
  unsigned kind = __float_as_uint(v.x) >> 2 & 3;
  float by = 1 + (V == 0 ? TARIFF[kind] : kind & 2 ? (kind & 1 ? 0.25f : 0.07f) : (kind & 1 ? 0.19f : 0.05f));
  out[T] = {v.x * by, v.y * by, v.z * by, v.w * by};
}
__global__ void __launch_bounds__(1024) pour_candles(const float4* __restrict__ a, float4* __restrict__ out, int n) {
#pragma unroll 8
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float4 v = a[i];
    out[i] = {1 - v.x, 1 - v.y, 1 - v.z, 1 - v.w};
  }
}
template <int V> __global__ void __launch_bounds__(256) sum_of_tides(const float4* a, float* out) {
  float4 v[16];
  float s[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) v[k] = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
#pragma unroll
  for (int k = 0; k < 16; ++k) s[0] += v[k].x, s[V ? 1 : 0] += v[k].y, s[V ? 2 : 0] += v[k].z, s[V ? 3 : 0] += v[k].w;
  out[T] = V == 0 ? s[0] : (s[0] + s[1]) + (s[2] + s[3]);
}

// ---- clean kernels
__global__ void __launch_bounds__(256) blend_vintages(const double2* a, const double2* b, double2* out, double share) {
  double2 p = a[T], q = b[T];
  out[T] = {fma(share, p.x, q.x), fma(share, p.y, q.y)};
}
__global__ void __launch_bounds__(256) level_sentences(const uint4* a, uint4* out) {  // a warp for each row of 2,048 numbers of BF16, which it keeps in registers
  const uint4* own = a + T / 32 * 256 + (threadIdx.x & 31);
  uint4 v[8];
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = own[k * 32];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const __nv_bfloat162* p = (const __nv_bfloat162*)&v[k];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 f = __bfloat1622float2(p[j]);
      s = fmaf(f.x, f.x, fmaf(f.y, f.y, s));
    }
  }
  __nv_bfloat162 by = __float2bfloat162_rn(rsqrtf(warp_sum(s) * (1 / 2048.0f) + 1e-5f));
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    __nv_bfloat162* p = (__nv_bfloat162*)&v[k];
#pragma unroll
    for (int j = 0; j < 4; ++j) p[j] = __hmul2(p[j], by);
    out[T / 32 * 256 + (threadIdx.x & 31) + k * 32] = v[k];
  }
}
__global__ void __launch_bounds__(256) dequantise_scrolls(const uint2* __restrict__ a, const float* scale, uint4* __restrict__ out) {  // eight bytes to eight halves, twice a thread
  float by = scale[blockIdx.x];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    i64 i = blockIdx.x * 512ll + k * 256 + threadIdx.x;
    uint2 v = a[i];
    auto two = [&](unsigned w) {
      half2 p = __floats2half2_rn(by * (float)((int)(w << 24) >> 24), by * (float)((int)(w << 16) >> 24));
      return *(unsigned*)&p;
    };
    out[i] = {two(v.x), two(v.x >> 16), two(v.y), two(v.y >> 16)};
  }
}
__global__ void __launch_bounds__(256) spin_gyres(const float* a, float* out, int turns) {
  float x[4], y[4], c = 0.8f - 0.1f * a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k, y[k] = 0.4f;
#pragma unroll 4
  for (int n = 0; n < turns; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fmaf(c, x[k], c), y[k] = fmaf(-c, y[k], c), x[k] = fmaf(0.25f, y[k], x[k]), y[k] = fmaf(-0.25f, x[k], y[k]);
  out[T] = ((x[0] + x[1]) + (x[2] + x[3])) + ((y[0] + y[1]) + (y[2] + y[3]));
}
__global__ void __launch_bounds__(256) brew_exponents(const float* a, float* out, int rounds) {  // a power of two and a logarithm, four at once
  float x[4], lift = 1.5f + a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.3f * k;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = log2_fast(lift + exp2_fast(x[k]));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void __launch_bounds__(256) churn_integers(const unsigned* a, unsigned* out, int rounds) {  // products and sums, eight at once
  unsigned x[8], by = a[T] | 5;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = k * 0x9e3779b9u;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = x[k] * by + x[k + 1 & 7];
  out[T] = ((x[0] ^ x[1]) + (x[2] ^ x[3])) ^ ((x[4] ^ x[5]) + (x[6] ^ x[7]));
}
__global__ void __launch_bounds__(256) whirl_doubles(const float* a, float* out, int rounds) {  // complex squares, four at once
  double re[4], im[4], c = 0.2 * a[T] - 0.3;
#pragma unroll
  for (int k = 0; k < 4; ++k) re[k] = 0.05 * k, im[k] = 0.1;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      double p = fma(-im[k], im[k], c), q = fma(re[k], im[k], 0.05);
      re[k] = fma(re[k], re[k], p), im[k] = fma(re[k], im[k], q);
    }
  out[T] = (float)((re[0] + re[1]) + (re[2] + re[3]) + (im[0] + im[1]) + (im[2] + im[3]));
}
__global__ void __launch_bounds__(256) relay_barges(const float4* a, float* out, int each) {  // asynchronous copies of its own by each thread, seven of them ahead
  __shared__ float4 dock[8][256];
  int t = threadIdx.x;
  const float4* own = a + (i64)blockIdx.x * each * 256 + t;
  auto order = [&](int n) {
    if (n < each) __pipeline_memcpy_async(&dock[n & 7][t], own + n * 256, 16);
    __pipeline_commit();
  };
#pragma unroll
  for (int n = 0; n < 7; ++n) order(n);
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    order(n + 7);
    __pipeline_wait_prior(7);
    float4 v = dock[n & 7][t];
    s += fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
  }
  out[T] = s;
}
__global__ void strike_gong(float* loud) { *loud = 0.9f * *loud + 0.1f; }
__global__ void turn_hourglass(int* sand) { sand[threadIdx.x] = 63 - sand[threadIdx.x]; }

void trap_cases() {
  static float* tape;
  cases.push_back({"dim_lanterns", "fp64_by_accident", "", [] { dim_lanterns<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { dim_lanterns<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"shift_tapes", "misaligned_base", "alignment", [] { shift_tapes<<<32768, 256>>>((float4*)(A + 4), (float4*)C); }, [] { shift_tapes<<<32768, 256>>>((float4*)tape, (float4*)C); }, C, N, false, [] {
    tape = device<float>(N);
    CHECK(cudaMemcpy(tape, A + 4, N * 4, cudaMemcpyDefault));
  }});
  cases.push_back({"tallest_waves", "one_warp_reduction", "", [] { tallest_waves<0><<<4096, 256>>>((float4*)A, C); }, [] { tallest_waves<1><<<4096, 256>>>((float4*)A, C); }, C, 4096});
  cases.push_back({"polish_mirrors", "occupancy_shared", "", [] {
    dynamic_shared(polish_mirrors, 100 << 10);
    polish_mirrors<<<8192, 512, 100 << 10>>>((float4*)A, (float4*)C);
  }, [] {
    dynamic_shared(polish_mirrors, 100 << 10);
    polish_mirrors<<<8192, 512, 2 << 10>>>((float4*)A, (float4*)C);
  }, C, N});
  cases.push_back({"orbit_beads", "uncoalesced_stores", "partial_sector_writes|strided_sectors", [] { orbit_beads<0><<<2112, 256>>>(A, D, C, 1024); }, [] { orbit_beads<1><<<2112, 256>>>(A, D, C, 1024); }, C, 2112 * 256});
  cases.push_back({"tariff_of_goods", "constant_divergence", "", [] { tariff_of_goods<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { tariff_of_goods<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"pour_candles", "grid_too_small", "", [] { pour_candles<<<132, 1024>>>((float4*)A, (float4*)C, 1 << 24); }, [] { pour_candles<<<264, 1024>>>((float4*)A, (float4*)C, 1 << 24); }, C, N});
  cases.push_back({"sum_of_tides", "dependent_chain", "", [] { sum_of_tides<0><<<4096, 256>>>((float4*)A, C); }, [] { sum_of_tides<1><<<4096, 256>>>((float4*)A, C); }, C, 1 << 20});
}
void clean_cases() {
  static __nv_bfloat16* sentences;
  cases.push_back({"blend_vintages", "none_at_roof", "", [] { blend_vintages<<<32768, 256>>>((double2*)A, (double2*)B, (double2*)C, 0.4); }, nullptr});
  cases.push_back({"level_sentences", "none_at_roof", "", [] { level_sentences<<<4096, 256>>>((uint4*)sentences, (uint4*)C); }, nullptr, nullptr, 0, false, [] { sentences = converted<__nv_bfloat16>(A, N, 0.5f); }});
  cases.push_back({"dequantise_scrolls", "none_at_roof", "", [] { dequantise_scrolls<<<16384, 256>>>((uint2*)A, B, (uint4*)C); }, nullptr});
  cases.push_back({"spin_gyres", "none_at_roof", "", [] { spin_gyres<<<1056, 256>>>(A, C, 256); }, nullptr});
  cases.push_back({"brew_exponents", "none_at_roof", "", [] { brew_exponents<<<1056, 256>>>(A, C, 192); }, nullptr});
  cases.push_back({"churn_integers", "none_at_roof", "", [] { churn_integers<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 384); }, nullptr});
  cases.push_back({"whirl_doubles", "none_at_roof", "", [] { whirl_doubles<<<1056, 256>>>(A, C, 256); }, nullptr});
  cases.push_back({"relay_barges", "none_at_roof", "", [] { relay_barges<<<792, 256>>>((float4*)A, C, 80); }, nullptr});
  cases.push_back({"strike_gong", "launch_latency", "", [] { strike_gong<<<1, 1>>>(C); }, nullptr});
  cases.push_back({"turn_hourglass", "launch_latency", "", [] { turn_hourglass<<<1, 64>>>((int*)C); }, nullptr});
}
