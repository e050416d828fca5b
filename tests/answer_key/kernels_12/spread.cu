// Grids, blocks and occupancy: heads, isobars, alloys, canyons, prompts, tides, meshes, eels, scan lines, Bloom filters.
#include "frame.h"

void spread_cases();

// ---- decode_heads: one query and 65,536 keys for each of 16 heads, a block a head; or 64 blocks a head; expected 6 times
__global__ void __launch_bounds__(256) decode_heads(const uint4* key, const __half* query, float* out, int keys) {  // eight lanes a key of 64 halves
  int lane = threadIdx.x & 7;
  float q[8], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) q[k] = __half2float(query[blockIdx.y * 64 + lane * 8 + k]);
  const uint4* own = key + ((i64)blockIdx.y * gridDim.x + blockIdx.x) * keys * 8 + lane;
#pragma unroll 4
  for (int j = threadIdx.x / 8; j < keys; j += 32) {
    uint4 v = own[j * 8];
    float2 a = __half22float2(*(__half2*)&v.x), b = __half22float2(*(__half2*)&v.y), c = __half22float2(*(__half2*)&v.z), d = __half22float2(*(__half2*)&v.w);
    float dot = (fmaf(a.x, q[0], a.y * q[1]) + fmaf(b.x, q[2], b.y * q[3])) + (fmaf(c.x, q[4], c.y * q[5]) + fmaf(d.x, q[6], d.y * q[7]));
    for (int o = 4; o; o >>= 1) dot += __shfl_xor_sync(~0u, dot, o);
    s += power_of_two(dot);
  }
  s = warp_sum(s) * 0.125f;
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[blockIdx.y], s);
}
// ---- trace_isobars: blocks of 32 x 32 on a map of 160 x 160, each through 512 levels; or 32 parts of the levels; expected 5 times
constexpr int MAP = 160;
__global__ void __launch_bounds__(1024) trace_isobars(const float* pressure, float* out, int levels) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y, east = min(x + 1, MAP - 1), south = min(y + 1, MAP - 1);
#pragma unroll 2
  for (int z = blockIdx.z * levels; z < (blockIdx.z + 1) * levels; ++z) {
    const float* own = pressure + z * MAP * MAP;
    float p = own[y * MAP + x], u = own[y * MAP + east] - p, v = own[south * MAP + x] - p;
    out[z * MAP * MAP + y * MAP + x] = sqrtf(fmaf(u, u, v * v));
  }
}
// ---- melt_alloys: 272 blocks of 1024 threads, two an SM, so that eight run in a second wave; or 4352 of 256 threads with a quarter of the work each; expected 1.4 times
__global__ void __launch_bounds__(1024, 2) melt_alloys(const float* a, float* out, int each, int steps) {
#pragma unroll 1
  for (int r = 0; r < each; ++r) {
    i64 i = ((i64)blockIdx.x * each + r) * blockDim.x + threadIdx.x;
    float x[4], heat = a[i];
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = heat * (0.2f + 0.1f * k);
#pragma unroll 4
    for (int n = 0; n < steps; ++n) {
      float p = x[0];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float next = k < 3 ? x[k + 1] : p;
        x[k] = fmaf(0.05f, next - x[k], x[k]), x[k] = fmaf(x[k], fmaf(-0.01f, x[k], 1.0f), 0.001f * heat);
      }
    }
    out[i] = (x[0] + x[1]) + (x[2] + x[3]);
  }
}
// ---- light_canyons: 264 persistent blocks of which each owns 16 tiles side by side, and the low ones take 32 times as many steps as the high ones; or each 264th tile; expected 1.7 times
__global__ void __launch_bounds__(1024) light_canyons(const float* a, float* out, int by_range) {
#pragma unroll 1
  for (int k = 0; k < 16; ++k) {
    int tile = by_range ? blockIdx.x * 16 + k : k * 264 + blockIdx.x, depth = tile >> 4, steps = 8 + depth * depth / 280;
    float x = a[tile * 1024 + threadIdx.x], light = 1, s = 0;
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
      float d = fmaf(x, 0.37f, 0.01f * n);
      d -= floorf(d), light *= fmaf(-0.02f, d, 1.0f), s = fmaf(light, d, s), x = fmaf(x, 0.98f, 0.01f);
    }
    out[tile * 1024 + threadIdx.x] = s;
  }
}
// ---- prefill_prompts: a block a prompt, 512 of 256 words and eight of 2,048; or a block for each 64 queries; expected 4 times
struct Prompt {
  int begin, end, from, to;  // its words, and the queries among them that a block has
};
__global__ void __launch_bounds__(256) prefill_prompts(const float* query, const float* key, const Prompt* prompt, float* out) {
  __shared__ float tile[256];
  Prompt own = prompt[blockIdx.x];
  int part = threadIdx.x & 3;  // of the keys
  for (int q = own.from + threadIdx.x / 4; q < own.to; q += 64) {
    float at = query[q], s = 0;
#pragma unroll 1
    for (int k = own.begin; k < own.end; k += 256) {
      __syncthreads();
      tile[threadIdx.x] = key[k + threadIdx.x];
      __syncthreads();
#pragma unroll 8
      for (int j = 0; j < 256; j += 4) s += power_of_two(at * tile[j + part]);
    }
    s += __shfl_xor_sync(~0u, s, 1), s += __shfl_xor_sync(~0u, s, 2);
    if (part == 0) out[q] = s;
  }
}
// ---- force_tides: one of eight warps adds up what 64 neighbours do to the open boundary, and the others wait for it; or each warp takes eight of them; expected 2 times
template <int V> __global__ void __launch_bounds__(256) force_tides(const float* a, const float* influence, float* out, int steps) {
  __shared__ float of[64][32], height[256], part[8][32];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  for (int i = t; i < 2048; i += 256) of[i / 32][i & 31] = influence[i];
  float x = a[T], v = 0;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    height[t] = x;
    __syncthreads();
    float force = 0;
    if (V == 0) {
      if (warp == 0) {
#pragma unroll 8
        for (int j = 0; j < 64; ++j) force = fmaf(of[j][lane], height[j * 4], force);
        part[0][lane] = force;
      }
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) force = fmaf(of[warp * 8 + j][lane], height[(warp * 8 + j) * 4], force);
      part[warp][lane] = force;
    }
    __syncthreads();
    force = part[0][lane];
    if (V == 1)
