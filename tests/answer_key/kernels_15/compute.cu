// Instructions: meteorites, checkerboards, pollen, tuning forks, heirs, mugshots, prisms, ballots, MRI stacks, winds, bridges, enzymes, galleries, synthesisers.
#include "frame.h"

// ---- weigh_meteorites: one compensated sum of 1,024 parts a thread, four dependent steps a part, in one warp a scheduler; or eight such sums; expected 3 times
template <int WAYS> __global__ void __launch_bounds__(128) weigh_meteorites(const float* part, const float* a, float* out, int rounds) {
  __shared__ __align__(16) float of[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) of[i] = part[i];
  __syncthreads();
  float x = 0.5f + a[T], sum[WAYS] = {}, lost[WAYS] = {};
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 1
    for (int i = 0; i < 1024; i += 8) {
      float4 u = *(const float4*)&of[i], v = *(const float4*)&of[i + 4];
      float p[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        float y = fmaf(p[k], x, -lost[k % WAYS]), next = sum[k % WAYS] + y;
        lost[k % WAYS] = next - sum[k % WAYS] - y, sum[k % WAYS] = next;
      }
    }
  float all = 0;
#pragma unroll
  for (int k = 0; k < WAYS; ++k) all += sum[k] - lost[k];
  out[T] = all;
}
// ---- settle_checkerboards: black and white squares, side by side in a warp, have a loop each; or warps of one colour; expected 1.9 times
template <int V> __global__ void __launch_bounds__(256) settle_checkerboards(const float* a, float* out, int steps) {
  unsigned t = threadIdx.x, square = blockIdx.x * 256 + (V == 0 ? t : (t & ~63u) + (t & 31) * 2 + (t >> 5 & 1));
  float x = a[square], y = 0.3f;
  if (square & 1) {
#pragma unroll 1
    for (int n = 0; n < steps; ++n) x = fmaf(x, fmaf(-0.4f, x, 0.9f), fmaf(0.1f, y, 0.1f)), y = fmaf(0.7f, y, 0.2f * x), x = fmaxf(x, 0.01f);
  } else {
#pragma unroll 1
    for (int n = 0; n < steps; ++n) y = fmaf(y, fmaf(0.2f, y, 0.5f), 0.3f * x), x = fmaf(0.6f, x, fmaf(0.1f, y, 0.1f)), y = fminf(y, 0.99f);
  }
  out[square] = x + y;
}
// ---- drift_pollen: a thread follows 16 grains, one after the other, and a warp waits for the last of 32 to land before it takes the next; or each lane goes on by itself; expected 1.9 times
constexpr int GRAINS = 16;
template <int V> __global__ void __launch_bounds__(256) drift_pollen(const float* wind, float* out) {
  float w = wind[T], far = 0, x = 0, z = 0;
  unsigned h = 0;
  auto start = [&](int g) { h = ((unsigned)T * GRAINS + g + 1) * 2654435761u, x = 0, z = 1; };
  auto fly = [&] {  // true when it lands, once in 16 steps
    h = h * 1664525u + 1013904223u;
    float gust = __uint_as_float(h >> 9 | 0x3f800000u) - 1.5f, lift = fmaf(0.3f, gust, 0.1f * w);
    z = fmaf(0.97f, z, 0.2f * lift * lift), lift = fmaf(-0.2f, z * z, lift), lift = fmaf(lift, fmaf(0.05f, z, 0.4f), 0.02f);
    x = fmaf(0.99f, x, fmaf(w, fmaf(0.5f, z, 0.3f), lift)), z = fmaf(-0.04f, fmaf(lift, lift, 0.1f * x), z);
    z = fmaf(fminf(fmaxf(z, -2.0f), 2.0f), 0.96f, 0.002f * gust);
    return h >> 28 == 0;
  };
  if (V == 0) {
#pragma unroll 1
    for (int g = 0; g < GRAINS; ++g) {
      start(g);
#pragma unroll 1
      while (!fly()) {}
      far = fmaf(0.9f, far, x + z);
    }
  } else {
    start(0);
#pragma unroll 1
    for (int g = 0; g < GRAINS;)
      if (fly()) far = fmaf(0.9f, far, x + z), ++g, start(g);
  }
  out[T] = far;
}
// ---- chart_tuning_forks: a sine and a cosine for each of 512 samples of each tone; or a pair that is turned from sample to sample; expected 2.2 times
template <int V> __global__ void __launch_bounds__(256) chart_tuning_forks(const float* sound, const float* a, float* out) {
  __shared__ __align__(16) float of[512];
  of[threadIdx.x] = sound[threadIdx.x], of[threadIdx.x + 256] = sound[threadIdx.x + 256];
  __syncthreads();
  float turn = fmaf(0.6f, a[T], 0.03f), step = turn * 3.14159265f, re = 0, im = 0, at = 0, c = 1, s = 0, dc, ds;
  sincospif(turn, &ds, &dc);
#pragma unroll 2
  for (int k = 0; k < 512; k += 4) {
    float4 v = *(const float4*)&of[k];
    float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (V == 0) __sincosf(at, &s, &c);
      re = fmaf(x[j], c, re), im = fmaf(x[j], s, im);
      if (V == 0) {
        at += step, at -= at > 3.14159265f ? 6.28318531f : 0.0f;
      } else {
        float turned = fmaf(c, dc, -s * ds);
        s = fmaf(s, dc, c * ds), c = turned;
      }
    }
  }
  out[T] = 50 + re + 0.5f * im;
}
// ---- odds_of_heirs: a logarithm for each of 512 chances of two families; or for each product of eight; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) odds_of_heirs(const float* chance, const float* a, float* out) {
  __shared__ __align__(16) float of[512];
  of[threadIdx.x] = chance[threadIdx.x], of[threadIdx.x + 256] = chance[threadIdx.x + 256];
  __syncthreads();
  float x = a[T], y = a[T + STRIDE], s = 0, r = 0;
