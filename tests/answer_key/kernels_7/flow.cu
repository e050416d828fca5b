// How work is spread over lanes, warps, blocks and waves: grains, reads, contigs, channels, chains, beams, photons.
#include "set.h"

// ---- settle_grains: four materials in any order, so that each warp follows the law of each; or sorted by material; expected 3 times
struct Sand { __device__ static float step(float s, float x) { return fmaf(s, x * 0.7f, 0.1f) * fmaf(s, 0.3f, 0.6f); } };
struct Clay { __device__ static float step(float s, float x) { return sqrtf(fmaf(s, 0.5f, x + 0.2f)); } };
struct Peat { __device__ static float step(float s, float x) { return __expf(-0.7f * s) * (x + 0.3f); } };
struct Rock { __device__ static float step(float s, float x) { return __fdividef(s + 0.5f, s + x + 1); } };
template <class Law> __device__ float settled(float x, int rounds) {
  float s = 0.5f;
#pragma unroll 4
  for (int k = 0; k < rounds; ++k) s = Law::step(s, x);
  return s;
}
__host__ __device__ inline int material(int grain) { return (int)(mix((unsigned)grain + 41) & 3); }
__global__ void __launch_bounds__(256) settle_grains(const int* order, const float* a, float* out, int rounds) {
  int grain = order[T], of = material(grain);
  float x = a[grain], s;
  if (of == 0) s = settled<Sand>(x, rounds);
  else if (of == 1) s = settled<Clay>(x, rounds);
  else if (of == 2) s = settled<Peat>(x, rounds);
  else s = settled<Rock>(x, rounds);
  out[grain] = s;
}
// ---- trim_reads: an inner loop of any length for each of 32 reads, or one loop in which a lane goes on to its next read; expected 2 times
__device__ inline unsigned trimmed(unsigned h) {
#pragma unroll
  for (int k = 0; k < 3; ++k) h ^= h << 13, h ^= h >> 17, h ^= h << 5;
  return h;
}
template <int V> __global__ void __launch_bounds__(256) trim_reads(unsigned* out, int each) {
  unsigned first = (unsigned)T * each, sum = 0;
  if (V == 0) {
    for (int q = 0; q < each; ++q) {
      unsigned h = mix(first + q) | 1, n = 0;
      while ((h >> 9 & 63) != 0 && n < 1000) h = trimmed(h), ++n;
      sum = sum * 31 + n;
    }
  } else {
    unsigned h = mix(first) | 1, n = 0;
    for (int q = 0; q < each;) {
      if ((h >> 9 & 63) != 0 && n < 1000) h = trimmed(h), ++n;
      else sum = sum * 31 + n, h = mix(first + ++q) | 1, n = 0;
    }
  }
  out[T] = sum;
}
// ---- weigh_contigs: a warp a contig, and one of the sixteen of a block is 32 times as long; or all warps share each; expected 2.5 times
constexpr int CONTIGS = 16, LONG = 16384, SHORT = 512, OF_BLOCK = LONG + (CONTIGS - 1) * SHORT;
template <int V> __global__ void __launch_bounds__(512) weigh_contigs(const float* base, float* out, int rounds) {
  __shared__ float sum[CONTIGS];
  if (threadIdx.x < CONTIGS) sum[threadIdx.x] = 0;
  __syncthreads();
  const float* own = base + (i64)blockIdx.x * OF_BLOCK;
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  for (int c = V == 0 ? warp : 0; c < (V == 0 ? warp + 1 : CONTIGS); ++c) {
    int begin = c == 0 ? 0 : LONG + (c - 1) * SHORT, end = LONG + c * SHORT;
    float s = 0;
    for (int i = begin + (V == 0 ? lane : (int)threadIdx.x); i < end; i += V == 0 ? 32 : 512) {
      float x = own[i], y = x;
#pragma unroll 10
      for (int k = 0; k < rounds; ++k) y = fmaf(y, x, 0.1f);
      s += y;
    }
    s = warp_sum(s);
    if (lane == 0) atomicAdd(&sum[c], s);
  }
  __syncthreads();
  if (threadIdx.x < CONTIGS) out[blockIdx.x * CONTIGS + threadIdx.x] = sum[threadIdx.x];
}
// ---- loudness_of_channels: a block a channel, and there are 24 channels; expected 8 times
template <int V> __global__ void __launch_bounds__(1024) loudness_of_channels(const float4* a, float* out, int each) {
  const float4* own = a + (i64)blockIdx.x * each;
  float s = 0;
#pragma unroll 4
  for (int i = blockIdx.y * 1024 + threadIdx.x; i < each; i += gridDim.y * 1024) {
    float4 v = own[i];
    s += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  __shared__ float part[32];
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  s = warp_sum(part[threadIdx.x]);
  if (threadIdx.x == 0) {
    if (V == 0) out[blockIdx.x] = s;
    else atomicAdd(&out[blockIdx.x], s);
  }
}
// ---- align_reads: 16384 pairs in blocks of 1024 use 16 of 132 SMs, in blocks of 128 nearly all; expected 3 times
__global__ void align_reads(int* out, int steps) {
  int h[8], best = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) h[k] = 0;
  unsigned left = mix((unsigned)T * 2 + 1), right = mix((unsigned)T * 2 + 2);
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    left = left * 1664525u + 1013904223u;
    unsigned letter = left >> 30;
    int corner = 0, above = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      int score = corner + (letter == (right >> 2 * k & 3) ? 2 : -1);
      corner = h[k], h[k] = max(max(score, 0), max(h[k], above) - 2), above = h[k], best = max(best, h[k]);
    }
    right = right * 22695477u + 1;
  }
  out[T] = best * 65536 + h[3] * 256 + h[7];
}
// ---- anneal_chains: blocks of 1024 threads and 128 kB, one an SM, so that 140 take two waves; or four times as many of a quarter; expected 1.6 times
__global__ void __launch_bounds__(1024) anneal_chains(const float* a, float* out, int steps) {
  extern __shared__ float own[];
  for (int k = 0; k < 32; ++k) own[k * blockDim.x + threadIdx.x] = a[T] + 0.01f * k;
  float x = 0.5f, y = 0.25f;
#pragma unroll 4
  for (int s = 0; s < steps; ++s) {
    float v = own[(s & 31) * blockDim.x + threadIdx.x];
    x = fmaf(x, 0.9f, v * y), y = fmaf(y, 0.8f, x * 0.1f);
    if ((s & 7) == 7) own[(s & 31) * blockDim.x + threadIdx.x] = y;
  }
  out[T] = x + y;
}
// ---- filter_beams: 272 blocks, of which an SM holds two, so eight of them run alone; or blocks of a quarter of the work; expected 1.6 times
constexpr int TAPS = 24576;
__global__ void __launch_bounds__(256) filter_beams(const float* a, float* out, int each, int steps) {
  extern __shared__ __align__(16) float tap[];
  for (int i = threadIdx.x; i < TAPS / 4; i += 256) ((float4*)tap)[i] = ((const float4*)a)[i];
  __syncthreads();
  for (int k = 0; k < each; ++k) {
    i64 beam = ((i64)blockIdx.x * each + k) * 256 + threadIdx.x;
    float s = 0;
    unsigned at = (unsigned)beam % TAPS;
#pragma unroll 1
    for (int t = 0; t < steps; ++t) {
      float v = tap[at];
      s = fmaf(s, 0.9f, v), at += 4129 + (__float_as_uint(v) >> 31);  // the next place waits for this value
      if (at >= TAPS) at -= TAPS;
    }
    out[beam] = s;
  }
}
// ---- photon_counts: a block owns 32 rows side by side, and the rows of the hot tenth cost sixteen times as much; or every 528th row; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) photon_counts(const float* a, float* out, int rows) {
  int each = rows / gridDim.x;
  for (int k = 0; k < each; ++k) {
    int row = V == 0 ? blockIdx.x * each + k : k * gridDim.x + blockIdx.x;
    bool hot = row >= rows / 10 * 4 && row < rows / 10 * 5;
    float x = a[row * 256 + threadIdx.x], s = 0.5f;
#pragma unroll 4
    for (int t = 0; t < (hot ? 2560 : 160); ++t) s = fmaf(s, x, 0.25f);
    out[row * 256 + threadIdx.x] = s;
  }
}

