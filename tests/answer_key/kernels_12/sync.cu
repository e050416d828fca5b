// Banks, atomics, barriers and tables: billiards, bids, cheeses, point clouds, modes, harvests, invoices, species, scans, parities.
#include "frame.h"

namespace cg = cooperative_groups;

// ---- collide_billiards: balls of eight words side by side in shared memory, so that lanes meet in four banks; or each word in an array; expected 3 times
template <int V> __global__ void __launch_bounds__(128) collide_billiards(const float* a, float* out, int rounds) {
  __shared__ float room[128 * 8];
  auto ball = [&](int i, int k) -> float& { return room[V == 0 ? i * 8 + k : k * 128 + i]; };
  int t = threadIdx.x;
#pragma unroll
  for (int k = 0; k < 8; ++k) ball(t, k) = a[k * STRIDE + T];
  __syncthreads();
  float x = ball(t, 0), y = ball(t, 1), r = ball(t, 4), fx = 0, fy = 0;
#pragma unroll 1
  for (int n = 0; n < rounds; ++n)
#pragma unroll 4
    for (int k = 1; k < 128; ++k) {
      int other = t + k & 127;
      float dx = ball(other, 0) - x, dy = ball(other, 1) - y, reach = r + ball(other, 4), overlap = fmaxf(fmaf(reach, reach, -fmaf(dx, dx, dy * dy)), 0.0f) * ball(other, 6);
      fx = fmaf(overlap, dx, fx), fy = fmaf(overlap, dy, fy);
    }
  out[T] = fmaf(0.5f, fabsf(fx), fabsf(fy));
}
// ---- sort_bids: each warp sorts 64 bids of its own in shared memory, and all 16 warps meet after each of 21 steps; or each warp meets itself; expected 1.4 times
template <int V> __global__ void __launch_bounds__(512) sort_bids(const unsigned* a, unsigned* out, int each) {
  __shared__ unsigned bid[16][64];
  cg::thread_block block = cg::this_thread_block();
  int lane = threadIdx.x & 31;
  unsigned *own = bid[threadIdx.x / 32], s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    own[lane] = a[(n * 2) * STRIDE + T], own[lane + 32] = a[(n * 2 + 1) * STRIDE + T];
    if (V == 0) block.sync();
    else __syncwarp();
#pragma unroll 1
    for (int size = 2; size <= 64; size *= 2)
#pragma unroll 1
      for (int step = size / 2; step; step /= 2) {
        int i = (lane & ~(step - 1)) * 2 + (lane & step - 1);
        unsigned p = own[i], q = own[i + step];
        bool turn = (p > q) == !(i & size);
        own[i] = turn ? q : p, own[i + step] = turn ? p : q;
        if (V == 0) block.sync();
        else __syncwarp();
      }
    s = s * 31 + (own[lane] ^ own[lane + 32] * 7);
  }
  out[T] = s;
}
// ---- ripen_cheeses: two barriers each step around a warmth that never changes; or none; expected 2 times
template <int V> __global__ void __launch_bounds__(512) ripen_cheeses(const float* a, const float* season, float* out, int steps) {
  __shared__ float warmth[256];
  if (threadIdx.x < 256) warmth[threadIdx.x] = season[threadIdx.x];
  __syncthreads();
  float x = a[T];
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    if (V == 0) __syncthreads();
    float w = warmth[n & 255];
    if (V == 0) __syncthreads();
    x = fmaf(x, fmaf(-0.02f, w, 0.99f), 0.01f * w);
  }
  out[T] = x;
}
// ---- spread_samples: the farthest of 4,096 points from those already taken, 128 times; one thread compares the best of 32 warps; or a warp by shuffles; expected 2 times
template <int V> __global__ void __launch_bounds__(1024) spread_samples(const float* a, int* out, int wanted) {
  __shared__ float3 taken;
  __shared__ u64 best[32];
  __shared__ int chosen;
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  const float* cloud = a + blockIdx.x * 12288ll;
  float3 p[4];
  float away[4] = {9, 9, 9, 9};
#pragma unroll
  for (int k = 0; k < 4; ++k) p[k] = {cloud[k * 1024 + t], cloud[4096 + k * 1024 + t], cloud[8192 + k * 1024 + t]};
  if (t == 0) chosen = 0, taken = p[0];
  __syncthreads();
#pragma unroll 1
  for (int n = 0; n < wanted; ++n) {
    u64 most = 0;
    float3 q = taken;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float x = p[k].x - q.x, y = p[k].y - q.y, z = p[k].z - q.z;
      away[k] = fminf(away[k], fmaf(x, x, fmaf(y, y, z * z)));
      most = max(most, (u64)__float_as_uint(away[k]) << 32 | (unsigned)(k * 1024 + t));
    }
    for (int o = 16; o; o >>= 1) most = max(most, __shfl_xor_sync(~0u, most, o));
    if (lane == 0) best[warp] = most;
    __syncthreads();
    if (V == 0) {
      if (t == 0) {
        u64 all = 0;
#pragma unroll 1
        for (int w = 0; w < 32; ++w)
          if (best[w] > all) all = best[w];
        chosen = (int)(unsigned)all;
      }
    } else if (warp == 0) {
      most = best[lane];
      for (int o = 16; o; o >>= 1) most = max(most, __shfl_xor_sync(~0u, most, o));
      if (lane == 0) chosen = (int)(unsigned)most;
    }
    __syncthreads();
    int own = chosen;
    if ((own & 1023) == t) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (own / 1024 == k) taken = p[k];
      out[blockIdx.x * wanted + n] = own;
    }
    __syncthreads();
  }
}
// ---- part_modes: eight modes of 2,048 numbers a block, each less its parts along those before; one thread adds 256 products; or shuffles and eight; expected 5 times
template <int V> __global__ void __launch_bounds__(256) part_modes(const float* a, float* out) {
  __shared__ float part[256], all;
  int t = threadIdx.x;
  float mode[8][8];
  const float* own = a + blockIdx.x * 16384ll + t;
  auto sum = [&](float v) {
    if (V == 1) {
      v = warp_sum(v);
      if ((t & 31) == 0) part[t / 32] = v;
    } else {
      part[t] = v;
    }
    __syncthreads();
    if (V == 0) {
      if (t == 0) {
        float s = 0;
#pragma unroll 8
        for (int k = 0; k < 256; ++k) s += part[k];
        all = s;
      }
      __syncthreads();
      v = all;
    } else {
      v = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    __syncthreads();
    return v;
  };
#pragma unroll
  for (int m = 0; m < 8; ++m)
#pragma unroll
    for (int k = 0; k < 8; ++k) mode[m][k] = own[m * 2048 + k * 256] + (m == k ? 0.5f : 0.0f);
#pragma unroll
  for (int m = 0; m < 8; ++m) {
    float s = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) s = fmaf(mode[m][k], mode[m][k], s);
    float by = rsqrtf(sum(s));
#pragma unroll
    for (int k = 0; k < 8; ++k) mode[m][k] *= by;
#pragma unroll
    for (int p = m + 1; p < 8; ++p) {
      s = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) s = fmaf(mode[m][k], mode[p][k], s);
      s = sum(s);
#pragma unroll
      for (int k = 0; k < 8; ++k) mode[p][k] = fmaf(-s, mode[m][k], mode[p][k]);
    }
  }
  float s = 0;