#pragma unroll 2
  for (int k = 0; k < 512; k += 8) {
    float4 u = *(const float4*)&of[k], v = *(const float4*)&of[k + 4];
    float p[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w}, f = 1, g = 1;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float d = fmaf(p[j], x, 0.2f), e = fmaf(p[j], y, 0.2f);
      if (V == 0) s += log2_fast(d), r += log2_fast(e);
      else f *= d, g *= e;
    }
    if (V == 1) s += log2_fast(f), r += log2_fast(g);
  }
  out[T] = s, out[T + STRIDE] = r;
}
// ---- normalise_mugshots: bytes become halves by two divisions of doubles, as the literals are doubles; or by one product and sum of floats; expected 3.5 times
template <int V> __global__ void __launch_bounds__(256) normalise_mugshots(const uchar4* face, uint2* out) {
  auto one = [](unsigned char v) {
    if (V == 0) return (float)((v / 255.0 - 0.4531) / 0.2265);
    return fmaf((float)v, 1 / (255.0f * 0.2265f), -0.4531f / 0.2265f);
  };
  uchar4 v = face[T];
  half2 p = __floats2half2_rn(one(v.x), one(v.y)), q = __floats2half2_rn(one(v.z), one(v.w));
  out[T] = {*(unsigned*)&p, *(unsigned*)&q};
}
// ---- refract_prisms: polynomials of floats whose coefficients are doubles in the arguments of the kernel; or floats; expected 3 times
template <class R> struct Glass {
  R of[6];
};
template <class R> __global__ void __launch_bounds__(256) refract_prisms(const float* a, float* out, int prisms, const Glass<R> glass) {
  float x = a[T], y = 0;
#pragma unroll 2
  for (int n = 0; n < prisms; ++n) {
    R p = glass.of[5];
#pragma unroll
    for (int k = 4; k >= 0; --k) p = p * x + glass.of[k];
    x = (float)p, y = fmaf(0.995f, y, x);
  }
  out[T] = y;
}
// ---- blind_ballots: the remainder of a product of 64 bits by a prime that is known at run time, 64 times; or by a factor that was divided beforehand; expected 6 times
template <int V> __global__ void __launch_bounds__(256) blind_ballots(const unsigned* a, unsigned* out, unsigned prime, unsigned base, unsigned ratio, int rounds) {
  unsigned x = a[T] % prime;
#pragma unroll 2
  for (int n = 0; n < rounds; ++n) {
    if (V == 0) {
      x = (unsigned)((u64)x * base % prime);
    } else {
      x = base * x - __umulhi(ratio, x) * prime;
      x -= x >= prime ? prime : 0;
    }
  }
  out[T] = x;
}
// ---- trim_mri_stacks: the five places of each voxel by four divisions by sizes that are known at run time; or a grid of three dimensions and a loop over rows; expected 2.4 times
struct Box {
  int wide, high, deep, kinds, stacks;
};
constexpr Box TRIMMED = {480, 448, 24, 3, 2};
constexpr int VOXELS = 480 * 448 * 24 * 3 * 2;
template <int V> __global__ void __launch_bounds__(256) trim_mri_stacks(const float* __restrict__ voxel, float* __restrict__ out, Box from, Box to, int left, int top, int front) {
  if (V == 0) {
    int i = (int)T, x = i % to.wide, y = i / to.wide, z = y / to.high, kind = z / to.deep, stack = kind / to.kinds;
    y %= to.high, z %= to.deep, kind %= to.kinds;
    out[i] = voxel[(((stack * from.kinds + kind) * from.deep + z + front) * from.high + y + top) * from.wide + x + left];
    return;
  }
  int x = threadIdx.x, plane = blockIdx.z * from.deep + blockIdx.y + front;  // blockDim is half of a row
  const float* own = voxel + (plane * from.high + blockIdx.x * 16 + top) * from.wide + left + x;
  float* row = out + ((blockIdx.z * to.deep + blockIdx.y) * to.high + blockIdx.x * 16) * to.wide + x;
#pragma unroll 4
  for (int y = 0; y < 16; ++y) row[y * to.wide] = own[y * from.wide], row[y * to.wide + blockDim.x] = own[y * from.wide + blockDim.x];
}
// ---- wind_roses: how often the wind blew from each of eight sides, counted in an array that the data index, so it lies in local memory; or in bytes of one word of 64 bits; expected 3 times
template <int V> __global__ void __launch_bounds__(256) wind_roses(const uint4* vane, int* out) {
  int of[8] = {};
  u64 bytes = 0;
#pragma unroll 1
  for (int n = 0; n < 15; ++n) {  // of 16 readings, so that no byte passes 255
    uint4 v = vane[n * STRIDE + T];
    unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      unsigned reading = w[k / 4] >> k % 4 * 8 & 255;
      if (V == 0) ++of[reading >> 5];
      else bytes += 1ull << (reading >> 2 & 56);
    }
  }
  int s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) s = s * 7 + (V == 0 ? of[k] : (int)(bytes >> k * 8 & 255));
  out[T] = s;
}
// ---- balance_bridges: six equations a thread, whose rows change places by an index, so the matrix lies in local memory; or by choices between registers; expected 3 times
template <int V> __global__ void __launch_bounds__(256) balance_bridges(const float* a, float* out, int loads) {
  float x = a[T], y = a[T + STRIDE], all = 0;
  int turn = (int)(a[T + 2 * STRIDE] * 6);
#pragma unroll 1
  for (int n = 0; n < loads; ++n) {
    float m[6][7];
#pragma unroll
    for (int i = 0; i < 6; ++i)
#pragma unroll
      for (int j = 0; j < 7; ++j) m[i][j] = fmaf(0.06f * (i + 1), x, -0.05f * (j + 1) * y) + (j < 6 && (j - i + 6) % 6 == turn ? 4.0f : 0.1f * ((i * j) % 5));
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      if (V == 0) {
        int best = k;
        float most = fabsf(m[k][k]);
#pragma unroll
        for (int i = k + 1; i < 6; ++i)
          if (fabsf(m[i][k]) > most) most = fabsf(m[i][k]), best = i;
#pragma unroll
        for (int j = k; j < 7; ++j) {
          float kept = m[k][j];
          m[k][j] = m[best][j], m[best][j] = kept;
        }
      } else {
#pragma unroll
        for (int i = k + 1; i < 6; ++i) {
          bool better = fabsf(m[i][k]) > fabsf(m[k][k]);
#pragma unroll
          for (int j = k; j < 7; ++j) {
            float p = m[k][j], q = m[i][j];
            m[k][j] = better ? q : p, m[i][j] = better ? p : q;
          }
        }
      }
      float by = __fdividef(1.0f, m[k][k]);
#pragma unroll
      for (int i = k + 1; i < 6; ++i) {
        float f = m[i][k] * by;
#pragma unroll
        for (int j = k + 1; j < 7; ++j) m[i][j] = fmaf(-f, m[k][j], m[i][j]);
      }
    }
    float s[6];
#pragma unroll
    for (int k = 5; k >= 0; --k) {
      float v = m[k][6];
#pragma unroll
      for (int j = k + 1; j < 6; ++j) v = fmaf(-m[k][j], s[j], v);
      s[k] = __fdividef(v, m[k][k]);
    }
    all = fmaf(0.5f, all, (s[0] + s[1]) + (s[2] + s[3]) + (s[4] + s[5]));
    x = fmaf(0.8f, x, 0.1f * s[0]), y = fmaf(0.9f, y, 0.05f * s[3]), turn = turn == 5 ? 0 : turn + 1;
  }
  out[T] = 4 + all;
}
// ---- brew_enzymes: four stages of a step for 20 kinds in a ring, capped at 32 registers; or at 128; expected 1.8 times
constexpr int KINDS = 20;
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) brew_enzymes(const float* a, float* out, int steps) {
  float x[KINDS], at[KINDS], sum[KINDS], rate = 0.2f + 0.1f * a[T];
#pragma unroll
  for (int k = 0; k < KINDS; ++k) x[k] = a[T + (k & 3) * STRIDE] + 0.05f * k;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int k = 0; k < KINDS; ++k) at[k] = x[k], sum[k] = x[k];
