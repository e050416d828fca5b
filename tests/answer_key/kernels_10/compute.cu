// Instructions: ballots, hands of cards, strings, effects, passwords, masts, voices, wavetables, filters, folded products, pools.
#include "set.h"

void spread_cases();  // spread.cu

// ---- order_ballots: a network that sorts 64 values a thread, capped at 48 registers; expected 5 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) order_ballots(const float* a, float* out, int rounds) {
  float v[64], s = 0;
#pragma unroll
  for (int k = 0; k < 64; ++k) v[k] = a[k * STRIDE + T];
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int run = 2; run <= 64; run *= 2)
#pragma unroll
      for (int apart = run / 2; apart; apart /= 2)
#pragma unroll
        for (int i = 0; i < 64; ++i)
          if (!(i & apart)) {
            float low = fminf(v[i], v[i | apart]), high = fmaxf(v[i], v[i | apart]);
            v[i] = i & run ? high : low, v[i | apart] = i & run ? low : high;
          }
#pragma unroll
    for (int k = 0; k < 64; ++k) v[k] = fmaf(v[k], (k & 3) * 0.3f - 0.4f, 0.5f);
  }
#pragma unroll
  for (int k = 0; k < 64; ++k) s = fmaf(s, 0.9f, v[k]);
  out[T] = s;
}
// ---- shuffle_hands: a deck of 32 cards a thread, swapped at random places of an array; or a column of shared memory; expected 5 times
template <int V> __global__ void __launch_bounds__(128) shuffle_hands(int* out, int rounds) {
  __shared__ int shared[V == 0 ? 1 : 32 * 128];
  int own[V == 0 ? 32 : 1], s = 0;
  auto card = [&](int k) -> int& { return V == 0 ? own[k] : shared[k * 128 + threadIdx.x]; };
  for (int k = 0; k < 32; ++k) card(k) = k;
  unsigned h = mix((unsigned)T + 1);
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 1
    for (int k = 31; k; --k) {
      h = h * 1664525u + 1013904223u;
      int with = (int)((h >> 16) * (unsigned)(k + 1) >> 16), c = card(k);
      card(k) = card(with), card(with) = c;
    }
#pragma unroll 1
  for (int k = 0; k < 32; ++k) s = s * 3 + card(k);
  out[T] = s;
}
// ---- pluck_strings: a delay line of 24 samples a thread whose place is known at run time; or as a constant, in registers; expected 3 times
template <int V> __global__ void __launch_bounds__(256) pluck_strings(const float* a, float* out, int rounds) {
  float line[24], s = 0;
#pragma unroll
  for (int k = 0; k < 24; ++k) line[k] = a[k * STRIDE + T];
  if (V == 0) {
    int at = 0;
#pragma unroll 1
    for (int n = 0; n < rounds * 24; ++n) {
      int next = at == 23 ? 0 : at + 1;
      float y = 0.498f * (line[at] + line[next]);
      line[at] = y, s = fmaf(y, y, s), at = next;
    }
  } else {
#pragma unroll 1
    for (int n = 0; n < rounds; ++n)
#pragma unroll
      for (int at = 0; at < 24; ++at) {
        float y = 0.498f * (line[at] + line[at == 23 ? 0 : at + 1]);
        line[at] = y, s = fmaf(y, y, s);
      }
  }
  out[T] = s;
}
// ---- apply_effects: eight effects whose samples are interleaved, so each warp takes eight ways; or a warp an effect; expected 5 times
__device__ inline float with_effect(float x, int kind) {
  float y = x;
  switch (kind) {
    case 0:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = fmaf(y, fmaf(-0.4f * y, y, 1.3f), 0.01f), y = fmaf(y, 0.9f, x * 0.1f);
      break;
    case 1:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = fminf(fmaxf(fmaf(y, 1.7f, -0.4f), -0.8f), 0.8f), y = fmaf(fabsf(y), 0.7f, x);
      break;
    case 2:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = rsqrtf(fmaf(y, y, 1.1f)), y = fmaf(y, 0.3f, x);
      break;
    case 3:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = fmaf(y, 0.6f, x), y = y - truncf(y);
      break;
    case 4:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = __int_as_float((__float_as_int(fmaf(y, 0.25f, 1.0f)) & 0x3fffff00) | 0x80), y = y - 0.9f * x;
      break;
    case 5:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = __cosf(y) * 0.8f, y = fmaf(y, 0.5f, x * x);
      break;
    case 6:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = y > 0.5f ? 1 - y : y * 1.5f, y = fmaf(y, 0.95f, 0.02f * x);
      break;
    default:
#pragma unroll 1
      for (int k = 0; k < 40; ++k) y = fmaf(fmaf(fmaf(y, 0.1f, -0.3f), y, 0.2f), y, x), y *= 0.7f;
  }
  return y;
}
template <int V> __global__ void __launch_bounds__(256) apply_effects(const float* a, float* out) {
  int kind = V == 0 ? threadIdx.x & 7 : threadIdx.x / 32, i = V == 0 ? threadIdx.x : (threadIdx.x & 31) * 8 + kind;
  out[blockIdx.x * 256ll + i] = with_effect(a[blockIdx.x * 256ll + i], kind);
}
// ---- stretch_passwords: 16 to 2,064 rounds, few of them many, in the order of arrival; or sorted by their number; expected 3.5 times
__global__ void __launch_bounds__(256) stretch_passwords(const int* order, const int* rounds, unsigned* out) {
  int id = order[T], n = rounds[id];
  unsigned x = (unsigned)id * 747796405u + 1, y = 0x2545f491u;
#pragma unroll 1
  for (int k = 0; k < n; ++k) y = __funnelshift_l(y ^ x, y ^ x, 7) + 0x9e3779b9u, x = x * 5 + y;
  out[id] = x ^ y;
}
// ---- strongest_masts: a root and a logarithm for each mast; or the least square of a distance, and then both once; expected 3 times
template <int V> __global__ void __launch_bounds__(256) strongest_masts(const float2* place, const float2* mast, float* out, int masts) {
  __shared__ float2 all[256];
  all[threadIdx.x] = mast[threadIdx.x];
  __syncthreads();
  float2 p = place[T];
  float most = -1e30f, least = 1e30f;
  auto strength = [](float square) {
    float d;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(d) : "f"(square + 1e-6f));
    return fmaf(-20, __log10f(d), 43.0f);
  };
