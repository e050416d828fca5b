// Instructions: neurons, entropy coders, rays, refined meshes, spinors, ports, swarms, pianos, primes, hulls, gauge fields, trusses, symbolic regression.
#include "frame.h"

// ---- leak_neurons: a leaking sum of 1024 inputs, one chain in one warp a scheduler; or eight chains with the leak of eight steps; expected 2.5 times
template <int WAYS> __global__ void __launch_bounds__(128) leak_neurons(const float* a, float* out, int rounds) {
  __shared__ __align__(16) float input[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) input[i] = a[i];
  __syncthreads();
  float leak = 0.9f + 0.0001f * (float)(T & 511), s[WAYS] = {}, by = 1, all = 0;
#pragma unroll
  for (int k = 0; k < WAYS; ++k) by *= leak;
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 4
    for (int i = 0; i < 1024; i += 8) {
      float4 v = *(const float4*)&input[i], w = *(const float4*)&input[i + 4];
      float x[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
#pragma unroll
      for (int k = 0; k < 8; ++k) s[k % WAYS] = fmaf(s[k % WAYS], by, x[k]);
    }
#pragma unroll
  for (int k = 0; k < WAYS; ++k) all = fmaf(all, leak, s[k]);
  out[T] = all;
}
// ---- unpack_streams: four streams of a coder with 2048 states, each state from the table at the last one; one stream after the other in one warp a scheduler, or the four at once; expected 2 times
template <int WAYS> __global__ void __launch_bounds__(128) unpack_streams(const unsigned* table, unsigned* out, int symbols) {
  __shared__ unsigned of[2048];
  for (int i = threadIdx.x; i < 2048; i += 128) of[i] = table[i];
  __syncthreads();
  unsigned all = 0;
#pragma unroll 1
  for (int c = 0; c < 4; c += WAYS) {
    unsigned state[WAYS], bits[WAYS], s[WAYS] = {};
#pragma unroll
    for (int w = 0; w < WAYS; ++w) bits[w] = mix((unsigned)(T * 4 + c + w)), state[w] = bits[w] & 2047;
#pragma unroll 2
    for (int k = 0; k < symbols; ++k)
#pragma unroll
      for (int w = 0; w < WAYS; ++w) {
        unsigned own = of[state[w]], taken = own >> 8 & 7;
        s[w] = s[w] * 3 + (own & 255);
        state[w] = (own >> 16) + (bits[w] & ((1u << taken) - 1)) & 2047;
        bits[w] = __funnelshift_r(bits[w], bits[w], taken) + 0x61c88647u;
      }
#pragma unroll
    for (int w = 0; w < WAYS; ++w) all = all * 31 + s[w];
  }
  out[T] = all;
}
// ---- shade_hits: a ray shades in the step in which it hits, and the 32 rays of a warp hit in different ones; or after the last step; expected 6 times
template <int V> __global__ void __launch_bounds__(256) shade_hits(const float* a, float* out, int steps) {
  float u = a[T], x = 0, y = 0.5f, s = 0;
  int hit = (int)(u * steps);
  auto shade = [&](float v) {
#pragma unroll 1
    for (int r = 0; r < 24; ++r) v = fmaf(v, fmaf(v, -0.3f, 0.8f), 0.1f), v = fmaf(v, 0.7f, 0.2f * u);
    return v;
  };
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    x = fmaf(x, 0.98f, 0.02f * u), y = fmaf(y, 0.97f, 0.03f * x);
    if (k != hit) continue;
    if (V == 0) s = shade(x + y);
    else s = x + y;
  }
  if (V == 1) s = shade(s);
  out[T] = s + y;
}
// ---- refine_meshes: 16 steps of a coarse cell, and 32, 64 or 128 of finer ones, in any order; or sorted by level; expected 2 times
__global__ void __launch_bounds__(256) refine_meshes(const float* a, const unsigned* cell, float* out) {  // a cell and its level
  unsigned own = cell[T], i = own >> 2, steps = 16u << (own & 3);
  float x = a[i], v = 0.1f, dt = 1.0f / steps;
#pragma unroll 1
  for (unsigned n = 0; n < steps; ++n) {
    float f = fmaf(-1.5f, x, 0.4f * v);
    v = fmaf(f, dt, v), v *= fmaf(-0.01f * v, v, 1.0f), x = fmaf(v, dt, x), x = fminf(fmaxf(x, -2.0f), 2.0f);
  }
  out[i] = x;
}
// ---- turn_spinors: sine and cosine of the angle of each gate by every thread; or once a block, from shared memory; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) turn_spinors(const float* angle, const float2* state, float2* out, int gates, int rounds) {
  __shared__ float2 turn[64];
  if (threadIdx.x < gates) {
    float at = angle[threadIdx.x];
    turn[threadIdx.x] = V == 0 ? make_float2(at, at) : make_float2(__cosf(at), __sinf(at));
  }
  __syncthreads();
  float2 z = state[T];
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 8
    for (int g = 0; g < gates; ++g) {
      float2 by = turn[g];
      if (V == 0) by = {__cosf(by.x), __sinf(by.x)};
      z = {fmaf(by.x, z.x, -by.y * z.y), fmaf(by.y, z.x, by.x * z.y)};
    }
  out[T] = z;
}
// ---- find_ports: two sines for the distance to each of 512 ports; or the product of two unit vectors; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) find_ports(const float4* port, const float* a, float* out) {
  __shared__ float4 of[512];
  of[threadIdx.x] = port[threadIdx.x], of[threadIdx.x + 256] = port[threadIdx.x + 256];
  float latitude = (a[T] - 0.5f) * 3.0f, longitude = (a[T + STRIDE] - 0.5f) * 6.2f, cosine = cosf(latitude), least = 4;
  float x = cosine * cosf(longitude), y = cosine * sinf(longitude), z = sinf(latitude);
  __syncthreads();
