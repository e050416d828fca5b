// Instructions: annuities, k-mers, rays, contracts, points, bonds, prices, neighbours, interleavers, textures, samples, windows, cameras, ledgers, trees.
#include "frame.h"

// ---- discount_annuities: one chain of doubles a thread over 1,024 payments, in one warp a scheduler; or eight chains with the eighth power; expected 3 times
template <int WAYS> __global__ void __launch_bounds__(128) discount_annuities(const float* payment, const float* a, float* out, int rounds) {
  __shared__ __align__(16) double of[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) of[i] = payment[i];
  __syncthreads();
  double by = 0.9 + 0.05 * a[T], power = 1, s[WAYS] = {}, all = 0;
#pragma unroll
  for (int k = 0; k < WAYS; ++k) power *= by;
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 2
    for (int i = 0; i < 1024; i += 8)
#pragma unroll
      for (int k = 0; k < 8; ++k) s[k % WAYS] = fma(s[k % WAYS], power, of[i + k]);
#pragma unroll
  for (int k = 0; k < WAYS; ++k) all = fma(all, by, s[k]);
  out[T] = (float)all;
}
// ---- hash_kmers: four hashes of 512 words, one after the other in one warp a scheduler, each step of which waits for the last; or the four at once; expected 2.5 times
template <int WAYS> __global__ void __launch_bounds__(128) hash_kmers(const unsigned* a, unsigned* out, int rounds) {
  __shared__ __align__(16) unsigned word[512];
  for (int i = threadIdx.x; i < 512; i += 128) word[i] = a[i];
  __syncthreads();
  unsigned all = 0;
#pragma unroll 1
  for (int c = 0; c < 4; c += WAYS) {
    unsigned h[WAYS];
#pragma unroll
    for (int k = 0; k < WAYS; ++k) h[k] = mix((unsigned)T * 4 + c + k);
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll 2
      for (int i = 0; i < 512; i += 4) {
        uint4 v = *(const uint4*)&word[i];
        unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int k = 0; k < WAYS; ++k) h[k] = __funnelshift_l(h[k], h[k], 13) * 5 + w[j], h[k] ^= h[k] >> 7;
      }
#pragma unroll
    for (int k = 0; k < WAYS; ++k) all = all * 31 + h[k];
  }
  out[T] = all;
}
// ---- carve_rays: rays of 8 to 263 cells in any order; or ordered by length; expected 1.8 times
__global__ void __launch_bounds__(256) carve_rays(const float* a, const unsigned* ray, float* out) {  // a ray and its cells
  unsigned own = ray[T], i = own >> 9, cells = own & 511;
  float x = a[i], y = 0.5f, dx = 0.01f + 0.02f * x, dy = 0.013f, free = 1;
#pragma unroll 1
  for (unsigned n = 0; n < cells; ++n) {
    x += dx, y += dy;
    float u = x - floorf(x), v = y - floorf(y), p = fmaf(u, v, 0.1f * u);
    free *= fmaf(-0.01f, p, 1.0f), dx = fmaf(0.0001f, v, dx);
  }
  out[i] = free;
}
// ---- settle_contracts: swaps, options, barriers and bonds in any order, so that each warp runs all four; or ordered by kind; expected 3 times
__global__ void __launch_bounds__(256) settle_contracts(const float* a, const unsigned* contract, float* out, int dates) {
  unsigned own = contract[T], i = own >> 2, kind = own & 3;
  float s = 0.5f + a[i], v = 0;
  if (kind == 0) {
#pragma unroll 1
    for (int n = 0; n < dates; ++n) s = fmaf(s, 0.97f, 0.03f), v = fmaf(v, 0.9f, s - 1), v = fmaf(v, 0.8f, 0.01f * s), s = fmaf(0.001f, v, s);
  } else if (kind == 1) {
#pragma unroll 1
    for (int n = 0; n < dates; ++n) s = fmaf(s, 1.01f, -0.008f), v = fmaxf(v * 0.97f, s - 1), v = fmaf(v, 0.9f, 0.002f * s), s = fminf(s, 1.6f);
  } else if (kind == 2) {
#pragma unroll 1
    for (int n = 0; n < dates; ++n) s = fmaf(s, s * 0.3f, 0.4f), s = fminf(s, 1.3f), v = fmaf(v, 0.95f, 0.03f * s), v = fminf(v, 0.9f - 0.1f * s);
  } else {
#pragma unroll 1
    for (int n = 0; n < dates; ++n) v = fmaf(v, 0.96f, 0.05f), s = fmaf(-0.02f, v, s), s = fmaxf(s, 0.3f), v = fmaf(v, fmaf(-0.01f, s, 1.0f), 0.001f);
  }
  out[i] = v + s;
}
// ---- blur_points: an exponential for each of four pixels a thread and each of 128 points; or the product of two, for columns and rows, from shared memory; expected 2.5 times
template <int V> __global__ void __launch_bounds__(128) blur_points(const float4* point, float* out, int points) {  // x, y, sharpness, weight; tiles of 16 x 32
  __shared__ float across[V == 0 ? 1 : 64][16];
  __shared__ __align__(16) float down[V == 0 ? 1 : 64][32];
  __shared__ float4 of[64];
  int t = threadIdx.x, x = t & 15, y = t / 16 * 4;
  float px = (float)(blockIdx.x * 16) * 0.01f, py = (float)(blockIdx.y * 32) * 0.01f, s[4] = {};
#pragma unroll 1
  for (int first = 0; first < points; first += 64) {
    __syncthreads();
    if (t < 64) of[t] = point[first + t];
    __syncthreads();
    if (V == 1) {
#pragma unroll 4
      for (int i = t; i < 64 * 48; i += 128) {
        int k = i / 48, j = i % 48;
        float4 p = of[k];
        float d = j < 16 ? px + 0.01f * j - p.x : py + 0.01f * (j - 16) - p.y, e = raise_two(-d * d * p.z);
        if (j < 16) across[k][j] = p.w * e;
        else down[k][j - 16] = e;
      }
      __syncthreads();
    }
#pragma unroll 4
    for (int k = 0; k < 64; ++k) {
      if (V == 0) {
        float4 p = of[k];
        float dx = px + 0.01f * x - p.x, dy = py + 0.01f * y - p.y, base = dx * dx;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float d = dy + 0.01f * j;
          s[j] = fmaf(p.w, raise_two(-p.z * fmaf(d, d, base)), s[j]);
        }
      } else {
        float u = across[k][x];
        float4 v = *(const float4*)&down[k][y];
        s[0] = fmaf(u, v.x, s[0]), s[1] = fmaf(u, v.y, s[1]), s[2] = fmaf(u, v.z, s[2]), s[3] = fmaf(u, v.w, s[3]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) out[(blockIdx.y * 32 + y + j) * (gridDim.x * 16) + blockIdx.x * 16 + x] = s[j];
}
// ---- strip_bonds: an exponential for each of 256 even dates; or one, and its powers by products in four chains; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) strip_bonds(const float* coupon, const float* yield, float* out) {
  __shared__ __align__(16) float of[256];
  of[threadIdx.x] = coupon[threadIdx.x];
  float r = 0.05f * yield[T], s[4] = {};
  __syncthreads();
  if (V == 0) {
    float at = -r;
#pragma unroll 2
    for (int k = 0; k < 256; k += 4, at = fmaf(-4, r, at)) {
      float4 c = *(const float4*)&of[k];
      s[0] = fmaf(c.x, raise_two(at), s[0]), s[1] = fmaf(c.y, raise_two(at - r), s[1]);
      s[2] = fmaf(c.z, raise_two(at - 2 * r), s[2]), s[3] = fmaf(c.w, raise_two(at - 3 * r), s[3]);
    }
  } else {
    float one = raise_two(-r), two = one * one, four = two * two, d[4] = {one, two, two * one, four};
#pragma unroll 4
    for (int k = 0; k < 256; k += 4) {
      float4 c = *(const float4*)&of[k];
      s[0] = fmaf(c.x, d[0], s[0]), s[1] = fmaf(c.y, d[1], s[1]), s[2] = fmaf(c.z, d[2], s[2]), s[3] = fmaf(c.w, d[3], s[3]);
#pragma unroll
      for (int j = 0; j < 4; ++j) d[j] *= four;
    }
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// ---- walk_prices: the drift and the step of a path with constants that are doubles; expected 4 times
template <class R> __global__ void __launch_bounds__(256) walk_prices(const float* a, float* out, int steps) {
  float price = 1, low = 1;
  unsigned h = __float_as_uint(a[T]);
#pragma unroll 4
  for (int n = 0; n < steps; ++n) {
    h = h * 1664525u + 1013904223u;
    float z = (float)(int)h * 0x1p-31f;
    price = price * ((R)1.0001 + (R)0.02 * z);
    low = fminf(low, price);
  }
  out[T] = price + low;
}
// ---- embed_neighbours: the forces among 512 points of a map with 1.0 / (1.0 + d) in doubles; or floats; expected 2 times
template <class R> __global__ void __launch_bounds__(256) embed_neighbours(const float2* a, float2* out) {
  __shared__ float2 of[512];
  of[threadIdx.x] = a[threadIdx.x], of[threadIdx.x + 256] = a[threadIdx.x + 256];
  __syncthreads();
  float2 own = a[T], f = {0, 0};
#pragma unroll 4
  for (int k = 0; k < 512; ++k) {
    float dx = own.x - of[k].x, dy = own.y - of[k].y, d = fmaf(dx, dx, dy * dy), q = (float)((R)1.0 / ((R)1.0 + d));
    f = {fmaf(q * q, dx, f.x), fmaf(q * q, dy, f.y)};
  }
  out[T] = f;
}
// ---- deinterleave_codes: two remainders for each place of a quadratic interleaver; or sums that wrap; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) deinterleave_codes(const float* soft, float* out, unsigned size, unsigned f1, unsigned f2, int each) {
  extern __shared__ float of[];
  for (int i = threadIdx.x; i < size; i += 256) of[i] = soft[i];
  __syncthreads();
  unsigned first = (unsigned)T * each % size;
  float s = 0;
  if (V == 0) {
    unsigned i = first;
#pragma unroll 2
    for (int k = 0; k < each; ++k) {
      unsigned at = (f1 + f2 * i % size) * i % size;
      s = fmaf(s, 0.9f, of[at]);
      i = i + 1 == size ? 0 : i + 1;
    }
  } else {
    unsigned at = (f1 + f2 * first % size) * first % size, step = (f1 + f2 + 2 * f2 * first) % size;
#pragma unroll 4
    for (int k = 0; k < each; ++k) {
      s = fmaf(s, 0.9f, of[at]);
      at += step, at -= at >= size ? size : 0;
      step += 2 * f2, step -= step >= size ? size : 0;
    }
  }
  out[T] = s;
}
// ---- wrap_textures: two remainders a texel and eight texels a pixel, by sizes known at run time; or by a reciprocal; expected 2 times
template <int V> __global__ void __launch_bounds__(256) wrap_textures(const float* texel, float* out, unsigned wide, unsigned high, unsigned by_wide, unsigned by_high) {
  auto wrap = [](unsigned i, unsigned size, unsigned by) {
    if (V == 0) return i % size;
    return i - __umulhi(i, by) * size;
  };
  unsigned x = blockIdx.x * 256 + threadIdx.x;
#pragma unroll 1
  for (unsigned y = blockIdx.y * 8; y < blockIdx.y * 8 + 8; ++y) {
    float s = 0;
#pragma unroll
    for (unsigned o = 0; o < 8; ++o) {
      unsigned u = wrap(x + y * (o + 3) + o * 37, wide, by_wide), v = wrap(y * (o + 1) + 11, high, by_high);
      s = fmaf(s, 0.7f, texel[v * wide + u]);
    }
    out[y * (gridDim.x * 256) + x] = s;
  }
}
// ---- predict_samples: the last 16 samples in a ring that is indexed by the sample's number, so it lies in local memory; or 16 steps unrolled; expected 2.5 times
struct Predictor {
  float of[16];
};
template <int V> __global__ void __launch_bounds__(256) predict_samples(const float* residual, float* out, int samples, Predictor by) {
  float last[16], all = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) last[k] = 0;
  auto step = [&](int n, int at) __attribute__((always_inline)) {
    float s = residual[(n & 15) * STRIDE + T];
#pragma unroll
    for (int k = 0; k < 16; ++k) s = fmaf(by.of[k], last[at - k - 1 & 15], s);
    last[at & 15] = s, all = fmaf(all, 0.9f, s);
  };
  if (V == 0) {
#pragma unroll 1
    for (int n = 0; n < samples; ++n) step(n, n);
  } else {
#pragma unroll 1
    for (int n = 0; n < samples; n += 16)
#pragma unroll
      for (int k = 0; k < 16; ++k) step(n + k, k);
  }
  out[T] = all;
}
// ---- despeckle_scans: the median of nine by selection in an array whose length is known at run time, so it lies in local memory; or when it is compiled; expected 4 times
template <int V> __global__ void __launch_bounds__(256) despeckle_scans(const float* a, float* out, int wide, int taps) {
  int x = blockIdx.x * 256 + threadIdx.x + 1, y = blockIdx.y + 1;
  float v[9];
  const float* own = a + y * wide + x;
  if (V == 0) {
#pragma unroll 1
    for (int k = 0; k < taps; ++k) v[k] = own[(k / 3 - 1) * wide + k % 3 - 1];
#pragma unroll 1
    for (int i = 0; i <= taps / 2; ++i)
#pragma unroll 1
      for (int j = i + 1; j < taps; ++j) {
        float p = v[i], q = v[j];
        v[i] = fminf(p, q), v[j] = fmaxf(p, q);
      }
    out[(y - 1) * (wide - 2) + x - 1] = v[taps / 2];
  } else {
#pragma unroll
    for (int k = 0; k < 9; ++k) v[k] = own[(k / 3 - 1) * wide + k % 3 - 1];
#pragma unroll
    for (int i = 0; i <= 4; ++i)
#pragma unroll
      for (int j = i + 1; j < 9; ++j) {
        float p = v[i], q = v[j];
        v[i] = fminf(p, q), v[j] = fmaxf(p, q);
      }
    out[(y - 1) * (wide - 2) + x - 1] = v[4];
  }
}
// ---- fit_cameras: 45 sums of a normal equation of eight unknowns, capped at 32 registers; or at 128; expected 2.5 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) fit_cameras(const float4* point, const float* a, float* out, int points) {
  __shared__ float4 of[128];
  if (threadIdx.x < 128) of[threadIdx.x] = point[threadIdx.x];
  __syncthreads();
  float s[36] = {}, r[8] = {}, own = a[T];
#pragma unroll 1
  for (int n = 0; n < points; ++n) {
    float4 p = of[n & 127];
    float u = fmaf(own, p.w, p.x), v = fmaf(-own, p.x, p.y), row[8] = {u, v, 1, p.z, u * v, u * p.z, v * v, own * p.z}, d = fmaf(u, own, -v);
#pragma unroll
    for (int i = 0, k = 0; i < 8; ++i) {
      r[i] = fmaf(row[i], d, r[i]);
#pragma unroll
      for (int j = 0; j <= i; ++j, ++k) s[k] = fmaf(row[i], row[j], s[k]);
    }
  }
  float all = 0;
#pragma unroll
  for (int k = 0; k < 36; ++k) all = fmaf(0.01f * (float)(k + 1), s[k], all);
#pragma unroll
  for (int k = 0; k < 8; ++k) all = fmaf(0.1f, r[k], all);
  out[T] = all;
}
// ---- seal_ledgers: 16 words of state and 16 of message, of 64 bits each, capped at 40 registers; or at 128; expected 2 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) seal_ledgers(const u64* a, unsigned* out, int rounds) {
  u64 v[16], m[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) m[k] = a[k * STRIDE + T], v[k] = m[k] * 0x9e3779b97f4a7c15ull + k;
  auto turn = [](u64 x, int by) { return x >> by | x << (64 - by); };
  auto blend = [&](int p, int q, int r, int s, u64 x, u64 y) {
    v[p] += v[q] + x, v[s] = turn(v[s] ^ v[p], 32), v[r] += v[s], v[q] = turn(v[q] ^ v[r], 24);
    v[p] += v[q] + y, v[s] = turn(v[s] ^ v[p], 16), v[r] += v[s], v[q] = turn(v[q] ^ v[r], 63);
  };