#pragma unroll 8
  for (int k = 0; k < masts; ++k) {
    float x = p.x - all[k].x, y = p.y - all[k].y, square = fmaf(x, x, y * y);
    if (V == 0) most = fmaxf(most, strength(square));
    else least = fminf(least, square);
  }
  out[T] = V == 0 ? most : strength(least);
}
// ---- pan_voices: a literal of a double, and so eight cosines of doubles for each sample; expected 2.5 times
template <class R> __global__ void __launch_bounds__(256) pan_voices(const float* sample, const float* pan, float* out) {
  float v = sample[T], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) s = (float)(s * (R)0.5 + v * cospi((R)0.5 * pan[T] - (R)0.125 * k));
  out[T] = s;
}
// ---- read_wavetables: a remainder by a length known at run time for each of 64 reads; or a comparison and a subtraction; expected 2 times
template <int V> __global__ void __launch_bounds__(256) read_wavetables(const float* wave, float* out, int length, int step) {
  __shared__ float all[1024];
  for (int i = threadIdx.x; i < length; i += 256) all[i] = wave[i];
  __syncthreads();
  int first = (blockIdx.x & 511) + threadIdx.x, at = first;
  float s = 0;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    if (V == 0) at = (first + k * step) % length;
    s = fmaf(s, 0.9f, all[at]);
    if (V == 1) at += step, at -= at >= length ? length : 0;
  }
  out[T] = s;
}
// ---- saturate_filters: a filter with feedback through a saturation, one channel after the other in four warps an SM; or four channels at once; expected 2.5 times
template <int WAYS> __global__ void __launch_bounds__(128) saturate_filters(const float* signal, float* out, int rounds) {
  __shared__ float x[1024];
  for (int i = threadIdx.x; i < 1024; i += 128) x[i] = signal[i] - 0.5f;
  __syncthreads();
  float all = 0;
#pragma unroll 1
  for (int c = 0; c < 4; c += WAYS) {
    float y[WAYS] = {}, s[WAYS] = {}, gain[WAYS];
#pragma unroll
    for (int w = 0; w < WAYS; ++w) gain[w] = 0.1f + (float)((T * 4 + c + w) & 4095) * 0.0001f;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll 4
      for (int i = 0; i < 1024; ++i) {
        float in = x[i];
#pragma unroll
        for (int w = 0; w < WAYS; ++w) {
          float d = in - y[w];
          y[w] = fmaf(gain[w], d * fmaf(-0.3f, d * d, 1.0f), y[w]), s[w] = fmaf(y[w], y[w], s[w]);
        }
      }
#pragma unroll
    for (int w = 0; w < WAYS; ++w) all += s[w];
  }
  out[T] = all;
}
// ---- fold_products: products on tensor cores that all add to one tile, in one warp a scheduler; or to four tiles; expected 3 times
template <int TILES> __global__ void __launch_bounds__(128) fold_products(const unsigned* a, float4* out, int steps) {
  unsigned left[4][4], right[4][2];
  float s[TILES][4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) left[k][i] = (a[(k * 6 + i) * STRIDE + T] & 0x007f007fu) | 0x3f003f00u;  // two of BF16 in [0.5, 1)
#pragma unroll
    for (int i = 0; i < 2; ++i) right[k][i] = (a[(k * 6 + 4 + i) * STRIDE + T] & 0x007f007fu) | 0x3e003e00u;
  }
#pragma unroll 1
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float* d = s[k % TILES];
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(left[k][0]), "r"(left[k][1]), "r"(left[k][2]), "r"(left[k][3]), "r"(right[k][0]), "r"(right[k][1]));
    }
  float4 all = {0, 0, 0, 0};