#pragma unroll 8
  for (int k = 0; k < 512; ++k) {
    float4 p = of[k];
    if (V == 0) {
      float u = __sinf(0.5f * (p.x - latitude)), v = __sinf(0.5f * (p.y - longitude));
      least = fminf(least, fmaf(cosine * p.z, v * v, u * u));
    } else {
      least = fminf(least, -fmaf(p.x, x, fmaf(p.y, y, p.z * z)));
    }
  }
  out[T] = 0.1f + (V == 0 ? least : fmaf(0.5f, least, 0.5f));
}
// ---- steer_swarms: headings brought back below two pi with constants that are doubles; expected 2 times
template <class R> __global__ void __launch_bounds__(256) steer_swarms(const float* a, float* out, int steps) {
  float heading = a[T], turn = 0.3f + a[T + STRIDE], s = 0;
#pragma unroll 4
  for (int n = 0; n < steps; ++n) {
    heading = (float)(heading + turn - (R)6.283185307179586 * floor((heading + turn) * (R)0.15915494309189535));
    s = fmaf(0.01f * heading, 6.2831853f - heading, s);
  }
  out[T] = s;
}
// ---- tune_pianos: the frequency of a note by a power of doubles; or of floats; expected 4 times
template <class R> __global__ void __launch_bounds__(256) tune_pianos(const float4* note, float4* out) {
  auto frequency = [](float n) { return (float)((R)440 * (sizeof(R) == 8 ? (R)pow((double)2.0, (double)(n * 88 - 48) / 12.0) : (R)exp2f((n * 88 - 48) * (1 / 12.0f)))); };
  float4 v = note[T];
  out[T] = {frequency(v.x), frequency(v.y), frequency(v.z), frequency(v.w)};
}
// ---- test_primes: squares by a remainder of 64 bits; or in the form of Montgomery; expected 4 times
template <int V> __global__ void __launch_bounds__(256) test_primes(const unsigned* a, unsigned* out, int squares) {
  unsigned p = (a[T] & 0x7ffffffe) | 0x40000001, x = (unsigned)T * 2654435761u % p;
  if (V == 0) {
#pragma unroll 1
    for (int n = 0; n < squares; ++n) x = (unsigned)((u64)x * x % p);
  } else {
    unsigned inverse = p;  // of p, to the power of two of 32 bits
#pragma unroll
    for (int k = 0; k < 4; ++k) inverse *= 2 - p * inverse;
    auto reduced = [&](u64 v) {
      unsigned m = (unsigned)v * (0u - inverse), r = (unsigned)((v + (u64)m * p) >> 32);
      return r >= p ? r - p : r;
    };
    x = (unsigned)(((u64)x << 32) % p);
#pragma unroll 4
    for (int n = 0; n < squares; ++n) x = reduced((u64)x * x);
    x = reduced(x);
  }
  out[T] = x;
}
// ---- bend_hulls: a curve of degree seven, which is known at run time, so its points lie in local memory; or when it is compiled; expected 3 times
struct Inverses {
  float of[9];
};
template <int V> __global__ void __launch_bounds__(256) bend_hulls(const float* point, const float* a, float* out, int each, int degree, Inverses inverse) {
  __shared__ float control[64];
  if (threadIdx.x < 64) control[threadIdx.x] = point[threadIdx.x];
  __syncthreads();
  float all = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    float at = a[n * STRIDE + T] * 56, u = at - floorf(at), d[8];
    int first = (int)at;
    if (V == 0) {
#pragma unroll 1
      for (int j = 0; j <= degree; ++j) d[j] = control[first + j];
#pragma unroll 1
      for (int r = 1; r <= degree; ++r)
#pragma unroll 1
        for (int j = degree; j >= r; --j) d[j] = fmaf((u + (float)(degree - j)) * inverse.of[degree + 1 - r], d[j] - d[j - 1], d[j - 1]);
      all += d[degree];
    } else {
#pragma unroll
      for (int j = 0; j <= 7; ++j) d[j] = control[first + j];
#pragma unroll
      for (int r = 1; r <= 7; ++r)
#pragma unroll
        for (int j = 7; j >= r; --j) d[j] = fmaf((u + (float)(7 - j)) * inverse.of[8 - r], d[j] - d[j - 1], d[j - 1]);
      all += d[7];
    }
  }
  out[T] = all;
}
// ---- link_gauges: two products of complex 3 x 3 matrices and their sum a step, capped at 40 registers; expected 2 times
struct Link {
  float2 of[3][3];
};
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) link_gauges(const float2* a, float* out, int steps) {
  __shared__ Link link[16];
  for (int i = threadIdx.x; i < 16 * 9; i += 256) link[i / 9].of[i % 9 / 3][i % 3] = {0.4f * a[i].x - 0.2f, 0.4f * a[i].y - 0.2f};
  __syncthreads();
  auto times = [](const Link& u, const Link& v) {
    Link w;
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        float2 s = {0, 0};
#pragma unroll
        for (int k = 0; k < 3; ++k) {
          float2 p = u.of[i][k], q = v.of[k][j];
          s = {fmaf(p.x, q.x, fmaf(-p.y, q.y, s.x)), fmaf(p.x, q.y, fmaf(p.y, q.x, s.y))};
        }
        w.of[i][j] = s;
      }
    return w;
  };
  Link m, n, all = {};
