// Instructions: satellites, factorials, brackets, formulas, muons, line profiles, impedances, swell, plasma, pulsars, ledgers, ladders, ferns.
#include "set.h"

void spread_cases();  // spread.cu

// ---- track_satellites: a covariance of 8 x 8 a thread, capped at 40 registers; expected 3 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) track_satellites(const float* a, float* out, int steps) {
  float p[8][8], s = 0;
#pragma unroll
  for (int k = 0; k < 64; ++k) p[k / 8][k & 7] = fmaf(0.02f, a[k * STRIDE + T], k % 9 ? 0.0f : 1.0f);
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) p[i][j] = fmaf(0.1f, p[i + 4][j], p[i][j]);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) p[i][j] = fmaf(0.1f, p[i][j + 4], p[i][j]);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      float by = __fdividef(1.0f, p[m][m] + 1), gain[8], row[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) gain[i] = p[i][m] * by, row[i] = p[m][i];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) p[i][j] = fmaf(-gain[i], row[j], p[i][j]);
      p[m][m] += 0.01f, p[m + 4][m + 4] += 0.01f;
    }
  }
#pragma unroll
  for (int k = 0; k < 64; ++k) s = fmaf(s, 0.9f, p[k / 8][k & 7]);
  out[T] = s;
}
// ---- grow_factorials: a number of 20 words, in a loop whose end is known at run time; or unrolled, in registers; expected 4 times
template <int V> __global__ void __launch_bounds__(256) grow_factorials(unsigned* out, int last, int words) {
  unsigned x[20], s = 0;
  for (int k = 0; k < 20; ++k) x[k] = (unsigned)T * (k + 1) + 1;
#pragma unroll 1
  for (int n = 2; n <= last; ++n) {
    unsigned by = (unsigned)n * 2654435761u, carry = 0;
    if (V == 0) {
#pragma unroll 1
      for (int k = 0; k < words; ++k) {
        u64 v = (u64)x[k] * by + carry;
        x[k] = (unsigned)v, carry = (unsigned)(v >> 32);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 20; ++k) {
        u64 v = (u64)x[k] * by + carry;
        x[k] = (unsigned)v, carry = (unsigned)(v >> 32);
      }
    }
    x[0] ^= carry;
  }
  for (int k = 0; k < 20; ++k) s = s * 31 + x[k];
  out[T] = s;
}
// ---- match_brackets: brackets of two kinds on a stack of 32 bytes, whose top is known at run time; or on a stack of 32 bits; expected 2 times
template <int V> __global__ void __launch_bounds__(256) match_brackets(const unsigned* text, int* out, int words) {
  unsigned char stack[32];
  unsigned bits = 0;
  int depth = 0, bad = 0;
#pragma unroll 1
  for (int n = 0; n < words; ++n) {
    unsigned w = mix(text[n * STRIDE + T]);
#pragma unroll 4
    for (int k = 0; k < 32; k += 2) {
      unsigned kind = w >> k & 1, closes = w >> k >> 1 & 1;
      if (closes) {
        if (depth == 0) ++bad;
        else if (V == 0) bad += stack[--depth] != kind;
        else bad += (bits & 1) != kind, bits >>= 1, --depth;
      } else if (depth < 32) {
        if (V == 0) stack[depth] = (unsigned char)kind;
        else bits = bits << 1 | kind;
        ++depth;
      }
    }
  }
  out[T] = bad;
}
// ---- run_formulas: eight formulas in turn, so that each warp decodes eight programs at once; or a warp a formula; expected 4 times
template <int V> __global__ void __launch_bounds__(256) run_formulas(const float* a, float* out, int length) {
  __shared__ unsigned char code[8][65];
  for (int i = threadIdx.x; i < 8 * length; i += 256) code[i / length][i % length] = (unsigned char)(mix((blockIdx.x & 63) * 512 + i) % 6);
  __syncthreads();
  int formula = V == 0 ? threadIdx.x & 7 : threadIdx.x / 32, i = V == 0 ? threadIdx.x : (threadIdx.x & 31) * 8 + formula;
  float x = a[blockIdx.x * 256ll + i], y = 0.5f;
#pragma unroll 1
  for (int k = 0; k < length; ++k) {
    switch (code[formula][k]) {
      case 0:
#pragma unroll 1
        for (int r = 0; r < 6; ++r) y = fmaf(y, -0.5f * x, 0.9f), y = fmaf(y, 0.7f, 0.1f);
        break;
      case 1:
#pragma unroll 1
        for (int r = 0; r < 6; ++r) y = fabsf(y - 0.6f * x), y = fminf(y, 1.2f) * 0.9f;
        break;
      case 2:
#pragma unroll 1
        for (int r = 0; r < 6; ++r) x = fmaf(x, 0.8f, 0.1f * y), x = fmaxf(x, 0.05f);
        break;
      case 3:
#pragma unroll 1
        for (int r = 0; r < 6; ++r) y = __fdividef(y, fmaf(x, x, 1.0f)) + 0.2f;
        break;
      case 4:
#pragma unroll 1
        for (int r = 0; r < 6; ++r) y = __int_as_float((__float_as_int(y) & 0x3fffffff) | 0x200), x = fmaf(y, 0.3f, 0.4f * x);
        break;
      default:
#pragma unroll 1
        for (int r = 0; r < 6; ++r) y = y * (1.5f - 0.5f * y * y * x), y = fminf(fmaxf(y, 0.01f), 1.5f);
    }
  }
  out[blockIdx.x * 256ll + i] = x + y;
}
// ---- decay_muons: eight muons a thread, of 8 to 1,024 steps, and a warp begins the next one when its longest has ended; or each lane when its own has; expected 1.8 times
template <int V> __global__ void __launch_bounds__(256) decay_muons(const int* steps, unsigned* out, int muons) {
  auto born = [](int i) { return (unsigned)i * 747796405u + 1; };
  auto step = [](unsigned& x, unsigned& y) { y = __funnelshift_l(y ^ x, y ^ x, 7) + 0x9e3779b9u, x = x * 5 + y, y ^= x >> 9, x = x * 2654435761u + 77; };
  int i = (int)T;
  if (i >= muons) return;
  unsigned x = born(i), y = 1;
  int left = steps[i];
  if (V == 0) {
    for (;;) {
#pragma unroll 1
      for (int k = 0; k < left; ++k) step(x, y);
      out[i] = x ^ y, i += (int)STRIDE;
      if (i >= muons) return;
      x = born(i), y = 1, left = steps[i];
    }
  } else {
    for (;;) {
      if (left == 0) {
        out[i] = x ^ y, i += (int)STRIDE;
        if (i >= muons) return;
        x = born(i), y = 1, left = steps[i];
      }
      step(x, y), --left;
    }
  }
}
// ---- profiles_of_lines: an exponential for each of 64 bins of a line; or a product of two ratios; expected 2 times
template <int V> __global__ void __launch_bounds__(256) profiles_of_lines(const float* centre, float* out, int each) {
  auto power = [](float x) {  // of two
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  };
  __shared__ __align__(16) float response[64];
  if (threadIdx.x < 64) response[threadIdx.x] = 0.5f + 0.01f * threadIdx.x;
  __syncthreads();
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    float at = centre[n * STRIDE + T] * 32 + 16, by = -0.004f, g = power(by * at * at), ratio = power(by * (1 - 2 * at)), more = power(2 * by);
#pragma unroll
    for (int k = 0; k < 64; ++k) {
      if (V == 0) {
        float d = k - at;
        s = fmaf(response[k], power(by * d * d), s);
      } else {
        s = fmaf(response[k], g, s), g *= ratio, ratio *= more;
      }
    }
  }
  out[T] = s;
}
// ---- invert_impedances: eight reciprocals a round; or that of their product; expected 1.7 times
template <int V> __global__ void __launch_bounds__(256) invert_impedances(const float* a, float* out, int rounds) {
  auto inverse = [](float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  };
  float x[8], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[k * STRIDE + T];
#pragma unroll 1
  for (int n = 0; n < rounds; ++n) {
    float y[8], upto[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = x[k] + (0.6f + 0.1f * k), upto[k] = k ? upto[k - 1] * y[k] : y[k];
    if (V == 0) {
#pragma unroll
      for (int k = 0; k < 8; ++k) x[k] = inverse(y[k]);
    } else {
      float all = inverse(upto[7]);
#pragma unroll
      for (int k = 7; k; --k) x[k] = all * upto[k - 1], all *= y[k];
      x[0] = all;
    }
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) s = fmaf(s, 0.9f, x[k]);
  out[T] = s;
}
// ---- spectra_of_swell: literals of doubles, and so eight exponentials of doubles for each sea; expected 3 times
template <class R> __global__ void __launch_bounds__(256) spectra_of_swell(const float* height, const float* period, float* out) {
  float h = height[T], p = period[T], s = 0;
#pragma unroll 1
  for (int k = 0; k < 8; ++k) {
    float x = p * (0.3f + 0.1f * k);
    s = (float)(s + h * exp((R)-1.25 * x * x) * (x + (R)0.1));
  }
  out[T] = s;
}
// ---- cool_plasmas: a step of floats with three literals of doubles; expected 4 times
template <class R> __global__ void __launch_bounds__(256) cool_plasmas(const float* a, float* out, int steps) {
  float t = a[T];
#pragma unroll 4
  for (int n = 0; n < steps; ++n) t = (float)(t + (R)0.013 * ((R)0.71 - t) * (t + (R)0.37));
  out[T] = t;
}
// ---- phases_of_pulsars: eight remainders of 64 bits, by periods known at run time; or products with their inverses; expected 3 times
struct Periods {
  u64 ticks[8];
  double inverse[8];
};
template <int V> __global__ void __launch_bounds__(256) phases_of_pulsars(const unsigned* arrival, unsigned* out, Periods period) {
  u64 t = (u64)arrival[T] << 12 | (unsigned)(T & 4095);
  double of = (double)t;
  unsigned s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    i64 own = (i64)period.ticks[k], phase;
    if (V == 0) {
      phase = (i64)(t % (u64)own);
    } else {
      phase = (i64)t - (i64)(of * period.inverse[k]) * own;
      phase += phase < 0 ? own : phase >= own ? -own : 0;
    }
    s = s * 31 + (unsigned)phase;
  }
  out[T] = s;
}
// ---- balance_ledgers: one sum of doubles in one warp a scheduler; or eight; expected 3 times
template <int SUMS> __global__ void __launch_bounds__(128) balance_ledgers(const float* a, float* out, int rounds) {
  __shared__ __align__(16) double entry[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) entry[i] = a[i] - 0.25f;
  __syncthreads();
  double s[SUMS] = {}, all = 0, by = 1 + 1e-3 * threadIdx.x;
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 16
    for (int i = 0; i < 1024; ++i) s[i % SUMS] = fma(entry[i], by, s[i % SUMS]);
#pragma unroll
  for (int k = 0; k < SUMS; ++k) all += s[k];
  out[T] = (float)all;
}
// ---- couple_ladders: eight continued fractions, one after the other in one warp a scheduler; or four at once; expected 2.5 times
template <int WAYS> __global__ void __launch_bounds__(128) couple_ladders(const float* a, float* out, int rungs) {
  auto inverse = [](float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  };
  __shared__ float series[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) series[i] = a[i] + 0.5f;
  __syncthreads();
  float all = 0;
#pragma unroll 1
  for (int c = 0; c < 8; c += WAYS) {
    float y[WAYS], by[WAYS];
#pragma unroll
    for (int w = 0; w < WAYS; ++w) y[w] = 1, by[w] = 0.2f + 0.001f * (float)((T * 8 + c + w) & 511);
#pragma unroll 4
    for (int k = 0; k < rungs; ++k) {
      float z = series[k & 1023];
#pragma unroll
      for (int w = 0; w < WAYS; ++w) y[w] = fmaf(by[w], inverse(y[w]), z);
    }
#pragma unroll
    for (int w = 0; w < WAYS; ++w) all += y[w];
  }
  out[T] = all;
}
// ---- grow_ferns: 64 stages, each with code of its own, 300 kB in all, and warps that begin at different ones; or one loop; expected 1.7 times
__device__ inline void grow(unsigned& x, unsigned& y, unsigned key) { x = (x ^ key) * 0x85ebca6bu + y, y = (y + (key ^ 0x5bd1e995u)) ^ x >> 15; }
template <unsigned STAGE> __device__ __forceinline__ void grow_stage(unsigned& x, unsigned& y) {
#pragma unroll
  for (unsigned k = 0; k < 64; ++k) grow(x, y, (STAGE * 64 + k) * 0x9e3779b9u);
}
template <int V> __global__ void __launch_bounds__(256) grow_ferns(const unsigned* a, unsigned* out, int stages) {
  unsigned x = a[T], y = x * 2654435761u, stage = (unsigned)(T / 32) * 23 & 63;
#pragma unroll 1
  for (int n = 0; n < stages; ++n, stage = (stage + 1) & 63) {
    if (V == 1) {
#pragma unroll 8
      for (unsigned k = 0; k < 64; ++k) grow(x, y, (stage * 64 + k) * 0x9e3779b9u);
      continue;
    }
#define ONE(s) case s: grow_stage<s>(x, y); break;
#define FOUR(s) ONE(s) ONE(s + 1) ONE(s + 2) ONE(s + 3)
#define SIXTEEN(s) FOUR(s) FOUR(s + 4) FOUR(s + 8) FOUR(s + 12)
    switch (stage) { SIXTEEN(0) SIXTEEN(16) SIXTEEN(32) SIXTEEN(48) }
  }
  out[T] = x ^ y;
}

