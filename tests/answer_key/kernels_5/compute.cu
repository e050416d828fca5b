// Long code, one chain, and functions of the special unit: gears, reactions, sums of checks, antennas, likelihoods.
#include "set.h"

// ---- a train of gears: 32 ratios in turn, written out 192 times or as a loop
template <int V> __global__ void __launch_bounds__(256) turn_gears(const float* a, float* out, int times) {
  float x = a[T], y = 0.5f;
  for (int t = 0; t < times; ++t) {
    if (V == 0) {
#pragma unroll
      for (int k = 0; k < 6144; ++k) x = fmaf(y, -0.01f - 0.003f * (k % 32), x), y = fmaf(x, 0.01f + 0.003f * (k % 32), y);
    } else {
#pragma unroll 1
      for (int j = 0; j < 192; ++j)
#pragma unroll
        for (int k = 0; k < 32; ++k) x = fmaf(y, -0.01f - 0.003f * k, x), y = fmaf(x, 0.01f + 0.003f * k, y);
    }
  }
  out[T] = x + y;
}
// ---- 24 reactions: the code of each, written out, or one loop over the rates of a block's own
__host__ __device__ constexpr float rate(int k, int rule) { return 0.01f + 0.003f * k + 0.0001f * rule; }
template <int RULE> __device__ __noinline__ float2 react(float2 v) {
#pragma unroll
  for (int k = 0; k < 768; ++k) v.x = fmaf(v.y, -rate(k % 32, RULE), v.x), v.y = fmaf(v.x, rate(k % 32, RULE), v.y);
  return v;
}
template <int RULE> __device__ float2 react_by(int rule, float2 v, int times) {
  if (rule == RULE) {
    for (int t = 0; t < times; ++t) v = react<RULE>(v);
    return v;
  }
  if constexpr (RULE > 0) return react_by<RULE - 1>(rule, v, times);
  return v;
}
template <int V> __global__ void __launch_bounds__(256) run_reactions(const float* a, float* out, int times) {
  int rule = (int)(mix(blockIdx.x) % 24);
  float2 v = {a[T], 0.5f};
  if (V == 0) {
    v = react_by<23>(rule, v, times);
  } else {
    float own[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) own[k] = rate(k, rule);
#pragma unroll 1
    for (int j = 0; j < times * 24; ++j)
#pragma unroll
      for (int k = 0; k < 32; ++k) v.x = fmaf(v.y, -own[k], v.x), v.y = fmaf(v.x, own[k], v.y);
  }
  out[T] = v.x + v.y;
}
// ---- the checks of four files a thread: one after another, or side by side
template <int SIDE_BY_SIDE> __global__ void __launch_bounds__(128) check_files(unsigned* out, int words) {
  for (int file = 0; file < 4; file += SIDE_BY_SIDE) {
    unsigned h[SIDE_BY_SIDE];
#pragma unroll
    for (int f = 0; f < SIDE_BY_SIDE; ++f) h[f] = 2166136261u + (unsigned)T;
#pragma unroll 8
    for (int k = 0; k < words; ++k)
#pragma unroll
      for (int f = 0; f < SIDE_BY_SIDE; ++f) h[f] = (h[f] ^ (k * 0x9e3779b9u + file + f)) * 16777619u;
#pragma unroll
    for (int f = 0; f < SIDE_BY_SIDE; ++f) out[(file + f) * STRIDE + T] = h[f] >> 8;
  }
}
// ---- the pattern of an antenna of 48 elements: cosine and sine of each, or turned from one to the next
template <int V> __global__ void __launch_bounds__(256) bearing_pattern(const float* a, float* out, int n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float u = a[i] * 0.5f, re = 0, im = 0;
    if (V == 0) {
#pragma unroll
      for (int k = 0; k < 48; ++k) {
        float phase = u * k, w = 1 - 0.01f * k;
        re = fmaf(w, __cosf(phase), re), im = fmaf(w, __sinf(phase), im);
      }
    } else {
      float c = 1, s = 0, cu = cosf(u), su = sinf(u);
#pragma unroll
      for (int k = 0; k < 48; ++k) {
        float w = 1 - 0.01f * k, t = c * cu - s * su;
        re = fmaf(w, c, re), im = fmaf(w, s, im);
        s = s * cu + c * su, c = t;
      }
    }
    out[i] = re * re + im * im;
  }
}
// ---- the likelihood of 32 observations: the sum of logarithms, or logarithms of products of eight
template <int OF> __global__ void __launch_bounds__(256) sum_of_logs(const float* a, float* out, int n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float x = a[i], s = 0;
#pragma unroll
    for (int k = 0; k < 32; k += OF) {
      float p = 1;
#pragma unroll
      for (int j = k; j < k + OF; ++j) p *= fmaf(x, 0.02f * (j + 1), 0.1f + 0.005f * j);
      s += __logf(p);
    }
    out[i] = s;
  }
}

void compute_cases() {
  cases.push_back({"turn_gears", "instruction_cache", "", [] { turn_gears<0><<<528, 256>>>(A, C, 2); }, [] { turn_gears<1><<<528, 256>>>(A, C, 2); }, C, 528 * 256});
  cases.push_back({"run_reactions", "instruction_cache", "", [] { run_reactions<0><<<1056, 256>>>(A, C, 8); }, [] { run_reactions<1><<<1056, 256>>>(A, C, 8); }, C, 1056 * 256});
  cases.push_back({"check_files", "dependent_chain", "", [] { check_files<1><<<132, 128>>>((unsigned*)C, 4096); }, [] { check_files<4><<<132, 128>>>((unsigned*)C, 4096); }, C, 4 * 132 * 128, true});
  cases.push_back({"bearing_pattern", "special_functions", "", [] { bearing_pattern<0><<<1056, 256>>>(A, C, 1 << 22); }, [] { bearing_pattern<1><<<1056, 256>>>(A, C, 1 << 22); }, C, 1 << 22});
  cases.push_back({"sum_of_logs", "special_functions", "", [] { sum_of_logs<1><<<1056, 256>>>(A, C, 1 << 24); }, [] { sum_of_logs<8><<<1056, 256>>>(A, C, 1 << 24); }, C, 1 << 24});
}
