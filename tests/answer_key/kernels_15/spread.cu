// Grids, blocks and occupancy: heads, hammocks, maturities, hymns, archives, catacombs, foothills.
#include "frame.h"

void spread_cases();

// ---- heed_heads: a block for each of 16 heads of 32,768 keys; or 64 blocks a head; expected 8 times
constexpr int HEARD = 32768;
__global__ void __launch_bounds__(256) heed_heads(const uint4* __restrict__ key, const float* query, float* __restrict__ out, int each) {  // eight lanes a key of 64 halves, 32 keys a block
  int part = threadIdx.x & 7, first = blockIdx.x * each * 32 + threadIdx.x / 8;
  float q[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) q[k] = query[blockIdx.y * 64 + part * 8 + k];
#pragma unroll 4
  for (int n = 0; n < each; ++n) {
    i64 at = (i64)blockIdx.y * HEARD + first + n * 32;
    uint4 v = key[at * 8 + part];
    unsigned w[4] = {v.x, v.y, v.z, v.w};
    float s = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float2 p = __half22float2(*(half2*)&w[k]);
      s = fmaf(p.x, q[k * 2], fmaf(p.y, q[k * 2 + 1], s));
    }
    s += __shfl_xor_sync(~0u, s, 1), s += __shfl_xor_sync(~0u, s, 2), s += __shfl_xor_sync(~0u, s, 4);
    if (part == 0) out[at] = s;
  }
}
// ---- weave_hammocks: 135 blocks of eight strips, each with an SM of its own, so that three run in a second wave; or a block for each strip; expected 1.7 times
constexpr int STRIP = 20480;  // threads of a hammock, two copies of which take 160 kB
__global__ void __launch_bounds__(1024) weave_hammocks(const float* a, float* out, int strips, int rows) {
  extern __shared__ float loom[];
  int t = threadIdx.x;
#pragma unroll 1
  for (int n = 0; n < strips; ++n) {
    i64 first = ((i64)blockIdx.x * strips + n) * STRIP;
    float *from = loom, *to = loom + STRIP;
#pragma unroll 10
    for (int k = t; k < STRIP; k += 1024) from[k] = a[first + k];
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < rows; ++r) {
#pragma unroll 4
      for (int k = t; k < STRIP; k += 1024) to[k] = fmaf(0.5f, from[k], fmaf(0.3f, from[max(k - 1, 0)], 0.2f * from[min(k + 1, STRIP - 1)]));
      __syncthreads();
      float* other = from;
      from = to, to = other;
    }
#pragma unroll 4
    for (int k = t; k < STRIP; k += 1024) out[first + k] = from[k];
    __syncthreads();
  }
}
// ---- price_maturities: a block of 1,024 paths for each of 132 maturities, the longest of which has 132 times the steps of the shortest; or eight blocks of 128, so that each SM has
// a mixture; expected 1.9 times
__global__ void __launch_bounds__(1024) price_maturities(const float* a, float* out, int month) {
  int maturity = 132 - (int)(T / 1024), steps = maturity * month;
  unsigned h = __float_as_uint(a[T]);
  float price = 1, rate = 0.03f, sum = 0;
#pragma unroll 2
  for (int n = 0; n < steps; ++n) {
    h = h * 1664525u + 1013904223u;
    float z = __uint_as_float(h >> 9 | 0x3f800000u) - 1.5f;
    rate = fmaf(0.99f, rate, fmaf(0.001f, z, 0.0003f)), price = fmaf(price, fmaf(0.01f, rate, -0.02f * z), price), price = fminf(price, 9.0f), sum = fmaf(0.98f, sum, price);
  }
  out[T] = sum;
}
// ---- sing_hymns: 64 hymns a block in the order of their length, eight neighbours a warp, so the last warp has nearly half of the verses; or each warp takes the longest that is left; expected 3 times
template <int V> __global__ void __launch_bounds__(256) sing_hymns(const int* verses, const float* a, float* out) {
  __shared__ int left;
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) left = 64;
  __syncthreads();
