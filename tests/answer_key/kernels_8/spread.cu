// How work is spread over lanes, warps, blocks and waves: spectra, contexts, channels, options, tiles, records, peptides, experts, pairs, clusters.
#include "set.h"

__device__ inline u64 ranked(float v, unsigned at) { return (u64)__float_as_uint(v) << 32 | (0xffffffffu - at); }
__device__ inline u64 higher(u64 a, u64 b) { return a > b ? a : b; }
// ---- strongest_lines: one block for each of eight spectra of 16 MB; or 132 blocks for each; expected 5 times
__global__ void __launch_bounds__(1024) strongest_lines(const float4* a, u64* out, int each) {
  __shared__ u64 part[32];
  const float4* own = a + (i64)blockIdx.y * each;
  float best = -1;
  unsigned at = 0;
#pragma unroll 4
  for (int i = blockIdx.x * 1024 + threadIdx.x; i < each; i += gridDim.x * 1024) {
    float4 v = own[i];
    if (v.x > best) best = v.x, at = i * 4;
    if (v.y > best) best = v.y, at = i * 4 + 1;
    if (v.z > best) best = v.z, at = i * 4 + 2;
    if (v.w > best) best = v.w, at = i * 4 + 3;
  }
  u64 most = ranked(best < 0 ? 0 : best, at);
  for (int o = 16; o; o >>= 1) most = higher(most, __shfl_xor_sync(~0u, most, o));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x < 32) {
    most = part[threadIdx.x];
    for (int o = 16; o; o >>= 1) most = higher(most, __shfl_xor_sync(~0u, most, o));
    if (threadIdx.x == 0) atomicMax(&out[blockIdx.y], most);
  }
}
// ---- attend_context: decoding with one block for each of 16 sequences of 8192 tokens; or 33 blocks for each and a second kernel; expected 4 times
constexpr int HEAD = 128, CONTEXT = 8192;
struct Part { float most, sum, value[HEAD]; };
__device__ inline void merge(float& m, float& l, float4& acc, float m2, float l2, float4 other) {
  float now = fmaxf(m, m2), p = __expf(m - now), q = __expf(m2 - now);
  l = l * p + l2 * q, m = now;
  acc = {acc.x * p + other.x * q, acc.y * p + other.y * q, acc.z * p + other.z * q, acc.w * p + other.w * q};
}
__global__ void __launch_bounds__(512) attend_context(const float4* query, const float4* key, const float4* value, Part* part, float* out, int each) {
  __shared__ Part all[16];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, sequence = blockIdx.y, begin = blockIdx.x * each, end = min(begin + each, CONTEXT);
  float4 q = query[sequence * 32 + lane], acc = {0, 0, 0, 0};
  float m = -1e30f, l = 0;
#pragma unroll 2
  for (int t = begin + warp; t < end; t += 16) {
    i64 at = ((i64)sequence * CONTEXT + t) * 32 + lane;
    float4 k = key[at], v = value[at];
    float s = warp_sum(q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w) * 0.0884f;
    merge(m, l, acc, s, 1, v);
  }
  if (lane == 0) all[warp].most = m, all[warp].sum = l;
  all[warp].value[lane * 4] = acc.x, all[warp].value[lane * 4 + 1] = acc.y, all[warp].value[lane * 4 + 2] = acc.z, all[warp].value[lane * 4 + 3] = acc.w;
  __syncthreads();
  if (warp) return;
  for (int w = 1; w < 16; ++w) merge(m, l, acc, all[w].most, all[w].sum, {all[w].value[lane * 4], all[w].value[lane * 4 + 1], all[w].value[lane * 4 + 2], all[w].value[lane * 4 + 3]});
  if (gridDim.x == 1) {
    float* to = out + sequence * HEAD + lane * 4;
    to[0] = acc.x / l, to[1] = acc.y / l, to[2] = acc.z / l, to[3] = acc.w / l;
  } else {
    Part& to = part[sequence * gridDim.x + blockIdx.x];
    if (lane == 0) to.most = m, to.sum = l;
    to.value[lane * 4] = acc.x, to.value[lane * 4 + 1] = acc.y, to.value[lane * 4 + 2] = acc.z, to.value[lane * 4 + 3] = acc.w;
  }
}
__global__ void __launch_bounds__(32) merge_contexts(const Part* part, float* out, int parts) {
  int lane = threadIdx.x;
  float m = -1e30f, l = 0;
  float4 acc = {0, 0, 0, 0};
  for (int k = 0; k < parts; ++k) {
    const Part& p = part[blockIdx.x * parts + k];
    merge(m, l, acc, p.most, p.sum, {p.value[lane * 4], p.value[lane * 4 + 1], p.value[lane * 4 + 2], p.value[lane * 4 + 3]});
  }
  float* to = out + blockIdx.x * HEAD + lane * 4;
  to[0] = acc.x / l, to[1] = acc.y / l, to[2] = acc.z / l, to[3] = acc.w / l;
}
// ---- calibrate_channels: a block for each of 64 channels of 2 MB; or 33 blocks for each; expected 5 times
__global__ void __launch_bounds__(256) calibrate_channels(const float* a, int* out, int each) {
  const float* own = a + (i64)blockIdx.y * each;
  float most = 0;
#pragma unroll 8
  for (int i = blockIdx.x * 256 + threadIdx.x; i < each; i += gridDim.x * 256) most = fmaxf(most, fabsf(own[i] - 0.3f));
  int bits = __reduce_max_sync(~0u, __float_as_int(most));
  if ((threadIdx.x & 31) == 0) atomicMax(&out[blockIdx.y], bits);
}
// ---- price_options: 280 blocks of eight paths a thread, two an SM, so 16 blocks are a wave of their own; or 2240 of one path; expected 1.6 times
__global__ void __launch_bounds__(1024, 2) price_options(const float* a, float* out, int each, int steps) {
  for (int k = 0; k < each; ++k) {
    i64 path = k * STRIDE + T;
    unsigned h = mix((unsigned)path + 3);
    float price = 1 + a[path], top = 0;
#pragma unroll 4
    for (int s = 0; s < steps; ++s) {
      h = h * 1664525u + 1013904223u;
      float z = (int)h * 0x1p-31f;
      price = fmaf(price, fmaf(z, 0.02f, 0.0001f), price), top = fmaxf(top, price);
    }
    out[path] = top - price;
  }
}
// ---- encode_tiles: a grid of 148 blocks, as another GPU has SMs, of which one fits an SM; or of 132; expected 1.7 times
constexpr int STRIPS = 72, TILE_BYTES = STRIPS * 512 * 4;
__global__ void __launch_bounds__(512) encode_tiles(const float* a, float* out, int tiles) {
  extern __shared__ float tile[];
  int t = threadIdx.x;
  for (int n = blockIdx.x; n < tiles; n += gridDim.x) {
#pragma unroll 8
    for (int k = 0; k < STRIPS; ++k) tile[k * 512 + t] = a[(i64)(n & 1023) * STRIPS * 512 + k * 512 + t];
    __syncthreads();
    float s[4] = {1, 2, 3, 4};
    for (int r = 0; r < 8; ++r)
#pragma unroll 4
      for (int k = 0; k < STRIPS; ++k) {
        float v = tile[k * 512 + ((t + r * 32) & 511)];
#pragma unroll
        for (int j = 0; j < 16; ++j) s[j & 3] = fmaf(s[j & 3], v, 0.1f);
      }
    out[(i64)n * 512 + t] = (s[0] + s[1]) + (s[2] + s[3]);
    __syncthreads();
  }
}
// ---- find_terminators: a warp searches a record, 128 bytes at a time, and blocks have one warp; or eight; expected 1.8 times
__global__ void find_terminators(const unsigned* record, int* out) {
  i64 at = T / 32;
  int lane = threadIdx.x & 31, k = 0;
#pragma unroll 1
  for (; k < 64; ++k)
    if (__any_sync(~0u, (mix(record[at * 2048 + k * 32 + lane]) & 1023) == 0)) break;
  if (lane == 0) out[at] = k;
}
// ---- score_peptides: 56 kB of shared memory a block, of which a table needs 1 kB; expected 3 times
__global__ void __launch_bounds__(128) score_peptides(const unsigned* word, const float* weight, float* out) {
  extern __shared__ float table[];
  table[threadIdx.x] = weight[threadIdx.x], table[threadIdx.x + 128] = weight[threadIdx.x + 128];
  __syncthreads();
  i64 at = T / 32;
  int lane = threadIdx.x & 31;
  float s = 0;
#pragma unroll 1
  for (int k = 0; k < 32; ++k) {
    float v = table[mix(word[at * 1024 + k * 32 + lane]) & 255];
    s = fmaf(s, 0.5f, v);
    if (__all_sync(~0u, s < -1)) break;
  }
  s = warp_sum(s);
  if (lane == 0) out[at] = s;
}
// ---- scale_experts: a block an expert, and four of 264 have 32 times the tokens; or pieces of 4096; expected 10 times
constexpr int EXPERTS = 264, FEW = 16384, MANY = FEW * 32, OF_ALL = MANY * 4 + FEW * (EXPERTS - 4);
__device__ inline int begin_of(int expert) { return expert < 4 ? expert * MANY : MANY * 4 + (expert - 4) * FEW; }
template <int V> __global__ void __launch_bounds__(256) scale_experts(const float* token, const float* weight, float* out) {
  int begin = blockIdx.x * 4096, end = begin + 4096, expert = blockIdx.x;
  if (V == 0) begin = begin_of(expert), end = begin_of(expert + 1);
  else expert = begin < MANY * 4 ? begin / MANY : 4 + (begin - MANY * 4) / FEW;
  float by = weight[expert];
#pragma unroll 4
  for (int i = begin + threadIdx.x; i < end; i += 256) {
    float v = token[i];
#pragma unroll
    for (int k = 0; k < 8; ++k) v = fmaf(v, by, 0.1f);
    out[i] = v;
  }
}
// ---- count_pairs: rows of a triangle in bands of 128, so that the last blocks have twice the mean; or rows in turn; expected 1.5 times
constexpr int BAND = 128, POINTS = 264 * BAND;
template <int V> __global__ void __launch_bounds__(1024) count_pairs(const float* x, float* out) {
  int lane = threadIdx.x & 31;
  for (int r = threadIdx.x / 32; r < BAND; r += 32) {
    int row = V == 0 ? blockIdx.x * BAND + r : r * 264 + blockIdx.x;
    float own = x[row], s = 0;
#pragma unroll 4
    for (int j = lane; j <= row; j += 32) {
      float d = x[j] - own;
      s = fmaf(d, d, s), s = fmaf(s, 0.999f, 0.001f), s = fmaxf(s, d);
    }
    s = warp_sum(s);
    if (lane == 0) out[row] = s;
  }
}
// ---- relax_clusters: one warp of eight has eight of fifteen rounds between two barriers; or all threads share them; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) relax_clusters(const float* a, float* out, int steps) {
  __shared__ float at[2][512];
  int t = threadIdx.x, lane = t & 31, warp = t / 32, begin = V == 0 ? (warp ? 224 + warp * 32 : 0) + lane : t, end = V == 0 ? (warp ? 256 + warp * 32 : 256) : 480, by = V == 0 ? 32 : 256;
  at[0][t] = at[1][t] = a[blockIdx.x * 512 + t], at[0][t + 256] = at[1][t + 256] = a[blockIdx.x * 512 + t + 256];
  __syncthreads();
  for (int s = 0; s < steps; ++s) {
    const float* from = at[s & 1];
#pragma unroll 1
    for (int i = begin; i < end; i += by) {
      float v = from[i], w = from[(i * 17 + s) & 511];
#pragma unroll
      for (int k = 0; k < 24; ++k) v = fmaf(v, 0.9f, w * 0.05f + 0.01f);
      at[~s & 1][i] = v;
    }
    __syncthreads();
  }
  out[T] = at[steps & 1][t];
}

