// Arithmetic: keys, voxels, gases, tides, orbits, echoes, moments, pages, ephemerides, words, meshes.
#include "set.h"

// ---- fold_keys: remainders of 64 bits by a number that the compiler does not know, or of a product with its inverse; expected 3 times
template <int V> __global__ void __launch_bounds__(256) fold_keys(const unsigned* a, unsigned* out, int n, u64 m, u64 inverse) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    u64 x = (u64)a[i] << 32 | mix(a[i]);
    unsigned s = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x = x * 6364136223846793005ull + 1442695040888963407ull;
      u64 r;
      if (V == 0) {
        r = x % m;
      } else {
        r = x - __umul64hi(x, inverse) * m;
        if (r >= m) r -= m;
        if (r >= m) r -= m;
      }
      s = s * 31 + (unsigned)r;
    }
    out[i] = s;
  }
}
// ---- place_of_voxel: five divisions of 32 bits by sizes that the compiler does not know; expected 3 times
struct By {
  unsigned size, factor, shift;  // of cutlass::FastDivmod, for dividends below 2^31
};
static By by(unsigned d) {
  unsigned log = 0;
  while ((1u << log) < d) ++log;
  return {d, (unsigned)(((1ull << (31 + log)) + d - 1) / d), log - 1};
}
struct Axes { By axis[5]; };
template <int V> __global__ void __launch_bounds__(256) place_of_voxel(unsigned* out, int n, Axes axes) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned rest = i, s = 0;
#pragma unroll
    for (int k = 0; k < 5; ++k) {
      By d = axes.axis[k];
      unsigned q = V == 0 ? rest / d.size : __umulhi(rest, d.factor) >> d.shift;
      s = s * 37 + (rest - q * d.size), rest = q;
    }
    out[i] = s * 37 + rest;
  }
}
// ---- mix_gases: whole powers by __powf, eight of them an XU operation each, or products; expected 3 times
template <int V> __global__ void __launch_bounds__(256) mix_gases(const float* a, float* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float v = a[i], s = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float x = v + 0.1f * (j + 1);
      if (V == 0) {
#pragma unroll
        for (int k = 2; k <= 8; ++k) s = fmaf(0.3f / k, __powf(x, (float)k), s);
      } else {
        float p = x;
#pragma unroll
        for (int k = 2; k <= 8; ++k) p *= x, s = fmaf(0.3f / k, p, s);
      }
    }
    out[i] = s;
  }
}
// ---- tide_heights: a cosine for each constituent and hour, or a recurrence from hour to hour; expected 2 times
constexpr int WAVES = 24, HOURS = 16;
struct Constituent { float speed, phase, height, twice; };
__constant__ Constituent TIDE[WAVES];
template <int V> __global__ void __launch_bounds__(256) tide_heights(const float* place, float* out) {
  float s[HOURS], own = place[T];
#pragma unroll
  for (int j = 0; j < HOURS; ++j) s[j] = 30;
#pragma unroll 2
  for (int k = 0; k < WAVES; ++k) {
    Constituent w = TIDE[k];
    float p = w.phase + own;
    if (V == 0) {
#pragma unroll
      for (int j = 0; j < HOURS; ++j) s[j] = fmaf(w.height, __cosf(fmaf(w.speed, (float)j, p)), s[j]);
    } else {
      float before = __cosf(p), now = __cosf(p + w.speed);
      s[0] = fmaf(w.height, before, s[0]), s[1] = fmaf(w.height, now, s[1]);
#pragma unroll
      for (int j = 2; j < HOURS; ++j) {
        float next = fmaf(w.twice, now, -before);
        s[j] = fmaf(w.height, next, s[j]), before = now, now = next;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < HOURS; ++j) out[j * STRIDE + T] = s[j];
}
// ---- update_orbits: literals of doubles among floats, so each step converts and computes in FP64; expected 4 times
template <class R> __global__ void __launch_bounds__(256) update_orbits(const float2* start, float2* out, int steps) {
  float2 p = start[T];
  float x = p.x, v = p.y;
  for (int s = 0; s < steps; ++s) {
    v += (float)((R)0.01 * ((R)-0.3 * x - (R)0.05 * v));
    x += (float)((R)0.01 * v);
  }
  out[T] = {x, v};
}
// ---- echoes: a ring of sixteen samples indexed in a loop, so it lies in local memory; expected 2 times
template <int V> __global__ void __launch_bounds__(256) echoes(const float* a, float* out, int steps) {
  float ring[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) ring[k] = 0.1f * k;
  float x = a[T];
  if (V == 0) {
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      x = fmaf(ring[i & 15], 0.5f, fmaf(ring[(i + 5) & 15], 0.2f, x * 0.25f));
      ring[i & 15] = x + 0.1f;
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < steps; i += 16)
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        x = fmaf(ring[j], 0.5f, fmaf(ring[(j + 5) & 15], 0.2f, x * 0.25f));
        ring[j] = x + 0.1f;
      }
  }
  float s = x;
#pragma unroll
  for (int k = 0; k < 16; ++k) s += ring[k];
  out[T] = s;
}
// ---- legendre_moments: 24 sums of doubles, but launch bounds that leave 32 registers; expected 3 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) legendre_moments(const float* a, float* out, int points) {
  double sum[24];