#pragma unroll 1
  for (int n = 0; n < rounds; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) blend(k, k + 4, k + 8, k + 12, m[k * 2], m[k * 2 + 1]);
#pragma unroll
    for (int k = 0; k < 4; ++k) blend(k, 4 + (k + 1 & 3), 8 + (k + 2 & 3), 12 + (k + 3 & 3), m[8 + k * 2], m[9 + k * 2]);
    u64 first = m[0];
#pragma unroll
    for (int k = 0; k < 15; ++k) m[k] = m[k + 1] ^ v[k];
    m[15] = first;
  }
  u64 all = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) all ^= v[k] + (u64)k;
  out[T] = (unsigned)(all ^ all >> 32);
}
// ---- judge_trees: 64 trees as code, each with 160 thresholds and weights as literals, 400 kB in all, and warps that begin at different ones; or one loop over a table; expected 1.7 times
__host__ __device__ constexpr float threshold(int i) { return 0.1f + 0.0015625f * (float)((i * 29 + i / 80 * 7) & 511); }
__host__ __device__ constexpr float leaf(int i) { return 0.001f * (float)((i * 13 + i / 80 * 5) & 255) - 0.12f; }
__device__ __forceinline__ void one_node(float& x, float& s, float t, float w) {
  s = x > t ? s + w : fmaf(-0.5f, w, s);
  x = fmaf(x, 0.75f, 0.25f * t + w);
}
template <int TREE> __device__ __forceinline__ void tree(float& x, float& s) {
#pragma unroll
  for (int k = 0; k < 80; ++k) one_node(x, s, threshold(TREE * 80 + k), leaf(TREE * 80 + k));
}
template <int V> __global__ void __launch_bounds__(256) judge_trees(const float* a, const float2* node, float* out, int trees) {
  float x = a[T], s = 0;
  int at = (int)(T / 32) * 19 & 63;
#pragma unroll 1
  for (int n = 0; n < trees; ++n, at = at + 1 & 63) {
    if (V == 1) {
      const float4* own = (const float4*)(node + at * 80);
#pragma unroll 4
      for (int k = 0; k < 40; ++k) {
        float4 v = __ldg(&own[k]);
        one_node(x, s, v.x, v.y), one_node(x, s, v.z, v.w);
      }
      continue;
    }
#define TREE_1(k) case k: tree<k>(x, s); break;
#define TREE_8(k) TREE_1(k) TREE_1(k + 1) TREE_1(k + 2) TREE_1(k + 3) TREE_1(k + 4) TREE_1(k + 5) TREE_1(k + 6) TREE_1(k + 7)
    switch (at) { TREE_8(0) TREE_8(8) TREE_8(16) TREE_8(24) TREE_8(32) TREE_8(40) TREE_8(48) TREE_8(56) }
  }
  out[T] = s + x;
}

