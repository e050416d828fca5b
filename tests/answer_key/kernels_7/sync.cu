// Atomics, banks, barriers, tables: charges, classes, returns, pages, beams, traces, strips, frames, windows, codons, words.
#include <cub/block/block_reduce.cuh>

#include "set.h"

// ---- charge_of_box: each thread adds each of its charges to one float; expected 10 times
template <int V> __global__ void __launch_bounds__(256) charge_of_box(const float* a, const float* b, float* out, int n) {
  float s = 0;
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float charge = a[i] * (0.5f + b[i]);
    if (V == 0) atomicAdd(out, charge);
    else s += charge;
  }
  if constexpr (V == 1) {
    using Reduce = cub::BlockReduce<float, 256>;
    __shared__ typename Reduce::TempStorage storage;
    s = Reduce(storage).Sum(s);
    if (threadIdx.x == 0) atomicAdd(out, s);
  }
}
// ---- weigh_classes: all samples of the grid add to one of six classes of 4 bytes; or first in a block, by warps; expected 8 times
template <int V> __global__ void __launch_bounds__(256) weigh_classes(const unsigned* sample, float* out, int n) {
  float s[6] = {};
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned h = mix(sample[i]), of = h % 6;
    float weight = 1 + (h >> 28) * 0.25f;
    if (V == 0) {
      atomicAdd(&out[of], weight);
    } else {
#pragma unroll
      for (unsigned k = 0; k < 6; ++k) s[k] += of == k ? weight : 0;
    }
  }
  if constexpr (V == 1) {
    __shared__ float own[8][8];
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      float v = warp_sum(s[k]);
      if ((threadIdx.x & 31) == 0) own[threadIdx.x / 32][k] = v;
    }
    __syncthreads();
    if (threadIdx.x >= 6) return;
    float all = 0;
    for (int w = 0; w < 8; ++w) all += own[w][threadIdx.x];
    atomicAdd(&out[threadIdx.x], all);
  }
}
// ---- bin_returns: fifteen of sixteen returns fall into one bin in shared memory; or a thread keeps that one to itself; expected 4 times
template <int V> __global__ void __launch_bounds__(256) bin_returns(const unsigned* echo, int* out, int n) {
  __shared__ int bin[256];
  bin[threadIdx.x] = 0;
  __syncthreads();
  int own = 0;
#pragma unroll 2
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned h = mix(echo[i]), at = h & 15 ? 0 : h >> 4 & 255;
    int weight = 1 + (int)(h >> 12 & 3);
    if (V == 1 && at == 0) own += weight;
    else atomicAdd(&bin[at], weight);
  }
  if (V == 1) {
    own = __reduce_add_sync(~0u, own);
    if ((threadIdx.x & 31) == 0) atomicAdd(&bin[0], own);
  }
  __syncthreads();
  out[T] = bin[threadIdx.x];
}
// ---- turn_pages: columns of a tile of 32 x 32 lie in one bank; expected 2.5 times
template <int PITCH> __global__ void __launch_bounds__(256) turn_pages(const unsigned* in, unsigned* out, int rows, int columns) {
  __shared__ unsigned tile[32 * PITCH];
  int row = blockIdx.y * 32, column = blockIdx.x * 32;
#pragma unroll
  for (int r = threadIdx.y; r < 32; r += 8) tile[r * PITCH + threadIdx.x] = in[(i64)(row + r) * columns + column + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int r = threadIdx.y; r < 32; r += 8) out[(i64)(column + r) * rows + row + threadIdx.x] = tile[threadIdx.x * PITCH + r];
}
// ---- bend_beams: nodes of eight floats side by side in shared memory behind a word, so a field of 32 nodes lies in four banks; expected 3 times
template <int NODE, int FIELD> __global__ void __launch_bounds__(256) bend_beams(const float* a, float* out, int steps) {
  __shared__ float all[2049];
  float* beam = all + 1;
  if (threadIdx.x == 0) all[0] = 0.9f + 0.0001f * (blockIdx.x & 15);
#pragma unroll
  for (int f = 0; f < 8; ++f) beam[threadIdx.x * NODE + f * FIELD] = a[blockIdx.x * 2048 + f * 256 + threadIdx.x];
  __syncthreads();
  float x = 0.5f, v = 0.1f;
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    const float* node = &beam[((threadIdx.x + s) & 255) * NODE];
    float load = node[0] * node[FIELD] + node[2 * FIELD] * node[3 * FIELD], stiffness = node[4 * FIELD] + node[5 * FIELD] * node[6 * FIELD];
    v = fmaf(v, all[0], 0.01f * (load - stiffness * x) + 0.02f * node[7 * FIELD]), x = fmaf(v, 0.1f, x);
  }
  out[T] = x;
}
// ---- smooth_traces: a block copies a tile, waits, computes and only then copies the next; or copies one ahead; expected 1.6 times
constexpr int TILE = 6144;  // of four floats, 96 kB
template <int AHEAD> __global__ void __launch_bounds__(256) smooth_traces(const float4* a, float4* out, int tiles) {
  extern __shared__ float4 stage[];
  auto request = [&](int t) {
    if (t < tiles)
      for (int i = threadIdx.x; i < TILE; i += 256) __pipeline_memcpy_async(&stage[(t & 1) * TILE + i], &a[((i64)blockIdx.x * tiles + t) * TILE + i], 16);
    __pipeline_commit();
  };
  float4 s = {0, 0, 0, 0};
  if (AHEAD) request(0);
  for (int t = 0; t < tiles; ++t) {
    request(t + AHEAD);
    __pipeline_wait_prior(AHEAD);
    __syncthreads();
#pragma unroll 2
    for (int i = threadIdx.x; i < TILE; i += 256) {
      float4 v = stage[(t & 1) * TILE + i], p = {0.1f, 0.2f, 0.3f, 0.4f};
#pragma unroll
      for (int k = 0; k < 24; ++k) p.x = fmaf(p.x, v.x, 0.1f), p.y = fmaf(p.y, v.y, 0.1f), p.z = fmaf(p.z, v.z, 0.1f), p.w = fmaf(p.w, v.w, 0.1f);
      s.x += p.x, s.y += p.y, s.z += p.z, s.w += p.w;
    }
    __syncthreads();
  }
  out[T] = s;
}
// ---- settle_strips: the whole block meets after each step of a warp's own strip, and a step of one warp in eight takes sixteen rounds; expected 1.8 times
template <class Group> __device__ void settle(float* strip, int warp, int lane, int steps, Group group) {
  for (int s = 0; s < steps; ++s) {
    int rounds = mix((unsigned)(warp * 4096 + s)) & 7 ? 1 : 16;
    float v = 0.25f * strip[lane] + 0.5f * strip[lane + 1] + 0.25f * strip[lane + 2];
    for (int r = 0; r < rounds; ++r) v = fmaf(v, __fdividef(1, v + 1), 0.2f);
    group.sync();
    strip[lane + 1] = v;
    group.sync();
  }
}
template <int V> __global__ void __launch_bounds__(1024) settle_strips(const float* a, float* out, int steps) {
  __shared__ float all[32][34];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  all[warp][lane + 1] = a[T];
  if (lane < 2) all[warp][lane * 33] = 0.5f;
  auto block = cooperative_groups::this_thread_block();
  block.sync();
  if constexpr (V == 0) settle(all[warp], warp, lane, steps, block);
  else settle(all[warp], warp, lane, steps, cooperative_groups::tiled_partition<32>(block));
  out[T] = all[warp][lane + 1];
}
// ---- energy_of_frames: a tree of ten levels with a barrier each, or shuffles and one meeting; expected 1.5 times
template <int V> __global__ void __launch_bounds__(1024) energy_of_frames(const float* a, float* out, int frames) {
  using Reduce = cub::BlockReduce<float, 1024, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ float part[1024];
  for (int f = blockIdx.x; f < frames; f += gridDim.x) {
    float v = a[(i64)f * 1024 + threadIdx.x];
    v *= v;
    if (V == 0) {
      part[threadIdx.x] = v;
      __syncthreads();
      for (int o = 512; o; o >>= 1) {
        if (threadIdx.x < o) part[threadIdx.x] += part[threadIdx.x + o];
        __syncthreads();
      }
      v = part[0];
    } else {
      v = Reduce(storage).Sum(v);
    }
    __syncthreads();
    if (threadIdx.x == 0) out[f] = v;
  }
}
// ---- peaks_of_windows: the first thread looks at all 512 of a window while fifteen warps wait; expected 4 times
template <int V> __global__ void __launch_bounds__(512) peaks_of_windows(const float* a, int* out, int windows) {
  __shared__ float height[512];
  __shared__ int place[16];
  for (int w = blockIdx.x; w < windows; w += gridDim.x) {
    float v = a[(i64)w * 512 + threadIdx.x];
    int at = threadIdx.x;
    if (V == 0) {
      height[at] = v;
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int k = 1; k < 512; ++k)
          if (height[k] > v) v = height[k], at = k;
        out[w] = at;
      }
    } else {
      auto better = [&](int o) {
        float other = __shfl_xor_sync(~0u, v, o);
        int its = __shfl_xor_sync(~0u, at, o);
        if (other > v || (other == v && its < at)) v = other, at = its;
      };
#pragma unroll
      for (int o = 16; o; o >>= 1) better(o);
      if ((threadIdx.x & 31) == 0) height[threadIdx.x / 32] = v, place[threadIdx.x / 32] = at;
      __syncthreads();
      if (threadIdx.x < 32) {
        v = height[threadIdx.x & 15], at = place[threadIdx.x & 15];
#pragma unroll
        for (int o = 8; o; o >>= 1) better(o);
        if (threadIdx.x == 0) out[w] = at;
      }
    }
    __syncthreads();
  }
}
// ---- translate_codons: lanes read any of 64 words of constant memory; or a copy in shared memory; expected 3 times
__constant__ float AMINO[64];
template <int V> __global__ void __launch_bounds__(256) translate_codons(const unsigned* codon, float* out, int n) {
  __shared__ float amino[64];
  if (V == 1 && threadIdx.x < 64) amino[threadIdx.x] = AMINO[threadIdx.x];
  __syncthreads();
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned w = mix(codon[i]);
    float s = 0;
#pragma unroll
    for (int k = 0; k < 5; ++k) s = fmaf(s, 0.5f, V == 0 ? AMINO[w >> 6 * k & 63] : amino[w >> 6 * k & 63]);
    out[i] = s;
  }
}
// ---- whiten_words: 4096 rounds, each with constants of its own in its instructions, some 200 kB; or a loop of 16; expected 2 times
template <int ROUNDS> __global__ void __launch_bounds__(256) whiten_words(const unsigned* a, unsigned* out, int times) {
  unsigned x = a[T], y = x * 2654435761u;
  for (int t = 0; t < times; ++t)
#pragma unroll 1
    for (int first = 0; first < 4096; first += ROUNDS)
#pragma unroll
      for (int k = 0; k < ROUNDS; ++k) {
        unsigned key = (unsigned)(first + k) * 0x9e3779b9u;
        x = (x ^ key) * 0x85ebca6bu + y, y = (y + (key ^ 0x5bd1e995u)) ^ x >> 15;
      }
  out[T] = x ^ y;
}

