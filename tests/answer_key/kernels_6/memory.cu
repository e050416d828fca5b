// Loads and stores of everyday code: logits, edges, lidar, patches, pictures, keys, masks, overlays.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// operands.csv has the sizes of operands, as a caller knows them from shapes and types; of a strided view, only its own elements.
#include "set.h"

void access_cases();  // access.cu

// ---- log_sum_exp: a thread walks its own row, so the lanes of a load are 512 bytes apart; expected 4 times
template <int V> __global__ void __launch_bounds__(256) log_sum_exp(const float* logits, float* out) {  // 128 classes
  if (V == 0) {
    const float* x = logits + T * 128;
    float most = x[0], s = 0;
    for (int c = 1; c < 128; ++c) most = fmaxf(most, x[c]);
    for (int c = 0; c < 128; ++c) s += __expf(x[c] - most);
    out[T] = most + __logf(s);
  } else {
    float4 v = ((const float4*)logits)[T];
    float most = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
    for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    float s = warp_sum((__expf(v.x - most) + __expf(v.y - most)) + (__expf(v.z - most) + __expf(v.w - most)));
    if ((threadIdx.x & 31) == 0) out[T / 32] = most + __logf(s);
  }
}
// ---- score_edges: a thread reads the features of both ends of its edge, so lanes read 64 rows at once; expected 2.5 times
__global__ void make_edges(int2* edge, i64 n, unsigned nodes) {
  for (i64 i = T; i < n; i += STRIDE) edge[i] = {(int)(mix((unsigned)i * 2) & (nodes - 1)), (int)(mix((unsigned)i * 2 + 1) & (nodes - 1))};
}
template <int V> __global__ void __launch_bounds__(256) score_edges(const int2* edge, const float* feature, float* out) {  // 64 features
  if (V == 0) {
    int2 e = edge[T];
    float s = 0;
#pragma unroll 4
    for (int f = 0; f < 64; ++f) s = fmaf(feature[(i64)e.x * 64 + f], feature[(i64)e.y * 64 + f], s);
    out[T] = s;
  } else {
    int2 e = edge[T / 16];
    int l = threadIdx.x & 15;
    float4 u = ((const float4*)feature)[(i64)e.x * 16 + l], v = ((const float4*)feature)[(i64)e.y * 16 + l];
    float s = (u.x * v.x + u.y * v.y) + (u.z * v.z + u.w * v.w);
    for (int o = 8; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (l == 0) out[T / 16] = s;
  }
}
// ---- bright_returns: one field of a record of 48 bytes; expected 6 times
__global__ void split_intensity(const float* record, float* intensity, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) intensity[i] = record[i * 12 + 3];
}
template <int STEP> __global__ void __launch_bounds__(256) bright_returns(const float* intensity, float* out, i64 n) {
  float s = 0;
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    float v = intensity[i * STEP];
    s += v > 0.75f ? v : 0;
  }
  out[T] = s;
}
// ---- patches_of_pixels: a thread writes the nine values of its pixel, so the lanes of a store are 36 bytes apart; expected 2 times
constexpr int SIDE = 2048, PITCH = SIDE + 2;
template <int V> __global__ void __launch_bounds__(256) patches_of_pixels(const float* picture, float* out) {
  unsigned at = (unsigned)T, pixel = V == 0 ? at : at / 9, k = at % 9;
  const float* corner = picture + (pixel / SIDE) * PITCH + pixel % SIDE;
  if (V == 0) {
#pragma unroll
    for (int j = 0; j < 9; ++j) out[at * 9 + j] = corner[j / 3 * PITCH + j % 3];
  } else {
    out[at] = corner[k / 3 * PITCH + k % 3];
  }
}
// ---- brighten: a byte a thread; expected 3 times
template <int V> __global__ void __launch_bounds__(256) brighten(const unsigned char* in, unsigned char* out, unsigned add) {
  if (V == 0) {
    out[T] = (unsigned char)min(255u, in[T] + add);
  } else {
    uint4 v = ((const uint4*)in)[T];
    unsigned four = add * 0x01010101u;
    ((uint4*)out)[T] = {__vaddus4(v.x, four), __vaddus4(v.y, four), __vaddus4(v.z, four), __vaddus4(v.w, four)};
  }
}
// ---- score_cached_keys: a cache of keys in FP32 that were computed in FP16; expected 1.9 times
__global__ void round_keys(const float* a, __half* narrow, float* same, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) narrow[i] = __float2half(a[i]), same[i] = __half2float(narrow[i]);
}
__global__ void __launch_bounds__(256) score_cached_keys(const float4* key, const float* query, float* out, int n) {  // 128 values a key, a warp
  int lane = threadIdx.x & 31;
  float4 q = ((const float4*)query)[lane];
#pragma unroll 4
  for (i64 i = T / 32; i < n; i += STRIDE / 32) {
    float4 k = key[i * 32 + lane];
    float s = warp_sum((q.x * k.x + q.y * k.y) + (q.z * k.z + q.w * k.w));
    if (lane == 0) out[i] = s;
  }
}
__global__ void __launch_bounds__(256) score_cached_keys(const uint2* key, const float* query, float* out, int n) {
  int lane = threadIdx.x & 31;
  float4 q = ((const float4*)query)[lane];
#pragma unroll 4
  for (i64 i = T / 32; i < n; i += STRIDE / 32) {
    uint2 w = key[i * 32 + lane];
    float2 k = __half22float2(*(__half2*)&w.x), l = __half22float2(*(__half2*)&w.y);
    float s = warp_sum((q.x * k.x + q.y * k.y) + (q.z * l.x + q.w * l.y));
    if (lane == 0) out[i] = s;
  }
}
// ---- drop_units: a mask of 0 and 1 kept as floats; expected 1.4 times
__global__ void make_mask(float* wide, unsigned* bits, i64 n) {
  for (i64 w = T; w < n / 32; w += STRIDE) {
    unsigned m = mix((unsigned)w);
    bits[w] = m;
    for (int k = 0; k < 32; ++k) wide[w * 32 + k] = m >> k & 1;
  }
}
template <int V> __global__ void __launch_bounds__(256) drop_units(const float4* x, const void* mask, float4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = x[i], m;
    if (V == 0) {
      m = ((const float4*)mask)[i];
    } else {
      unsigned b = ((const unsigned*)mask)[i / 8] >> (i & 7) * 4;
      m = {(float)(b & 1), (float)(b >> 1 & 1), (float)(b >> 2 & 1), (float)(b >> 3 & 1)};
    }
    out[i] = {v.x * m.x * 2, v.y * m.y * 2, v.z * m.z * 2, v.w * m.w * 2};
  }
}
// ---- set_opacity: writes 4 of the 16 bytes of a pixel, or a plane of its own; expected 3 times
template <int STEP> __global__ void __launch_bounds__(256) set_opacity(const float* a, float* opacity, i64 n) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) opacity[i * STEP] = fminf(a[i] * 1.5f, 1);
}