#pragma unroll
  for (int m = 0; m < 8; ++m)
#pragma unroll
    for (int k = 0; k < 8; ++k) s += fabsf(mode[m][k]);
  out[T] = s;
}
// ---- weigh_harvests: each thread adds its load to one double in global memory; or each block; expected 20 times
template <int V> __global__ void __launch_bounds__(256) weigh_harvests(const float* a, double* out, int n) {
  __shared__ double of[8];
  double s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) s += a[i];
  if (V == 0) {
    atomicAdd(out, s);
    return;
  }
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if ((threadIdx.x & 31) == 0) of[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x) return;
  s = 0;
  for (int k = 0; k < 8; ++k) s += of[k];
  atomicAdd(out, s);
}
__global__ void narrow_total(const double* in, float* out) { *out = (float)*in; }
// ---- number_invoices: each warp takes numbers for its valid invoices from one counter in global memory, and waits for them; or each block for all its own; expected 8 times
template <int V> __global__ void __launch_bounds__(256) number_invoices(const unsigned* a, unsigned* next, unsigned* out) {
  __shared__ unsigned first[8], base;
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  unsigned own[8], places[8], many = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) own[k] = a[blockIdx.x * 2048 + k * 256 + threadIdx.x];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    unsigned valid = __ballot_sync(~0u, own[k] % 7 < 3), rank = __popc(valid & (1u << lane) - 1), from = many;
    if (V == 0) {
      if (lane == 0) from = atomicAdd(next, __popc(valid));
      from = __shfl_sync(~0u, from, 0);
    }
    places[k] = valid >> lane & 1 ? from + rank : ~0u, many += __popc(valid);
  }
  if (V == 1) {
    if (lane == 0) first[warp] = many;
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned s = 0;
      for (int w = 0; w < 8; ++w) {
        unsigned n = first[w];
        first[w] = s, s += n;
      }
      base = atomicAdd(next, s);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      if (places[k] != ~0u) places[k] += base + first[warp];
  }
