// Instructions: oscillators, neighbours, gates, words, cross sections, claims, markets, galaxies, cars, beats, biases, packets, causes, tones, loans.
#include "frame.h"

// ---- mix_oscillators: places and speeds of 28 coupled oscillators a thread, capped at 40 registers; or at 128; expected 2 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) mix_oscillators(const float* a, float* out, int steps) {
  constexpr int K = 28;
  float x[K], v[K], s = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) x[k] = a[k * STRIDE + T], v[k] = 0.1f * k;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] = fmaf(0.1f, x[(k + 1) % K] + x[(k + K - 1) % K], fmaf(-0.21f, x[k], v[k] * 0.99f));
#pragma unroll
    for (int k = 0; k < K; ++k) x[k] = fmaf(0.1f, v[k], x[k]);
  }
#pragma unroll
  for (int k = 0; k < K; ++k) s += fabsf(x[k]) + fabsf(v[k]);
  out[T] = s;
}
// ---- attend_neighbours: a query and a sum of 32 dimensions each a thread, capped at 40 registers; or at 128; expected 2 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) attend_neighbours(const float* a, const float* node, float* out) {
  __shared__ __align__(16) float key[128][32], value[128][32];
  for (int i = threadIdx.x; i < 4096; i += 256) key[i / 32][i & 31] = node[i], value[i / 32][i & 31] = node[4096 + i];
  float q[32], s[32] = {}, all = 0;
#pragma unroll
  for (int k = 0; k < 32; ++k) q[k] = 0.1f * a[k * STRIDE + T];
  __syncthreads();
#pragma unroll 1
  for (int n = 0; n < 128; ++n) {
    float dot[2] = {};
#pragma unroll
    for (int k = 0; k < 32; k += 4) {
      float4 v = *(const float4*)&key[n][k];
      dot[0] = fmaf(q[k], v.x, dot[0]), dot[1] = fmaf(q[k + 1], v.y, dot[1]), dot[0] = fmaf(q[k + 2], v.z, dot[0]), dot[1] = fmaf(q[k + 3], v.w, dot[1]);
    }
    float w = exp_two(dot[0] + dot[1]);
    all += w;
#pragma unroll
    for (int k = 0; k < 32; k += 4) {
      float4 v = *(const float4*)&value[n][k];
      s[k] = fmaf(w, v.x, s[k]), s[k + 1] = fmaf(w, v.y, s[k + 1]), s[k + 2] = fmaf(w, v.z, s[k + 2]), s[k + 3] = fmaf(w, v.w, s[k + 3]);
    }
  }
  float by = __fdividef(1.0f, all);