void memory_cases() {
  static int2* edge;
  static float *intensity, *wide, *keys;
  static unsigned* bits;
  static __half* narrow;
  const i64 RETURNS = 5 << 20;
  cases.push_back({"log_sum_exp", "uncoalesced_loads", "", [] { log_sum_exp<0><<<1024, 256>>>(A, C); }, [] { log_sum_exp<1><<<32768, 256>>>(A, C); }, C, 1 << 18});
  cases.push_back({"score_edges", "uncoalesced_loads", "", [] { score_edges<0><<<2048, 256>>>(edge, A, C); }, [] { score_edges<1><<<32768, 256>>>(edge, A, C); }, C, 1 << 19, false, [] {
    edge = device<int2>(1 << 19);
    make_edges<<<1056, 256>>>(edge, 1 << 19, 1 << 18);
  }});
  cases.push_back({"bright_returns", "strided_sectors", "", [=] { bright_returns<12><<<1056, 256>>>(A + 3, C, RETURNS); }, [=] { bright_returns<1><<<1056, 256>>>(intensity, C, RETURNS); }, C, 1056 * 256, false, [=] {
    intensity = device<float>(RETURNS);
    split_intensity<<<1056, 256>>>(A, intensity, RETURNS);
  }});
  cases.push_back({"patches_of_pixels", "uncoalesced_stores", "partial_sector_writes", [] { patches_of_pixels<0><<<SIDE * SIDE / 256, 256>>>(A, C); }, [] { patches_of_pixels<1><<<SIDE * SIDE / 256 * 9, 256>>>(A, C); }, C, SIDE * SIDE * 9});
  cases.push_back({"brighten", "narrow_accesses", "", [] { brighten<0><<<1 << 19, 256>>>((unsigned char*)A, (unsigned char*)C, 40); }, [] { brighten<1><<<1 << 15, 256>>>((unsigned char*)A, (unsigned char*)C, 40); }, C, 1 << 25, true});
  cases.push_back({"score_cached_keys", "wide_data", "", [] { score_cached_keys<<<1056, 256>>>((float4*)keys, B, C, 1 << 18); }, [] { score_cached_keys<<<1056, 256>>>((uint2*)narrow, B, C, 1 << 18); }, C, 1 << 18, false, [] {
    keys = device<float>(1 << 25), narrow = device<__half>(1 << 25);
    round_keys<<<1056, 256>>>(A, narrow, keys, 1 << 25);
  }});
  cases.push_back({"drop_units", "wide_data", "", [] { drop_units<0><<<1056, 256>>>((float4*)A, wide, (float4*)C, N / 8); }, [] { drop_units<1><<<1056, 256>>>((float4*)A, bits, (float4*)C, N / 8); }, C, N / 2, false, [] {
    wide = device<float>(N / 2), bits = device<unsigned>(N / 64);
    make_mask<<<1056, 256>>>(wide, bits, N / 2);
  }});
  cases.push_back({"set_opacity", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { set_opacity<4><<<1056, 256>>>(A, C + 3, N / 4); }, [] { set_opacity<1><<<1056, 256>>>(A, C, N / 4); }});
  access_cases();
}
