// Banks, atomics, barriers and tables: skinned meshes, scans, symbols, packed strings, loudness, tickets, alignments, ensembles, springs, gradients, tones, postings.
#include "set.h"

namespace cg = cooperative_groups;

// ---- skin_vertices: matrices of bones 16 words apart in shared memory, so that lanes meet in two banks; or 13 words apart; expected 3 times
__global__ void __launch_bounds__(256) skin_vertices(const float4* bone, const float4* vertex, float4* out, int pitch, int each) {
  __shared__ float all[64 * 16];
  for (int i = threadIdx.x; i < 192; i += 256) {
    float4 v = bone[i];
    float* to = all + i / 3 * pitch + i % 3 * 4;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
  __syncthreads();
  float x = 0, y = 0, z = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    float4 v = vertex[n * STRIDE + T];
    unsigned which = mix((unsigned)(n * STRIDE + T));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* m = all + (which >> 6 * k & 63) * pitch;
      x += fmaf(m[0], v.x, fmaf(m[1], v.y, fmaf(m[2], v.z, m[3])));
      y += fmaf(m[4], v.x, fmaf(m[5], v.y, fmaf(m[6], v.z, m[7])));
      z += fmaf(m[8], v.x, fmaf(m[9], v.y, fmaf(m[10], v.z, m[11])));
    }
  }
  out[T] = {x, y, z, 1};
}
// ---- offsets_of_strings: a scan by a tree in shared memory, whose strides are powers of two; or with a word of padding each 32; expected 2.5 times
template <int PAD> __global__ void __launch_bounds__(512) offsets_of_strings(const unsigned* length, int* out, int chunks) {
  __shared__ int s[1024 + 32];
  int t = threadIdx.x;
  auto place = [](int i) { return PAD ? i + i / 32 : i; };
  for (int n = blockIdx.x; n < chunks; n += gridDim.x) {
    s[place(t)] = length[n * 1024 + t] & 63, s[place(t + 512)] = length[n * 1024 + 512 + t] & 63;
    int offset = 1;
    for (int d = 512; d; d >>= 1, offset *= 2) {
      __syncthreads();
      if (t < d) s[place(offset * (2 * t + 2) - 1)] += s[place(offset * (2 * t + 1) - 1)];
    }
    if (t == 0) s[place(1023)] = 0;
    for (int d = 1; d < 1024; d *= 2) {
      offset >>= 1;
      __syncthreads();
      if (t < d) {
        int i = place(offset * (2 * t + 1) - 1), j = place(offset * (2 * t + 2) - 1), left = s[i];
        s[i] = s[j], s[j] += left;
      }
    }
    __syncthreads();
    out[n * 1024 + t] = s[place(t)], out[n * 1024 + 512 + t] = s[place(t + 512)];
    __syncthreads();
  }
}
// ---- frequencies_of_symbols: each lane counts in 32 words of its own, so that the symbol is the bank; or in its own bank; expected 2.5 times
template <int V> __global__ void __launch_bounds__(128) frequencies_of_symbols(const uint4* a, int* out, int n) {
  __shared__ int count[128 * 32];
  int t = threadIdx.x, lane = t & 31;
  for (int i = t; i < 4096; i += 128) count[i] = 0;
  __syncthreads();
  int* own = count + t / 32 * 1024 + (V == 0 ? lane * 32 : lane);
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint4 v = a[i];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned w = mix((&v.x)[k]);
#pragma unroll
      for (int b = 0; b < 30; b += 5) ++own[(w >> b & 31) * (V == 0 ? 1 : 32)];
    }
  }
  __syncthreads();
  int symbol = t & 31, part = t / 32, s = 0;
  for (int k = 0; k < 32; ++k) {
    int from = k + symbol & 31;  // so that the lanes do not meet here
    s += count[part * 1024 + (V == 0 ? from * 32 + symbol : symbol * 32 + from)];
  }
  __syncthreads();
  count[t] = s;
  __syncthreads();
  if (t < 32) out[blockIdx.x * 32 + t] = (count[t] + count[t + 32]) + (count[t + 64] + count[t + 96]);
}
// ---- pack_strings: every string takes its place in the block's buffer from one word of shared memory; or a scan and one atomic a warp; expected 5 times
template <int V> __global__ void __launch_bounds__(256) pack_strings(const unsigned* length, int* out, int each) {
  __shared__ int used, last;
  if (threadIdx.x == 0) used = last = 0;
  __syncthreads();
  int lane = threadIdx.x & 31, most = 0;
#pragma unroll 4
  for (int k = 0; k < each; ++k) {
    int own = (int)(length[(blockIdx.x * (i64)each + k) * 256 + threadIdx.x] & 7), at = 0;  // empty ones take no place
    if (V == 0) {
      if (own) at = atomicAdd(&used, own);
    } else {
      int s = own;
#pragma unroll
      for (int o = 1; o < 32; o *= 2) {
        int before = __shfl_up_sync(~0u, s, o);
        s += lane >= o ? before : 0;
      }
      int first = lane == 31 ? atomicAdd(&used, s) : 0;
      at = __shfl_sync(~0u, first, 31) + s - own;
    }
    most = max(most, own ? at + own : 0);
  }
  most = __reduce_max_sync(~0u, most);
  if (lane == 0) atomicMax(&last, most);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = last;
}
// ---- loudness_of_stereo: every sample adds to one of two floats in shared memory; or registers and shuffles; expected 20 times
template <int V> __global__ void __launch_bounds__(256) loudness_of_stereo(const float2* a, float* out, int n) {
  __shared__ float all[2];
  if (threadIdx.x < 2) all[threadIdx.x] = 0;
  __syncthreads();
  float left = 0, right = 0;
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float2 v = a[i];
    if (V == 0) atomicAdd(&all[0], v.x * v.x), atomicAdd(&all[1], v.y * v.y);
    else left = fmaf(v.x, v.x, left), right = fmaf(v.y, v.y, right);
  }
  if (V == 1) {
    left = warp_sum(left), right = warp_sum(right);
    if ((threadIdx.x & 31) == 0) atomicAdd(&all[0], left), atomicAdd(&all[1], right);
  }
  __syncthreads();
  if (threadIdx.x < 2) out[blockIdx.x * 2 + threadIdx.x] = all[threadIdx.x];
}
// ---- drain_tickets: persistent warps that take one item of 512 bytes at a time from a counter; or 8; expected 3 times
__global__ void __launch_bounds__(256) drain_tickets(const float4* a, unsigned* ticket, float* out, unsigned items, unsigned some) {
  int lane = threadIdx.x & 31;
  for (;;) {
    unsigned first = lane == 0 ? atomicAdd(ticket, some) : 0;
    first = __shfl_sync(~0u, first, 0);
    if (first >= items) return;
#pragma unroll 4
    for (unsigned i = first; i < min(first + some, items); ++i) {
      float4 v = a[i * 32ll + lane];
      float s = warp_sum((v.x + v.y) + (v.z + v.w));
      if (lane == 0) out[i] = s;
    }
  }
}
// ---- best_alignment: every thread's score goes to one maximum in global memory; or the block's; expected 15 times
template <int V> __global__ void __launch_bounds__(256) best_alignment(const float4* a, u64* out) {
  __shared__ u64 of[8];
  float4 v = a[T];
  u64 best = (u64)__float_as_uint(fmaf(v.x, v.y, v.z * v.w)) << 32 | (unsigned)T;
  if constexpr (V == 0) {
    atomicMax(out, best);
  } else {
    for (int o = 16; o; o >>= 1) best = max(best, __shfl_xor_sync(~0u, best, o));
    if ((threadIdx.x & 31) == 0) of[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x) return;
#pragma unroll
    for (int k = 0; k < 8; ++k) best = max(best, of[k]);
    atomicMax(out, best);
  }
}
// ---- evolve_ensembles: the whole grid waits after each step, though no member needs another; or does not; expected 6 times
template <int V> __global__ void __launch_bounds__(256) evolve_ensembles(const float* a, float* out, int steps) {
  cg::grid_group grid = cg::this_grid();
  float x = a[T], y = 0.3f, z = 0.5f;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      float u = y - x, v = fmaf(x, 2.8f - z, -y), w = fmaf(x, y, -z);
      x = fmaf(0.01f, u, x), y = fmaf(0.01f, v, y), z = fmaf(0.01f, w, z);
    }
    if (V == 0) grid.sync();
  }
  out[T] = x + y + z;
}
// ---- sway_bridges: clusters of eight blocks meet after each step, though a span lies within a warp; or do not; expected 4 times
template <int V> __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(256) sway_bridges(const float* a, float* out, int steps) {
  cg::cluster_group cluster = cg::this_cluster();
  float x = a[T], speed = 0;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    float left = __shfl_up_sync(~0u, x, 1), right = __shfl_down_sync(~0u, x, 1);
    speed = fmaf(0.05f, (left - x) + (right - x), speed * 0.999f), x = fmaf(0.05f, speed, x);
    if (V == 0) cluster.sync();
  }
  out[T] = x;
}
// ---- lengths_of_gradients: one thread adds the 256 partial sums of each row; or shuffles; expected 2 times
template <int V> __global__ void __launch_bounds__(256) lengths_of_gradients(const float2* a, float* out, int rows) {
  __shared__ float part[256];
  int t = threadIdx.x;
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    float2 v = a[r * 256 + t];
    float s = fmaf(v.x, v.x, v.y * v.y);
    if (V == 1) s = warp_sum(s);
    if (V == 0) part[t] = s;
    else if ((t & 31) == 0) part[t / 32] = s;
    __syncthreads();
    if (t == 0) {
      float all = 0;
#pragma unroll 8
      for (int k = 0; k < (V == 0 ? 256 : 8); ++k) all += part[k];
      out[r] = sqrtf(all);
    }
    __syncthreads();
  }
}
// ---- map_tones: lanes read any of 1024 words of constant memory; or a copy in shared memory; expected 4 times
__constant__ float TONE[1024];
template <int V> __global__ void __launch_bounds__(256) map_tones(const float4* a, float4* out, int n) {
  __shared__ float tone[V == 0 ? 1 : 1024];
  if (V == 1) {
    for (int i = threadIdx.x; i < 1024; i += 256) tone[i] = TONE[i];
    __syncthreads();
  }
  auto mapped = [&](float v) { return V == 0 ? TONE[(int)(v * 1024)] : tone[(int)(v * 1024)]; };
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float4 v = a[i];
    out[i] = {mapped(v.x), mapped(v.y), mapped(v.z), mapped(v.w)};
  }
}
// ---- score_postings: a warp a list, and the first list of each query is 16 times as long; or all warps through all lists; expected 3 times
template <int V> __global__ void __launch_bounds__(256) score_postings(const float* posting, float* out, int queries) {
  __shared__ float best[8];
  const int length = 2048 + 7 * 128;
  int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  for (int q = blockIdx.x; q < queries; q += gridDim.x) {
    const float* own = posting + (i64)q * length;
    int from = V == 1 ? threadIdx.x : lane + (warp ? 2048 + (warp - 1) * 128 : 0), to = V == 1 ? length : warp ? 2048 + warp * 128 : 2048;
    float most = 0;
#pragma unroll 2
    for (int i = from; i < to; i += V == 1 ? 256 : 32) {
      float tf = own[i], s = fmaf(tf, 0.7f, 0.1f);
#pragma unroll
      for (int k = 0; k < 8; ++k) s = fmaf(s, tf, 0.05f * k);
      most = fmaxf(most, __fdividef(s * 2.2f, tf + 1.2f));
    }
    for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    if (lane == 0) best[warp] = most;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
      for (int k = 1; k < 8; ++k) most = fmaxf(most, best[k]);
      out[q] = most;
    }
    __syncthreads();
  }
}

