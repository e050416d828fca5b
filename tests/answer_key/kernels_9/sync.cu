// Banks, atomics, barriers and tables: tridiagonal systems, transforms, bases, walls, levels, windows, colonies, offsets, substitutions.
#include "set.h"

// ---- solve_tridiagonals: a thread a system of 32 unknowns in shared memory, all lanes in one bank; or rows of 33; expected 4 times
__global__ void __launch_bounds__(128) solve_tridiagonals(const float* diagonal, const float* right, float* out, int pitch) {
  __shared__ float c[128 * 33], d[128 * 33];
  int t = threadIdx.x;
  i64 first = blockIdx.x * 4096ll;
#pragma unroll 8
  for (int k = 0; k < 32; ++k) {
    int i = t + k * 128, to = i / 32 * pitch + (i & 31);
    c[to] = diagonal[first + i] + 2.1f, d[to] = right[first + i];
  }
  __syncthreads();
  float p = 0, q = 0;
#pragma unroll 4
  for (int k = 0; k < 32; ++k) {
    float by = __fdividef(1, c[t * pitch + k] + p);
    c[t * pitch + k] = p = -by, d[t * pitch + k] = q = (d[t * pitch + k] + q) * by;
  }
  float x = 0;
#pragma unroll 4
  for (int k = 31; k >= 0; --k) d[t * pitch + k] = x = fmaf(-c[t * pitch + k], x, d[t * pitch + k]);
  __syncthreads();
#pragma unroll 8
  for (int k = 0; k < 32; ++k) {
    int i = t + k * 128;
    out[first + i] = d[i / 32 * pitch + (i & 31)];
  }
}
// ---- channels_of_spectrometer: exchanges of a transform of radix 8, whose stores meet eight times in a bank; or a word of padding each 32; expected 3 times
template <int PAD> __global__ void __launch_bounds__(256) channels_of_spectrometer(const float* a, float* out, int radix, int steps) {
  __shared__ float s[2048 + 64];
  int t = threadIdx.x;
  float v[8];
  auto place = [](int i) { return PAD ? i + i / 32 : i; };
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = a[blockIdx.x * 2048 + k * 256 + t];
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int by = 1; by < 8; by *= 2)
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (!(k & by)) {
          float p = v[k], q = v[k | by];
          v[k] = fmaf(p, 0.6f, q * 0.39f), v[k | by] = fmaf(p, 0.61f, -q * 0.4f);
        }
