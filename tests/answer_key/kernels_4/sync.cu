// Defects of shared memory, atomics, barriers, grids and occupancy: transforms, votes, filters, fractals, statistics of layers.
#include "set.h"

namespace cg = cooperative_groups;

// ---- a Walsh transform of 4096 points in shared memory, in passes of 16 points
template <int V> __global__ void walsh(const float* a, float* out, int rounds) {
  extern __shared__ float x[];
  auto at = [](int i) { return V == 0 ? i : i + i / 16; };
  const float* own = a + (i64)blockIdx.x * 4096;
  for (int i = threadIdx.x; i < 4096; i += 256) x[at(i)] = own[i];
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    for (int pass = 0; pass < 3; ++pass) {
      int step = pass == 0 ? 1 : pass == 1 ? 16 : 256;
      int base = pass == 0 ? threadIdx.x * 16 : pass == 1 ? threadIdx.x / 16 * 256 + (threadIdx.x & 15) : threadIdx.x;
      float v[16];
#pragma unroll
      for (int k = 0; k < 16; ++k) v[k] = x[at(base + k * step)];
#pragma unroll
      for (int h = 1; h < 16; h *= 2)
#pragma unroll
        for (int k = 0; k < 16; ++k)
          if (!(k & h)) {
            float p = v[k], q = v[k + h];
            v[k] = (p + q) * 0.7071f, v[k + h] = (p - q) * 0.7071f;
          }
#pragma unroll
      for (int k = 0; k < 16; ++k) x[at(base + k * step)] = v[k];
      __syncthreads();
    }
  }
  for (int i = threadIdx.x; i < 4096; i += 256) out[(i64)blockIdx.x * 4096 + i] = x[at(i)];
}
// ---- votes, of which most are for one class
template <int V> __global__ void count_votes(const float* a, int* out, i64 n) {
  __shared__ int votes[16];
  if (threadIdx.x < 16) votes[threadIdx.x] = 0;
  __syncthreads();
  int zeros = 0;
  for (i64 i = T; i < n; i += STRIDE) {
    int c = max(0, (int)(a[i] * 160) - 144);  // 0 for 90 %
    if (V == 1 && c == 0) ++zeros; else atomicAdd(&votes[c], 1);
  }
  if (V == 1) {
    zeros = __reduce_add_sync(~0u, zeros);
    if ((threadIdx.x & 31) == 0) atomicAdd(&votes[0], zeros);
  }
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], votes[threadIdx.x]);
}
// ---- the nearest point: value and place in one word of 64 bits
template <int V> __global__ void nearest_point(const float* a, u64* out, int n) {
  u64 best = ~0ull;
  for (i64 i = T; i < n; i += STRIDE) {
    float d = a[i] - 0.123456f;
    u64 mine = (u64)__float_as_uint(d * d) << 32 | (u64)i;
    if (V == 0) atomicMin(out, mine); else best = min(best, mine);
  }
  if (V == 1) {
    for (int o = 16; o; o >>= 1) best = min(best, __shfl_xor_sync(~0u, best, o));
    if ((threadIdx.x & 31) == 0) atomicMin(out, best);
  }
}
// ---- a filter of two poles for each voice: threads share nothing
template <int V> __global__ void voice_filter(const float* a, float* out, int steps) {
  __shared__ float last[256];
  float x1 = 0, x2 = 0;
  for (int k = 0; k < steps; ++k) {
    float x = a[((i64)k * 37 & 63) * STRIDE + T] + 1.6f * x1 - 0.7f * x2;
    x2 = x1, x1 = x;
    last[threadIdx.x] = x;
    if (V == 0) __syncthreads();
    x1 = last[threadIdx.x] * 0.999f;
    if (V == 0) __syncthreads();
  }
  out[T] = x1;
}
// ---- mean and variance of rows of 8192
template <int V> __global__ void layer_moments(const float* a, float2* out, int rows) {
  __shared__ float row[8192];
  __shared__ float2 parts[16];
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    for (int i = threadIdx.x; i < 8192; i += 512) row[i] = a[(i64)r * 8192 + i];
    __syncthreads();
    float s = 0, q = 0;
    if (V == 0) {
      if (threadIdx.x < 32)
        for (int i = threadIdx.x; i < 8192; i += 32) s += row[i], q += row[i] * row[i];
    } else {
      for (int i = threadIdx.x; i < 8192; i += 512) s += row[i], q += row[i] * row[i];
    }
    s = warp_sum(s), q = warp_sum(q);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x / 32] = {s, q};
    __syncthreads();
    if (threadIdx.x == 0) {
      float2 t = {0, 0};
      for (int w = 0; w < 16; ++w) t.x += parts[w].x, t.y += parts[w].y;
      out[r] = {t.x / 8192, t.y / 8192 - t.x * t.x / 8192 / 8192};
    }
  }
}
// ---- sequences of unequal length, a warp each, that meet after each round
template <int V> __global__ void ragged_rounds(float* out, int rounds) {
  __shared__ float sums[8];
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int w = warp.meta_group_rank();
  float v = 1.0f + 1e-3f * (threadIdx.x & 31);
  for (int r = 0; r < rounds; ++r) {
    int length = V == 1 ? 64 : w == (r & 7) ? 8 * 64 - 7 * 8 : 8;  // together 8 * 64 of a round in both forms
    float u = v;
    for (int k = 0; k < length; ++k) u = fmaf(u, 0.9999f, 1e-4f);
    if (warp.thread_rank() == 0) sums[w] = u;
    __syncthreads();
    v += 1e-6f * sums[(w + r) & 7];
    __syncthreads();
  }
  out[T] = v;
}
// ---- bands of a spectrum: a block a band, or many blocks a band
template <int SPLIT> __global__ void band_energy(const float4* a, float* out, int per_band) {
  int band = blockIdx.x / SPLIT, part = blockIdx.x % SPLIT, n = per_band / SPLIT;
  const float4* own = a + (i64)band * per_band + (i64)part * n;
  float s = 0;
  for (int i = threadIdx.x; i < n; i += 256) {
    float4 v = own[i];
    s += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[band], s);
}
// ---- an automaton over shared memory: chunks of one length, slightly more than one wave of them
template <int STEPS> __global__ void __launch_bounds__(512) automaton(const int* a, int* out, int chunks) {
  __shared__ int table[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) table[i] = (int)(mix((uint32_t)i + 77) & 1023);
  __syncthreads();
  for (int c = blockIdx.x; c < chunks; c += gridDim.x) {
    int state = a[(i64)c * blockDim.x + threadIdx.x] & 1023;
    for (int k = 0; k < STEPS; ++k) state = table[(state + k) & 1023];
    out[(i64)c * blockDim.x + threadIdx.x] = state;
  }
}
// ---- tiles of a fractal: fixed shares of the blocks, or from a counter
template <int V> __global__ void fractal_tiles(int* out, int* counter, int side, int most) {
  __shared__ int next;
  int tiles = side / 16 * (side / 16), share = (tiles + gridDim.x - 1) / gridDim.x;
  for (int k = 0;; ++k) {
    int tile = blockIdx.x * share + k;
    if (V == 0 && k >= share) break;
    if (V == 1) {
      if (threadIdx.x == 0) next = atomicAdd(counter, 1);
      __syncthreads();
      tile = next;
      __syncthreads();
    }
    if (tile >= tiles) break;
    int x = tile % (side / 16) * 16 + (threadIdx.x & 15), y = tile / (side / 16) * 16 + threadIdx.x / 16;
    float cx = -2.2f + 3.2f * x / side, cy = -1.6f + 3.2f * y / side, u = 0, v = 0;
    int it = 0;
    while (it < most && u * u + v * v < 4) {
      float t = u * u - v * v + cx;
      v = 2 * u * v + cy, u = t, ++it;
    }
    out[(i64)y * side + x] = it;
  }
}
// ---- a filter along tiles that a block stages
template <int V> __global__ void __launch_bounds__(256) staged_filter(const float* a, float* out, int tiles) {
  extern __shared__ __align__(16) float stage[];  // 2 tiles of 8192
  const float4* in = (const float4*)(a + (i64)blockIdx.x * tiles * 8192);
  float s[4] = {};
  auto copy = [&](int t) {
    for (int i = threadIdx.x; i < 2048; i += 256) __pipeline_memcpy_async((float4*)(stage + (t & 1) * 8192) + i, in + (i64)t * 2048 + i, 16);
    __pipeline_commit();
  };
  if (V == 1) copy(0);
  for (int t = 0; t < tiles; ++t) {
    if (V == 0) {
      copy(t);
      __pipeline_wait_prior(0);
    } else if (t + 1 < tiles) {
      copy(t + 1);
      __pipeline_wait_prior(1);
    } else {
      __pipeline_wait_prior(0);
    }
    __syncthreads();
    const float* x = stage + (t & 1) * 8192;
    for (int i = threadIdx.x; i < 8192 - 16; i += 256)
#pragma unroll
      for (int k = 0; k < 16; ++k) s[k & 3] = fmaf(x[i + k], 0.01f * (k + 1), s[k & 3]);
    __syncthreads();
  }
  out[T] = s[0] + s[1] + s[2] + s[3];
}
// ---- few warps: by the size of blocks, by registers, by shared memory
__global__ void nearest_entries(const float* keys, const int* codes, float* out, int rounds) {
  float s = 0;
  unsigned p = (unsigned)codes[T & 0xfffff] & (N - 1);
  for (int r = 0; r < rounds; ++r) {
    s += keys[p];
    p = (p * 1664525u + 1013904223u) & (unsigned)(N - 1);
  }
  out[T] = s;
}
template <int LIVE, int LEAST> __global__ void __launch_bounds__(256, LEAST) carry_sums(const float* a, float* out, int n) {
  float s[LIVE];
#pragma unroll
  for (int k = 0; k < LIVE; ++k) s[k] = 0.001f * k;
  unsigned p = (unsigned)T * 2654435761u;
  for (int i = 0; i < n; ++i) {
    float v = a[p & (unsigned)(N - 1)];
    p = p * 1664525u + 1013904223u;
    if (LIVE > 8 && (i & 63) == 63)
#pragma unroll
      for (int k = 0; k < LIVE; ++k) s[k] = fmaf(s[k], 0.5f, v);
    s[0] += v;
  }
  float t = 0;
  if (LIVE > 8)
#pragma unroll
    for (int k = 1; k < LIVE; ++k) t += s[k];
  out[T] = s[0] + 0.0f * t;
}
__global__ void blend_table(const float* a, const float* table, float* out, int rounds) {
  extern __shared__ float own[];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) own[i] = table[i];
  __syncthreads();
  unsigned p = (unsigned)T * 2246822519u;
  float s = 0;
  for (int r = 0; r < rounds; ++r) {
    float v = a[p & (unsigned)(N - 1)];
    s += v * own[r & 1023];
    p = p * 1664525u + 1013904223u;
  }
  out[T] = s;
}

