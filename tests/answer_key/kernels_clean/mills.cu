// Roofs of arithmetic. Each grid is one full wave with equal work, 64 warps an SM (or 32), and the steps depend on values that no formula skips.
// An SM issues four instructions a cycle: FP32 and packed halves run at that rate, integers, logic and doubles at half of it, special functions, conversions and counts of bits at an eighth.
#include "frame.h"

// at the roof of FP32 and of issue slots, because all but 1 % of the instructions are its 8 for a step of an orbit
__global__ void __launch_bounds__(256, 8) orbit_butterfly_storms(const float* a, float* out, int steps) {
  float x[2], y[2], z[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) x[k] = a[k * STRIDE + T], y[k] = 1.0f + x[k], z[k] = 20.0f + x[k];
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float u = 0.005f * x[k], p = fmaf(0.05f, y[k], 0.95f * x[k]), q = fmaf(u, 28.0f - z[k], 0.995f * y[k]), r = fmaf(u, y[k], 0.98666f * z[k]);
      x[k] = p, y[k] = q, z[k] = r;
    }
  out[T] = (x[0] + y[0] + z[0]) + (x[1] + y[1] + z[1]);
}
// at the roof of FP32 and of issue slots, because its instructions are two FMAs a step of each of six points
__global__ void __launch_bounds__(256, 8) drift_strange_attractors(const float* a, float* out, int steps) {
  float x[6], y[6], s = 0, bend = -1.4f;
#pragma unroll
  for (int k = 0; k < 6; ++k) x[k] = 0.1f * a[T] + 0.01f * k, y[k] = 0.1f;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      float p = fmaf(x[k], x[k], y[k]);
      y[k] = fmaf(0.3f, x[k], bend), x[k] = p;
    }
#pragma unroll
  for (int k = 0; k < 6; ++k) s += x[k] + y[k];
  out[T] = s;
}
// at the roof of FP64, because it issues 4 of its instructions a step of each of four points, 2 cycles each
__global__ void __launch_bounds__(256, 4) zoom_double_fractals(const double2* a, double2* out, int steps) {
  double x[4], y[4];
  double2 c = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.01 * k, y[k] = 0.02 * k;
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      double p = fma(-y[k], y[k], fma(x[k], x[k], c.x));
      y[k] = fma(x[k] + x[k], y[k], c.y), x[k] = p;
    }
  out[T] = {(x[0] + x[1]) + (x[2] + x[3]), (y[0] + y[1]) + (y[2] + y[3])};
}
// at the roof of packed FP16, because it issues two of its instructions a generation of each of eight pairs of ponds
__global__ void __launch_bounds__(256, 8) stock_carp_ponds(const float* a, float2* out, int steps) {
  __half2 x[8], r = __float2half2_rn(3.7f), less = __float2half2_rn(-3.7f);
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = __float2half2_rn(0.1f + 0.1f * k * a[T]);
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __hmul2(x[k], __hfma2(less, x[k], r));
#pragma unroll
  for (int k = 1; k < 8; ++k) x[0] = __hadd2(x[0], x[k]);
  out[T] = __half22float2(x[0]);
}
// at the roof of packed BF16, because it issues one of its FMAs a step of each of eight pairs
__global__ void __launch_bounds__(256, 8) age_whisky_barrels(const float* a, float2* out, int steps) {
  __nv_bfloat162 x[8], c = __float2bfloat162_rn(-0.5f * a[T]);
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = __float2bfloat162_rn(0.1f * k);
#pragma unroll 8
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __hfma2(x[k], x[k], c);
#pragma unroll
  for (int k = 1; k < 8; ++k) x[0] = __hadd2(x[0], x[k]);
  out[T] = __bfloat1622float2(x[0]);
}
// at the roof of integer multiply-add, because it is the only instruction of a step of each of eight streams, 2 cycles each
__global__ void __launch_bounds__(256, 8) shake_dice_towers(const unsigned* a, unsigned* out, int steps) {
  unsigned x[8], s = 0, c = a[T] | 1;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = c + k * 7;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = x[k] * x[k] + c;
#pragma unroll
  for (int k = 0; k < 8; ++k) s ^= x[k];
  out[T] = s;
}
// at the roof of the integer multiplier, because each step needs the high word of a product, 4 cycles, and one LOP3, 2 cycles
__global__ void __launch_bounds__(256, 8) stamp_wax_seals(const unsigned* a, unsigned* out, int steps) {
  unsigned x[8], s = 0, c = a[T];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = c * (k + 3);
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __umulhi(x[k], 0xd2511f53u + k * 2) ^ x[(k + 1) & 7];
#pragma unroll
  for (int k = 0; k < 8; ++k) s ^= x[k];
  out[T] = s;
}
// at the roof of logic, because one LOP3 is all of a step of each of 16 registers of a cipher in slices of bits, 2 cycles each
__global__ void __launch_bounds__(256, 8) slice_cipher_registers(const unsigned* a, unsigned* out, int steps) {
  unsigned x[16], s = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) x[k] = a[T] * (k * 2 + 3);
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 16; ++k) x[k] ^= x[(k + 5) & 15] & x[(k + 9) & 15];
#pragma unroll
  for (int k = 0; k < 16; ++k) s ^= x[k];
  out[T] = s;
}
// at the roof of shifts and logic, because a step of each of eight words turns it by another word and mixes it, both at half rate
__global__ void __launch_bounds__(256, 8) dial_vault_tumblers(const unsigned* a, unsigned* out, int steps) {
  unsigned x[8], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[T] * (k * 2 + 3);
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __funnelshift_l(x[k], x[(k + 3) & 7], x[(k + 1) & 7]) ^ x[(k + 5) & 7];
#pragma unroll
  for (int k = 0; k < 8; ++k) s ^= x[k];
  out[T] = s;
}
// at the roof of counts of bits, because each code needs a POPC, 8 cycles a scheduler, beside two instructions of 2
__global__ void __launch_bounds__(256, 8) gauge_iris_codes(const unsigned* a, unsigned* out, int codes) {
  unsigned w[8], s[8] = {}, all = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) w[k] = a[k * STRIDE + T];
