// Codecs, ciphers, number theory and orbits: arithmetic, branches, registers and tables.
#include "set.h"

namespace {

// A decoder whose symbols need four kinds of work, mixed within a warp or sorted into runs of a warp.
__device__ uint32_t decode_symbol(int kind, uint32_t x, int rounds) {
  switch (kind) {
    case 0:
      for (int k = 0; k < rounds; ++k) x = __funnelshift_l(x, x, 7) + 0x9e3779b9u;
      return x;
    case 1:
      for (int k = 0; k < rounds; ++k) x = (x ^ x >> 3) * 0x85ebca6bu;
      return x;
    case 2:
      for (int k = 0; k < rounds; ++k) x = __byte_perm(x, x + k, 0x2103) ^ 0x5bd1e995u;
      return x;
    default:
      for (int k = 0; k < rounds; ++k) x = __brev(x) - (x << 2);
      return x;
  }
}
template <int FIXED>
__global__ void decode_mixed(const uint32_t* in, uint32_t* out, int count, int rounds) {
  for (i64 i = T; i < count; i += STRIDE) out[i] = decode_symbol(FIXED ? i / 32 & 3 : i & 3, in[i], rounds);
}

// Greatest common divisors by subtraction; every fourth pair takes 16 times as many steps. Fixed: long pairs stand together.
template <int FIXED>
__global__ void divisors_of_pairs(int* out, int count) {
  for (i64 i = T; i < count; i += STRIDE) {
    const bool is_long = FIXED ? i / 32 % 4 == 0 : i % 4 == 0;
    int a = is_long ? 1024 : 64, b = 1;
    while (a != b) { if (a > b) a -= b; else b -= a; }
    out[i] = a;
  }
}

// x^65537 modulo a number that the host passes: by %, or by a multiplication with its reciprocal.
template <int FIXED>
__global__ void power_modulo(const uint32_t* in, uint32_t* out, int count, uint32_t p, u64 reciprocal) {
  auto modulo = [&](u64 v) {
    if (!FIXED) return uint32_t(v % p);
    u64 r = v - __umul64hi(v, reciprocal) * p;
    return uint32_t(r >= p ? r - p : r);
  };
  for (i64 i = T; i < count; i += STRIDE) {
    const uint32_t x = in[i] % p;
    uint32_t y = x;
    for (int k = 0; k < 16; ++k) y = modulo(u64(y) * y);
    out[i] = modulo(u64(y) * x);
  }
}

// One term of a Fourier sum for each thread: sine and cosine for each sample, or a rotation by a fixed angle.
template <int FIXED>
__global__ void __launch_bounds__(256) fourier_term(const float* sample, float* out, int samples) {
  __shared__ float own[512];
  for (int i = threadIdx.x; i < 512; i += 256) own[i] = sample[i];
  __syncthreads();
  const float angle = 1e-5f * T;
  float re = 0, im = 0, c = 1, s = 0;
  const float dc = __cosf(angle), ds = __sinf(angle);
#pragma unroll 4
  for (int k = 0; k < samples; ++k) {
    if (!FIXED) c = __cosf(angle * k), s = __sinf(angle * k);
    const float v = own[k & 511];
    re = fmaf(v, c, re), im = fmaf(v, s, im);
    if (FIXED) { const float t = c * dc - s * ds; s = s * dc + c * ds, c = t; }
  }
  out[T] = re * re + im * im;
}

// RC4: each thread permutes its own 256 bytes, in local memory or in shared memory.
template <int FIXED>
__global__ void __launch_bounds__(64) rc4(uint32_t* out, int length) {
  __shared__ uint8_t shared[FIXED ? 256 * 64 : 64];
  uint8_t local[FIXED ? 1 : 256];
  auto s = [&](int i) -> uint8_t& { return FIXED ? shared[(i * 64 + threadIdx.x) % (FIXED ? 16384 : 64)] : local[FIXED ? 0 : i]; };
  const uint32_t key = mix(uint32_t(T));
  for (int i = 0; i < 256; ++i) s(i) = uint8_t(i);
  int j = 0;
  for (int i = 0; i < 256; ++i) {
    j = (j + s(i) + (key >> (i % 4 * 8))) & 255;
    const uint8_t t = s(i);
    s(i) = s(j), s(j) = t;
  }
  uint32_t sum = 0;
  int i = 0;
  j = 0;
  for (int k = 0; k < length; ++k) {
    i = (i + 1) & 255;
    const uint8_t a = s(i);
    j = (j + a) & 255;
    const uint8_t b = s(j);
    s(i) = b, s(j) = a;
    sum = sum * 31 + s((a + b) & 255);
  }
  out[T] = sum;
}

// SHA-256 of two messages a thread. The cap of 32 registers cannot hold their schedules of 16 words and states of 8.
template <int FIXED>
__global__ void __launch_bounds__(FIXED ? 256 : 1024, 2) sha256(const uint32_t* in, uint32_t* out, int count, int rounds) {
  for (i64 i = T; i < count; i += STRIDE) {
    uint32_t w[2][16], h[2][8], digest = 0;
#pragma unroll
    for (int k = 0; k < 32; ++k) w[k / 16][k % 16] = in[i64(k) * count + i];
#pragma unroll
    for (int k = 0; k < 16; ++k) h[k / 8][k % 8] = 0x6a09e667u + k * 0x3c6ef372u;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
      for (int k = 0; k < 32; ++k) {
        uint32_t *v = w[k & 1], *s = h[k & 1];
        const int j = k / 2;
        const uint32_t e = s[4], a = s[0], x = v[(j + 1) % 16], y = v[(j + 14) % 16];
        const uint32_t s1 = __funnelshift_r(e, e, 6) ^ __funnelshift_r(e, e, 11) ^ __funnelshift_r(e, e, 25);
        const uint32_t s0 = __funnelshift_r(a, a, 2) ^ __funnelshift_r(a, a, 13) ^ __funnelshift_r(a, a, 22);
        const uint32_t t1 = s[7] + s1 + ((e & s[5]) ^ (~e & s[6])) + v[j] + 0x428a2f98u * j;
        const uint32_t t2 = s0 + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        s[7] = s[6], s[6] = s[5], s[5] = e, s[4] = s[3] + t1, s[3] = s[2], s[2] = s[1], s[1] = a, s[0] = t1 + t2;
        v[j] += (__funnelshift_r(x, x, 7) ^ __funnelshift_r(x, x, 18) ^ x >> 3) + v[(j + 9) % 16] + (__funnelshift_r(y, y, 17) ^ __funnelshift_r(y, y, 19) ^ y >> 10);
      }
    }
#pragma unroll
    for (int k = 0; k < 16; ++k) digest ^= h[k / 8][k % 8] + k;
    out[i] = digest;
  }
}

