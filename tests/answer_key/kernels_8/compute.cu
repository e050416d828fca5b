// Instructions: hashes, codebooks, candidates, lenses, decays, partials, patches, streams, frontiers, shapes.
#include "set.h"

void spread_cases();  // spread.cu

// ---- keccak: Keccak-f[1600] has 25 words of 64 bits alive and is capped at 32 registers; expected 2.5 times
__constant__ u64 ROUND[24];
__device__ inline u64 turn(u64 v, int by) { return by ? v << by | v >> (64 - by) : v; }
__device__ inline void permute(u64 (&s)[25], int rounds) {
  constexpr int BY[25] = {0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14};
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
    u64 c[5], b[25];
#pragma unroll
    for (int x = 0; x < 5; ++x) c[x] = s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20];
#pragma unroll
    for (int i = 0; i < 25; ++i) s[i] ^= c[(i + 4) % 5] ^ turn(c[(i + 1) % 5], 1);
#pragma unroll
    for (int i = 0; i < 25; ++i) b[i / 5 + 5 * ((2 * (i % 5) + 3 * (i / 5)) % 5)] = turn(s[i], BY[i]);
#pragma unroll
    for (int i = 0; i < 25; ++i) s[i] = b[i] ^ (~b[i / 5 * 5 + (i + 1) % 5] & b[i / 5 * 5 + (i + 2) % 5]);
    s[0] ^= ROUND[r];
  }
}
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) keccak(const u64* in, u64* out, int rounds) {
  u64 s[25] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) s[k] = in[k * STRIDE + T];
  s[8] = 6, s[16] = 1ull << 63;
  permute(s, rounds);
  out[T] = s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[24];
}
// ---- dequantise_nf4: a codebook of 16 floats that each thread copies and indexes at run time; or shared memory with a copy a lane; expected 8 times
template <int V> __global__ void __launch_bounds__(256) dequantise_nf4(const uint4* w, const float* book, float* out) {
  __shared__ float shared[V == 0 ? 1 : 16 * 32];
  float own[16];
  int lane = threadIdx.x & 31;
  if (V == 0) {
#pragma unroll
    for (int k = 0; k < 16; ++k) own[k] = book[k];
  } else {
    for (int i = threadIdx.x; i < 512; i += 256) shared[i] = book[i / 32];
    __syncthreads();
  }
  float s = 0;
#pragma unroll 1
  for (int j = 0; j < 8; ++j) {
    uint4 v = w[j * STRIDE + T];
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      unsigned code = (&v.x)[k / 8] >> (k & 7) * 4 & 15;
      s = fmaf(s, 0.75f, V == 0 ? own[code] : shared[code * 32 + lane]);
    }
  }
  out[T] = s;
}
// ---- rank_candidates: insertion sort of 16 keys a thread, which indexes at run time; or a network in registers; expected 5 times
template <int V> __global__ void __launch_bounds__(256) rank_candidates(const unsigned* in, unsigned* out) {
  unsigned key[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) key[k] = mix(in[k * STRIDE + T]);
  if (V == 0) {
#pragma unroll 1
    for (int i = 1; i < 16; ++i) {
      unsigned v = key[i];
      int j = i;
#pragma unroll 1
      for (; j > 0 && key[j - 1] > v; --j) key[j] = key[j - 1];
      key[j] = v;
    }
  } else {
#pragma unroll
    for (int size = 2; size <= 16; size *= 2)
#pragma unroll
      for (int step = size / 2; step; step /= 2)
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          int j = i ^ step;
          if (j > i) {
            unsigned low = min(key[i], key[j]), high = max(key[i], key[j]);
            bool up = (i & size) == 0;
            key[i] = up ? low : high, key[j] = up ? high : low;
          }
        }
  }