#pragma unroll 2
  for (int n = 0; n < codes; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) s[k] += __popc(w[k] ^ s[(k + 1) & 7]);
#pragma unroll
  for (int k = 0; k < 8; ++k) all = all * 3 + s[k];
  out[T] = all;
}
// at the roof of dot products of bytes, because a step of each of eight sums is one of them, 2 cycles each
__global__ void __launch_bounds__(256, 8) pair_probe_strands(const int* a, int* out, int steps) {
  int s[8], w[4], all = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) s[k] = a[T] + k;
#pragma unroll
  for (int k = 0; k < 4; ++k) w[k] = a[k * STRIDE + T];
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) s[k] = __dp4a(s[k], w[k & 3], s[(k + 1) & 7]);
#pragma unroll
  for (int k = 0; k < 8; ++k) all ^= s[k];
  out[T] = all;
}
// at the roof of integer minima and maxima, because a network of 16 words needs two for each of its pairs, 2 cycles each
__global__ void __launch_bounds__(256, 8) seed_tennis_draws(const int* a, int* out, int rounds) {
  int x[16], s = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) x[k] = a[T] * (k * 2 + 3);
#pragma unroll 1
  for (int n = 0; n < rounds; ++n) {
#pragma unroll
    for (int h = 1; h < 16; h *= 2)
#pragma unroll
      for (int k = 0; k < 16; ++k)
        if (!(k & h)) {
          int p = min(x[k], x[k | h]), q = max(x[k], x[k | h]);
          x[k] = p, x[k | h] = q;
        }
    x[0] = x[0] * 5 + x[15], x[7] ^= x[0];
  }