void sync_cases() {
  cases.push_back({"charge_of_box", "global_atomics_one_address", "", [] { charge_of_box<0><<<1056, 256>>>(A, B, C, 1 << 19); }, [] { charge_of_box<1><<<1056, 256>>>(A, B, C, 1 << 19); }, C, 1});
  cases.push_back({"weigh_classes", "global_atomics_one_address", "", [] { weigh_classes<0><<<1056, 256>>>((unsigned*)A, C, 1 << 20); }, [] { weigh_classes<1><<<1056, 256>>>((unsigned*)A, C, 1 << 20); }, C, 6});
  cases.push_back({"bin_returns", "shared_atomics_one_address", "", [] { bin_returns<0><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 24); }, [] { bin_returns<1><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 24); }, C, 1056 * 256, true});
  cases.push_back({"turn_pages", "shared_bank_conflicts", "", [] { turn_pages<32><<<dim3(256, 128), dim3(32, 8)>>>((unsigned*)A, (unsigned*)C, 4096, 8192); }, [] { turn_pages<33><<<dim3(256, 128), dim3(32, 8)>>>((unsigned*)A, (unsigned*)C, 4096, 8192); }, C, 1 << 25, true});
  cases.push_back({"bend_beams", "shared_bank_conflicts", "", [] { bend_beams<8, 1><<<1056, 256>>>(A, C, 256); }, [] { bend_beams<1, 256><<<1056, 256>>>(A, C, 256); }, C, 1056 * 256});
  cases.push_back({"smooth_traces", "no_overlap", "", [] { smooth_traces<0><<<132, 256, TILE * 32>>>((float4*)A, (float4*)C, 16); }, [] { smooth_traces<1><<<132, 256, TILE * 32>>>((float4*)A, (float4*)C, 16); }, C, 132 * 256 * 4, false, [] { dynamic_shared(smooth_traces<0>, TILE * 32), dynamic_shared(smooth_traces<1>, TILE * 32); }});
  cases.push_back({"settle_strips", "needless_barriers", "", [] { settle_strips<0><<<132, 1024>>>(A, C, 400); }, [] { settle_strips<1><<<132, 1024>>>(A, C, 400); }, C, 132 * 1024});
  cases.push_back({"energy_of_frames", "needless_barriers", "", [] { energy_of_frames<0><<<264, 1024>>>(A, C, 1 << 15); }, [] { energy_of_frames<1><<<264, 1024>>>(A, C, 1 << 15); }, C, 1 << 15});
  cases.push_back({"peaks_of_windows", "one_warp_reduction", "", [] { peaks_of_windows<0><<<528, 512>>>(A, (int*)C, 1 << 15); }, [] { peaks_of_windows<1><<<528, 512>>>(A, (int*)C, 1 << 15); }, C, 1 << 15, true});
  cases.push_back({"translate_codons", "constant_divergence", "", [] { translate_codons<0><<<1056, 256>>>((unsigned*)A, C, 1 << 23); }, [] { translate_codons<1><<<1056, 256>>>((unsigned*)A, C, 1 << 23); }, C, 1 << 23, false, [] { CHECK(cudaMemcpyToSymbol(AMINO, B, 256, 0, cudaMemcpyDeviceToDevice)); }});
  cases.push_back({"whiten_words", "instruction_cache", "", [] { whiten_words<4096><<<528, 256>>>((unsigned*)A, (unsigned*)C, 4); }, [] { whiten_words<16><<<528, 256>>>((unsigned*)A, (unsigned*)C, 4); }, C, 528 * 256, true});
}
