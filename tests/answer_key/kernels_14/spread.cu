// Grids, blocks and occupancy: checkpoints, maps, lights, models, contigs, supernodes, frames, seeds, windows, shadows, quotes, phonemes, markets.
#include "frame.h"

void spread_cases();

// ---- norm_checkpoints: a block for each of 12 layers of 2,883,584 weights; or 88 blocks a layer; expected 3.5 times
__global__ void __launch_bounds__(512) norm_checkpoints(const float4* weight, float* out, int each) {
  __shared__ float part[16];
  const float4* own = weight + ((i64)blockIdx.y * gridDim.x + blockIdx.x) * each * 512 + threadIdx.x;
  float s = 0;
#pragma unroll 8
  for (int k = 0; k < each; ++k) {
    float4 v = own[k * 512];
    s += fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  s = warp_sum(threadIdx.x < 16 ? part[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) atomicAdd(&out[blockIdx.y], s);
}
// ---- plan_on_maps: a block sweeps each of 64 maps of 512 x 256 cells of cost; or 16 blocks each; expected 5 times
__global__ void __launch_bounds__(256) plan_on_maps(const float* cost, float* out, int rows) {  // the cheapest way over three cells below each
  i64 map = (i64)blockIdx.y * 512 * 256;
#pragma unroll 1
  for (int i = 0; i < rows * 2; ++i) {
    int y = blockIdx.x * rows + i / 2, x = (i & 1) * 256 + threadIdx.x, next = min(y + 1, 255);
    const float* below = cost + map + next * 512;
    float u = below[max(x - 1, 0)], v = below[x], w = below[min(x + 1, 511)], s = cost[map + y * 512 + x];
    out[map + y * 512 + x] = s + fminf(v, 1.4f * fminf(u, w));
  }
}
// ---- bake_lights: 144 blocks of 1,024 threads with 120 kB each, so that 12 run alone in a second wave; or four times as many of a quarter; expected 1.6 times
__global__ void __launch_bounds__(1024) bake_lights(const float* a, float* out, int texels, int steps) {  // texels of shared memory
  extern __shared__ float light[];
  int t = threadIdx.x, wide = blockDim.x;
  for (int i = t; i < texels; i += wide) light[i] = a[i];
  __syncthreads();
  float s[4], x = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) s[k] = x * (0.3f + 0.1f * k);
#pragma unroll 4
  for (int n = 0; n < steps; ++n) {
    float by = light[(n * 32 + (int)T) & 4095];
#pragma unroll
    for (int k = 0; k < 4; ++k) s[k] = fmaf(s[k], fmaf(-0.03f, s[k], 0.98f), 0.01f * by);
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// ---- fold_models: 280 blocks of 1,024 threads, two an SM, so that 16 run in a second wave; or blocks of an eighth of the threads; expected 1.35 times
__global__ void __launch_bounds__(1024, 2) fold_models(const float* a, float* out, int steps) {
  float x[4], u = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = u + 0.1f * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fmaf(x[k], fmaf(0.3f, x[k], -0.6f), 0.2f * u + 0.1f);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// ---- pile_contigs: a block a contig, most of 2,048 places of 64 reads and twelve of 65,536; or a block for each 2,048 places; expected 3 times
struct Span {
  int begin, end;
};
__global__ void __launch_bounds__(256) pile_contigs(const unsigned* read, const Span* span, unsigned* out) {
  Span own = span[blockIdx.x];
#pragma unroll 1
  for (int i = own.begin + (int)threadIdx.x; i < own.end; i += 256) {
    unsigned depth = 0, h = read[i];
#pragma unroll 4
    for (int k = 0; k < 64; ++k) h = h * 1664525u + 1013904223u, depth += __popc(h & h >> 7);
    out[i] = depth;
  }
}
// ---- update_supernodes: a block for each of 660 dense panels of 512 rows, of which one in 33 has 4,096; or a block for each 64 rows; expected 1.8 times
constexpr int PANEL = 32;  // columns
__global__ void __launch_bounds__(256) update_supernodes(const float* a, const float* by, const Span* span, float* out) {
  __shared__ __align__(16) float factor[PANEL][PANEL];
  Span own = span[blockIdx.x];
  for (int i = threadIdx.x; i < PANEL * PANEL; i += 256) factor[i / PANEL][i % PANEL] = by[i];
  __syncthreads();
  int column = threadIdx.x & 31;
#pragma unroll 1
  for (int row = own.begin + (int)threadIdx.x / 32; row < own.end; row += 8) {
    float x = a[(i64)row * PANEL + column], s = 0;
#pragma unroll 8
    for (int k = 0; k < PANEL; ++k) s = fmaf(__shfl_sync(~0u, x, k), factor[k][column], s);
    out[(i64)row * PANEL + column] = fmaf(-0.1f, s, x);
  }
}
// ---- eliminate_frames: 128 rows of a system, eight neighbours a warp, so that warps with the upper rows wait while the last have all the work; or every sixteenth; expected 1.5 times
template <int V> __global__ void __launch_bounds__(512) eliminate_frames(const float* a, float* out, int each) {
  extern __shared__ float frame[];  // 128 rows, 129 apart
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int r = 0; r < each; ++r) {
    i64 own = (i64)blockIdx.x * each + r;
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < 128 * 128; i += 512) frame[i / 128 * 129 + (i & 127)] = a[own * 16384 + i] + (i / 128 == (i & 127) ? 8.0f : 0.0f);
    __syncthreads();
    float size = 0;
#pragma unroll 1
    for (int k = 0; k < 127; ++k) {
      float d = frame[k * 130], by = __fdividef(1.0f, d), p[4];
      size += __logf(fabsf(d));
#pragma unroll
      for (int j = 0; j < 4; ++j) p[j] = frame[k * 129 + j * 32 + lane];
#pragma unroll 1
      for (int q = 0; q < 8; ++q) {
        int i = V == 0 ? warp * 8 + q : q * 16 + warp;
        if (i <= k) continue;
        float* row = frame + i * 129;
        float f = row[k] * by;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (j * 32 + lane > k) row[j * 32 + lane] = fmaf(-f, p[j], row[j * 32 + lane]);
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) out[own] = size;
  }
}
// ---- extend_seeds: eight seeds a round, a warp each, of 64 steps or, one in eight, of 1,024, in any order, then a barrier for the next eight; or ordered by length; expected 3 times
__global__ void __launch_bounds__(256) extend_seeds(const int2* seed, const float* a, float* out, int rounds) {  // place of the result and length
  __shared__ int2 own[8];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x < 8) own[threadIdx.x] = seed[(r * gridDim.x + blockIdx.x) * 8 + threadIdx.x];
    __syncthreads();
    int2 s = own[warp];
    float x = a[s.x * 32 + lane], best = 0, run = 0;
#pragma unroll 1
    for (int n = 0; n < s.y; ++n) {
      x = fmaf(x, 3.7f, -3.7f * x * x), run = fmaxf(fmaf(run, 0.98f, x - 0.6f), 0.0f), best = fmaxf(best, run);
    }
    best = warp_sum(best);
    if (lane == 0) out[s.x] = best;
    __syncthreads();
  }
}
// ---- score_windows: 48 dependent look-ups a warp, then the spread of 96 numbers a thread in registers, so that 16 warps fit an SM; or these are read twice; expected 2 times
template <int V> __global__ void __launch_bounds__(128) score_windows(const unsigned* next, const float* window, float* out, int hops, unsigned rows) {
  unsigned lane = threadIdx.x & 31, at = (unsigned)(T / 32);
#pragma unroll 1
  for (int n = 0; n < hops; ++n) at = mix(__shfl_sync(~0u, next[(at & (rows - 1)) * 32 + lane], n & 31) + n);
  const float* own = window + (at & 1023) * 32 + lane;
  float mean = 0, spread = 0;
  if (V == 0) {
    float v[96];
#pragma unroll
    for (int k = 0; k < 96; ++k) v[k] = own[k * 32768];
#pragma unroll
    for (int k = 0; k < 96; ++k) mean += v[k];
    mean *= 1 / 96.0f;
#pragma unroll
    for (int k = 0; k < 96; ++k) spread = fmaf(v[k] - mean, v[k] - mean, spread);
  } else {
#pragma unroll 4
    for (int k = 0; k < 96; ++k) mean += own[k * 32768];
    mean *= 1 / 96.0f;
#pragma unroll 4
    for (int k = 0; k < 96; ++k) {
      float d = own[k * 32768] - mean;
      spread = fmaf(d, d, spread);
    }
  }
  out[T] = spread;
}
// ---- cast_shadows: packets of 32 rays with a stack of 96 nodes a thread in shared memory, 48 kB a block, so that 16 warps fit an SM, though they use at most twelve; or of 12; expected 3 times
__global__ void __launch_bounds__(128) cast_shadows(const float* box, const float* a, float* out, int depth, int visits, unsigned rows) {
  extern __shared__ unsigned stack[];
  unsigned *own = stack + threadIdx.x, node = (unsigned)(T / 32), lane = threadIdx.x & 31;
  float ray = a[T], s = 0;
  int top = 0, most = min(depth, 12);
#pragma unroll 1
  for (int n = 0; n < visits; ++n) {
    float b = box[(mix(node) & (rows - 1)) * 32 + lane];
    s = fmaf(0.9f, s, fabsf(b - ray));
    unsigned near = __ballot_sync(~0u, b < ray), left = node * 2 + (near & 1) + 1;
    if (__popc(near) > 16 && top < most) own[top++ * 128] = left ^ 0x55;
    node = __popc(near) < 16 && top ? own[--top * 128] : left;
  }
  out[T] = s + (float)top;
}
// ---- fetch_quotes: 48 kB of shared memory a block for a table of 1 kB, so that 32 warps fit an SM, and each look-up waits for the last; or what the table takes; expected 1.8 times
__global__ void __launch_bounds__(256) fetch_quotes(const float* quote, const float* weight, float* out, int hops, unsigned rows) {
  extern __shared__ float table[];
  table[threadIdx.x] = weight[threadIdx.x];
  __syncthreads();
  unsigned at = (unsigned)(T / 32), lane = threadIdx.x & 31;
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < hops; ++n) {
    float q = quote[(mix(at) & (rows - 1)) * 32 + lane];
    s = fmaf(q, table[(at & 7) * 32 + lane], s), at = __float_as_uint(__shfl_sync(~0u, q, 0)) + n;
  }
  out[T] = s;
}
// ---- match_phonemes: blocks of a warp, of which 32 fit an SM, and each row waits for the last; or of eight warps; expected 1.7 times
__global__ void match_phonemes(const unsigned* arc, unsigned* out, int steps, unsigned rows) {
  unsigned at = (unsigned)(T / 32), lane = threadIdx.x & 31, s = 0;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    unsigned v = arc[(mix(at) & (rows - 1)) * 32 + lane];
    s = s * 5 + (v >> 9), at = __shfl_sync(~0u, v, (int)(at & 31)) + n;
  }
  out[T] = s;
}
// ---- clear_markets: 33 to 40 registers and blocks of 1,024 threads, of which one fits an SM; or blocks of 256, of which six do; expected 1.4 times
__global__ void __launch_bounds__(1024) clear_markets(const float* demand, float* out, int markets, unsigned rows) {
  float price[27], s = 0;
#pragma unroll
  for (int k = 0; k < 27; ++k) price[k] = 0.1f * k;
  unsigned at = (unsigned)(T / 32), lane = threadIdx.x & 31;
#pragma unroll 1
  for (int n = 0; n < markets; ++n) {
    float d = demand[(mix(at) & (rows - 1)) * 32 + lane];
    at = __float_as_uint(__shfl_sync(~0u, d, 0)) + n;
#pragma unroll
    for (int k = 0; k < 27; ++k) price[k] = fmaf(price[k], 0.99f, d * (0.01f + 0.001f * k));
  }
#pragma unroll
  for (int k = 0; k < 27; ++k) s = fmaf(s, 0.9f, price[k] * price[k]);
  out[T] = s;
}