#pragma unroll
  for (int k = 0; k < TILES; ++k) all.x += s[k][0], all.y += s[k][1], all.z += s[k][2], all.w += s[k][3];
  out[T] = all;
}
// ---- stir_pools: 512 rounds of a mixing step unrolled into 200 kB of code; or a loop of one; expected 1.5 times
template <int UNROLL> __global__ void __launch_bounds__(256) stir_pools(const unsigned* in, unsigned* out, int passes) {
  unsigned x[12], s = 0;
#pragma unroll
  for (int k = 0; k < 12; ++k) x[k] = in[k * STRIDE + T];
#pragma unroll 1
  for (int p = 0; p < passes; ++p)
#pragma unroll UNROLL
    for (unsigned r = 0; r < 512; ++r) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        unsigned u = __funnelshift_l(x[k], x[k], 24), v = __funnelshift_l(x[k + 4], x[k + 4], 9), w = x[k + 8];
        x[k + 8] = u ^ w << 1 ^ (v & w) << 2, x[k + 4] = v ^ u ^ (u | w) << 1, x[k] = w ^ v ^ (u & v) << 3;
      }
      unsigned u = x[0];
      x[0] = x[1] + r * 0x9e3779b9u, x[1] = u, u = x[2], x[2] = x[3], x[3] = u;
    }
#pragma unroll
  for (int k = 0; k < 12; ++k) s ^= x[k];
  out[T] = s;
}

void compute_cases() {
  static int *arrivals, *sorted, *rounds;
  const int passwords = 1 << 19;
  cases.push_back({"order_ballots", "register_spills", "", [] { order_ballots<5><<<660, 256>>>(A, C, 2); }, [] { order_ballots<2><<<660, 256>>>(A, C, 2); }, C, 660 * 256});
  cases.push_back({"shuffle_hands", "local_array", "", [] { shuffle_hands<0><<<2112, 128>>>((int*)C, 4); }, [] { shuffle_hands<1><<<2112, 128>>>((int*)C, 4); }, C, 2112 * 128, true});
  cases.push_back({"pluck_strings", "local_array", "", [] { pluck_strings<0><<<1056, 256>>>(A, C, 32); }, [] { pluck_strings<1><<<1056, 256>>>(A, C, 32); }, C, 1056 * 256});
  cases.push_back({"apply_effects", "divergence", "", [] { apply_effects<0><<<16384, 256>>>(A, C); }, [] { apply_effects<1><<<16384, 256>>>(A, C); }, C, 1 << 22});
  cases.push_back({"stretch_passwords", "divergence", "", [] { stretch_passwords<<<passwords / 256, 256>>>(arrivals, rounds, (unsigned*)C); }, [] { stretch_passwords<<<passwords / 256, 256>>>(sorted, rounds, (unsigned*)C); }, C, passwords, true, [] {
    std::vector<int> order(passwords), many(passwords), first(passwords);
    for (int i = 0; i < passwords; ++i) {
      double u = (mix((unsigned)i + 9) >> 8) * 0x1p-24;
      many[i] = 16 + (int)(2048 * u * u * u * u), order[i] = i;
    }
    first = order;
    std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return many[i] > many[j]; });
    arrivals = upload(first), sorted = upload(order), rounds = upload(many);
  }});
  cases.push_back({"strongest_masts", "special_functions", "", [] { strongest_masts<0><<<4096, 256>>>((float2*)A, (float2*)B, C, 256); }, [] { strongest_masts<1><<<4096, 256>>>((float2*)A, (float2*)B, C, 256); }, C, 1 << 20});
  cases.push_back({"pan_voices", "fp64_by_accident", "", [] { pan_voices<double><<<16384, 256>>>(A, B, C); }, [] { pan_voices<float><<<16384, 256>>>(A, B, C); }, C, 1 << 22});
  cases.push_back({"read_wavetables", "integer_division", "", [] { read_wavetables<0><<<8192, 256>>>(A, C, 1000, 37); }, [] { read_wavetables<1><<<8192, 256>>>(A, C, 1000, 37); }, C, 1 << 21});
  cases.push_back({"saturate_filters", "dependent_chain", "", [] { saturate_filters<1><<<132, 128>>>(A, C, 3); }, [] { saturate_filters<4><<<132, 128>>>(A, C, 3); }, C, 132 * 128});
  cases.push_back({"fold_products", "dependent_chain", "", [] { fold_products<1><<<132, 128>>>((unsigned*)A, (float4*)C, 2048); }, [] { fold_products<4><<<132, 128>>>((unsigned*)A, (float4*)C, 2048); }, C, 132 * 512});
  cases.push_back({"stir_pools", "instruction_cache", "", [] { stir_pools<512><<<528, 256>>>((unsigned*)A, (unsigned*)C, 2); }, [] { stir_pools<1><<<528, 256>>>((unsigned*)A, (unsigned*)C, 2); }, C, 528 * 256, true});
  spread_cases();
}