void compute_cases() {
  static int* lives;
  static Periods periods;
  const int muons = 1056 * 256 * 8;
  cases.push_back({"track_satellites", "register_spills", "", [] { track_satellites<6><<<792, 256>>>(A, C, 16); }, [] { track_satellites<2><<<792, 256>>>(A, C, 16); }, C, 792 * 256});
  cases.push_back({"grow_factorials", "local_array", "", [] { grow_factorials<0><<<1056, 256>>>((unsigned*)C, 48, 20); }, [] { grow_factorials<1><<<1056, 256>>>((unsigned*)C, 48, 20); }, C, 1056 * 256, true});
  cases.push_back({"match_brackets", "local_array", "divergence", [] { match_brackets<0><<<1056, 256>>>((unsigned*)A, (int*)C, 32); }, [] { match_brackets<1><<<1056, 256>>>((unsigned*)A, (int*)C, 32); }, C, 1056 * 256, true});
  cases.push_back({"run_formulas", "divergence", "", [] { run_formulas<0><<<4096, 256>>>(A, C, 32); }, [] { run_formulas<1><<<4096, 256>>>(A, C, 32); }, C, 1 << 20});
  cases.push_back({"decay_muons", "divergence", "", [] { decay_muons<0><<<1056, 256>>>(lives, (unsigned*)C, muons); }, [] { decay_muons<1><<<1056, 256>>>(lives, (unsigned*)C, muons); }, C, muons, true, [] {
    std::vector<int> v(muons);
    for (int i = 0; i < muons; ++i) {
      double u = (mix((unsigned)i + 5) >> 8) * 0x1p-24;
      v[i] = 8 + (int)(1016 * u * u * u * u);
    }
    lives = upload(v);
  }});
  cases.push_back({"profiles_of_lines", "special_functions", "", [] { profiles_of_lines<0><<<1056, 256>>>(A, C, 16); }, [] { profiles_of_lines<1><<<1056, 256>>>(A, C, 16); }, C, 1056 * 256});
  cases.push_back({"invert_impedances", "special_functions", "", [] { invert_impedances<0><<<1056, 256>>>(A, C, 128); }, [] { invert_impedances<1><<<1056, 256>>>(A, C, 128); }, C, 1056 * 256});
  cases.push_back({"spectra_of_swell", "fp64_by_accident", "", [] { spectra_of_swell<double><<<8192, 256>>>(A, B, C); }, [] { spectra_of_swell<float><<<8192, 256>>>(A, B, C); }, C, 1 << 21});
  cases.push_back({"cool_plasmas", "fp64_by_accident", "", [] { cool_plasmas<double><<<2112, 256>>>(A, C, 256); }, [] { cool_plasmas<float><<<2112, 256>>>(A, C, 256); }, C, 2112 * 256});
  cases.push_back({"phases_of_pulsars", "integer_division", "", [] { phases_of_pulsars<0><<<16384, 256>>>((unsigned*)A, (unsigned*)C, periods); }, [] { phases_of_pulsars<1><<<16384, 256>>>((unsigned*)A, (unsigned*)C, periods); }, C, 1 << 22, true, [] {
    for (int k = 0; k < 8; ++k) periods.ticks[k] = 1234577ull * (k + 3) + 12345, periods.inverse[k] = 1.0 / (double)periods.ticks[k];
  }});
  cases.push_back({"balance_ledgers", "dependent_chain", "", [] { balance_ledgers<1><<<132, 128>>>(A, C, 16); }, [] { balance_ledgers<8><<<132, 128>>>(A, C, 16); }, C, 132 * 128});
  cases.push_back({"couple_ladders", "dependent_chain", "", [] { couple_ladders<1><<<132, 128>>>(A, C, 512); }, [] { couple_ladders<4><<<132, 128>>>(A, C, 512); }, C, 132 * 128});
  cases.push_back({"grow_ferns", "instruction_cache", "", [] { grow_ferns<0><<<528, 256>>>((unsigned*)A, (unsigned*)C, 128); }, [] { grow_ferns<1><<<528, 256>>>((unsigned*)A, (unsigned*)C, 128); }, C, 528 * 256, true});
  spread_cases();
}