#pragma unroll
  for (int k = 0; k < 32; ++k) out[k * STRIDE + T] = s[k] * by;
}
// ---- apply_gates: 16 amplitudes a thread, paired by a bit that is known at run time, so they lie in local memory; or by one of four unrolled copies; expected 4 times
struct Gate {
  int bit;
  float c, s;
};
template <int BIT> __device__ __forceinline__ void turn_pairs(float2 (&z)[16], float c, float s) {
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (!(i & BIT)) {
      float2 p = z[i], q = z[i | BIT];
      z[i] = {fmaf(c, p.x, -s * q.x), fmaf(c, p.y, -s * q.y)}, z[i | BIT] = {fmaf(s, p.x, c * q.x), fmaf(s, p.y, c * q.y)};
    }
}
template <int V> __global__ void __launch_bounds__(256) apply_gates(const float2* a, const float4* gates, float* out, int many) {
  __shared__ Gate gate[64];
  if (threadIdx.x < 64) gate[threadIdx.x] = {(int)gates[threadIdx.x].x, gates[threadIdx.x].y, gates[threadIdx.x].z};
  float2 z[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) z[k] = a[k * STRIDE + T];
  __syncthreads();
#pragma unroll 1
  for (int n = 0; n < many; ++n) {
    Gate g = gate[n & 63];
    if (V == 0) {
      int low = (1 << g.bit) - 1;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        int at = (i & ~low) * 2 | (i & low), other = at | 1 << g.bit;
        float2 p = z[at], q = z[other];
        z[at] = {fmaf(g.c, p.x, -g.s * q.x), fmaf(g.c, p.y, -g.s * q.y)}, z[other] = {fmaf(g.s, p.x, g.c * q.x), fmaf(g.s, p.y, g.c * q.y)};
      }
    } else {
      switch (g.bit) {
        case 0: turn_pairs<1>(z, g.c, g.s); break;
        case 1: turn_pairs<2>(z, g.c, g.s); break;
        case 2: turn_pairs<4>(z, g.c, g.s); break;
        default: turn_pairs<8>(z, g.c, g.s);
      }
    }
  }
  float all = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) all += (k + 1) * (fabsf(z[k].x) + fabsf(z[k].y));
  out[T] = all;
}
// ---- hear_words: chances of eight states a thread, and loops over a number of states known at run time, so they lie in local memory; or unrolled for eight; expected 4 times
template <int V> __global__ void __launch_bounds__(256) hear_words(const float* a, const float* change, float* out, int steps, int states) {
  __shared__ __align__(16) float move[8][8];
  if (threadIdx.x < 64) move[threadIdx.x / 8][threadIdx.x & 7] = 0.25f * change[threadIdx.x];
  __syncthreads();
  float p[8], q[8], all = 0;
  float heard = a[T];
  if (V == 0) {
#pragma unroll 1
    for (int j = 0; j < states; ++j) p[j] = 0.1f + 0.01f * j;
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
#pragma unroll 1
      for (int j = 0; j < states; ++j) {
        float s = 0;
#pragma unroll 4
        for (int i = 0; i < states; ++i) s = fmaf(p[i], move[i][j], s);
        q[j] = s;
      }
#pragma unroll 1
      for (int j = 0; j < states; ++j) p[j] = fmaf(q[j], fmaf(heard, 0.1f * j, 0.7f), 0.01f);
    }
#pragma unroll 1
    for (int j = 0; j < states; ++j) all += p[j];
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) p[j] = 0.1f + 0.01f * j;
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float s = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) s = fmaf(p[i], move[i][j], s);
        q[j] = s;
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) p[j] = fmaf(q[j], fmaf(heard, 0.1f * j, 0.7f), 0.01f);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) all += p[j];
  }
  out[T] = all;
}
// ---- cross_sections: particles of four species, each with a loop of its own, in any order; or in the order of species; expected 3 times
__global__ void __launch_bounds__(256) cross_sections(const float* a, const unsigned* particle, float* out, int steps) {
  unsigned own = particle[T], i = own >> 2;
  float e = a[i], s = 0.3f;
  switch (own & 3) {
    case 0:
#pragma unroll 1
      for (int n = 0; n < steps; ++n) s = fmaf(s, 0.9f - 0.1f * e, 0.02f), e = fmaf(e, 0.99f, 0.003f * s), s = fminf(s, 0.8f);
      break;
    case 1:
#pragma unroll 1
      for (int n = 0; n < steps; ++n) s = fmaf(e, s * -0.2f, s + 0.01f), e = fmaf(s, 0.01f, e * 0.97f), s = fmaxf(s, 0.1f);
      break;
    case 2:
#pragma unroll 1
      for (int n = 0; n < steps; ++n) e = fmaf(e, e * -0.03f, e), s = fmaf(e - s, 0.25f, s), s = fabsf(s - 0.05f);
      break;
    default:
#pragma unroll 1
      for (int n = 0; n < steps; ++n) s = s * fmaf(e, -0.05f, 1.0f), e = fmaf(0.02f, s - e, e), s = fmaf(0.01f, e, s);
  }
  out[i] = s + e;
}
// ---- audit_claims: one claim of eight needs 96 steps, which its whole warp waits for; or such claims are gathered in shared memory, and full warps take them; expected 3 times
template <int V> __global__ void __launch_bounds__(256) audit_claims(const float* a, float* out) {
  __shared__ int doubtful[2048], many;
  int t = threadIdx.x, lane = t & 31;
  i64 first = blockIdx.x * 2048ll;
  auto audit = [](float x) {
    float y = 0.5f;
#pragma unroll 1
    for (int k = 0; k < 96; ++k) y = fmaf(y, fmaf(-0.3f, x, 0.9f), 0.05f), x = fmaf(0.01f, y, x * 0.99f);
    return y;
  };
  if (V == 1) {
    if (t == 0) many = 0;
    __syncthreads();
  }
#pragma unroll 1
  for (int k = 0; k < 8; ++k) {
    int i = k * 256 + t;
    float x = a[first + i];
    bool odd = x > 0.875f;
    if (V == 0) {
      if (odd) x = audit(x);
      out[first + i] = x;
    } else {
      unsigned all = __ballot_sync(~0u, odd);
      int from = 0;
      if (lane == 0) from = atomicAdd(&many, __popc(all));
      from = __shfl_sync(~0u, from, 0);
      if (odd) doubtful[from + __popc(all & (1u << lane) - 1)] = i;
      else out[first + i] = x;
    }
  }
  if (V == 0) return;
  __syncthreads();
  for (int j = t; j < many; j += 256) {
    int i = doubtful[j];
    out[first + i] = audit(a[first + i]);
  }
}
// ---- excite_markets: an exponential for each of 512 earlier trades; or the product of two, one of a trade, once a block, and one of a time; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) excite_markets(const float* trade, const float* a, float* out) {
  __shared__ __align__(8) float2 of[512];
  for (int k = threadIdx.x; k < 512; k += 256) {
    float at = trade[k];
    of[k] = {at, exp_two(6 * at)};
  }
  __syncthreads();
  float now = a[T], s = 0;