template <int V> static void evolve(const float* a, float* out, int steps) {
  void* words[] = {&a, &out, &steps};
  CHECK(cudaLaunchCooperativeKernel((void*)evolve_ensembles<V>, dim3(264), dim3(256), words, 0, 0));
}
void sync_cases() {
  cases.push_back({"skin_vertices", "shared_bank_conflicts", "", [] { skin_vertices<<<1056, 256>>>((float4*)A, (float4*)B, (float4*)C, 16, 8); }, [] { skin_vertices<<<1056, 256>>>((float4*)A, (float4*)B, (float4*)C, 13, 8); }, C, 1056 * 1024});
  cases.push_back({"offsets_of_strings", "shared_bank_conflicts", "", [] { offsets_of_strings<0><<<528, 512>>>((unsigned*)A, (int*)C, 16384); }, [] { offsets_of_strings<1><<<528, 512>>>((unsigned*)A, (int*)C, 16384); }, C, 1 << 24, true});
  cases.push_back({"frequencies_of_symbols", "shared_bank_conflicts", "", [] { frequencies_of_symbols<0><<<1584, 128>>>((uint4*)A, (int*)C, 1 << 22); }, [] { frequencies_of_symbols<1><<<1584, 128>>>((uint4*)A, (int*)C, 1 << 22); }, C, 1584 * 32, true});
  cases.push_back({"pack_strings", "shared_atomics_one_address", "", [] { pack_strings<0><<<1056, 256>>>((unsigned*)A, (int*)C, 32); }, [] { pack_strings<1><<<1056, 256>>>((unsigned*)A, (int*)C, 32); }, C, 1056, true});
  cases.push_back({"loudness_of_stereo", "shared_atomics_one_address", "", [] { loudness_of_stereo<0><<<1056, 256>>>((float2*)A, C, 1 << 20); }, [] { loudness_of_stereo<1><<<1056, 256>>>((float2*)A, C, 1 << 20); }, C, 2112});
  cases.push_back({"drain_tickets", "global_atomics_one_address", "", [] { drain_tickets<<<1056, 256>>>((float4*)A, (unsigned*)C, C + 16384, 1 << 19, 1); }, [] { drain_tickets<<<1056, 256>>>((float4*)A, (unsigned*)C, C + 16384, 1 << 19, 8); }, C + 16384, 1 << 19});
  cases.push_back({"best_alignment", "global_atomics_one_address", "", [] { best_alignment<0><<<2048, 256>>>((float4*)A, (u64*)C); }, [] { best_alignment<1><<<2048, 256>>>((float4*)A, (u64*)C); }, C, 2, true});
  cases.push_back({"evolve_ensembles", "needless_barriers", "", [] { evolve<0>(A, C, 200); }, [] { evolve<1>(A, C, 200); }, C, 264 * 256});
  cases.push_back({"sway_bridges", "needless_barriers", "", [] { sway_bridges<0><<<528, 256>>>(A, C, 1000); }, [] { sway_bridges<1><<<528, 256>>>(A, C, 1000); }, C, 528 * 256});
  cases.push_back({"lengths_of_gradients", "one_warp_reduction", "", [] { lengths_of_gradients<0><<<1056, 256>>>((float2*)A, C, 1 << 17); }, [] { lengths_of_gradients<1><<<1056, 256>>>((float2*)A, C, 1 << 17); }, C, 1 << 17});
  cases.push_back({"map_tones", "constant_divergence", "", [] { map_tones<0><<<1056, 256>>>((float4*)A, (float4*)C, 1 << 22); }, [] { map_tones<1><<<1056, 256>>>((float4*)A, (float4*)C, 1 << 22); }, C, 1 << 24, false, [] {
    std::vector<float> v(1024);
    for (int k = 0; k < 1024; ++k) v[k] = std::pow((k + 0.5f) / 1024, 0.45f);
    CHECK(cudaMemcpyToSymbol(TONE, v.data(), 4096));
  }});
  cases.push_back({"score_postings", "uneven_warps", "", [] { score_postings<0><<<264, 256>>>(A, C, 264 * 32); }, [] { score_postings<1><<<264, 256>>>(A, C, 264 * 32); }, C, 264 * 32});
}