#pragma unroll
  for (int k = 0; k < 16; ++k) s = s * 3 + x[k];
  out[T] = s;
}
// at the roof of special functions, because a step of each of four beds is one exponential, 8 cycles, and one FMA
__global__ void __launch_bounds__(256, 8) glow_ember_beds(const float* a, float* out, int steps) {
  float x[4], r = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = power_of_two(fmaf(-r, x[k], 0.1f));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of special functions, because a step of each of four bells is one sine of the last one, 8 cycles, and two instructions
__global__ void __launch_bounds__(256, 8) swing_temple_bells(const float* a, float* out, int steps) {
  float x[4], r = 2.0f + a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = __sinf(fmaf(r, x[k], 0.3f));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of special functions, because a step of each of four lenses is one reciprocal root, 8 cycles, and one FMA
__global__ void __launch_bounds__(256, 8) polish_crown_lenses(const float* a, float* out, int steps) {
  float x[4], r = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(x[k]) : "f"(fmaf(r, x[k], 0.7f)));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of special functions, because a step of each of four cells is one hyperbolic tangent, 8 cycles, and two FMAs
__global__ void __launch_bounds__(256, 8) stir_reservoir_cells(const float* a, float* out, int steps) {
  float x[4], r = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) asm("tanh.approx.f32 %0, %1;" : "=f"(x[k]) : "f"(fmaf(1.7f, x[k], fmaf(-0.6f, x[(k + 1) & 3], r))));
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of conversions, because each sample is rounded to an integer and back at each step, 8 cycles or more, beside one multiplication
__global__ void __launch_bounds__(256, 8) requantise_flute_samples(const float* a, float* out, int steps) {
  float x[4], r = 1.0f + 0.01f * a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 1000.0f * a[k * STRIDE + T];
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = (float)__float2int_rn(x[k] * r);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of conversions, because each account is rounded from FP64 to FP32 and widened at each step, two of 8 cycles, beside one DFMA
__global__ void __launch_bounds__(256, 8) round_savings_accounts(const float* a, float* out, int steps) {
  double rate = 1.0 + 1e-5 * a[T];
  float x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 100.0f * a[k * STRIDE + T];
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = (float)fma((double)x[k], rate, -0.001);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of issue slots, because of nine instructions a step five go to FMAs and four to logic, shifts and sums, and no pipe is full
__global__ void __launch_bounds__(256, 8) cast_rune_stones(const float* a, float2* out, int steps) {
  float x[4], s = 0;
  unsigned h[2] = {__float_as_uint(a[T]), __float_as_uint(a[STRIDE + T])};
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k * a[T];
#pragma unroll 4
  for (int n = 0; n < steps; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fmaf(x[k], x[k], -0.3f);
    h[0] = __funnelshift_l(h[0], h[1], 7) ^ h[1];
    h[1] = h[1] * 0x9e3779b1u + h[0];
    h[0] = (h[0] & 0x7fff7fffu) ^ (h[1] >> 3);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) s += x[k];
  out[T] = {s, (float)(h[0] ^ h[1])};
}
// at the roofs of issue slots and of special functions, because a step of each of four plumes has seven FMAs and one exponential, 8 cycles
__global__ void __launch_bounds__(256, 8) loft_volcano_ash(const float* a, float* out, int steps) {
  float x[4], r = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k;
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float y = power_of_two(fmaf(-r, x[k], -0.2f)), z = x[k];
#pragma unroll
      for (int m = 0; m < 6; ++m) z = fmaf(z, -0.4f, y);
      x[k] = z;
    }
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of FP32 and of issue slots, because one read of 16 bytes from shared memory serves 40 of its instructions, for four grains a thread
__global__ void __launch_bounds__(256, 4) clump_dust_grains(const float4* a, float4* out, int tiles) {
  __shared__ float4 tile[2][256];
  int t = threadIdx.x;
  float4 own[4], pull[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) own[k] = a[k * STRIDE + T];
  float4 next = a[t];
#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    tile[n & 1][t] = next;
    __syncthreads();
    next = a[(n + 1) * 256 + t];
#pragma unroll 4
    for (int j = 0; j < 256; ++j) {
      float4 v = tile[n & 1][j];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float x = v.x - own[k].x, y = v.y - own[k].y, z = v.z - own[k].z, near = v.w - fmaf(x, x, fmaf(y, y, z * z));
        pull[k].x = fmaf(near, x, pull[k].x), pull[k].y = fmaf(near, y, pull[k].y), pull[k].z = fmaf(near, z, pull[k].z);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) out[k * STRIDE + T] = pull[k];
}
// at the roof of integer sums, because numbers of 256 bits need eight additions with carry a step, 2 cycles each
__global__ void __launch_bounds__(256, 8) total_giant_numbers(const unsigned* a, unsigned* out, int steps) {
  unsigned x[8], y[8], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[k * STRIDE + T], y[k] = x[k] * 3;
#pragma unroll 2
  for (int n = 0; n < steps; ++n) {
    asm("add.cc.u32 %0, %0, %8; addc.cc.u32 %1, %1, %9; addc.cc.u32 %2, %2, %10; addc.cc.u32 %3, %3, %11; addc.cc.u32 %4, %4, %12; addc.cc.u32 %5, %5, %13; addc.cc.u32 %6, %6, %14; addc.u32 %7, %7, %15;"
        : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3]), "+r"(x[4]), "+r"(x[5]), "+r"(x[6]), "+r"(x[7])
        : "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));
    asm("add.cc.u32 %0, %0, %8; addc.cc.u32 %1, %1, %9; addc.cc.u32 %2, %2, %10; addc.cc.u32 %3, %3, %11; addc.cc.u32 %4, %4, %12; addc.cc.u32 %5, %5, %13; addc.cc.u32 %6, %6, %14; addc.u32 %7, %7, %15;"
        : "+r"(y[0]), "+r"(y[1]), "+r"(y[2]), "+r"(y[3]), "+r"(y[4]), "+r"(y[5]), "+r"(y[6]), "+r"(y[7])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]));
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) s ^= x[k] + y[k];
  out[T] = s;
}
// at the roof of permutations of bytes, because a PRMT and its mask are all of a step of each of eight words, 2 cycles each
__global__ void __launch_bounds__(256, 8) jumble_anagram_letters(const unsigned* a, unsigned* out, int steps) {
  unsigned x[8], s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[T] * (k * 2 + 3);
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __byte_perm(x[k], x[(k + 1) & 7], x[(k + 3) & 7]);
#pragma unroll
  for (int k = 0; k < 8; ++k) s ^= x[k];
  out[T] = s;
}

void mill_cases() {
  cases.push_back({"orbit_butterfly_storms", "none_at_roof", "", [] { orbit_butterfly_storms<<<1056, 256>>>(A, C, 768); }, nullptr});
  cases.push_back({"drift_strange_attractors", "none_at_roof", "", [] { drift_strange_attractors<<<1056, 256>>>(A, C, 1024); }, nullptr});
  cases.push_back({"zoom_double_fractals", "none_at_roof", "", [] { zoom_double_fractals<<<528, 256>>>((double2*)A, (double2*)C, 768); }, nullptr});
  cases.push_back({"stock_carp_ponds", "none_at_roof", "", [] { stock_carp_ponds<<<1056, 256>>>(A, (float2*)C, 768); }, nullptr});
  cases.push_back({"age_whisky_barrels", "none_at_roof", "", [] { age_whisky_barrels<<<1056, 256>>>(A, (float2*)C, 1536); }, nullptr});
  cases.push_back({"shake_dice_towers", "none_at_roof", "", [] { shake_dice_towers<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 768); }, nullptr});
  cases.push_back({"stamp_wax_seals", "none_at_roof", "", [] { stamp_wax_seals<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 384); }, nullptr});
  cases.push_back({"slice_cipher_registers", "none_at_roof", "", [] { slice_cipher_registers<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 384); }, nullptr});
  cases.push_back({"dial_vault_tumblers", "none_at_roof", "", [] { dial_vault_tumblers<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 384); }, nullptr});
  cases.push_back({"gauge_iris_codes", "none_at_roof", "", [] { gauge_iris_codes<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 192); }, nullptr});
  cases.push_back({"pair_probe_strands", "none_at_roof", "", [] { pair_probe_strands<<<1056, 256>>>((int*)A, (int*)C, 768); }, nullptr});
  cases.push_back({"seed_tennis_draws", "none_at_roof", "", [] { seed_tennis_draws<<<1056, 256>>>((int*)A, (int*)C, 96); }, nullptr});
  cases.push_back({"glow_ember_beds", "none_at_roof", "", [] { glow_ember_beds<<<1056, 256>>>(A, C, 384); }, nullptr});
  cases.push_back({"swing_temple_bells", "none_at_roof", "", [] { swing_temple_bells<<<1056, 256>>>(A, C, 384); }, nullptr});
  cases.push_back({"polish_crown_lenses", "none_at_roof", "", [] { polish_crown_lenses<<<1056, 256>>>(A, C, 384); }, nullptr});
  cases.push_back({"stir_reservoir_cells", "none_at_roof", "", [] { stir_reservoir_cells<<<1056, 256>>>(A, C, 384); }, nullptr});
  cases.push_back({"requantise_flute_samples", "none_at_roof", "", [] { requantise_flute_samples<<<1056, 256>>>(A, C, 384); }, nullptr});
  cases.push_back({"round_savings_accounts", "none_at_roof", "", [] { round_savings_accounts<<<1056, 256>>>(A, C, 192); }, nullptr});
  cases.push_back({"cast_rune_stones", "none_at_roof", "", [] { cast_rune_stones<<<1056, 256>>>(A, (float2*)C, 1024); }, nullptr});
  cases.push_back({"loft_volcano_ash", "none_at_roof", "", [] { loft_volcano_ash<<<1056, 256>>>(A, C, 384); }, nullptr});
  cases.push_back({"clump_dust_grains", "none_at_roof", "", [] { clump_dust_grains<<<528, 256>>>((float4*)A, (float4*)C, 4); }, nullptr});
  cases.push_back({"total_giant_numbers", "none_at_roof", "", [] { total_giant_numbers<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 384); }, nullptr});
  cases.push_back({"jumble_anagram_letters", "none_at_roof", "", [] { jumble_anagram_letters<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 768); }, nullptr});
}