#pragma unroll 8
  for (int k = 0; k < 512; ++k) {
    float2 p = of[k];
    if (V == 0) s += p.x < now ? exp_two(6 * (p.x - now)) : 0.0f;
    else s += p.x < now ? p.y : 0.0f;
  }
  out[T] = V == 0 ? s : s * exp_two(-6 * now);
}
// ---- pull_galaxies: a power by a logarithm and an exponential for each of 512 pairs; or the cube of one inverse root; expected 1.5 times
template <int V> __global__ void __launch_bounds__(256) pull_galaxies(const float4* star, const float* a, float* out) {
  __shared__ float4 of[512];
  of[threadIdx.x] = star[threadIdx.x], of[threadIdx.x + 256] = star[threadIdx.x + 256];
  float x = a[T], y = a[T + STRIDE], z = a[T + 2 * STRIDE], fx = 0, fy = 0, fz = 0;
  __syncthreads();
#pragma unroll 8
  for (int k = 0; k < 512; ++k) {
    float4 p = of[k];
    float dx = p.x - x, dy = p.y - y, dz = p.z - z, r = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)));
    if (V == 0) {
      r = __powf(r, -1.5f);
    } else {
      r = inverse_root(r), r = r * r * r;
    }
    r *= p.w, fx = fmaf(r, dx, fx), fy = fmaf(r, dy, fy), fz = fmaf(r, dz, fz);
  }
  out[T] = 10 + fabsf(fx) + fabsf(fy) + fabsf(fz);
}
// ---- drive_cars: speeds and gaps of floats with literals that are doubles; expected 4 times
template <class R> __global__ void __launch_bounds__(256) drive_cars(const float* a, float* out, int steps) {
  float v = a[T], gap = 1 + a[T + STRIDE], ahead = 0.8f;
#pragma unroll 4
  for (int n = 0; n < steps; ++n) {
    v = (float)(v + (R)0.05 * ((R)1.2 - (R)0.9 * v * v - (R)0.3 * v * (2 - gap)));
    gap = (float)(gap + (R)0.02 * (ahead - v));
  }
  out[T] = v + gap;
}
// ---- match_beats: products of floats at 256 lags, added up in a double that nobody needs; or in a float; expected 1.8 times
template <class R> __global__ void __launch_bounds__(256) match_beats(const float* song, float* out) {
  __shared__ __align__(16) float beat[1024], room[1024 + 256];
  int t = threadIdx.x;
  const float* own = song + blockIdx.x * 1024ll;
  for (int i = t; i < 1280; i += 256) room[i] = own[i];
  for (int i = t; i < 1024; i += 256) beat[i] = song[i] * 0.1f;
  __syncthreads();
  R s[2] = {};
#pragma unroll 4
  for (int k = 0; k < 1024; k += 4) {
    float4 v = *(const float4*)&beat[k];
    s[0] += v.x * room[t + k], s[1] += v.y * room[t + k + 1], s[0] += v.z * room[t + k + 2], s[1] += v.w * room[t + k + 3];
  }
  out[T] = (float)(s[0] + s[1]);
}
// ---- broadcast_biases: three divisions of 64 bits find the bias of each element; or products with reciprocals of 32; expected 2 times
struct Divider {
  unsigned by, factor, shift;
};
constexpr int TALL = 96, BROAD = 112, PLANES = 48, IMAGES = 64;
template <int V> __global__ void __launch_bounds__(256) broadcast_biases(const float* a, const float* bias, float* out, i64 width, i64 height, i64 planes, Divider w, Divider h, Divider p) {
  if (V == 0) {
    i64 i = T, column = i % width, plane = i / width / height % planes;
    out[i] = a[i] + bias[plane * width + column];
  } else {
    auto part = [](unsigned n, Divider d) { return __umulhi(n, d.factor) + n >> d.shift; };
    unsigned i = (unsigned)T, row = part(i, w), image = part(row, h), plane = image - part(image, p) * p.by;
    out[i] = a[i] + bias[plane * w.by + (i - row * w.by)];
  }
}
static Divider divider(unsigned by) {
  unsigned shift = 0;
  while ((1u << shift) < by) ++shift;
  return {by, (unsigned)(((u64)((1ull << shift) - by) << 32) / by + 1), shift};
}
// ---- sketch_packets: the remainder of a hash by a width of its own for each of 16 rows of a sketch; or a product with a reciprocal that the table holds; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) sketch_packets(const unsigned* packet, const uint4* rows, unsigned* out, int each) {
  __shared__ uint4 row[16];
  if (threadIdx.x < 16) row[threadIdx.x] = rows[threadIdx.x];
  __syncthreads();
  unsigned s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    unsigned x = mix(packet[n * STRIDE + T]);