#pragma unroll 1
  for (int n = 0; n < 64; ++n) {
    int hymn = warp * 8 + n;
    if (V == 0) {
      if (n == 8) break;
    } else {
      if (lane == 0) hymn = atomicSub(&left, 1) - 1;
      hymn = __shfl_sync(~0u, hymn, 0);
      if (hymn < 0) break;
    }
    i64 own = blockIdx.x * 64ll + hymn;
    float x = a[own * 32 + lane], y = 0.5f;
    int many = verses[hymn];
#pragma unroll 1
    for (int k = 0; k < many; ++k) x = fmaf(x, fmaf(-0.6f, x, 1.2f), 0.1f * y), y = fmaf(0.4f, y, 0.3f * x);
    x = warp_sum(x + y);
    if (lane == 0) out[own] = x;
  }
}
// ---- roam_archives: one walk of 64 ends at a torn page, and its median of 64 is sorted in registers, which every warp then has to hold, so 28 warps fit an SM and wait for pages; or the
// median is found bit by bit; expected 2 times
template <int P, int Q> __device__ __forceinline__ void sort_64(unsigned (&v)[64]) {  // the rounds of a merge of odds and evens, from this one on
#pragma unroll
  for (int i = Q % P; i + Q < 64; ++i)
    if ((i - Q % P) % (2 * Q) < Q && i / (2 * P) == (i + Q) / (2 * P)) {
      unsigned x = v[i], y = v[i + Q];
      v[i] = min(x, y), v[i + Q] = max(x, y);
    }
  if constexpr (Q > 1) sort_64<P, Q / 2>(v);
  else if constexpr (P < 32) sort_64<P * 2, P * 2>(v);
}
template <int V> __global__ void __launch_bounds__(128) roam_archives(const unsigned* page, const unsigned* torn, unsigned* out, int hops, unsigned pages) {
  unsigned lane = threadIdx.x & 31, at = (unsigned)(T / 32), sum = 0;
#pragma unroll 1
  for (int n = 0; n < hops; ++n) {
    unsigned v = page[(mix(at) & (pages - 1)) * 32 + lane];
    sum = sum * 3 + (v >> 7), at = __shfl_sync(~0u, v, n & 31) + n;
  }
  if ((mix(at) & 63) == 0) {
    const unsigned* own = torn + (at & 1023) * 2048 + lane;
    unsigned median = 0;
    if (V == 0) {
      unsigned v[64];
#pragma unroll
      for (int k = 0; k < 64; ++k) v[k] = own[k * 32];
      sort_64<1, 1>(v);
      median = v[31];
    } else {
#pragma unroll 1
      for (int bit = 31; bit >= 0; --bit) {  // the greatest number that at most 31 lie below
        unsigned guess = median | 1u << bit;
        int below = 0;
#pragma unroll 8
        for (int k = 0; k < 64; ++k) below += own[k * 32] < guess;
        if (below < 32) median = guess;
      }
    }
    sum ^= median;
  }
  out[T] = sum;
}
// ---- visit_catacombs: whether each of 32,768 rooms was visited as a word of shared memory, 128 kB, so one block of eight warps fits an SM and waits for its walks; or as a bit; expected 3 times
constexpr int ROOMS = 32768;
template <int V> __global__ void __launch_bounds__(256) visit_catacombs(const unsigned* door, int* out, int hops, unsigned doors) {
  extern __shared__ unsigned seen[];
  __shared__ int part[8];
  constexpr int WORDS = V == 0 ? ROOMS : ROOMS / 32;
  int t = threadIdx.x, lane = t & 31, many = 0;
  unsigned at = (unsigned)(T / 32);
#pragma unroll 4
  for (int i = t; i < WORDS / 4; i += 256) ((uint4*)seen)[i] = {0, 0, 0, 0};
  __syncthreads();
#pragma unroll 1
  for (int n = 0; n < hops; ++n) {
    unsigned v = door[(mix(at) & (doors - 1)) * 32 + lane], room = mix(v) & (ROOMS - 1);
    if (V == 0) seen[room] = 1;
    else atomicOr(&seen[room / 32], 1u << (room & 31));
    at = __shfl_sync(~0u, v, n & 31) + n;
  }
  __syncthreads();
#pragma unroll 4
  for (int i = t; i < WORDS; i += 256) many += V == 0 ? (int)seen[i] : __popc(seen[i]);
  many = __reduce_add_sync(~0u, many);
  if (lane == 0) part[t / 32] = many;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
// ---- march_foothills: a block for each row of 32 rays, and an SM holds 32 blocks, so 32 warps that wait for heights; or eight rows a block; expected 1.7 times
__global__ void march_foothills(const float* height, float* out, int steps, unsigned rows) {
  int lane = threadIdx.x;
  unsigned ray = blockIdx.x * blockDim.y + threadIdx.y, at = ray;
  float far = 0, up = 0.3f;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    float h = height[(mix(at) & (rows - 1)) * 32 + lane];
    far = fmaf(0.95f, far, fmaxf(h - up, 0.0f)), up = fmaf(0.9f, up, 0.05f);
    at = at * 5 + __ballot_sync(~0u, h < up);
  }
  out[ray * 32 + lane] = far;
}