#pragma unroll
    for (int stage = 0; stage < 4; ++stage) {
      const float weight[4] = {1 / 6.0f, 1 / 3.0f, 1 / 3.0f, 1 / 6.0f}, reach[4] = {0.5f, 0.5f, 1, 0};
      float slope[KINDS];
#pragma unroll
      for (int k = 0; k < KINDS; ++k) slope[k] = rate * fmaf(-at[k], fmaf(0.1f, at[(k + 1) % KINDS], 1.0f), at[(k + KINDS - 1) % KINDS]);
#pragma unroll
      for (int k = 0; k < KINDS; ++k) sum[k] = fmaf(weight[stage], slope[k], sum[k]), at[k] = fmaf(reach[stage], slope[k], x[k]);
    }
#pragma unroll
    for (int k = 0; k < KINDS; ++k) x[k] = sum[k];
  }
  float s = 0;
#pragma unroll
  for (int k = 0; k < KINDS; ++k) s = fmaf(0.7f, s, x[k]);
  out[T] = s;
}
// ---- correlate_galleries: 64 sums of a tile of 128 x 128 a thread, capped at 80 registers; or at 128; expected 2 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) correlate_galleries(const float* x, const float* w, float* out, int depth, int rows, int columns) {
  __shared__ __align__(16) float left[8][128], right[8][128];
  int t = threadIdx.x, y = t / 16 * 4, c = t % 16 * 4, k = t / 32, i = t % 32 * 4;
  const float *from = x + blockIdx.y * 128 + i, *other = w + blockIdx.x * 128 + i;
  float s[8][8] = {};