#pragma unroll
    for (int k = 0; k < 8; ++k) s[place(t * radix + k)] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = s[place(t + k * 256)] + 0.01f;
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) out[blockIdx.x * 2048 + k * 256 + t] = v[k];
}
// ---- tally_bases: every base adds to one of four words in shared memory; or population counts and registers; expected 8 times
template <int V> __global__ void __launch_bounds__(256) tally_bases(const unsigned* read, int* out, int n) {
  __shared__ int all[4];
  if (threadIdx.x < 4) all[threadIdx.x] = 0;
  __syncthreads();
  int own[4] = {0, 0, 0, 0};
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned w = mix(read[i]);
    if (V == 0) {
#pragma unroll
      for (int k = 0; k < 32; k += 2) atomicAdd(&all[w >> k & 3], 1);
    } else {
      unsigned low = w & 0x55555555u, high = w >> 1 & 0x55555555u;
      own[1] += __popc(low & ~high), own[2] += __popc(high & ~low), own[3] += __popc(low & high), own[0] += 16 - __popc(low | high);
    }
  }
  if (V == 1)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int s = __reduce_add_sync(~0u, own[k]);
      if ((threadIdx.x & 31) == 0) atomicAdd(&all[k], s);
    }
  __syncthreads();
  if (threadIdx.x < 4) out[blockIdx.x * 4 + threadIdx.x] = all[threadIdx.x];
}
// ---- pressure_on_walls: each particle adds its momentum to one of six floats in global memory; or blocks sum first; expected 10 times
template <int V> __global__ void __launch_bounds__(256) pressure_on_walls(const float* a, float* wall, int n) {
  float s[6] = {};
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float p = fmaf(a[i], 0.8f, 0.1f);
    unsigned hit = mix((unsigned)i + 31) % 6u;
    if (V == 0) {
      atomicAdd(&wall[hit], p);
    } else {
#pragma unroll
      for (unsigned k = 0; k < 6; ++k) s[k] += hit == k ? p : 0;
    }
  }
  if constexpr (V == 1) {
    __shared__ float all[6];
    if (threadIdx.x < 6) all[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      float v = warp_sum(s[k]);
      if ((threadIdx.x & 31) == 0) atomicAdd(&all[k], v);
    }
    __syncthreads();
    if (threadIdx.x < 6) atomicAdd(&wall[threadIdx.x], all[threadIdx.x]);
  }
}
// ---- publish_levels: a memory fence after each store, though no other thread reads before the kernel ends; expected 1.8 times
template <int V> __global__ void __launch_bounds__(256) publish_levels(const float* a, float* level, int n) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    level[i] = fmaf(a[i], 3.0f, 0.5f);
    if (V == 0) __threadfence();
  }
}
// ---- rms_of_windows: a block meets nine times for each window of 256 samples; or a warp a window without meeting; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) rms_of_windows(const float* a, float* out, int windows) {
  __shared__ float part[256];
  int t = threadIdx.x, lane = t & 31;
  if (V == 0) {
    for (int w = blockIdx.x; w < windows; w += gridDim.x) {
      float v = a[(i64)w * 256 + t];
      part[t] = v * v;
      __syncthreads();
      for (int o = 128; o; o >>= 1) {
        if (t < o) part[t] += part[t + o];
        __syncthreads();
      }
      if (t == 0) out[w] = sqrtf(part[0] * (1 / 256.0f));
    }
  } else {
    for (int w = (int)(T / 32); w < windows; w += (int)(STRIDE / 32)) {
      const float4* own = (const float4*)a + (i64)w * 64;
      float4 p = own[lane], q = own[lane + 32];
      float s = warp_sum(((p.x * p.x + p.y * p.y) + (p.z * p.z + p.w * p.w)) + ((q.x * q.x + q.y * q.y) + (q.z * q.z + q.w * q.w)));
      if (lane == 0) out[w] = sqrtf(s * (1 / 256.0f));
    }
  }
}
// ---- advance_colonies: a cluster of four blocks meets after each step, though a block reads only its own cells; or the block meets; expected 2 times
template <int V> __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256) advance_colonies(const float* a, float* out, int steps) {
  auto cluster = cooperative_groups::this_cluster();
  __shared__ float cell[2][256];
  int t = threadIdx.x;
  cell[0][t] = a[T];
  __syncthreads();
  for (int s = 0; s < steps; ++s) {
    const float* from = cell[s & 1];
    float left = from[(t + 255) & 255], own = from[t], right = from[(t + 1) & 255];
    cell[~s & 1][t] = fmaf(own, 1 - own, 0.25f * (left + right));
    if (V == 0) cluster.sync();
    else __syncthreads();
  }
  out[T] = cell[steps & 1][t];
}
// ---- offsets_of_cells: the first thread scans the 256 counts of a tile; or shuffles do; expected 5 times
template <int V> __global__ void __launch_bounds__(256) offsets_of_cells(const unsigned* key, int* out, int tiles) {
  __shared__ int count[256], part[8];
  int t = threadIdx.x, lane = t & 31;
  for (int n = blockIdx.x; n < tiles; n += gridDim.x) {
    int own = (int)(mix(key[n * 256 + t]) & 7), s = own;
    if (V == 0) {
      count[t] = own;
      __syncthreads();
      if (t == 0) {
        int all = 0;
        for (int k = 0; k < 256; ++k) {
          int c = count[k];
          count[k] = all, all += c;
        }
      }
      __syncthreads();
      out[n * 256 + t] = count[t];
    } else {
      for (int o = 1; o < 32; o *= 2) {
        int before = __shfl_up_sync(~0u, s, o);
        s += lane >= o ? before : 0;
      }
      if (lane == 31) part[t / 32] = s;
      __syncthreads();
      int all = 0;
#pragma unroll
      for (int w = 0; w < 8; ++w) all += w < t / 32 ? part[w] : 0;
      out[n * 256 + t] = all + s - own;
    }
    __syncthreads();
  }
}
// ---- score_substitutions: lanes read any of 576 words of constant memory; or a copy in shared memory; expected 5 times
__constant__ int SCORE[576];
template <int V> __global__ void __launch_bounds__(256) score_substitutions(const uint2* a, const uint2* b, int* out) {
  __shared__ int score[576];
  if (V == 1) {
    for (int i = threadIdx.x; i < 576; i += 256) score[i] = SCORE[i];
    __syncthreads();
  }
  uint2 p = a[T], q = b[T];
  int s = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    unsigned w = mix((k < 8 ? p.x ^ q.y : p.y ^ q.x) + k), at = (w & 255) * 24 / 256 * 24 + (w >> 8 & 255) * 24 / 256;
    s = max(s + (V == 0 ? SCORE[at] : score[at]), 0);
  }
  out[T] = s;
}