#pragma unroll
      for (int w = 1; w < 8; ++w) force += part[w][lane];
    v = fmaf(0.98f, v, fmaf(-0.05f, x, 0.002f * force)), x = fmaf(0.1f, v, x);
  }
  out[T] = x;
}
// ---- repair_meshes: one cell of 65,536 needs a system of 12 x 12 solved in registers, for which every thread has them, so 8 warps fit an SM; or a launch of its own for those cells; expected 3 times
__device__ inline float repaired(float s) {
  float m[12][12], all = 0;
#pragma unroll
  for (int i = 0; i < 12; ++i)
#pragma unroll
    for (int j = 0; j < 12; ++j) m[i][j] = i == j ? 9 + s : __sinf(s * (i * 12 + j));
#pragma unroll 1
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int p = 0; p < 12; ++p) {
      float by = __fdividef(1.0f, m[p][p]);
#pragma unroll
      for (int i = 0; i < 12; ++i) {
        if (i == p) continue;
        float f = m[i][p] * by;
#pragma unroll
        for (int j = 0; j < 12; ++j) m[i][j] = fmaf(-f, m[p][j], m[i][j]);
      }
      m[p][p] += 2;
    }
#pragma unroll
    for (int i = 0; i < 12; ++i)
#pragma unroll
      for (int j = 0; j < 12; ++j) m[i][j] = fmaf(m[j][i], 0.125f, m[i][j]);
  }
#pragma unroll
  for (int i = 0; i < 12; ++i)
#pragma unroll
    for (int j = 0; j < 12; ++j) all += fabsf(m[i][j]) * (0.01f * (i + j));
  return fminf(all, 1000.0f);
}
__device__ inline bool broken(i64 cell) { return (mix((unsigned)cell) & 65535) == 7; }
template <int V> __global__ void __launch_bounds__(256) repair_meshes(const float* a, float* out, int each) {
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) s = fmaf(s, 0.9f, a[n * STRIDE + T]);
  if (V == 0 && broken(T)) s = repaired(s);
  out[T] = s;
}
__global__ void __launch_bounds__(32) repair_alone(const int* cell, float* out) {
  float s = out[cell[blockIdx.x]];
  __syncwarp();
  s = repaired(s);
  if (threadIdx.x == 0) out[cell[blockIdx.x]] = s;
}
// ---- track_eels: a table of 16,384 numbers below 65,536, of 32 bits in shared memory, so three blocks fit an SM; or of 16; expected 1.8 times
template <class X> __global__ void __launch_bounds__(256) track_eels(const unsigned* current, const float* a, unsigned* out, int each) {
  extern __shared__ __align__(16) unsigned char room[];
  X* of = (X*)room;
#pragma unroll 8
  for (int i = threadIdx.x; i < 16384; i += 256) of[i] = (X)(current[i] & 65535);
  __syncthreads();
  unsigned s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) s = s * 3 + of[(int)(a[n * STRIDE + T] * 16384)];
  out[T] = s;
}
// ---- sum_scan_lines: a block of 704 threads for each line, so that two fit an SM; or blocks of 256; expected 1.3 times
__global__ void sum_scan_lines(const float* a, float* out, int frames) {
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < frames; ++n) s = fmaf(s, 0.9f, a[n * STRIDE + T]);
  out[T] = s;
}
// ---- probe_blooms: a warp a key, which asks for the next 128 bytes when it has judged the last; 32 blocks of a warp fit an SM, or eight of eight; expected 1.6 times
__global__ void probe_blooms(const unsigned* filter, int* out, int keys) {
  unsigned warp = (unsigned)(T / 32), lane = threadIdx.x & 31;
  int found = 0;
#pragma unroll 1
  for (int k = 0; k < keys; ++k) {
    unsigned h = mix(warp * 977 + k), word = filter[(h & 0x1fffff) * 32ull + lane];
    found += __any_sync(~0u, (word >> (h >> 27) & 31) == 5);
  }
  if (lane == 0) out[warp] = found;
}