#pragma unroll
  for (int k = 0; k < 8; ++k)
    if (places[k] != ~0u) out[places[k]] = own[k];
}
// ---- flag_species: each sighting sets a bit of one of two words of its block's shared memory, nearly always of the first; or of two registers; expected 4 times
template <int V> __global__ void __launch_bounds__(256) flag_species(const unsigned* a, unsigned* out, int n) {
  __shared__ unsigned seen[2];
  if (threadIdx.x < 2) seen[threadIdx.x] = 0;
  __syncthreads();
  unsigned land = 0, sea = 0;
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned h = mix(a[i]), bit = 1u << (h & 31);
    bool rare = h >> 26 == 0;
    if (V == 0) atomicOr(&seen[rare], bit);
    else land |= rare ? 0 : bit, sea |= rare ? bit : 0;
  }
  if (V == 1) {
    land = __reduce_or_sync(~0u, land), sea = __reduce_or_sync(~0u, sea);
    if ((threadIdx.x & 31) == 0) atomicOr(&seen[0], land), atomicOr(&seen[1], sea);
  }
  __syncthreads();
  if (threadIdx.x < 2) out[blockIdx.x * 2 + threadIdx.x] = seen[threadIdx.x];
}
// ---- shades_of_scans: a histogram of 256 shades in shared memory, and nine of ten dots are white; or white counted in a register; expected 3 times
template <int V> __global__ void __launch_bounds__(256) shades_of_scans(const uint4* page, unsigned* out, int n) {
  __shared__ unsigned count[256];
  count[threadIdx.x] = 0;
  __syncthreads();
  unsigned white = 0;
  auto dot = [&](unsigned shade) {
    if (V == 1 && shade == 255) ++white;
    else atomicAdd(&count[shade], 1u + (shade & 1));
  };
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint4 v = page[i];
    unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) dot(w[k] & 255), dot(w[k] >> 8 & 255), dot(w[k] >> 16 & 255), dot(w[k] >> 24);
  }
  if (V == 1) {
    white = __reduce_add_sync(~0u, white);
    if ((threadIdx.x & 31) == 0) atomicAdd(&count[255], white * 2);
  }
  __syncthreads();
  atomicAdd(&out[threadIdx.x], count[threadIdx.x]);
}
__global__ void make_scans(unsigned* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned w = 0;
    for (int k = 0; k < 4; ++k) {
      unsigned h = mix((unsigned)i * 4 + k);
      w |= (h % 10 ? 255 : h >> 8 & 255) << 8 * k;
    }
    out[i] = w;
  }
}
// ---- encode_parities: logarithms and powers in a field of 256 from constant memory, where lanes read different words; or from shared memory; expected 5 times
__constant__ unsigned LOGARITHM[256], POWER[512];
template <int V> __global__ void __launch_bounds__(256) encode_parities(const unsigned* a, const unsigned* table, unsigned* out, int words) {
  __shared__ unsigned logarithm[V == 0 ? 1 : 256], power[V == 0 ? 1 : 512];
  if (V == 1) {
    logarithm[threadIdx.x] = table[threadIdx.x], power[threadIdx.x] = table[256 + threadIdx.x], power[256 + threadIdx.x] = table[512 + threadIdx.x];
    __syncthreads();
  }
  unsigned s = 0;
#pragma unroll 1
  for (int n = 0; n < words; ++n) {
    unsigned w = mix(a[n * STRIDE + T]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned x = (w >> 8 * k & 255) | 1, y = x;
      x = V == 0 ? POWER[LOGARITHM[y] + 17 + k] : power[logarithm[y] + 17 + k];
      s = s * 2 ^ x;
    }
  }
  out[T] = s;
}