#pragma unroll
  for (int k = 0; k < 16; ++k) out[k * STRIDE + T] = key[k];
}
// ---- undistort_pixels: literals of doubles in the polynomial of a lens; expected 2.5 times
template <class R> __global__ void __launch_bounds__(256) undistort_pixels(const float2* at, float2* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float2 p = at[i];
    float x = p.x, y = p.y;
#pragma unroll 4
    for (int k = 0; k < 8; ++k) {
      float q = x * x + y * y;
      float by = (float)((R)1.0 + q * ((R)0.11 + q * ((R)-0.032 + q * (R)0.007)));
      x = (float)((R)0.5 * x + (R)0.5 * p.x * by), y = (float)((R)0.5 * y + (R)0.5 * p.y * by);
    }
    out[i] = {x, y};
  }
}
// ---- decay_chains: exp of a double where the float's is meant; expected 5 times
template <class R> __global__ void __launch_bounds__(256) decay_chains(const float* a, const float* rate, float* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float left = a[i] + 1, by = rate[i];
#pragma unroll 1
    for (int k = 0; k < 4; ++k) left += 0.25f * (float)exp((R)(-by * left));
    out[i] = left;
  }
}
// ---- synthesise_partials: a sine for each of 64 partials, or the recurrence of sines of equal steps; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) synthesise_partials(const float* phase, const float* volume, float* out) {
  __shared__ __align__(16) float loud[64];
  if (threadIdx.x < 64) loud[threadIdx.x] = volume[threadIdx.x];
  __syncthreads();
  float w = 0.3f + phase[T], s = 100;
  if (V == 0) {
#pragma unroll 16
    for (int k = 0; k < 64; ++k) s = fmaf(loud[k], __sinf(w * (float)(k + 1)), s);
  } else {
    float before = 0, now = sinf(w), twice = 2 * cosf(w);
#pragma unroll 16
    for (int k = 0; k < 64; ++k) {
      s = fmaf(loud[k], now, s);
      float next = fmaf(twice, now, -before);
      before = now, now = next;
    }
  }
  out[T] = s;
}
// ---- unfold_patches: five coordinates from a linear index by sizes known at run time, or from the grid and the thread; expected 4 times
template <int V> __global__ void __launch_bounds__(256) unfold_patches(const float* in, float* out, int images, int channels, int edge, int window) {
  int width = edge + window - 1;
  if (V == 0) {
    for (int i = (int)T; i < images * channels * window * window * edge * edge; i += (int)STRIDE) {
      int x = i % edge, y = i / edge % edge, kx = i / (edge * edge) % window, ky = i / (edge * edge * window) % window, c = i / (edge * edge * window * window);
      out[i] = in[(c * width + y + ky) * width + x + kx];
    }
  } else {
    int x = threadIdx.x, c = blockIdx.z, k = blockIdx.y, ky = k / window, kx = k - ky * window;
#pragma unroll 4
    for (int y = blockIdx.x * 16 + threadIdx.y; y < (int)blockIdx.x * 16 + 16; y += 4)
      out[((c * window * window + k) * edge + y) * edge + x] = in[(c * width + y + ky) * width + x + kx];
  }
}
// ---- draw_streams: a linear congruence whose step needs the one before, in four warps an SM; or four leaps of it beside each other; expected 2 times
constexpr unsigned BY = 1664525, ADD = 1013904223;
template <int LEAPS> __global__ void __launch_bounds__(128) draw_streams(unsigned* out, int steps) {
  unsigned by = 1, add = 0, x[LEAPS], s = 0;
#pragma unroll
  for (int k = 0; k < LEAPS; ++k) x[k] = (k ? x[k - 1] : mix((unsigned)T)) * BY + ADD, by *= BY, add = add * BY + ADD;
#pragma unroll 8
  for (int i = 0; i < steps; i += LEAPS)
#pragma unroll
    for (int k = 0; k < LEAPS; ++k) s ^= x[k], x[k] = x[k] * by + add;
  out[T] = s;
}
// ---- expand_frontier: vertices in any order, one in eight with 16 times the edges; or in order of their degree; expected 2.5 times
__host__ __device__ inline int degree(unsigned vertex) { return mix(vertex + 77) & 7 ? 12 : 192; }
__global__ void __launch_bounds__(256) expand_frontier(const int* order, const float* a, float* out) {
  int vertex = order[T], edges = degree((unsigned)vertex);
  float x = a[vertex], s = 0;
  for (int e = 0; e < edges; ++e) {
    float w = (float)((vertex * 13 + e * 7) & 63) * 0.01f;
    s = fmaf(s, 0.5f, w * x), x = fmaf(x, 0.99f, 0.001f);
  }
  out[vertex] = s;
}
// ---- collide_shapes: four kinds of pairs in any order, or sorted by kind; expected 3 times
template <int KIND> __device__ inline float overlap(float x, float y, int rounds) {
  float s = 0.1f;
#pragma unroll 2
  for (int k = 0; k < rounds; ++k) {
    if (KIND == 0) s = fmaf(s, x - 0.5f, y * 0.25f);
    if (KIND == 1) s = fmaxf(s * y, x - s) * 0.5f;
    if (KIND == 2) s = rsqrtf(fmaf(s, s, x + 0.5f));
    if (KIND == 3) s = fabsf(fmaf(s, y, -0.2f)) + 0.1f * x;
  }
  return s;
}
__host__ __device__ inline int kind_of(unsigned pair) { return (int)(mix(pair + 1234) & 3); }
__global__ void __launch_bounds__(256) collide_shapes(const int* order, const float* a, const float* b, float* out, int rounds) {
  int pair = order[T];
  float x = a[pair], y = b[pair], s;
  switch (kind_of((unsigned)pair)) {
    case 0: s = overlap<0>(x, y, rounds); break;
    case 1: s = overlap<1>(x, y, rounds); break;
    case 2: s = overlap<2>(x, y, rounds); break;
    default: s = overlap<3>(x, y, rounds);
  }
  out[pair] = s;
}
template <class F> static int* sorted(int n, F key) {
  std::vector<int> v(n);
  for (int i = 0; i < n; ++i) v[i] = i;
  std::stable_sort(v.begin(), v.end(), [&](int a, int b) { return key((unsigned)a) < key((unsigned)b); });
  return upload(v);
}