#pragma unroll
  for (int k = 0; k < 24; ++k) sum[k] = 0;
  for (int p = 0; p < points; ++p) {
    double x = a[p * STRIDE + T], before = 1, now = x;
#pragma unroll
    for (int k = 0; k < 24; ++k) {
      sum[k] = fma(now, x, sum[k]);
      double next = fma(x * (2 - 1.0 / (k + 2)), now, -(1 - 1.0 / (k + 2)) * before);
      before = now, now = next;
    }
  }
#pragma unroll
  for (int k = 0; k < 24; ++k) out[k * STRIDE + T] = (float)sum[k];
}
// ---- seal_pages: a Keccak permutation has 25 words of 64 bits, but launch bounds leave 40 registers; expected 2.5 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) seal_pages(const unsigned* a, unsigned* out, int times) {
  u64 s[25], c[5];
#pragma unroll
  for (int k = 0; k < 25; ++k) s[k] = (u64)a[T] * (2 * k + 1) + k;
  auto turn = [](u64 v, int n) { return n ? v << n | v >> (64 - n) : v; };
#pragma unroll 1
  for (int round = 0; round < times; ++round) {
#pragma unroll
    for (int x = 0; x < 5; ++x) c[x] = s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20];
#pragma unroll
    for (int x = 0; x < 5; ++x) {
      u64 d = c[(x + 4) % 5] ^ turn(c[(x + 1) % 5], 1);
#pragma unroll
      for (int y = 0; y < 25; y += 5) s[x + y] ^= d;
    }
    u64 last = s[1];
    int at = 1;
#pragma unroll
    for (int k = 0; k < 24; ++k) {
      int x = at % 5, y = at / 5, to = y + (2 * x + 3 * y) % 5 * 5;
      u64 kept = s[to];
      s[to] = turn(last, (k + 1) * (k + 2) / 2 % 64), last = kept, at = to;
    }
#pragma unroll
    for (int y = 0; y < 25; y += 5) {
#pragma unroll
      for (int x = 0; x < 5; ++x) c[x] = s[y + x];
#pragma unroll
      for (int x = 0; x < 5; ++x) s[y + x] = c[x] ^ (~c[(x + 1) % 5] & c[(x + 2) % 5]);
    }
    s[0] ^= (u64)round * 0x9e3779b97f4a7c15ull + 0x8082ull;
  }
  u64 all = 0;
#pragma unroll
  for (int k = 0; k < 25; ++k) all ^= s[k] + k;
  out[T] = (unsigned)(all ^ all >> 32);
}
// ---- interpolate_positions: 192 coefficients in registers leave eight warps an SM, for random reads and a chain; expected 3 times
constexpr int TERMS = 192;
__constant__ float TERM[TERMS];
template <int V> __global__ void __launch_bounds__(128, V == 0 ? 2 : 8) interpolate_positions(const float* table, const float* term, float* out, int n) {
  float own[V == 0 ? TERMS : 1];
  if (V == 0)
#pragma unroll
    for (int k = 0; k < TERMS; ++k) own[V == 0 ? k : 0] = term[k];
#pragma unroll 1
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float x = table[mix((unsigned)i + 5) & (unsigned)(N - 1)], s = 0;
#pragma unroll
    for (int k = 0; k < TERMS; ++k) s = fmaf(s, x, V == 0 ? own[V == 0 ? k : 0] : TERM[k]);
    out[i] = s;
  }
}
// ---- tally_words: counters of a thread in 32 bits, though none passes 255, so a block takes 128 kB and an SM has one; expected 2 times
template <class R> __global__ void __launch_bounds__(256) tally_words(const unsigned* word, int* out, int each) {
  extern __shared__ unsigned counters[];
  R* count = (R*)counters;
  constexpr int OF_WORD = 4 / sizeof(R);
  int t = threadIdx.x;
  auto place = [](int bin, int thread) { return (bin / OF_WORD * 256 + thread) * OF_WORD + bin % OF_WORD; };
  for (int i = t; i < 128 * 256 / OF_WORD; i += 256) counters[i] = 0;
  __syncthreads();
#pragma unroll 2
  for (int k = 0; k < each; ++k) {
    unsigned w = mix(word[((i64)blockIdx.x * each + k) * 256 + t]);
#pragma unroll
    for (int j = 0; j < 4; ++j) ++count[place((int)(w >> 8 * j & 127), t)];
  }
  __syncthreads();
  int bin = t / 2, half = (t & 1) * 128, s = 0;
  for (int q = 0; q < 128; ++q) s += count[place(bin, half + ((q + t) & 127))];
  s += __shfl_xor_sync(~0u, s, 1);
  if ((t & 1) == 0) out[blockIdx.x * 128 + bin] = s;
}
// ---- nodal_values: a polynomial of degree 255 in FP64 as one chain, and an SM has four warps; or as four chains; expected 3 times
__constant__ double NODE[256];
template <int CHAINS> __global__ void __launch_bounds__(128) nodal_values(const float* a, float* out, int times) {
  for (int t = 0; t < times; ++t) {
    double x = a[t * STRIDE + T] * 0.9, power = 1, s[CHAINS], all = 0;
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) power *= x, s[k] = 0;
#pragma unroll
    for (int k = 256 - CHAINS; k >= 0; k -= CHAINS)
#pragma unroll
      for (int c = 0; c < CHAINS; ++c) s[c] = fma(s[c], power, NODE[k + c]);
#pragma unroll
    for (int c = CHAINS - 1; c >= 0; --c) all = fma(all, x, s[c]);
    out[t * STRIDE + T] = (float)all;
  }
}