#pragma unroll 4
    for (int k = 0; k < 16; ++k) {
      uint4 r = row[k];
      unsigned h = r.x * x + r.y, rest;
      if (V == 0) {
        rest = h % r.z;
      } else {
        rest = h - __umulhi(h, r.w) * r.z, rest = min(rest, rest - r.z);
      }
      s = (s ^ rest) * 5;
    }
  }
  out[T] = s;
}
// ---- infer_causes: one product of 1,024 chances, each from the last, in one warp a scheduler; or four products; expected 2.5 times
template <int WAYS> __global__ void __launch_bounds__(128) infer_causes(const float* weight, const float* a, float* out, int rounds) {
  __shared__ __align__(16) float of[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) of[i] = 0.001f * weight[i];
  __syncthreads();
  float x = a[T], p[WAYS];
#pragma unroll
  for (int k = 0; k < WAYS; ++k) p[k] = 1;
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 4
    for (int i = 0; i < 1024; i += 4) {
      float4 w = *(const float4*)&of[i];
      float v[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) p[k % WAYS] *= fmaf(-v[k], x, 1.0f);
    }
  float all = p[0];
#pragma unroll
  for (int k = 1; k < WAYS; ++k) all *= p[k];
  out[T] = all;
}
// ---- dial_tones: the resonances of eight tones over 1,024 samples, one tone after another in one warp a scheduler; or eight at once; expected 2.5 times
template <int WAYS> __global__ void __launch_bounds__(128) dial_tones(const float* sound, const float* a, float* out, int rounds) {
  __shared__ __align__(16) float of[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) of[i] = sound[i] - 0.5f;
  __syncthreads();
  float all = 0, pitch = a[T];
#pragma unroll 1
  for (int f = 0; f < 8; f += WAYS) {
    float c[WAYS], s[WAYS], last[WAYS];
#pragma unroll
    for (int k = 0; k < WAYS; ++k) c[k] = 1.1f + 0.1f * (f + k) + 0.05f * pitch, s[k] = 0, last[k] = 0;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll 2
      for (int i = 0; i < 1024; i += 4) {
        float4 w = *(const float4*)&of[i];
        float x[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int k = 0; k < WAYS; ++k) {
            float next = fmaf(c[k], s[k], fmaf(-0.98f, last[k], x[j]));
            last[k] = s[k], s[k] = next;
          }
      }
#pragma unroll
    for (int k = 0; k < WAYS; ++k) all = fmaf(s[k], s[k], fmaf(last[k], last[k], all));
  }
  out[T] = all;
}
// ---- judge_loans: 64 trees of 96 stumps that also ask for the sum so far, each with code of its own, 450 kB in all, and warps that begin at different ones; or one loop over a table; expected 1.7 times
__host__ __device__ constexpr float stump_at(int i) { return 0.1f + 0.0015f * (float)((i * 61 + i / 96 * 17) & 511); }
__host__ __device__ constexpr float stump_yes(int i) { return 0.001f * (float)((i * 29 + 7) & 1023); }
__host__ __device__ constexpr float stump_no(int i) { return -0.002f * (float)((i * 53 + 11) & 511); }
template <int TREE> __device__ __forceinline__ float judged(const float (&x)[4], float s) {
#pragma unroll
  for (int k = 0; k < 96; ++k) s = fmaf(s, 0.9f, fmaf(0.1f, s, x[k & 3]) > stump_at(TREE * 96 + k) ? stump_yes(TREE * 96 + k) : stump_no(TREE * 96 + k));
  return s;
}
template <int V> __global__ void __launch_bounds__(256) judge_loans(const float* a, const float4* table, float* out, int trees) {
  float x[4], s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = a[k * STRIDE + T];
  int tree = (int)(T / 32) * 29 & 63;
#pragma unroll 1
  for (int n = 0; n < trees; ++n, tree = tree + 1 & 63) {
    if (V == 1) {
      const float4* own = table + tree * 96;
#pragma unroll 8
      for (int k = 0; k < 96; ++k) {
        float4 v = __ldg(&own[k]);
        s = fmaf(s, 0.9f, fmaf(0.1f, s, x[k & 3]) > v.x ? v.y : v.z);
      }
      continue;
    }
#define TREE_OF(k) case k: s = judged<k>(x, s); break;
#define TREES_OF(k) TREE_OF(k) TREE_OF(k + 1) TREE_OF(k + 2) TREE_OF(k + 3) TREE_OF(k + 4) TREE_OF(k + 5) TREE_OF(k + 6) TREE_OF(k + 7)
    switch (tree) { TREES_OF(0) TREES_OF(8) TREES_OF(16) TREES_OF(24) TREES_OF(32) TREES_OF(40) TREES_OF(48) TREES_OF(56) }
  }
  out[T] = s;
}