void spread_cases() {
  static __half* keys;
  static float* influence;
  static Prompt *whole, *pieces;
  static int some;
  static int* cells;
  static int many;
  cases.push_back({"decode_heads", "grid_too_small", "", [] { decode_heads<<<dim3(1, 16), 256>>>((uint4*)keys, keys + 100, C, 65536); }, [] { decode_heads<<<dim3(64, 16), 256>>>((uint4*)keys, keys + 100, C, 1024); }, C, 16, false, [] { keys = converted<__half>(A, N, 0.5f); }});
  cases.push_back({"trace_isobars", "grid_too_small", "", [] { trace_isobars<<<dim3(5, 5, 1), dim3(32, 32)>>>(A, C, 512); }, [] { trace_isobars<<<dim3(5, 5, 32), dim3(32, 32)>>>(A, C, 16); }, C, 512 * MAP * MAP});
  cases.push_back({"melt_alloys", "tail_effect", "uneven_blocks", [] { melt_alloys<<<272, 1024>>>(A, C, 4, 256); }, [] { melt_alloys<<<4352, 256>>>(A, C, 1, 256); }, C, 272 * 4096});
  cases.push_back({"light_canyons", "uneven_blocks", "tail_effect", [] { light_canyons<<<264, 1024>>>(A, C, 1); }, [] { light_canyons<<<264, 1024>>>(A, C, 0); }, C, 4224 * 1024});
  cases.push_back({"prefill_prompts", "uneven_blocks", "tail_effect", [] { prefill_prompts<<<520, 256>>>(A, B, whole, C); }, [] { prefill_prompts<<<some, 256>>>(A, B, pieces, C); }, C, 512 * 256 + 8 * 2048, false, [] {
    std::vector<Prompt> all, parts;
    for (int k = 0, at = 0; k < 520; ++k) {
      int end = at + (k % 65 == 64 ? 2048 : 256);
      all.push_back({at, end, at, end});
      for (int q = at; q < end; q += 64) parts.push_back({at, end, q, q + 64});
      at = end;
    }
    std::stable_sort(parts.begin(), parts.end(), [](const Prompt& p, const Prompt& q) { return p.end - p.begin > q.end - q.begin; });
    whole = upload(all), pieces = upload(parts), some = (int)parts.size();
  }});
  cases.push_back({"force_tides", "uneven_warps", "one_warp_reduction", [] { force_tides<0><<<264, 256>>>(A, influence, C, 256); }, [] { force_tides<1><<<264, 256>>>(A, influence, C, 256); }, C, 264 * 256, false, [] {
    std::vector<float> v(2048);
    for (unsigned k = 0; k < 2048; ++k) v[k] = uniform(k);
    influence = upload(v);
  }});
  cases.push_back({"repair_meshes", "occupancy_registers", "", [] { repair_meshes<0><<<2112, 256>>>(A, C, 96); }, [] {
    repair_meshes<1><<<2112, 256>>>(A, C, 96);
    repair_alone<<<many, 32>>>(cells, C);
  }, C, 2112 * 256, false, [] {
    std::vector<int> v;
    for (int i = 0; i < 2112 * 256; ++i)
      if ((mix((unsigned)i) & 65535) == 7) v.push_back(i);
    cells = upload(v), many = (int)v.size();
  }});
  cases.push_back({"track_eels", "occupancy_shared", "wide_data", [] {
    dynamic_shared(track_eels<unsigned>, 64 << 10);
    track_eels<unsigned><<<1056, 256, 64 << 10>>>((unsigned*)B, A, (unsigned*)C, 192);
  }, [] {
    dynamic_shared(track_eels<unsigned short>, 32 << 10);
    track_eels<unsigned short><<<1056, 256, 32 << 10>>>((unsigned*)B, A, (unsigned*)C, 192);
  }, C, 1056 * 256, true});
  cases.push_back({"sum_scan_lines", "occupancy_block_size", "", [] { sum_scan_lines<<<1536, 704>>>(A, C, 60); }, [] { sum_scan_lines<<<4224, 256>>>(A, C, 60); }, C, 4224 * 256});
  cases.push_back({"probe_blooms", "occupancy_block_size", "", [] { probe_blooms<<<33792, 32>>>((unsigned*)A, (int*)C, 64); }, [] { probe_blooms<<<4224, 256>>>((unsigned*)A, (int*)C, 64); }, C, 33792, true});
}