#pragma unroll
  for (int k = 0; k < 9; ++k) m.of[k / 3][k % 3] = a[k * STRIDE + T], n.of[k / 3][k % 3] = a[(9 + k) * STRIDE + T];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    m = times(m, link[step & 15]), n = times(link[step + 5 & 15], n);
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        all.of[i][j] = {fmaf(m.of[i][j].x, n.of[j][i].x, all.of[i][j].x), fmaf(m.of[i][j].y, n.of[j][i].y, all.of[i][j].y)};
        m.of[i][j].x += 0.3f, n.of[i][j].y += 0.2f;
      }
  }
  float s = 0;
#pragma unroll
  for (int k = 0; k < 9; ++k) s += fabsf(all.of[k / 3][k % 3].x) + fabsf(all.of[k / 3][k % 3].y);
  out[T] = s;
}
// ---- load_trusses: a symmetric matrix of 7 x 7 doubles a thread and its factor, capped at 40 registers; expected 2 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) load_trusses(const float* a, float* out, int steps) {
  double k[7][7], s = 0;
#pragma unroll
  for (int i = 0; i < 7; ++i)
#pragma unroll
    for (int j = 0; j <= i; ++j) k[i][j] = (i == j ? 8.0 : 0.0) + a[(i * 7 + j) * 1024 + (T & 1023)];
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    double l[7][7], y[7];
#pragma unroll
    for (int j = 0; j < 7; ++j) {
      double d = k[j][j];
#pragma unroll
      for (int p = 0; p < j; ++p) d = fma(-l[j][p] * l[j][p], l[p][p], d);
      l[j][j] = d;
      double by = (double)__frcp_rn((float)d);
#pragma unroll
      for (int i = j + 1; i < 7; ++i) {
        double v = k[i][j];
#pragma unroll
        for (int p = 0; p < j; ++p) v = fma(-l[i][p] * l[j][p], l[p][p], v);
        l[i][j] = v * by;
      }
      y[j] = 1 + 0.1 * j;
#pragma unroll
      for (int p = 0; p < j; ++p) y[j] = fma(-l[j][p], y[p], y[j]);
    }