void spread_cases();  // spread.cu

void compute_cases() {
  static unsigned *mixed, *sorted;
  static float4 *gates, *stars, *stumps;
  static float* changes;
  static uint4* rows;
  static Divider w = divider(BROAD), h = divider(TALL), p = divider(PLANES);
  cases.push_back({"mix_oscillators", "register_spills", "", [] { mix_oscillators<6><<<792, 256>>>(A, C, 128); }, [] { mix_oscillators<2><<<792, 256>>>(A, C, 128); }, C, 792 * 256});
  cases.push_back({"attend_neighbours", "register_spills", "", [] { attend_neighbours<6><<<792, 256>>>(A, B, C); }, [] { attend_neighbours<2><<<792, 256>>>(A, B, C); }, C, 792 * 256 * 32});
  cases.push_back({"apply_gates", "local_array", "", [] { apply_gates<0><<<1056, 256>>>((float2*)A, gates, C, 64); }, [] { apply_gates<1><<<1056, 256>>>((float2*)A, gates, C, 64); }, C, 1056 * 256, false, [] {
    std::vector<float4> v(64);
    for (unsigned k = 0; k < 64; ++k) v[k] = {(float)(mix(k) & 3), std::cos(3 * dice(k)), std::sin(3 * dice(k)), 0};
    gates = upload(v);
  }});
  cases.push_back({"hear_words", "local_array", "", [] { hear_words<0><<<1056, 256>>>(A, changes, C, 32, 8); }, [] { hear_words<1><<<1056, 256>>>(A, changes, C, 32, 8); }, C, 1056 * 256, false, [] { changes = upload(filled(64, [](unsigned k) { return dice(k + 40); })); }});
  cases.push_back({"cross_sections", "divergence", "", [] { cross_sections<<<4096, 256>>>(A, mixed, C, 96); }, [] { cross_sections<<<4096, 256>>>(A, sorted, C, 96); }, C, 1 << 20, false, [] {
    std::vector<unsigned> v(1 << 20);
    for (unsigned k = 0; k < 1 << 20; ++k) v[k] = k << 2 | (mix(k + 9) & 3);
    mixed = upload(v);
    std::stable_sort(v.begin(), v.end(), [](unsigned p, unsigned q) { return (p & 3) < (q & 3); });
    sorted = upload(v);
  }});
  cases.push_back({"audit_claims", "divergence", "", [] { audit_claims<0><<<4096, 256>>>(A, C); }, [] { audit_claims<1><<<4096, 256>>>(A, C); }, C, 1 << 23});
  cases.push_back({"excite_markets", "special_functions", "", [] { excite_markets<0><<<4224, 256>>>(B, A, C); }, [] { excite_markets<1><<<4224, 256>>>(B, A, C); }, C, 4224 * 256});
  cases.push_back({"pull_galaxies", "special_functions", "", [] { pull_galaxies<0><<<2112, 256>>>(stars, A, C); }, [] { pull_galaxies<1><<<2112, 256>>>(stars, A, C); }, C, 2112 * 256, false, [] {
    std::vector<float4> v(512);
    for (unsigned k = 0; k < 512; ++k) v[k] = {dice(k * 4), dice(k * 4 + 1), dice(k * 4 + 2), 0.001f + 0.002f * dice(k * 4 + 3)};
    stars = upload(v);
  }});
  cases.push_back({"drive_cars", "fp64_by_accident", "", [] { drive_cars<double><<<2112, 256>>>(A, C, 192); }, [] { drive_cars<float><<<2112, 256>>>(A, C, 192); }, C, 2112 * 256});
  cases.push_back({"match_beats", "fp64_by_accident", "", [] { match_beats<double><<<4224, 256>>>(A, C); }, [] { match_beats<float><<<4224, 256>>>(A, C); }, C, 4224 * 256});
  cases.push_back({"broadcast_biases", "integer_division", "", [] { broadcast_biases<0><<<IMAGES * PLANES * TALL * BROAD / 256, 256>>>(A, B, C, BROAD, TALL, PLANES, w, h, p); }, [] { broadcast_biases<1><<<IMAGES * PLANES * TALL * BROAD / 256, 256>>>(A, B, C, BROAD, TALL, PLANES, w, h, p); }, C, (i64)IMAGES * PLANES * TALL * BROAD});
  cases.push_back({"sketch_packets", "integer_division", "", [] { sketch_packets<0><<<2112, 256>>>((unsigned*)A, rows, (unsigned*)C, 16); }, [] { sketch_packets<1><<<2112, 256>>>((unsigned*)A, rows, (unsigned*)C, 16); }, C, 2112 * 256, true, [] {
    std::vector<uint4> v(16);
    for (unsigned k = 0; k < 16; ++k) {
      unsigned width = 40009 + (mix(k) & 0xfffe);
      v[k] = {mix(k + 50) | 1, mix(k + 90), width, (unsigned)((1ull << 32) / width)};
    }
    rows = upload(v);
  }});
  cases.push_back({"infer_causes", "dependent_chain", "", [] { infer_causes<1><<<132, 128>>>(B, A, C, 16); }, [] { infer_causes<4><<<132, 128>>>(B, A, C, 16); }, C, 132 * 128});
  cases.push_back({"dial_tones", "dependent_chain", "", [] { dial_tones<1><<<132, 128>>>(B, A, C, 2); }, [] { dial_tones<8><<<132, 128>>>(B, A, C, 2); }, C, 132 * 128});
  cases.push_back({"judge_loans", "instruction_cache", "", [] { judge_loans<0><<<528, 256>>>(A, stumps, C, 64); }, [] { judge_loans<1><<<528, 256>>>(A, stumps, C, 64); }, C, 528 * 256, false, [] {
    std::vector<float4> v(64 * 96);
    for (int k = 0; k < 64 * 96; ++k) v[k] = {stump_at(k), stump_yes(k), stump_no(k), 0};
    stumps = upload(v);
  }});
  spread_cases();
}