void sync_cases() {
  static float* seasons;
  static unsigned* pages;
  static unsigned* fields;
  static double* total;
  cases.push_back({"collide_billiards", "shared_bank_conflicts", "", [] { collide_billiards<0><<<2112, 128>>>(A, C, 2); }, [] { collide_billiards<1><<<2112, 128>>>(A, C, 2); }, C, 2112 * 128});
  cases.push_back({"sort_bids", "needless_barriers", "", [] { sort_bids<0><<<132, 512>>>((unsigned*)A, (unsigned*)C, 64); }, [] { sort_bids<1><<<132, 512>>>((unsigned*)A, (unsigned*)C, 64); }, C, 132 * 512, true});
  cases.push_back({"ripen_cheeses", "needless_barriers", "", [] { ripen_cheeses<0><<<132, 512>>>(A, seasons, C, 1024); }, [] { ripen_cheeses<1><<<132, 512>>>(A, seasons, C, 1024); }, C, 132 * 512, false, [] {
    std::vector<float> v(256);
    for (unsigned k = 0; k < 256; ++k) v[k] = uniform(k);
    seasons = upload(v);
  }});
  cases.push_back({"spread_samples", "one_warp_reduction", "", [] { spread_samples<0><<<132, 1024>>>(A, (int*)C, 128); }, [] { spread_samples<1><<<132, 1024>>>(A, (int*)C, 128); }, C, 132 * 128, true});
  cases.push_back({"part_modes", "one_warp_reduction", "", [] { part_modes<0><<<1056, 256>>>(A, C); }, [] { part_modes<1><<<1056, 256>>>(A, C); }, C, 1056 * 256});
  cases.push_back({"weigh_harvests", "global_atomics_one_address", "", [] {
    weigh_harvests<0><<<2112, 256>>>(A, total, 1 << 23);
    if (!PROFILED) narrow_total<<<1, 1>>>(total, C);
  }, [] {
    weigh_harvests<1><<<2112, 256>>>(A, total, 1 << 23);
    if (!PROFILED) narrow_total<<<1, 1>>>(total, C);
  }, C, 1, false, [] { total = device<double>(1); }, [] { CHECK(cudaMemset(total, 0, 8)); }});
  cases.push_back({"number_invoices", "global_atomics_one_address", "", [] { number_invoices<0><<<16384, 256>>>((unsigned*)A, (unsigned*)C, (unsigned*)D); }, [] { number_invoices<1><<<16384, 256>>>((unsigned*)A, (unsigned*)C, (unsigned*)D); }, C, 1, true});
  cases.push_back({"flag_species", "shared_atomics_one_address", "", [] { flag_species<0><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1 << 25); }, [] { flag_species<1><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1 << 25); }, C, 2112, true});
  cases.push_back({"shades_of_scans", "shared_atomics_one_address", "", [] { shades_of_scans<0><<<1056, 256>>>((uint4*)pages, (unsigned*)C, 1 << 22); }, [] { shades_of_scans<1><<<1056, 256>>>((uint4*)pages, (unsigned*)C, 1 << 22); }, C, 256, true, [] {
    pages = device<unsigned>(1 << 24);
    make_scans<<<1056, 256>>>(pages, 1 << 24);
  }});
  cases.push_back({"encode_parities", "constant_divergence", "", [] { encode_parities<0><<<1056, 256>>>((unsigned*)A, fields, (unsigned*)C, 16); }, [] { encode_parities<1><<<1056, 256>>>((unsigned*)A, fields, (unsigned*)C, 16); }, C, 1056 * 256, true, [] {
    std::vector<unsigned> v(768);
    unsigned x = 1;
    for (unsigned k = 0; k < 255; ++k, x = x * 2 ^ (x & 128 ? 0x11d : 0)) v[x] = k, v[256 + k] = v[256 + k + 255] = x;
    fields = upload(v);
    CHECK(cudaMemcpyToSymbol(LOGARITHM, v.data(), 1024));
    CHECK(cudaMemcpyToSymbol(POWER, v.data() + 256, 2048));
  }});
}
