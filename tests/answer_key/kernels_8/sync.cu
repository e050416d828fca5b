// Atomics, banks, barriers and tables: counts, bonds, labels, runs, tallies, codes, cells, patches, levels.
#include <cub/block/block_scan.cuh>

#include "set.h"

// ---- running_counts: a thread scans its own 32 values of a tile in shared memory, all lanes in one bank; expected 2.5 times
template <int PITCH> __global__ void __launch_bounds__(128) running_counts(const int* in, int* out) {
  using Scan = cub::BlockScan<int, 128>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ int tile[128 * PITCH];
  int t = threadIdx.x, s = 0;
  i64 first = blockIdx.x * 4096ll;
#pragma unroll 8
  for (int k = 0; k < 32; ++k) {
    int i = t + k * 128;
    tile[i / 32 * PITCH + (i & 31)] = in[first + i] & 15;
  }
  __syncthreads();
#pragma unroll 8
  for (int k = 0; k < 32; ++k) s += tile[t * PITCH + k];
  Scan(storage).ExclusiveSum(s, s);
#pragma unroll 8
  for (int k = 0; k < 32; ++k) tile[t * PITCH + k] = s += tile[t * PITCH + k];
  __syncthreads();
#pragma unroll 8
  for (int k = 0; k < 32; ++k) {
    int i = t + k * 128;
    out[first + i] = tile[i / 32 * PITCH + (i & 31)];
  }
}
// ---- bond_energies: all threads of a block add each bond to one float in shared memory; expected 10 times
template <int V> __global__ void __launch_bounds__(256) bond_energies(const float* length, float* out, int n) {
  __shared__ float energy;
  if (threadIdx.x == 0) energy = 0;
  __syncthreads();
  float own = 0;
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float d = length[i] - 0.4f, e = d * d * 100;
    if (V == 0) atomicAdd(&energy, e);
    else own += e;
  }
  if (V == 1) {
    own = warp_sum(own);
    if ((threadIdx.x & 31) == 0) atomicAdd(&energy, own);
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = energy;
}
// ---- count_labels: all lanes of a warp see one label and add to its word in shared memory; or the warp adds once; expected 3 times
template <int V> __global__ void __launch_bounds__(256) count_labels(const unsigned* pixel, int* out, int n) {
  __shared__ int area[128];
  if (threadIdx.x < 128) area[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 2
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    int weight = 1 + (int)(mix(pixel[i]) & 3), label = (int)(mix((unsigned)(i >> 6)) & 127);
    if (V == 0) {
      atomicAdd(&area[label], weight);
    } else {
      int same;
      __match_all_sync(~0u, label, &same);
      if (same) weight = __reduce_add_sync(~0u, weight);
      if (!same || (threadIdx.x & 31) == 0) atomicAdd(&area[label], weight);
    }
  }
  __syncthreads();
  if (threadIdx.x < 128) out[blockIdx.x * 128 + threadIdx.x] = area[threadIdx.x];
}
// ---- append_runs: each thread takes its place in the output from one counter; or a block takes one for all; expected 10 times
template <int V> __global__ void __launch_bounds__(256) append_runs(const unsigned* word, u64* tail, unsigned* out) {
  unsigned w = mix(word[T]), many = 1 + (w & 3), place = 0;
  if constexpr (V == 0) {
    place = (unsigned)atomicAdd(tail, (u64)many);
  } else {
    using Scan = cub::BlockScan<unsigned, 256>;
    __shared__ typename Scan::TempStorage storage;
    __shared__ unsigned first;
    unsigned all;
    Scan(storage).ExclusiveSum(many, place, all);
    if (threadIdx.x == 0) first = (unsigned)atomicAdd(tail, (u64)all);
    __syncthreads();
    place += first;
  }
  for (unsigned k = 0; k < many; ++k) out[place + k] = w + k;
}
// ---- tally_regions: histories add their scores to one of four floats of global memory; expected 10 times
template <int V> __global__ void __launch_bounds__(256) tally_regions(const float* a, float* tally, int n, int steps) {
  float s[4] = {};
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float x = a[i], score = 0.1f;
    unsigned region = mix((unsigned)i + 9) & 3;
    for (int k = 0; k < steps; ++k) score = fmaf(score, x, 0.1f);
    if (V == 0) {
      atomicAdd(&tally[region], score);
    } else {
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) s[k] += region == k ? score : 0;
    }
  }
  if constexpr (V == 1) {
    __shared__ float part[4][8];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float v = warp_sum(s[k]);
      if ((threadIdx.x & 31) == 0) part[k][threadIdx.x / 32] = v;
    }
    __syncthreads();
    if (threadIdx.x < 4) {
      float all = 0;
      for (int w = 0; w < 8; ++w) all += part[threadIdx.x][w];
      atomicAdd(&tally[threadIdx.x], all);
    }
  }
}
// ---- decode_checks: a warp decodes its own code word, and the block meets twice a round, of which one in sixteen is long; expected 1.8 times
template <int V> __global__ void __launch_bounds__(1024) decode_checks(const float* a, float* out, int rounds) {
  __shared__ float all[32][33];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  float* word = all[warp];
  word[lane] = a[T] - 0.5f;
  auto meet = [] {
    if (V == 0) __syncthreads();
    else __syncwarp();
  };
  meet();
  for (int r = 0; r < rounds; ++r) {
    int checks = mix((unsigned)(r * 32 + warp)) & 15 ? 2 : 48;
    float v = word[lane];
    for (int k = 0; k < checks; ++k) {
      float p = word[(lane + 2 * k + 1) & 31], q = word[(lane + 5 * k + 3) & 31], least = fminf(fabsf(p), fabsf(q));
      v = fmaf(0.9f, v, 0.1f * copysignf(least, p * q));
    }
    meet();
    word[lane] = v;
    meet();
  }
  out[T] = word[lane];
}
// ---- cool_cells: the whole grid meets after each step, though no thread reads what another wrote; expected 8 times
template <int V> __global__ void __launch_bounds__(256) cool_cells(const float* a, float* out, int steps) {
  auto grid = cooperative_groups::this_grid();
  float x = a[T], v = 0.1f;
  for (int s = 0; s < steps; ++s) {
#pragma unroll
    for (int k = 0; k < 16; ++k) v = fmaf(v, 0.7f, x * 0.3f), x = fmaf(v, -0.2f, x + 0.05f);
    if (V == 0) grid.sync();
  }
  out[T] = x;
}
static void cool(void (*form)(const float*, float*, int)) {
  const float* a = A;
  float* out = C;
  int steps = 100;
  void* words[] = {&a, &out, &steps};
  CHECK(cudaLaunchCooperativeKernel((const void*)form, dim3(528), dim3(256), words, 0, nullptr));
}
// ---- moments_of_patches: the first warp adds up all sixteen moments of a patch while fifteen wait; or each warp one; expected 2 times
template <int V> __global__ void __launch_bounds__(512) moments_of_patches(const float2* a, float* out, int patches) {
  __shared__ float part[16][512];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  for (int p = blockIdx.x; p < patches; p += gridDim.x) {
    float2 v = a[(i64)p * 512 + t];
    float x = 1;
#pragma unroll
    for (int i = 0; i < 4; ++i, x *= v.x) {
      float y = x;
#pragma unroll
      for (int j = 0; j < 4; ++j, y *= v.y) part[i * 4 + j][t] = y;
    }
    __syncthreads();
    auto add_up = [&](int m) {
      float s = 0;
#pragma unroll
      for (int k = 0; k < 16; ++k) s += part[m][lane + k * 32];
      s = warp_sum(s);
      if (lane == 0) out[p * 16 + m] = s;
    };
    if (V == 1) {
      add_up(warp);
    } else if (warp == 0) {
#pragma unroll 2
      for (int m = 0; m < 16; ++m) add_up(m);
    }
    __syncthreads();
  }
}
// ---- scale_frames: the first thread adds the 256 parts of a frame; or shuffles do; expected 3 times
template <int V> __global__ void __launch_bounds__(256) scale_frames(const float* a, float* out, int frames) {
  __shared__ float part[256];
  __shared__ float scale;
  int t = threadIdx.x;
  for (int f = blockIdx.x; f < frames; f += gridDim.x) {
    float v = a[(i64)f * 256 + t], s = v * v;
    if (V == 0) {
      part[t] = s;
      __syncthreads();
      if (t == 0) {
        s = 0;
        for (int k = 0; k < 256; ++k) s += part[k];
        scale = rsqrtf(s + 1);
      }
    } else {
      s = warp_sum(s);
      if ((t & 31) == 0) part[t / 32] = s;
      __syncthreads();
      if (t < 32) {
        s = warp_sum(t < 8 ? part[t] : 0);
        if (t == 0) scale = rsqrtf(s + 1);
      }
    }
    __syncthreads();
    out[(i64)f * 256 + t] = v * scale;
    __syncthreads();
  }
}
// ---- levels_of_codes: lanes read any of 256 words of constant memory; or a copy in shared memory; expected 4 times
__constant__ float LEVEL[256];
template <int V> __global__ void __launch_bounds__(256) levels_of_codes(const uint4* code, float* out) {
  __shared__ float level[256];
  if (V == 1) level[threadIdx.x] = LEVEL[threadIdx.x];
  __syncthreads();
  uint4 v = code[T];
  float s = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    unsigned c = mix((&v.x)[k / 4] + k) & 255;
    s = fmaf(s, 0.5f, V == 0 ? LEVEL[c] : level[c]);
  }
  out[T] = s;
}