// Kepler's equation by Newton's method on floats; its literals are double or float.
template <int FIXED>
__global__ void kepler(const float* anomaly, float* out, int count) {
  for (i64 i = T; i < count; i += STRIDE) {
    const float m = anomaly[i];
    float x = m;
    for (int k = 0; k < 6; ++k) {
      const float x2 = x * x;
      if (FIXED) {
        const float s = x * (1.0f - x2 * (0.16666667f - x2 * 0.008333333f)), c = 1.0f - x2 * (0.5f - x2 * 0.041666667f);
        x -= (x - 0.3f * s - m) / (1.0f - 0.3f * c);
      } else {
        const float s = x * (1.0 - x2 * (0.16666667 - x2 * 0.008333333)), c = 1.0 - x2 * (0.5 - x2 * 0.041666667);
        x -= (x - 0.3 * s - m) / (1.0 - 0.3 * c);
      }
    }
    out[i] = x;
  }
}

// A long polynomial at one point a thread, term after term, or as eight interleaved sums; one block an SM.
template <int FIXED>
__global__ void __launch_bounds__(128) long_polynomial(const float* x, float* out, int terms) {
  const float v = x[T] * 0.5f;
  float sum;
  if (FIXED) {
    float part[8], v8 = v * v;
    v8 *= v8, v8 *= v8;
#pragma unroll
    for (int j = 0; j < 8; ++j) part[j] = 0;
    for (int k = 0; k < terms; k += 8)
#pragma unroll
      for (int j = 0; j < 8; ++j) part[j] = fmaf(part[j], v8, 1.0f);
    sum = part[7];
#pragma unroll
    for (int j = 6; j >= 0; --j) sum = fmaf(sum, v, part[j]);
  } else {
    sum = 0;
#pragma unroll 8
    for (int k = 0; k < terms; ++k) sum = fmaf(sum, v, 1.0f);
  }
  out[T] = sum;
}

// A cipher's substitution table, in constant memory or in shared memory; lanes look up different words.
__constant__ uint32_t TABLE[1024];
template <int FIXED>
__global__ void __launch_bounds__(256) substitute(const uint32_t* in, uint32_t* out, int count) {
  __shared__ uint32_t own[1024];
  if (FIXED) {
    for (int i = threadIdx.x; i < 1024; i += 256) own[i] = TABLE[i];
    __syncthreads();
  }
  auto at = [&](int i) { return FIXED ? own[i] : TABLE[i]; };
  for (i64 i = T; i < count; i += STRIDE) {
    uint32_t x = in[i];
#pragma unroll
    for (int r = 0; r < 4; ++r) x = at(x & 255) ^ at(256 + (x >> 8 & 255)) ^ at(512 + (x >> 16 & 255)) ^ at(768 + (x >> 24));
    out[i] = x;
  }
}