void spread_cases() {
  static half* keys;
  static int* verses;
  const int loom = 2 * STRIP * 4;
  cases.push_back({"heed_heads", "grid_too_small", "", [] { heed_heads<<<dim3(1, 16), 256>>>((uint4*)keys, B, C, HEARD / 32); }, [] { heed_heads<<<dim3(64, 16), 256>>>((uint4*)keys, B, C, HEARD / 2048); }, C, 16 * HEARD, false, [] { keys = converted<half>(A, 1 << 25, 0.25f); }});
  cases.push_back({"weave_hammocks", "tail_effect", "", [=] {
    dynamic_shared(weave_hammocks, loom);
    weave_hammocks<<<135, 1024, loom>>>(A, C, 8, 4);
  }, [=] {
    dynamic_shared(weave_hammocks, loom);
    weave_hammocks<<<1080, 1024, loom>>>(A, C, 1, 4);
  }, C, 1080ll * STRIP});
  cases.push_back({"price_maturities", "uneven_blocks", "tail_effect", [] { price_maturities<<<132, 1024>>>(A, C, 12); }, [] { price_maturities<<<1056, 128>>>(A, C, 12); }, C, 132 * 1024});
  cases.push_back({"sing_hymns", "uneven_warps", "", [] { sing_hymns<0><<<264, 256>>>(verses, A, C); }, [] { sing_hymns<1><<<264, 256>>>(verses, A, C); }, C, 264 * 64, false, [] {
    std::vector<int> v(64);
    for (int k = 0; k < 64; ++k) v[k] = (int)(16 * std::exp2(k / 10.0f));
    verses = upload(v);
  }});
  cases.push_back({"roam_archives", "occupancy_registers", "", [] { roam_archives<0><<<2112, 128>>>((unsigned*)A, (unsigned*)B, (unsigned*)C, 48, 1u << 21); }, [] { roam_archives<1><<<2112, 128>>>((unsigned*)A, (unsigned*)B, (unsigned*)C, 48, 1u << 21); }, C, 2112 * 128, true});
  cases.push_back({"visit_catacombs", "occupancy_shared", "", [] {
    dynamic_shared(visit_catacombs<0>, ROOMS * 4);
    visit_catacombs<0><<<528, 256, ROOMS * 4>>>((unsigned*)A, (int*)C, 48, 1u << 21);
  }, [] { visit_catacombs<1><<<528, 256, ROOMS / 8>>>((unsigned*)A, (int*)C, 48, 1u << 21); }, C, 528, true});
  cases.push_back({"march_foothills", "occupancy_block_size", "", [] { march_foothills<<<16896, dim3(32, 1)>>>(A, C, 48, 1u << 21); }, [] { march_foothills<<<2112, dim3(32, 8)>>>(A, C, 48, 1u << 21); }, C, 16896 * 32});
}
