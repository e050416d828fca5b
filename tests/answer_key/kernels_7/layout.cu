// How values lie in memory and in which order they are read: records, rain, signals, profiles, buckets, trees.
#include "set.h"

// ---- assemble_records: a pass for each field, so that each write fills 8 of the 32 bytes of a sector; expected 3 times
template <int V> __global__ void __launch_bounds__(256) assemble_records(const float2* plane, float2* record, i64 n) {
  auto scaled = [](float2 v) { return float2{v.x * 0.5f + 1, v.y * 0.5f + 1}; };
  if (V == 0) {
    for (int k = 0; k < 4; ++k)
#pragma unroll 4
      for (i64 i = T; i < n; i += STRIDE) record[i * 4 + k] = scaled(plane[k * n + i]);
  } else {
#pragma unroll 2
    for (i64 i = T; i < n; i += STRIDE) {
      float2 a = scaled(plane[i]), b = scaled(plane[n + i]), c = scaled(plane[2 * n + i]), d = scaled(plane[3 * n + i]);
      ((float4*)record)[i * 2] = {a.x, a.y, b.x, b.y}, ((float4*)record)[i * 2 + 1] = {c.x, c.y, d.x, d.y};
    }
  }
}
// ---- rain_of_stations: whole millimetres below 256 kept in 32 bits; expected 3.5 times
__global__ void make_rain(int* wide, unsigned char* narrow, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    int v = (int)(mix((unsigned)i + 19) & 255);
    wide[i] = v, narrow[i] = (unsigned char)v;
  }
}
template <int V> __global__ void __launch_bounds__(256) rain_of_stations(const void* day, int* out) {  // 512 days a station, a warp
  int lane = threadIdx.x & 31, s = 0;
  i64 station = T / 32;
  if (V == 0) {
    const int4* own = (const int4*)day + station * 128 + lane;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int4 v = own[k * 32];
      s += (v.x + v.y) + (v.z + v.w);
    }
  } else {
    uint4 v = ((const uint4*)day)[station * 32 + lane];
    s = (int)__dp4a(v.x, 0x01010101u, __dp4a(v.y, 0x01010101u, __dp4a(v.z, 0x01010101u, __dp4a(v.w, 0x01010101u, 0u))));
  }
  s = __reduce_add_sync(~0u, s);
  if (lane == 0) out[station] = s;
}
// ---- level_of_signals: floats that were kept as doubles, beside a full DRAM; expected 1.9 times
__global__ void widen(const float* a, double* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = a[i];
}
template <class R> __global__ void __launch_bounds__(256) level_of_signals(const R* signal, float* out) {  // 256 samples a signal, a warp
  struct __align__(sizeof(R) * 2) Two { R x, y; };
  const Two* own = (const Two*)signal + T / 32 * 128 + (threadIdx.x & 31);
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    Two v = own[k * 32];
    float x = (float)v.x - 0.5f, y = (float)v.y - 0.5f;
    s = fmaf(x, x, fmaf(y, y, s));
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) out[T / 32] = sqrtf(s / 256);
}
// ---- score_profiles: eight profiles read each chunk of 64 kB; the next profile comes when the chunk has left the L2; expected 1.25 times
constexpr int CHUNKS = 2048, CHUNK = 4096;  // of four floats
template <int V> __global__ void __launch_bounds__(256) score_profiles(const float4* a, const float* profile, float* out) {
  int chunk = V == 0 ? blockIdx.x % CHUNKS : blockIdx.x / 8, of = V == 0 ? blockIdx.x / CHUNKS : blockIdx.x & 7;
  float level = profile[of], s = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < CHUNK; i += 256) {
    float4 v = a[(i64)chunk * CHUNK + i];
    s += (fabsf(v.x - level) + fabsf(v.y - level)) + (fabsf(v.z - level) + fabsf(v.w - level));
  }
  out[((i64)chunk * 8 + of) * 256 + threadIdx.x] = s;
}
// ---- look_up_words: eight nodes of a bucket, each found by the one before, or eight words side by side; expected 4 times
constexpr int BUCKETS = 1 << 21;
__host__ __device__ inline int place_of(int bucket, int k) { return k * BUCKETS + (int)(((unsigned)bucket * (2654435761u + 2 * k * 97) + 12345u * k) & (BUCKETS - 1)); }
__global__ void make_buckets(int2* node, int* word) {
  for (i64 b = T; b < BUCKETS; b += STRIDE)
    for (int k = 0; k < 8; ++k) {
      int v = (int)mix((unsigned)(b * 8 + k) + 31);
      word[b * 8 + k] = v;
      node[place_of((int)b, k)] = {v, k == 7 ? -1 : place_of((int)b, k + 1)};
    }
}
template <int V> __global__ void __launch_bounds__(256) look_up_words(const int2* node, const int4* word, int* out) {
#pragma unroll 1
  for (int q = 0; q < 16; ++q) {
    int bucket = (int)(mix((unsigned)(q * STRIDE + T) + 3) & (BUCKETS - 1)), best = 0x7fffffff;
    if (V == 0) {
      for (int at = place_of(bucket, 0); at >= 0;) {
        int2 n = node[at];
        best = min(best, n.x & 0xffffff), at = n.y;
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int4 w = word[bucket * 2 + h];
        best = min(best, min(min(w.x & 0xffffff, w.y & 0xffffff), min(w.z & 0xffffff, w.w & 0xffffff)));
      }
    }
    out[q * STRIDE + T] = best;
  }
}
// ---- seek_records: a warp descends a tree of nodes of 128 bytes; blocks of one warp leave half of an SM's warps unused; expected 1.6 times
__global__ void seek_records(const float* key, int* out) {
  unsigned lane = threadIdx.x & 31, query = (unsigned)(T / 32), node = mix(query);
#pragma unroll 1
  for (int level = 0; level < 8; ++level) {
    float v = key[(i64)(node & ((1 << 21) - 1)) * 32 + lane], want = (mix(query * 8 + level) >> 8) * 0x1p-24f;
    node = mix(node * 33 + __popc(__ballot_sync(~0u, v <= want)));
  }
  if (lane == 0) out[query] = (int)node;
}