void flow_cases();  // flow.cu

void compute_cases() {
  const u64 MODULUS = 1000000007ull * 97;
  static Axes axes;
  for (int k = 0; k < 5; ++k) axes.axis[k] = by((const unsigned[]){48, 36, 28, 20, 12}[k]);
  auto constants = [] {
    float terms[TERMS];
    double nodes[256];
    for (int k = 0; k < TERMS; ++k) terms[k] = 0.2f + 0.001f * (k % 17);
    for (int k = 0; k < 256; ++k) nodes[k] = 0.3 + 0.01 * (k % 13);
    Constituent tides[WAVES];
    for (int k = 0; k < WAVES; ++k) tides[k] = {0.05f + 0.02f * k, 0.1f * k, 1.0f / (k + 2), 2 * std::cos(0.05f + 0.02f * k)};
    CHECK(cudaMemcpyToSymbol(TERM, terms, sizeof terms));
    CHECK(cudaMemcpyToSymbol(NODE, nodes, sizeof nodes));
    CHECK(cudaMemcpyToSymbol(TIDE, tides, sizeof tides));
  };
  static float* term;
  cases.push_back({"fold_keys", "integer_division", "", [=] { fold_keys<0><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1 << 22, MODULUS, ~0ull / MODULUS); }, [=] { fold_keys<1><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1 << 22, MODULUS, ~0ull / MODULUS); }, C, 1 << 22, true});
  cases.push_back({"place_of_voxel", "integer_division", "", [] { place_of_voxel<0><<<1056, 256>>>((unsigned*)C, 1 << 25, axes); }, [] { place_of_voxel<1><<<1056, 256>>>((unsigned*)C, 1 << 25, axes); }, C, 1 << 25, true});
  cases.push_back({"mix_gases", "special_functions", "", [] { mix_gases<0><<<1056, 256>>>(A, C, 1 << 24); }, [] { mix_gases<1><<<1056, 256>>>(A, C, 1 << 24); }, C, 1 << 24});
  cases.push_back({"tide_heights", "special_functions", "", [] { tide_heights<0><<<4096, 256>>>(A, C); }, [] { tide_heights<1><<<4096, 256>>>(A, C); }, C, HOURS << 20, false, constants});
  cases.push_back({"update_orbits", "fp64_by_accident", "", [] { update_orbits<double><<<4096, 256>>>((float2*)A, (float2*)C, 64); }, [] { update_orbits<float><<<4096, 256>>>((float2*)A, (float2*)C, 64); }, C, 1 << 21});
  cases.push_back({"echoes", "local_array", "", [] { echoes<0><<<1056, 256>>>(A, C, 1024); }, [] { echoes<1><<<1056, 256>>>(A, C, 1024); }, C, 1056 * 256});
  cases.push_back({"legendre_moments", "register_spills", "", [] { legendre_moments<8><<<1056, 256>>>(A, C, 48); }, [] { legendre_moments<2><<<1056, 256>>>(A, C, 48); }, C, 24 * 1056 * 256});
  cases.push_back({"seal_pages", "register_spills", "", [] { seal_pages<6><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 96); }, [] { seal_pages<2><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 96); }, C, 1056 * 256, true});
  cases.push_back({"interpolate_positions", "occupancy_registers", "", [] { interpolate_positions<0><<<2112, 128>>>(A, term, C, 1 << 24); }, [] { interpolate_positions<1><<<2112, 128>>>(A, term, C, 1 << 24); }, C, 1 << 24, false, [=] {
    constants(), term = device<float>(TERMS);
    CHECK(cudaMemcpyFromSymbol(term, TERM, TERMS * 4, 0, cudaMemcpyDeviceToDevice));
  }});
  cases.push_back({"tally_words", "occupancy_shared", "", [] { tally_words<unsigned><<<1056, 256, 131072>>>((unsigned*)A, (int*)C, 200); }, [] { tally_words<unsigned char><<<1056, 256, 32768>>>((unsigned*)A, (int*)C, 200); }, C, 1056 * 128, true, [] { dynamic_shared(tally_words<unsigned>, 131072); }});
  cases.push_back({"nodal_values", "dependent_chain", "grid_too_small", [] { nodal_values<1><<<132, 128>>>(A, C, 64); }, [] { nodal_values<4><<<132, 128>>>(A, C, 64); }, C, 64 * 132 * 128, false, constants});
  flow_cases();
}