#pragma unroll
    for (int i = 0; i < 7; ++i) {
      s = fma(y[i], 0.01, s);
#pragma unroll
      for (int j = 0; j <= i; ++j) k[i][j] = fma(0.001 * y[i], y[j], k[i][j]);
    }
  }
  out[T] = (float)s;
}
// ---- regress_symbols: 64 formulas of 192 literals, each with code of its own, 300 kB in all, and warps that begin at different ones; or one loop over a table; expected 1.7 times
__host__ __device__ constexpr float literal(int i) { return 0.2f + 0.0009765625f * (float)((i * 37 + i / 64 * 11) & 511); }
template <int FORMULA> __device__ __forceinline__ void formula(float& x, float& y) {
#pragma unroll
  for (int k = 0; k < 192; k += 2) x = fmaf(x, 0.7f * literal(FORMULA * 192 + k), y), y = fmaf(y, -0.7f * literal(FORMULA * 192 + k + 1), x), y = fminf(y, 2.0f);
}
template <int V> __global__ void __launch_bounds__(256) regress_symbols(const float* a, const float* table, float* out, int formulas) {
  float x = a[T], y = 0.3f;
  int at = (int)(T / 32) * 23 & 63;
#pragma unroll 1
  for (int n = 0; n < formulas; ++n, at = at + 1 & 63) {
    x *= 0.1f, y *= 0.1f;
    if (V == 1) {
      const float4* own = (const float4*)(table + at * 192);
#pragma unroll 4
      for (int k = 0; k < 48; ++k) {
        float4 v = __ldg(&own[k]);
        x = fmaf(x, v.x, y), y = fmaf(y, v.y, x), y = fminf(y, 2.0f);
        x = fmaf(x, v.z, y), y = fmaf(y, v.w, x), y = fminf(y, 2.0f);
      }
      continue;
    }
#define ONE(s) case s: formula<s>(x, y); break;
#define FOUR(s) ONE(s) ONE(s + 1) ONE(s + 2) ONE(s + 3)
#define SIXTEEN(s) FOUR(s) FOUR(s + 4) FOUR(s + 8) FOUR(s + 12)
    switch (at) { SIXTEEN(0) SIXTEEN(16) SIXTEEN(32) SIXTEEN(48) }
  }
  out[T] = x + y;
}

void spread_cases();  // spread.cu