// Rounds of a block cipher, all unrolled or a loop over them.
template <int FIXED>
__global__ void __launch_bounds__(256) block_cipher(const uint2* in, uint2* out) {
  uint2 v = in[T];
  uint32_t sum = 0;
  constexpr int STEP = FIXED ? 4 : 4096;
#pragma unroll 1
  for (int k = 0; k < 8192; k += STEP)
#pragma unroll
    for (int r = 0; r < STEP; ++r) {
      v.x += ((v.y << 4) + 0xa341316cu) ^ (v.y + sum) ^ ((v.y >> 5) + 0xc8013ea4u);
      sum += 0x9e3779b9u;
      v.y += ((v.x << 4) + 0xad90777du) ^ (v.x + sum) ^ ((v.x >> 5) + 0x7e95761eu);
    }
  out[T] = v;
}

}  // namespace

void compute_cases() {
  cases.push_back({"decode_mixed", "divergence", "", [] { decode_mixed<0><<<1056, 256>>>((uint32_t*)A, (uint32_t*)C, 1 << 21, 64); }, [] { decode_mixed<1><<<1056, 256>>>((uint32_t*)A, (uint32_t*)C, 1 << 21, 64); }});
  cases.push_back({"divisors_of_pairs", "divergence", "", [] { divisors_of_pairs<0><<<1056, 256>>>((int*)C, 1 << 20); }, [] { divisors_of_pairs<1><<<1056, 256>>>((int*)C, 1 << 20); }, C, 1 << 20, true});
  cases.push_back({"power_modulo", "integer_division", "", [] { power_modulo<0><<<1056, 256>>>((uint32_t*)A, (uint32_t*)C, 1 << 22, 4294967291u, ~0ull / 4294967291u); }, [] { power_modulo<1><<<1056, 256>>>((uint32_t*)A, (uint32_t*)C, 1 << 22, 4294967291u, ~0ull / 4294967291u); }, C, 1 << 22, true});
  cases.push_back({"fourier_term", "special_functions", "", [] { fourier_term<0><<<1056, 256>>>(A, C, 2048); }, [] { fourier_term<1><<<1056, 256>>>(A, C, 2048); }, C, 1056 * 256});
  cases.push_back({"rc4", "local_array", "", [] { rc4<0><<<2112, 64>>>((uint32_t*)C, 512); }, [] { rc4<1><<<2112, 64>>>((uint32_t*)C, 512); }, C, 2112 * 64, true});
  cases.push_back({"sha256", "register_spills", "", [] { sha256<0><<<264, 1024>>>((uint32_t*)A, (uint32_t*)C, 1 << 20, 16); }, [] { sha256<1><<<1056, 256>>>((uint32_t*)A, (uint32_t*)C, 1 << 20, 16); }, C, 1 << 20, true});
  cases.push_back({"kepler", "fp64_by_accident", "", [] { kepler<0><<<2112, 256>>>(A, C, 1 << 22); }, [] { kepler<1><<<2112, 256>>>(A, C, 1 << 22); }, C, 1 << 22});
  cases.push_back({"long_polynomial", "dependent_chain", "", [] { long_polynomial<0><<<132, 128>>>(A, C, 1 << 16); }, [] { long_polynomial<1><<<132, 128>>>(A, C, 1 << 16); }, C, 132 * 128});
  cases.push_back({"substitute", "constant_divergence", "", [] { substitute<0><<<1056, 256>>>((uint32_t*)A, (uint32_t*)C, 1 << 22); }, [] { substitute<1><<<1056, 256>>>((uint32_t*)A, (uint32_t*)C, 1 << 22); }, C, 1 << 22, true, [] {
    std::vector<uint32_t> table(1024);
    for (int k = 0; k < 1024; ++k) table[k] = mix(k + 1);
    CHECK(cudaMemcpyToSymbol(TABLE, table.data(), 4096));
  }});
  cases.push_back({"block_cipher", "instruction_cache", "", [] { block_cipher<0><<<1056, 256>>>((uint2*)A, (uint2*)C); }, [] { block_cipher<1><<<1056, 256>>>((uint2*)A, (uint2*)C); }, C, 1056 * 512, true});
}