void spread_cases();  // in spread.cu

void compute_cases() {
  static unsigned *rays, *ordered_rays, *contracts, *ordered_contracts;
  static float4* points;
  static float2* nodes;
  static Predictor predictor;
  cases.push_back({"discount_annuities", "dependent_chain", "", [] { discount_annuities<1><<<132, 128>>>(B, A, C, 12); }, [] { discount_annuities<8><<<132, 128>>>(B, A, C, 12); }, C, 132 * 128});
  cases.push_back({"hash_kmers", "dependent_chain", "", [] { hash_kmers<1><<<132, 128>>>((unsigned*)A, (unsigned*)C, 4); }, [] { hash_kmers<4><<<132, 128>>>((unsigned*)A, (unsigned*)C, 4); }, C, 132 * 128, true});
  cases.push_back({"carve_rays", "divergence", "", [] { carve_rays<<<4096, 256>>>(A, rays, C); }, [] { carve_rays<<<4096, 256>>>(A, ordered_rays, C); }, C, 1 << 20, false, [] {
    std::vector<unsigned> v(1 << 20);
    for (unsigned k = 0; k < 1 << 20; ++k) v[k] = k << 9 | (8 + (mix(k) & 255));
    rays = upload(v);
    std::stable_sort(v.begin(), v.end(), [](unsigned p, unsigned q) { return (p & 511) > (q & 511); });
    ordered_rays = upload(v);
  }});
  cases.push_back({"settle_contracts", "divergence", "", [] { settle_contracts<<<4096, 256>>>(A, contracts, C, 128); }, [] { settle_contracts<<<4096, 256>>>(A, ordered_contracts, C, 128); }, C, 1 << 20, false, [] {
    std::vector<unsigned> v(1 << 20);
    for (unsigned k = 0; k < 1 << 20; ++k) v[k] = k << 2 | (mix(k + 77) & 3);
    contracts = upload(v);
    std::stable_sort(v.begin(), v.end(), [](unsigned p, unsigned q) { return (p & 3) < (q & 3); });
    ordered_contracts = upload(v);
  }});
  cases.push_back({"blur_points", "special_functions", "", [] { blur_points<0><<<dim3(128, 64), 128>>>(points, C, 128); }, [] { blur_points<1><<<dim3(128, 64), 128>>>(points, C, 128); }, C, 1 << 22, false, [] {
    std::vector<float4> v(128);
    for (unsigned k = 0; k < 128; ++k) v[k] = {20 * share(4 * k), 20 * share(4 * k + 1), 0.05f + 0.1f * share(4 * k + 2), 0.5f + share(4 * k + 3)};
    points = upload(v);
  }});
  cases.push_back({"strip_bonds", "special_functions", "", [] { strip_bonds<0><<<4096, 256>>>(B, A, C); }, [] { strip_bonds<1><<<4096, 256>>>(B, A, C); }, C, 1 << 20});
  cases.push_back({"walk_prices", "fp64_by_accident", "", [] { walk_prices<double><<<2112, 256>>>(A, C, 256); }, [] { walk_prices<float><<<2112, 256>>>(A, C, 256); }, C, 2112 * 256});
  cases.push_back({"embed_neighbours", "fp64_by_accident", "", [] { embed_neighbours<double><<<1056, 256>>>((float2*)A, (float2*)C); }, [] { embed_neighbours<float><<<1056, 256>>>((float2*)A, (float2*)C); }, C, 1056 * 512});
  cases.push_back({"deinterleave_codes", "integer_division", "", [] { deinterleave_codes<0><<<1056, 256, 6144 * 4>>>(A, C, 6144, 263, 480, 128); }, [] { deinterleave_codes<1><<<1056, 256, 6144 * 4>>>(A, C, 6144, 263, 480, 128); }, C, 1056 * 256});
  cases.push_back({"wrap_textures", "integer_division", "", [] { wrap_textures<0><<<dim3(16, 512), 256>>>(A, C, 192, 160, 22369622, 26843546); }, [] { wrap_textures<1><<<dim3(16, 512), 256>>>(A, C, 192, 160, 22369622, 26843546); }, C, 1 << 24});
  cases.push_back({"predict_samples", "local_array", "", [] { predict_samples<0><<<1056, 256>>>(A, C, 192, predictor); }, [] { predict_samples<1><<<1056, 256>>>(A, C, 192, predictor); }, C, 1056 * 256, false, [] {
    for (unsigned k = 0; k < 16; ++k) predictor.of[k] = (k & 1 ? -0.06f : 0.06f) * share(k);
  }});
  cases.push_back({"despeckle_scans", "local_array", "", [] { despeckle_scans<0><<<dim3(16, 2048), 256>>>(A, C, 4098, 9); }, [] { despeckle_scans<1><<<dim3(16, 2048), 256>>>(A, C, 4098, 9); }, C, 1 << 23});
  cases.push_back({"fit_cameras", "register_spills", "", [] { fit_cameras<8><<<1056, 256>>>((float4*)B, A, C, 256); }, [] { fit_cameras<2><<<1056, 256>>>((float4*)B, A, C, 256); }, C, 1056 * 256});
  cases.push_back({"seal_ledgers", "register_spills", "", [] { seal_ledgers<6><<<792, 256>>>((u64*)A, (unsigned*)C, 24); }, [] { seal_ledgers<2><<<792, 256>>>((u64*)A, (unsigned*)C, 24); }, C, 792 * 256, true});
  cases.push_back({"judge_trees", "instruction_cache", "", [] { judge_trees<0><<<528, 256>>>(A, nodes, C, 64); }, [] { judge_trees<1><<<528, 256>>>(A, nodes, C, 64); }, C, 528 * 256, false, [] {
    std::vector<float2> v(64 * 80);
    for (int k = 0; k < 64 * 80; ++k) v[k] = {threshold(k), leaf(k)};
    nodes = upload(v);
  }});
  spread_cases();
}