void sync_cases() {
  cases.push_back({"running_counts", "shared_bank_conflicts", "", [] { running_counts<32><<<4096, 128>>>((int*)A, (int*)C); }, [] { running_counts<33><<<4096, 128>>>((int*)A, (int*)C); }, C, 1 << 24, true});
  cases.push_back({"bond_energies", "shared_atomics_one_address", "", [] { bond_energies<0><<<1056, 256>>>(A, C, 1 << 21); }, [] { bond_energies<1><<<1056, 256>>>(A, C, 1 << 21); }, C, 1056});
  cases.push_back({"count_labels", "shared_atomics_one_address", "", [] { count_labels<0><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 25); }, [] { count_labels<1><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 25); }, C, 1056 * 128, true});
  cases.push_back({"append_runs", "global_atomics_one_address", "", [] { append_runs<0><<<4096, 256>>>((unsigned*)A, (u64*)C, (unsigned*)C + 1024); }, [] { append_runs<1><<<4096, 256>>>((unsigned*)A, (u64*)C, (unsigned*)C + 1024); }, C, 1, true});
  cases.push_back({"tally_regions", "global_atomics_one_address", "", [] { tally_regions<0><<<1056, 256>>>(A, C, 1 << 20, 32); }, [] { tally_regions<1><<<1056, 256>>>(A, C, 1 << 20, 32); }, C, 4});
  cases.push_back({"decode_checks", "needless_barriers", "uneven_warps", [] { decode_checks<0><<<264, 1024>>>(A, C, 100); }, [] { decode_checks<1><<<264, 1024>>>(A, C, 100); }, C, 264 * 1024});
  cases.push_back({"cool_cells", "needless_barriers", "", [] { cool(cool_cells<0>); }, [] { cool(cool_cells<1>); }, C, 528 * 256});
  cases.push_back({"moments_of_patches", "one_warp_reduction", "", [] { moments_of_patches<0><<<528, 512>>>((float2*)A, C, 32768); }, [] { moments_of_patches<1><<<528, 512>>>((float2*)A, C, 32768); }, C, 32768 * 16});
  cases.push_back({"scale_frames", "one_warp_reduction", "", [] { scale_frames<0><<<1056, 256>>>(A, C, 1 << 16); }, [] { scale_frames<1><<<1056, 256>>>(A, C, 1 << 16); }, C, 1 << 24});
  cases.push_back({"levels_of_codes", "constant_divergence", "", [] { levels_of_codes<0><<<8192, 256>>>((uint4*)A, C); }, [] { levels_of_codes<1><<<8192, 256>>>((uint4*)A, C); }, C, 8192 * 256, false, [] {
    std::vector<float> v(256);
    for (int k = 0; k < 256; ++k) v[k] = 1 + (mix(k) & 1023) * 0.01f;
    CHECK(cudaMemcpyToSymbol(LEVEL, v.data(), 1024));
  }});
}