void compute_cases() {
  static unsigned *table, *mixed, *sorted;
  static float *angles, *literals;
  static float4 *degrees, *vectors;
  static Inverses inverse;
  cases.push_back({"leak_neurons", "dependent_chain", "", [] { leak_neurons<1><<<132, 128>>>(A, C, 16); }, [] { leak_neurons<8><<<132, 128>>>(A, C, 16); }, C, 132 * 128});
  cases.push_back({"unpack_streams", "dependent_chain", "pointer_chasing", [] { unpack_streams<1><<<132, 128>>>(table, (unsigned*)C, 512); }, [] { unpack_streams<4><<<132, 128>>>(table, (unsigned*)C, 512); }, C, 132 * 128, true, [] {
    std::vector<unsigned> v(2048);
    for (unsigned k = 0; k < 2048; ++k) v[k] = mix(k) >> 21 << 16 | (1 + mix(k + 9000) % 6) << 8 | (mix(k + 5000) & 255);
    table = upload(v);
  }});
  cases.push_back({"shade_hits", "divergence", "", [] { shade_hits<0><<<4224, 256>>>(A, C, 64); }, [] { shade_hits<1><<<4224, 256>>>(A, C, 64); }, C, 4224 * 256});
  cases.push_back({"refine_meshes", "divergence", "", [] { refine_meshes<<<4096, 256>>>(A, mixed, C); }, [] { refine_meshes<<<4096, 256>>>(A, sorted, C); }, C, 1 << 20, false, [] {
    std::vector<unsigned> v(1 << 20);
    for (unsigned k = 0; k < 1 << 20; ++k) v[k] = k << 2 | (mix(k) & 3);
    mixed = upload(v);
    std::stable_sort(v.begin(), v.end(), [](unsigned p, unsigned q) { return (p & 3) > (q & 3); });
    sorted = upload(v);
  }});
  auto make_angles = [] {
    std::vector<float> v(64);
    for (unsigned k = 0; k < 64; ++k) v[k] = 3 * uniform(k);
    angles = upload(v);
  };
  cases.push_back({"turn_spinors", "special_functions", "", [] { turn_spinors<0><<<4224, 256>>>(angles, (float2*)A, (float2*)C, 64, 4); }, [] { turn_spinors<1><<<4224, 256>>>(angles, (float2*)A, (float2*)C, 64, 4); }, C, 4224 * 512, false, make_angles});
  cases.push_back({"find_ports", "special_functions", "", [] { find_ports<0><<<4224, 256>>>(degrees, A, C); }, [] { find_ports<1><<<4224, 256>>>(vectors, A, C); }, C, 4224 * 256, false, [] {
    std::vector<float4> v(512), w(512);
    for (unsigned k = 0; k < 512; ++k) {
      double p = 3 * uniform(2 * k) - 1.5, q = 6.2 * uniform(2 * k + 1) - 3.1;
      v[k] = {(float)p, (float)q, (float)std::cos(p), 0}, w[k] = {(float)(std::cos(p) * std::cos(q)), (float)(std::cos(p) * std::sin(q)), (float)std::sin(p), 0};
    }
    degrees = upload(v), vectors = upload(w);
  }});
  cases.push_back({"steer_swarms", "fp64_by_accident", "", [] { steer_swarms<double><<<2112, 256>>>(A, C, 256); }, [] { steer_swarms<float><<<2112, 256>>>(A, C, 256); }, C, 2112 * 256});
  cases.push_back({"tune_pianos", "fp64_by_accident", "", [] { tune_pianos<double><<<16384, 256>>>((float4*)A, (float4*)C); }, [] { tune_pianos<float><<<16384, 256>>>((float4*)A, (float4*)C); }, C, 1 << 24});
  cases.push_back({"test_primes", "integer_division", "", [] { test_primes<0><<<4096, 256>>>((unsigned*)A, (unsigned*)C, 64); }, [] { test_primes<1><<<4096, 256>>>((unsigned*)A, (unsigned*)C, 64); }, C, 1 << 20, true});
  cases.push_back({"bend_hulls", "local_array", "", [] { bend_hulls<0><<<1056, 256>>>(B, A, C, 16, 7, inverse); }, [] { bend_hulls<1><<<1056, 256>>>(B, A, C, 16, 7, inverse); }, C, 1056 * 256, false, [] {
    for (int k = 1; k < 9; ++k) inverse.of[k] = 1.0f / k;
  }});
  cases.push_back({"link_gauges", "register_spills", "", [] { link_gauges<6><<<792, 256>>>((float2*)A, C, 64); }, [] { link_gauges<2><<<792, 256>>>((float2*)A, C, 64); }, C, 792 * 256});
  cases.push_back({"load_trusses", "register_spills", "", [] { load_trusses<6><<<792, 256>>>(A, C, 16); }, [] { load_trusses<1><<<792, 256>>>(A, C, 16); }, C, 792 * 256});
  cases.push_back({"regress_symbols", "instruction_cache", "", [] { regress_symbols<0><<<528, 256>>>(A, literals, C, 64); }, [] { regress_symbols<1><<<528, 256>>>(A, literals, C, 64); }, C, 528 * 256, false, [] {
    std::vector<float> v(64 * 192);
    for (int k = 0; k < 64 * 192; ++k) v[k] = (k & 1 ? -0.7f : 0.7f) * literal(k);
    literals = upload(v);
  }});
  spread_cases();
}