void sync_cases() {
  static int* counter;
  static u64* best;
  cases.push_back({"walsh", "shared_bank_conflicts", "", [] { walsh<0><<<4096, 256, 4096 * 4>>>(A, C, 6); }, [] { walsh<1><<<4096, 256, 4352 * 4>>>(A, C, 6); }, C, 1 << 24});
  cases.push_back({"count_votes", "shared_atomics_one_address", "", [] { count_votes<0><<<1056, 256>>>(A, (int*)C, N / 2); }, [] { count_votes<1><<<1056, 256>>>(A, (int*)C, N / 2); }, C, 16, true});
  cases.push_back({"nearest_point", "global_atomics_one_address", "", [] { nearest_point<0><<<528, 256>>>(A, best, 1 << 20); }, [] { nearest_point<1><<<528, 256>>>(A, best, 1 << 20); }, nullptr, 0, false, [] { best = device<u64>(1); }, [] { CHECK(cudaMemset(best, 255, 8)); }});
  cases.push_back({"voice_filter", "needless_barriers", "", [] { voice_filter<0><<<528, 256>>>(A, C, 1024); }, [] { voice_filter<1><<<528, 256>>>(A, C, 1024); }, C, 528 * 256});
  cases.push_back({"layer_moments", "one_warp_reduction", "", [] { layer_moments<0><<<264, 512>>>(A, (float2*)C, 4096); }, [] { layer_moments<1><<<264, 512>>>(A, (float2*)C, 4096); }, C, 8192});
  cases.push_back({"ragged_rounds", "uneven_warps", "", [] { ragged_rounds<0><<<528, 256>>>(C, 64); }, [] { ragged_rounds<1><<<528, 256>>>(C, 64); }});
  cases.push_back({"band_energy", "grid_too_small", "", [] { band_energy<1><<<24, 256>>>((float4*)A, C, 1 << 19); }, [] { band_energy<64><<<24 * 64, 256>>>((float4*)A, C, 1 << 19); }, C, 24});
  cases.push_back({"automaton", "tail_effect", "", [] { automaton<4096><<<600, 512>>>((int*)A, (int*)C, 600); }, [] { automaton<4096><<<2400, 128>>>((int*)A, (int*)C, 2400); }, C, 600 * 512, true});
  cases.push_back({"fractal_tiles", "uneven_blocks", "", [] { fractal_tiles<0><<<1056, 256>>>((int*)C, counter, 4096, 2000); }, [] { fractal_tiles<1><<<1056, 256>>>((int*)C, counter, 4096, 2000); }, C, 1 << 24, true, [] { counter = device<int>(1); }, [] { CHECK(cudaMemset(counter, 0, 4)); }});
  cases.push_back({"staged_filter", "no_overlap", "", [] { staged_filter<0><<<132, 256, 65536>>>(A, C, 60); }, [] { staged_filter<1><<<132, 256, 65536>>>(A, C, 60); }, C, 132 * 256, false, [] { dynamic_shared(staged_filter<0>, 65536), dynamic_shared(staged_filter<1>, 65536); }});
  cases.push_back({"nearest_entries", "occupancy_block_size", "", [] { nearest_entries<<<1 << 14, 32>>>(A, (int*)B, C, 64); }, [] { nearest_entries<<<1 << 11, 256>>>(A, (int*)B, C, 64); }, C, 1 << 19});
  cases.push_back({"carry_sums", "occupancy_registers", "", [] { carry_sums<192, 1><<<1056, 256>>>(A, C, 256); }, [] { carry_sums<8, 8><<<1056, 256>>>(A, C, 256); }});
  cases.push_back({"blend_table", "occupancy_shared", "", [] { blend_table<<<1056, 256, 110000>>>(A, B, C, 256); }, [] { blend_table<<<1056, 256, 4096>>>(A, B, C, 256); }, C, 1056 * 256, false, [] { dynamic_shared(blend_table, 110000); }});
}