void spread_cases() {
  static Part* parts;
  cases.push_back({"strongest_lines", "grid_too_small", "", [] { strongest_lines<<<dim3(1, 8), 1024>>>((float4*)A, (u64*)C, 1 << 20); }, [] { strongest_lines<<<dim3(132, 8), 1024>>>((float4*)A, (u64*)C, 1 << 20); }, C, 16, true});
  cases.push_back({"attend_context", "grid_too_small", "", [] { attend_context<<<dim3(1, 16), 512>>>((float4*)D, (float4*)A, (float4*)B, nullptr, C, CONTEXT); }, [] {
    attend_context<<<dim3(33, 16), 512>>>((float4*)D, (float4*)A, (float4*)B, parts, C, (CONTEXT + 32) / 33);
    merge_contexts<<<16, 32>>>(parts, C, 33);
  }, C, 16 * HEAD, false, [] { parts = device<Part>(16 * 33); }});
  cases.push_back({"calibrate_channels", "grid_too_small", "", [] { calibrate_channels<<<dim3(1, 64), 256>>>(A, (int*)C, 1 << 19); }, [] { calibrate_channels<<<dim3(33, 64), 256>>>(A, (int*)C, 1 << 19); }, C, 64});
  cases.push_back({"price_options", "tail_effect", "", [] { price_options<<<280, 1024>>>(A, C, 8, 512); }, [] { price_options<<<2240, 1024>>>(A, C, 1, 512); }, C, 2240 * 1024});
  cases.push_back({"encode_tiles", "tail_effect", "", [] { encode_tiles<<<148, 512, TILE_BYTES>>>(A, C, 1776); }, [] { encode_tiles<<<132, 512, TILE_BYTES>>>(A, C, 1776); }, C, 1776 * 512, false, [] { dynamic_shared(encode_tiles, TILE_BYTES); }});
  cases.push_back({"find_terminators", "occupancy_block_size", "", [] { find_terminators<<<32768, 32>>>((unsigned*)A, (int*)C); }, [] { find_terminators<<<4096, 256>>>((unsigned*)A, (int*)C); }, C, 32768, true});
  cases.push_back({"score_peptides", "occupancy_shared", "", [] { score_peptides<<<16384, 128, 56 << 10>>>((unsigned*)A, B, C); }, [] { score_peptides<<<16384, 128, 1 << 10>>>((unsigned*)A, B, C); }, C, 65536, false, [] { dynamic_shared(score_peptides, 56 << 10); }});
  cases.push_back({"scale_experts", "uneven_blocks", "", [] { scale_experts<0><<<EXPERTS, 256>>>(A, B, C); }, [] { scale_experts<1><<<OF_ALL / 4096, 256>>>(A, B, C); }, C, OF_ALL});
  cases.push_back({"count_pairs", "uneven_blocks", "tail_effect", [] { count_pairs<0><<<264, 1024>>>(A, C); }, [] { count_pairs<1><<<264, 1024>>>(A, C); }, C, POINTS});
  cases.push_back({"relax_clusters", "uneven_warps", "", [] { relax_clusters<0><<<264, 256>>>(A, C, 200); }, [] { relax_clusters<1><<<264, 256>>>(A, C, 200); }, C, 264 * 256});
}