void layout_cases() {
  static int *rain, *word;
  static unsigned char* narrow;
  static double* wide;
  static int2* node;
  const i64 DAYS = N;
  cases.push_back({"assemble_records", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { assemble_records<0><<<1056, 256>>>((float2*)A, (float2*)C, 1 << 22); }, [] { assemble_records<1><<<1056, 256>>>((float2*)A, (float2*)C, 1 << 22); }, C, 1 << 25});
  cases.push_back({"rain_of_stations", "wide_data", "", [] { rain_of_stations<0><<<16384, 256>>>(rain, (int*)C); }, [] { rain_of_stations<1><<<16384, 256>>>(narrow, (int*)C); }, C, 1 << 17, true, [=] {
    rain = device<int>(DAYS), narrow = device<unsigned char>(DAYS);
    make_rain<<<1056, 256>>>(rain, narrow, DAYS);
  }});
  cases.push_back({"level_of_signals", "wide_data", "fp64_by_accident", [] { level_of_signals<double><<<16384, 256>>>(wide, C); }, [] { level_of_signals<float><<<16384, 256>>>(A, C); }, C, 1 << 17, false, [] {
    wide = device<double>(1 << 25);
    widen<<<1056, 256>>>(A, wide, 1 << 25);
  }});
  cases.push_back({"score_profiles", "block_order_l2", "no_tile", [] { score_profiles<0><<<CHUNKS * 8, 256>>>((float4*)A, B, C); }, [] { score_profiles<1><<<CHUNKS * 8, 256>>>((float4*)A, B, C); }, C, CHUNKS * 8 * 256});
  cases.push_back({"look_up_words", "pointer_chasing", "", [] { look_up_words<0><<<264, 256>>>(node, (int4*)word, (int*)C); }, [] { look_up_words<1><<<264, 256>>>(node, (int4*)word, (int*)C); }, C, 16 * 264 * 256, true, [] {
    node = device<int2>((i64)BUCKETS * 8), word = device<int>((i64)BUCKETS * 8);
    make_buckets<<<1056, 256>>>(node, word);
  }});
  cases.push_back({"seek_records", "occupancy_block_size", "pointer_chasing", [] { seek_records<<<1 << 17, 32>>>(A, (int*)C); }, [] { seek_records<<<1 << 14, 256>>>(A, (int*)C); }, C, 1 << 17, true});
}