void compute_cases() {
  static int *plain, *by_degree, *by_kind;
  cases.push_back({"keccak", "register_spills", "", [] { keccak<8><<<4224, 256>>>((u64*)A, (u64*)C, 24); }, [] { keccak<2><<<4224, 256>>>((u64*)A, (u64*)C, 24); }, C, 4224 * 512, true, [] {
    std::vector<u64> v(24);
    for (int k = 0; k < 24; ++k) v[k] = (u64)mix(k) << 32 | mix(k + 99);
    CHECK(cudaMemcpyToSymbol(ROUND, v.data(), 24 * 8));
  }});
  cases.push_back({"dequantise_nf4", "local_array", "", [] { dequantise_nf4<0><<<1056, 256>>>((uint4*)A, B, C); }, [] { dequantise_nf4<1><<<1056, 256>>>((uint4*)A, B, C); }, C, 1056 * 256});
  cases.push_back({"rank_candidates", "local_array", "divergence", [] { rank_candidates<0><<<4096, 256>>>((unsigned*)A, (unsigned*)C); }, [] { rank_candidates<1><<<4096, 256>>>((unsigned*)A, (unsigned*)C); }, C, 1 << 24, true});
  cases.push_back({"undistort_pixels", "fp64_by_accident", "", [] { undistort_pixels<double><<<1056, 256>>>((float2*)A, (float2*)C, 1 << 23); }, [] { undistort_pixels<float><<<1056, 256>>>((float2*)A, (float2*)C, 1 << 23); }, C, 1 << 24});
  cases.push_back({"decay_chains", "fp64_by_accident", "", [] { decay_chains<double><<<1056, 256>>>(A, B, C, 1 << 24); }, [] { decay_chains<float><<<1056, 256>>>(A, B, C, 1 << 24); }, C, 1 << 24});
  cases.push_back({"synthesise_partials", "special_functions", "", [] { synthesise_partials<0><<<32768, 256>>>(A, B, C); }, [] { synthesise_partials<1><<<32768, 256>>>(A, B, C); }, C, 1 << 23});
  cases.push_back({"unfold_patches", "integer_division", "", [] { unfold_patches<0><<<2112, 256>>>(A, C, 64, 16, 64, 3); }, [] { unfold_patches<1><<<dim3(4, 9, 1024), dim3(64, 4)>>>(A, C, 64, 16, 64, 3); }, C, 64 * 16 * 9 * 4096});
  cases.push_back({"draw_streams", "dependent_chain", "", [] { draw_streams<1><<<132, 128>>>((unsigned*)C, 1 << 15); }, [] { draw_streams<4><<<132, 128>>>((unsigned*)C, 1 << 15); }, C, 132 * 128, true});
  cases.push_back({"expand_frontier", "divergence", "", [] { expand_frontier<<<8192, 256>>>(plain, A, C); }, [] { expand_frontier<<<8192, 256>>>(by_degree, A, C); }, C, 1 << 21, false, [] {
    plain = sorted(1 << 21, [](unsigned) { return 0; }), by_degree = sorted(1 << 21, [](unsigned i) { return -degree(i); });
  }});
  cases.push_back({"collide_shapes", "divergence", "", [] { collide_shapes<<<8192, 256>>>(plain, A, B, C, 64); }, [] { collide_shapes<<<8192, 256>>>(by_kind, A, B, C, 64); }, C, 1 << 21, false, [] {
    plain = sorted(1 << 21, [](unsigned) { return 0; }), by_kind = sorted(1 << 21, kind_of);
  }});
  spread_cases();
}