void flow_cases() {
  static int *order, *sorted;
  const int GRAINS = 1 << 20;
  cases.push_back({"settle_grains", "divergence", "", [=] { settle_grains<<<GRAINS / 256, 256>>>(order, A, C, 300); }, [=] { settle_grains<<<GRAINS / 256, 256>>>(sorted, A, C, 300); }, C, GRAINS, false, [=] {
    std::vector<int> v(GRAINS);
    for (int i = 0; i < GRAINS; ++i) v[i] = i;
    order = upload(v);
    std::stable_sort(v.begin(), v.end(), [](int a, int b) { return material(a) < material(b); });
    sorted = upload(v);
  }});
  cases.push_back({"trim_reads", "divergence", "uneven_warps", [] { trim_reads<0><<<1056, 256>>>((unsigned*)C, 32); }, [] { trim_reads<1><<<1056, 256>>>((unsigned*)C, 32); }, C, 1056 * 256, true});
  cases.push_back({"weigh_contigs", "uneven_warps", "", [] { weigh_contigs<0><<<2112, 512>>>(A, C, 40); }, [] { weigh_contigs<1><<<2112, 512>>>(A, C, 40); }, C, 2112 * CONTIGS});
  cases.push_back({"loudness_of_channels", "grid_too_small", "", [] { loudness_of_channels<0><<<dim3(24, 1), 1024>>>((float4*)A, C, 1 << 19); }, [] { loudness_of_channels<1><<<dim3(24, 44), 1024>>>((float4*)A, C, 1 << 19); }, C, 24});
  cases.push_back({"align_reads", "grid_too_small", "occupancy_block_size", [] { align_reads<<<16, 1024>>>((int*)C, 4096); }, [] { align_reads<<<128, 128>>>((int*)C, 4096); }, C, 16384, true});
  cases.push_back({"anneal_chains", "tail_effect", "", [] { anneal_chains<<<140, 1024, 131072>>>(A, C, 8192); }, [] { anneal_chains<<<560, 256, 32768>>>(A, C, 8192); }, C, 140 * 1024, false, [] { dynamic_shared(anneal_chains, 131072); }});
  cases.push_back({"filter_beams", "tail_effect", "", [] { filter_beams<<<272, 256, TAPS * 4>>>(A, C, 16, 512); }, [] { filter_beams<<<1088, 256, TAPS * 4>>>(A, C, 4, 512); }, C, 272 * 16 * 256, false, [] { dynamic_shared(filter_beams, TAPS * 4); }});
  cases.push_back({"photon_counts", "uneven_blocks", "", [] { photon_counts<0><<<528, 256>>>(A, C, 528 * 32); }, [] { photon_counts<1><<<528, 256>>>(A, C, 528 * 32); }, C, 528 * 32 * 256});
}