#pragma unroll 1
  for (int first = 0; first < depth; first += 8) {
    float4 u = *(const float4*)&from[(i64)(first + k) * rows], v = *(const float4*)&other[(i64)(first + k) * columns];
    __syncthreads();
    *(float4*)&left[k][i] = u, *(float4*)&right[k][i] = v;
    __syncthreads();
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      float p[8], q[8];
      *(float4*)&p[0] = *(float4*)&left[d][y], *(float4*)&p[4] = *(float4*)&left[d][y + 64];
      *(float4*)&q[0] = *(float4*)&right[d][c], *(float4*)&q[4] = *(float4*)&right[d][c + 64];
#pragma unroll
      for (int n = 0; n < 64; ++n) s[n / 8][n & 7] = fmaf(p[n / 8], q[n & 7], s[n / 8][n & 7]);
    }
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    float* to = out + (i64)(blockIdx.y * 128 + y + n / 4 * 64 + n % 4) * columns + blockIdx.x * 128 + c;
    *(float4*)to = {s[n][0], s[n][1], s[n][2], s[n][3]}, *(float4*)(to + 64) = {s[n][4], s[n][5], s[n][6], s[n][7]};
  }
}
// ---- voice_synth_patches: 64 polynomials of 100 literals, each for four samples, 410 kB of code, and warps that begin at different ones; or one loop over a table in shared memory; expected 1.6 times
constexpr int PATCHES = 64, KNOBS = 100;
__host__ __device__ constexpr float knob(int i) { return 0.0013f * (float)((i * 71 + i / 100 * 13) & 511) - 0.3f; }
template <int PATCH> __device__ __forceinline__ void play(const float (&x)[4], float (&y)[4]) {
#pragma unroll
  for (int k = 0; k < KNOBS; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j) y[j] = fmaf(y[j], x[j], knob(PATCH * KNOBS + k));
}
template <int V> __global__ void __launch_bounds__(256) voice_synth_patches(const float* a, const float* table, float* out, int voices) {
  __shared__ __align__(16) float of[V == 0 ? 4 : PATCHES * KNOBS];
  if (V == 1) {
    for (int i = threadIdx.x; i < PATCHES * KNOBS; i += 256) of[i] = table[i];
    __syncthreads();
  }
  float x[4], y[4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = 0.9f * a[T + j * STRIDE];
  int at = (int)(T / 32) * 23 & 63;
#pragma unroll 1
  for (int n = 0; n < voices; ++n, at = at + 1 & 63) {
    if (V == 1) {
      const float* own = of + at * KNOBS;
#pragma unroll 5
      for (int k = 0; k < KNOBS; k += 4) {
        float4 v = *(const float4*)&own[k];
#pragma unroll
        for (int j = 0; j < 4; ++j) y[j] = fmaf(fmaf(fmaf(fmaf(y[j], x[j], v.x), x[j], v.y), x[j], v.z), x[j], v.w);
      }
      continue;
    }
#define PLAY(k) case k: play<k>(x, y); break;
#define PLAYS(k) PLAY(k) PLAY(k + 1) PLAY(k + 2) PLAY(k + 3) PLAY(k + 4) PLAY(k + 5) PLAY(k + 6) PLAY(k + 7)
    switch (at) { PLAYS(0) PLAYS(8) PLAYS(16) PLAYS(24) PLAYS(32) PLAYS(40) PLAYS(48) PLAYS(56) }
  }
  out[T] = 20 + (y[0] + y[1]) + (y[2] + y[3]);
}

void spread_cases();  // in spread.cu

void compute_cases() {
  static Glass<double> thick;
  static Glass<float> thin;
  static float* knobs;
  static unsigned ratio;
  cases.push_back({"weigh_meteorites", "dependent_chain", "", [] { weigh_meteorites<1><<<132, 128>>>(B, A, C, 8); }, [] { weigh_meteorites<8><<<132, 128>>>(B, A, C, 8); }, C, 132 * 128});
  cases.push_back({"settle_checkerboards", "divergence", "", [] { settle_checkerboards<0><<<4224, 256>>>(A, C, 192); }, [] { settle_checkerboards<1><<<4224, 256>>>(A, C, 192); }, C, 4224 * 256});
  cases.push_back({"drift_pollen", "divergence", "", [] { drift_pollen<0><<<528, 256>>>(A, C); }, [] { drift_pollen<1><<<528, 256>>>(A, C); }, C, 528 * 256});
  cases.push_back({"chart_tuning_forks", "special_functions", "", [] { chart_tuning_forks<0><<<2112, 256>>>(B, A, C); }, [] { chart_tuning_forks<1><<<2112, 256>>>(B, A, C); }, C, 2112 * 256});
  cases.push_back({"odds_of_heirs", "special_functions", "", [] { odds_of_heirs<0><<<2112, 256>>>(B, A, C); }, [] { odds_of_heirs<1><<<2112, 256>>>(B, A, C); }, C, 2112 * 512});
  cases.push_back({"normalise_mugshots", "fp64_by_accident", "", [] { normalise_mugshots<0><<<1 << 16, 256>>>((uchar4*)A, (uint2*)C); }, [] { normalise_mugshots<1><<<1 << 16, 256>>>((uchar4*)A, (uint2*)C); }, C, 1 << 25, true});
  cases.push_back({"refract_prisms", "fp64_by_accident", "", [] { refract_prisms<<<2112, 256>>>(A, C, 160, thick); }, [] { refract_prisms<<<2112, 256>>>(A, C, 160, thin); }, C, 2112 * 256, false, [] {
    const double of[6] = {0.31, 0.42, -0.17, 0.08, -0.05, 0.02};
    for (int k = 0; k < 6; ++k) thick.of[k] = of[k], thin.of[k] = (float)of[k];
  }});
  cases.push_back({"blind_ballots", "integer_division", "", [] { blind_ballots<0><<<2112, 256>>>((unsigned*)A, (unsigned*)C, 2013265921u, 1791270792u, 0, 64); }, [] { blind_ballots<1><<<2112, 256>>>((unsigned*)A, (unsigned*)C, 2013265921u, 1791270792u, ratio, 64); }, C, 2112 * 256, true, [] { ratio = (unsigned)((1791270792ull << 32) / 2013265921u); }});
  cases.push_back({"trim_mri_stacks", "integer_division", "", [] { trim_mri_stacks<0><<<VOXELS / 256, 256>>>(A, C, {512, 512, 32, 3, 2}, TRIMMED, 16, 32, 4); }, [] { trim_mri_stacks<1><<<dim3(28, 24, 6), 240>>>(A, C, {512, 512, 32, 3, 2}, TRIMMED, 16, 32, 4); }, C, VOXELS});
  cases.push_back({"wind_roses", "local_array", "", [] { wind_roses<0><<<1056, 256>>>((uint4*)A, (int*)C); }, [] { wind_roses<1><<<1056, 256>>>((uint4*)A, (int*)C); }, C, 1056 * 256, true});
  cases.push_back({"balance_bridges", "local_array", "", [] { balance_bridges<0><<<2112, 256>>>(A, C, 4); }, [] { balance_bridges<1><<<2112, 256>>>(A, C, 4); }, C, 2112 * 256});
  cases.push_back({"brew_enzymes", "register_spills", "", [] { brew_enzymes<8><<<264, 256>>>(A, C, 96); }, [] { brew_enzymes<2><<<264, 256>>>(A, C, 96); }, C, 264 * 256});
  cases.push_back({"correlate_galleries", "register_spills", "", [] { correlate_galleries<3><<<dim3(16, 16), 256>>>(A, B, C, 512, 2048, 2048); }, [] { correlate_galleries<2><<<dim3(16, 16), 256>>>(A, B, C, 512, 2048, 2048); }, C, 1 << 22});
  cases.push_back({"voice_synth_patches", "instruction_cache", "", [] { voice_synth_patches<0><<<528, 256>>>(A, knobs, C, 32); }, [] { voice_synth_patches<1><<<528, 256>>>(A, knobs, C, 32); }, C, 528 * 256, false, [] {
    std::vector<float> v(PATCHES * KNOBS);
    for (int k = 0; k < PATCHES * KNOBS; ++k) v[k] = knob(k);
    knobs = upload(v);
  }});
  spread_cases();
}