void spread_cases() {
  static Span *contigs, *places, *panels, *strips;
  static int many_places, many_strips;
  static int2 *any, *ordered;
  cases.push_back({"norm_checkpoints", "grid_too_small", "", [] { norm_checkpoints<<<dim3(1, 12), 512>>>((float4*)A, C, 1408); }, [] { norm_checkpoints<<<dim3(88, 12), 512>>>((float4*)A, C, 16); }, C, 12});
  cases.push_back({"plan_on_maps", "grid_too_small", "", [] { plan_on_maps<<<dim3(1, 64), 256>>>(A, C, 256); }, [] { plan_on_maps<<<dim3(16, 64), 256>>>(A, C, 16); }, C, 64 * 512 * 256});
  cases.push_back({"bake_lights", "tail_effect", "", [] {
    dynamic_shared(bake_lights, 120 << 10);
    bake_lights<<<144, 1024, 120 << 10>>>(A, C, 4096, 1536);
  }, [] {
    dynamic_shared(bake_lights, 120 << 10);
    bake_lights<<<576, 256, 30 << 10>>>(A, C, 4096, 1536);
  }, C, 144 * 1024});
  cases.push_back({"fold_models", "tail_effect", "", [] { fold_models<<<280, 1024>>>(A, C, 2048); }, [] { fold_models<<<2240, 128>>>(A, C, 2048); }, C, 280 * 1024});
  cases.push_back({"pile_contigs", "uneven_blocks", "tail_effect", [] { pile_contigs<<<2060, 256>>>((unsigned*)A, contigs, (unsigned*)C); }, [] { pile_contigs<<<many_places, 256>>>((unsigned*)A, places, (unsigned*)C); }, C, 2048 * 2048 + 12 * 65536, true, [] {
    std::vector<Span> whole, parts;
    for (int k = 0, at = 0; k < 2060; ++k) {
      int size = k % 171 == 170 ? 65536 : 2048;
      whole.push_back({at, at + size});
      for (int p = 0; p < size; p += 2048) parts.push_back({at + p, at + p + 2048});
      at += size;
    }
    contigs = upload(whole), places = upload(parts), many_places = (int)parts.size();
  }});
  cases.push_back({"update_supernodes", "uneven_blocks", "tail_effect", [] { update_supernodes<<<660, 256>>>(A, B, panels, C); }, [] { update_supernodes<<<many_strips, 256>>>(A, B, strips, C); }, C, 660 * 512 * PANEL, false, [] {
    std::vector<Span> whole, parts;
    int at = 0;
    for (unsigned k = 0; k < 660; ++k) {
      int size = mix(k) % 33 == 0 ? 4096 : 512;
      whole.push_back({at, at + size});
      for (int p = 0; p < size; p += 64) parts.push_back({at + p, at + p + 64});
      at += size;
    }
    panels = upload(whole), strips = upload(parts), many_strips = (int)parts.size();
  }});
  cases.push_back({"eliminate_frames", "uneven_warps", "", [] {
    dynamic_shared(eliminate_frames<0>, 128 * 129 * 4);
    eliminate_frames<0><<<132, 512, 128 * 129 * 4>>>(A, C, 4);
  }, [] {
    dynamic_shared(eliminate_frames<1>, 128 * 129 * 4);
    eliminate_frames<1><<<132, 512, 128 * 129 * 4>>>(A, C, 4);
  }, C, 132 * 4});
  cases.push_back({"extend_seeds", "uneven_warps", "needless_barriers", [] { extend_seeds<<<132, 256>>>(any, A, C, 16); }, [] { extend_seeds<<<132, 256>>>(ordered, A, C, 16); }, C, 132 * 8 * 16, false, [] {
    const int all = 132 * 8 * 16;
    std::vector<int2> v(all), w(all);
    for (int i = 0; i < all; ++i) v[i] = {i, mix((unsigned)i) % 8 == 0 ? 1024 : 64};
    any = upload(v);
    std::stable_sort(v.begin(), v.end(), [](int2 p, int2 q) { return p.y > q.y; });
    ordered = upload(v);
  }});
  cases.push_back({"score_windows", "occupancy_registers", "", [] { score_windows<0><<<2112, 128>>>((unsigned*)A, B, C, 48, 1u << 21); }, [] { score_windows<1><<<2112, 128>>>((unsigned*)A, B, C, 48, 1u << 21); }, C, 2112 * 128});
  cases.push_back({"cast_shadows", "occupancy_shared", "", [] { cast_shadows<<<4224, 128, 96 * 128 * 4>>>(A, B, C, 96, 32, 1u << 21); }, [] { cast_shadows<<<4224, 128, 12 * 128 * 4>>>(A, B, C, 12, 32, 1u << 21); }, C, 4224 * 128});
  cases.push_back({"fetch_quotes", "occupancy_shared", "", [] { fetch_quotes<<<2112, 256, 48 << 10>>>(A, B, C, 48, 1u << 21); }, [] { fetch_quotes<<<2112, 256, 1 << 10>>>(A, B, C, 48, 1u << 21); }, C, 2112 * 256});
  cases.push_back({"match_phonemes", "occupancy_block_size", "", [] { match_phonemes<<<16896, 32>>>((unsigned*)A, (unsigned*)C, 48, 1u << 21); }, [] { match_phonemes<<<2112, 256>>>((unsigned*)A, (unsigned*)C, 48, 1u << 21); }, C, 16896 * 32, true});
  cases.push_back({"clear_markets", "occupancy_block_size", "occupancy_registers", [] { clear_markets<<<528, 1024>>>(A, C, 48, 1u << 21); }, [] { clear_markets<<<2112, 256>>>(A, C, 48, 1u << 21); }, C, 528 * 1024});
}