void sync_cases() {
  cases.push_back({"solve_tridiagonals", "shared_bank_conflicts", "", [] { solve_tridiagonals<<<4096, 128>>>(A, B, C, 32); }, [] { solve_tridiagonals<<<4096, 128>>>(A, B, C, 33); }, C, 1 << 24});
  cases.push_back({"channels_of_spectrometer", "shared_bank_conflicts", "", [] { channels_of_spectrometer<0><<<528, 256>>>(A, C, 8, 128); }, [] { channels_of_spectrometer<1><<<528, 256>>>(A, C, 8, 128); }, C, 528 * 2048});
  cases.push_back({"tally_bases", "shared_atomics_one_address", "", [] { tally_bases<0><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 22); }, [] { tally_bases<1><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 22); }, C, 1056 * 4, true});
  cases.push_back({"pressure_on_walls", "global_atomics_one_address", "", [] { pressure_on_walls<0><<<1056, 256>>>(A, C, 1 << 20); }, [] { pressure_on_walls<1><<<1056, 256>>>(A, C, 1 << 20); }, C, 6});
  cases.push_back({"publish_levels", "needless_barriers", "", [] { publish_levels<0><<<1056, 256>>>(A, C, 1 << 25); }, [] { publish_levels<1><<<1056, 256>>>(A, C, 1 << 25); }, C, 1 << 25});
  cases.push_back({"rms_of_windows", "needless_barriers", "one_warp_reduction", [] { rms_of_windows<0><<<1056, 256>>>(A, C, 1 << 17); }, [] { rms_of_windows<1><<<1056, 256>>>(A, C, 1 << 17); }, C, 1 << 17});
  cases.push_back({"advance_colonies", "needless_barriers", "", [] { advance_colonies<0><<<528, 256>>>(A, C, 400); }, [] { advance_colonies<1><<<528, 256>>>(A, C, 400); }, C, 528 * 256});
  cases.push_back({"offsets_of_cells", "one_warp_reduction", "", [] { offsets_of_cells<0><<<1056, 256>>>((unsigned*)A, (int*)C, 16384); }, [] { offsets_of_cells<1><<<1056, 256>>>((unsigned*)A, (int*)C, 16384); }, C, 1 << 22, true});
  cases.push_back({"score_substitutions", "constant_divergence", "", [] { score_substitutions<0><<<8192, 256>>>((uint2*)A, (uint2*)B, (int*)C); }, [] { score_substitutions<1><<<8192, 256>>>((uint2*)A, (uint2*)B, (int*)C); }, C, 8192 * 256, true, [] {
    std::vector<int> v(576);
    for (int k = 0; k < 576; ++k) v[k] = (int)(mix(k) % 13u) - 5;
    CHECK(cudaMemcpyToSymbol(SCORE, v.data(), 576 * 4));
  }});
}
