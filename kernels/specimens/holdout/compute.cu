// Holdout: what the instructions are, and how many.
#include <mma.h>

#include "../specimen.cuh"

using namespace specimens;

// --- divergence: records enciphered by one of three ciphers, neighbours by different ones against a warp by one ---

__device__ __forceinline__ uint32_t turned(uint32_t x, int by) { return x << by | x >> (32 - by); }

__device__ __forceinline__ uint2 enciphered(int cipher, uint2 v, uint32_t key, int rounds) {
  if (cipher == 0) {
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) v.x = (turned(v.x, 24) + v.y) ^ (key + r), v.y = turned(v.y, 3) ^ v.x;
  } else if (cipher == 1) {
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) {
      const uint32_t x = v.x;
      v.x = v.y ^ (turned(x, 1) & turned(x, 8)) ^ turned(x, 2) ^ (key - r), v.y = x;
    }
  } else {
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) {
      v.x += (v.y << 4 ^ v.y >> 5) + (v.y ^ (key * 3 + r));
      v.y += (v.x << 4 ^ v.x >> 5) + (v.x ^ (key * 5 - r));
    }
  }
  return v;
}
__global__ void __launch_bounds__(288) encipher_slow(const uint2* x, uint2* out, uint32_t key, int rounds) {
  const int i = blockIdx.x * 288 + threadIdx.x;
  out[i] = enciphered(i % 3, x[i], key, rounds);
}
__global__ void __launch_bounds__(288) encipher_fixed(const uint2* x, uint2* out, uint32_t key, int rounds) {
  const int warp = threadIdx.x / 32, first = blockIdx.x * 288 + warp / 3 * 96;  // three warps share 96 records
  const int i = first + threadIdx.x % 32 * 3 + warp % 3;
  out[i] = enciphered(i % 3, x[i], key, rounds);
}

PAIR(holdout, divergence) {
  const int count = 288 * 20000, rounds = 64;
  const uint32_t key = 0x2b7e1516;
  const uint2* x = pair.input<uint2>(
      count, [] __device__(int64_t i) { return make_uint2(unsigned(mix(i)), unsigned(mix(i) >> 32)); });
  uint2* out = pair.output<uint2>(count);
  const auto* words = reinterpret_cast<const unsigned*>(out);
  pair.expect(words, 2ll * count, 0, [=] __device__(int64_t i) {
    const uint2 v = enciphered(int(i / 2 % 3), x[i / 2], key, rounds);
    return double(i % 2 ? v.y : v.x);
  });
  pair.slow([=] { encipher_slow<<<count / 288, 288>>>(x, out, key, rounds); });
  pair.fixed([=] { encipher_fixed<<<count / 288, 288>>>(x, out, key, rounds); });
}

// --- special_functions: Gaussians on 56 evenly spaced places, an exponential each against by a recurrence ---

constexpr int PLACES = 56;
constexpr float STEP = 0.0625f;

__device__ __forceinline__ float power_of_two(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

__global__ void __launch_bounds__(224) gaussians_slow(const __nv_bfloat16* x, float* out) {
  const int i = blockIdx.x * 224 + threadIdx.x;
  const float v = number(x[i]);
  float sum = 0;
#pragma unroll 8
  for (int k = 0; k < PLACES; ++k) {
    const float d = v - STEP * k;
    sum += power_of_two(-d * d);
  }
  out[i] = sum;
}
__global__ void __launch_bounds__(224) gaussians_fixed(const __nv_bfloat16* x, float* out) {
  const int i = blockIdx.x * 224 + threadIdx.x;
  const float v = number(x[i]);
  // from place k to the next the exponent grows by 2 v h - (2 k + 1) h h
  float now = power_of_two(-v * v), ratio = power_of_two(2 * STEP * v - STEP * STEP), sum = 0;
  const float change = power_of_two(-2 * STEP * STEP);
#pragma unroll 8
  for (int k = 0; k < PLACES; ++k) sum += now, now *= ratio, ratio *= change;
  out[i] = sum;
}

PAIR(holdout, special_functions) {
  const int count = 224 * 40000;
  const __nv_bfloat16* x =
      pair.input<__nv_bfloat16>(count, [] __device__(int64_t i) { return __float2bfloat16(1.75f + 1.5f * noise(i)); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-3, [=] __device__(int64_t i) {
    double sum = 0;
    for (int k = 0; k < PLACES; ++k) sum += exp2(-(number(x[i]) - 0.0625 * k) * (number(x[i]) - 0.0625 * k));
    return sum;
  });
  pair.slow([=] { gaussians_slow<<<count / 224, 224>>>(x, out); });
  pair.fixed([=] { gaussians_fixed<<<count / 224, 224>>>(x, out); });
}

// --- fp64_by_accident: int16 samples clipped softly 20 times, constants of type double against float ---

template <class Constant>
__device__ __forceinline__ float clipped(float v) {
#pragma unroll 5
  for (int k = 0; k < 20; ++k) v = v * static_cast<Constant>(1.05) - static_cast<Constant>(0.15) * v * v * v;
  return v;
}
__global__ void __launch_bounds__(352) clip_slow(const int16_t* x, int16_t* out) {
  const int i = blockIdx.x * 352 + threadIdx.x;
  out[i] = static_cast<int16_t>(rintf(clipped<double>(x[i] / 32768.0f) * 32767.0f));
}
__global__ void __launch_bounds__(352) clip_fixed(const int16_t* x, int16_t* out) {
  const int i = blockIdx.x * 352 + threadIdx.x;
  out[i] = static_cast<int16_t>(rintf(clipped<float>(x[i] / 32768.0f) * 32767.0f));
}

PAIR(holdout, fp64_by_accident) {
  const int count = 352 * 36000;
  const int16_t* x = pair.input<int16_t>(count, [] __device__(int64_t i) { return int16_t(mix(i)); });
  int16_t* out = pair.output<int16_t>(count);
  pair.expect(out, count, 1e-2, [=] __device__(int64_t i) {
    double v = x[i] / 32768.0;
    for (int k = 0; k < 20; ++k) v = v * 1.05 - 0.15 * v * v * v;
    return rint(v * 32767);
  });
  pair.slow([=] { clip_slow<<<count / 352, 352>>>(x, out); });
  pair.fixed([=] { clip_fixed<<<count / 352, 352>>>(x, out); });
}

// --- integer_division: pixels of complex numbers shuffled from channels into space, by 64-bit division or by the grid ---

__global__ void __launch_bounds__(240)
    shuffle_pixels_slow(const float2* x, float2* out, int64_t channels, int64_t high, int64_t wide, int64_t by) {
  const int64_t i = blockIdx.x * 240ll + threadIdx.x;  // (image, channel, row, row of by, column, column of by)
  const int64_t sub_c = i % by, c = i / by % wide, sub_r = i / by / wide % by, r = i / by / wide / by % high;
  const int64_t channel = i / by / wide / by / high % channels, image = i / by / wide / by / high / channels;
  out[i] = x[(((image * channels + channel) * by + sub_r) * by + sub_c) * high * wide + r * wide + c];
}
__global__ void __launch_bounds__(240) shuffle_pixels_fixed(const float2* x, float2* out, int high, int wide) {
  const int c = threadIdx.x / 3, sub_c = threadIdx.x % 3, row = blockIdx.x, plane = blockIdx.y;
  const int r = row / 3, sub_r = row % 3;
  out[(static_cast<int64_t>(plane) * high * 3 + row) * wide * 3 + threadIdx.x] =
      x[(plane * 9ll + sub_r * 3 + sub_c) * high * wide + r * wide + c];
}

PAIR(holdout, integer_division) {
  const int images = 12, channels = 14, high = 120, wide = 80, by = 3;
  const int64_t count = int64_t{images} * channels * by * by * high * wide;
  const float2* x = pair.input<float2>(count, [] __device__(int64_t i) { return make_float2(noise(i), noise(i, 1)); });
  float2* out = pair.output<float2>(count);
  const auto *from = reinterpret_cast<const float*>(x), *to = reinterpret_cast<const float*>(out);
  pair.expect(to, 2 * count, 0, [=] __device__(int64_t at) {
    const int i = at / 2;
    const int sub_c = i % by, c = i / by % wide, sub_r = i / by / wide % by, r = i / by / wide / by % high;
    const int64_t plane = i / by / wide / by / high;
    return double(from[2 * (((plane * by + sub_r) * by + sub_c) * high * wide + r * wide + c) + at % 2]);
  });
  pair.slow([=] { shuffle_pixels_slow<<<count / 240, 240>>>(x, out, channels, high, wide, by); });
  pair.fixed([=] { shuffle_pixels_fixed<<<dim3(high * by, images * channels), 240>>>(x, out, high, wide); });
}

// --- constant_divergence: sums of 4-bit codes through the code books of 64 groups, in constant or in shared memory ---

__constant__ float codebooks[64 * 16];

__device__ __forceinline__ float code_value(int i) { return ((i * 37 + 11) % 101 - 50) / 64.0f; }

template <class Look>
__device__ __forceinline__ void decode(const uint4* codes, float* out, Look look) {
  const int i = blockIdx.x * 512 + threadIdx.x, group = i * 29 % 64 * 16;
  const uint4 v = codes[i];
  float sum = 0;
  for (const unsigned word : {v.x, v.y, v.z, v.w})
#pragma unroll
    for (int j = 0; j < 32; j += 4) sum += look(group + (word >> j & 15));
  out[i] = sum;
}
__global__ void __launch_bounds__(512) decode_slow(const uint4* codes, float* out) {
  decode(codes, out, [](int i) { return codebooks[i]; });
}
__global__ void __launch_bounds__(512) decode_fixed(const uint4* codes, float* out) {
  __shared__ float held[64 * 16];
  for (int i = threadIdx.x; i < 64 * 16; i += 512) held[i] = codebooks[i];
  __syncthreads();
  decode(codes, out, [](int i) { return held[i]; });
}

PAIR(holdout, constant_divergence) {
  const int count = 512 * 2400;
  const unsigned* codes = pair.input<unsigned>(4ll * count, [] __device__(int64_t i) { return unsigned(mix(i)); });
  float* out = pair.output<float>(count);
  float* place = nullptr;
  CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&place), codebooks));
  specimen_fill<<<1, 256>>>(place, 64 * 16, [] __device__(int64_t i) { return code_value(int(i)); });
  pair.expect(out, count, 1e-5, [=] __device__(int64_t i) {
    double sum = 0;
    for (int j = 0; j < 32; ++j) sum += code_value(i * 29 % 64 * 16 + (codes[4 * i + j / 8] >> j % 8 * 4 & 15));
    return sum;
  });
  const auto* words = reinterpret_cast<const uint4*>(codes);
  pair.slow([=] { decode_slow<<<count / 512, 512>>>(words, out); });
  pair.fixed([=] { decode_fixed<<<count / 512, 512>>>(words, out); });
}

// --- instruction_cache: 2,400 rounds of a 64-bit hash, each with a constant of its own, written out against in a loop ---

constexpr int ROUNDS = 2400;

__host__ __device__ constexpr uint64_t round_constant(int k) {
  return static_cast<uint64_t>(k) * 0x9fb21c651e98df25ull + 0x2545f4914f6cdd1dull;
}
__global__ void __launch_bounds__(160) many_constants_slow(uint64_t* out, int times) {
  uint64_t hash = blockIdx.x * 160 + threadIdx.x;
#pragma unroll 1
  for (int t = 0; t < times; ++t)
#pragma unroll
    for (int k = 0; k < ROUNDS; ++k) hash = (hash ^ hash >> 29) + round_constant(k);
  out[blockIdx.x * 160 + threadIdx.x] = hash;
}
__global__ void __launch_bounds__(160) many_constants_fixed(uint64_t* out, int times) {
  uint64_t hash = blockIdx.x * 160 + threadIdx.x;
#pragma unroll 1
  for (int t = 0; t < times; ++t)
#pragma unroll 4
    for (int k = 0; k < ROUNDS; ++k) hash = (hash ^ hash >> 29) + round_constant(k);
  out[blockIdx.x * 160 + threadIdx.x] = hash;
}

PAIR(holdout, instruction_cache) {
  const int count = 132 * 3 * 160, times = 8;
  uint64_t* out = pair.output<uint64_t>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    uint64_t hash = i;
    for (int t = 0; t < times; ++t)
      for (int k = 0; k < ROUNDS; ++k) hash = (hash ^ hash >> 29) + round_constant(k);
    return double(hash);
  });
  pair.slow([=] { many_constants_slow<<<132 * 3, 160>>>(out, times); });
  pair.fixed([=] { many_constants_fixed<<<132 * 3, 160>>>(out, times); });
}

// --- register_spills: Walsh-Hadamard transforms of 64 numbers a thread, within 40 registers against as many as needed ---

__device__ __forceinline__ void walsh_rounds(const int16_t* x, float* out, int rounds, int vectors) {
  const int i = blockIdx.x * 352 + threadIdx.x;
  float v[64];
#pragma unroll
  for (int j = 0; j < 64; ++j) v[j] = x[j * vectors + i];
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int half = 1; half < 64; half *= 2)
#pragma unroll
      for (int j = 0; j < 64; ++j)
        if (!(j & half)) {
          const float a = v[j], b = v[j + half];
          v[j] = a + b, v[j + half] = a - b;
        }
#pragma unroll
    for (int j = 0; j < 64; ++j) v[j] *= j % 3 ? 0.125f : -0.125f;
  }
#pragma unroll
  for (int j = 0; j < 64; ++j) out[j * vectors + i] = v[j];
}
__global__ void __launch_bounds__(352, 4) walsh_slow(const int16_t* x, float* out, int rounds, int vectors) {
  walsh_rounds(x, out, rounds, vectors);
}
__global__ void __launch_bounds__(352, 1) walsh_fixed(const int16_t* x, float* out, int rounds, int vectors) {
  walsh_rounds(x, out, rounds, vectors);
}

PAIR(holdout, register_spills) {
  const int vectors = 352 * 1056, rounds = 12;
  const int16_t* x =
      pair.input<int16_t>(64ll * vectors, [] __device__(int64_t i) { return int16_t(pick(i, 200) - 100); });
  float* out = pair.output<float>(64ll * vectors);
  pair.expect(
      out, 64ll * vectors, 1e-2,
      [=] __device__(int64_t at) {
        double v[64], w[64];
        for (int j = 0; j < 64; ++j) v[j] = x[int64_t{j} * vectors + at % vectors];
        for (int round = 0; round < rounds; ++round) {
          for (int j = 0; j < 64; ++j) {
            w[j] = 0;
            for (int k = 0; k < 64; ++k) w[j] += __popc(j & k) % 2 ? -v[k] : v[k];
          }
          for (int j = 0; j < 64; ++j) v[j] = w[j] * (j % 3 ? 0.125 : -0.125);
        }
        return v[at / vectors];
      },
      1 << 12);
  pair.slow([=] { walsh_slow<<<vectors / 352, 352>>>(x, out, rounds, vectors); });
  pair.fixed([=] { walsh_fixed<<<vectors / 352, 352>>>(x, out, rounds, vectors); });
}

// --- local_array: echoes with a delay for each thread, in an array of the thread against in shared memory ---

constexpr int LONGEST = 24;

__device__ __forceinline__ int delay_of(unsigned i) { return 9 + (i * 2654435761u >> 20) % (LONGEST - 8); }
__device__ __forceinline__ float sound(unsigned i, int step) {
  return (static_cast<int>((i * 40503u + step * 69069u) >> 7 & 255) - 128) / 128.0f;
}

__global__ void __launch_bounds__(224) echoes_slow(float* out, int steps) {
  const unsigned i = blockIdx.x * 224 + threadIdx.x;
  const int delay = delay_of(i);
  float line[LONGEST], sum = 0;
#pragma unroll
  for (float& one : line) one = 0;
  int at = 0;
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    const float now = sound(i, s) + 0.5f * line[at];
    line[at] = now, sum += now * now;
    at = at + 1 == delay ? 0 : at + 1;
  }
  out[i] = sum;
}
__global__ void __launch_bounds__(224) echoes_fixed(float* out, int steps) {
  __shared__ float lines[LONGEST][224];
  const unsigned i = blockIdx.x * 224 + threadIdx.x;
  const int delay = delay_of(i);
#pragma unroll
  for (int j = 0; j < LONGEST; ++j) lines[j][threadIdx.x] = 0;
  float sum = 0;
  int at = 0;
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    const float now = sound(i, s) + 0.5f * lines[at][threadIdx.x];
    lines[at][threadIdx.x] = now, sum += now * now;
    at = at + 1 == delay ? 0 : at + 1;
  }
  out[i] = sum;
}

PAIR(holdout, local_array) {
  const int count = 224 * 4752, steps = 300;
  float* out = pair.output<float>(count);
  pair.expect(
      out, count, 1e-3,
      [=] __device__(int64_t i) {
        const int delay = delay_of(unsigned(i));
        double line[LONGEST] = {}, sum = 0;
        for (int s = 0; s < steps; ++s) {
          line[s % delay] = sound(unsigned(i), s) + 0.5 * line[s % delay];
          sum += line[s % delay] * line[s % delay];
        }
        return sum;
      },
      1 << 14);
  pair.slow([=] { echoes_slow<<<count / 224, 224>>>(out, steps); });
  pair.fixed([=] { echoes_fixed<<<count / 224, 224>>>(out, steps); });
}

// --- fp32_for_matrix: 24 products of a transposed and a plain matrix of halves, FP32 units against tensor cores ---

constexpr int BATCH_M = 768, BATCH_N = 960, BATCH_K = 512;  // a (k, m), b (k, n), c (m, n)

__global__ void __launch_bounds__(144) batch_slow(const __half* a, const __half* b, float* c) {
  __shared__ float as[8][96], bs[8][96];
  a += blockIdx.z * int64_t{BATCH_K} * BATCH_M + blockIdx.y * 96;
  b += blockIdx.z * int64_t{BATCH_K} * BATCH_N + blockIdx.x * 96;
  const int tx = threadIdx.x % 12, ty = threadIdx.x / 12;
  float sum[8][8] = {};
  for (int k0 = 0; k0 < BATCH_K; k0 += 8) {
    for (int i = threadIdx.x; i < 8 * 96; i += 144) {
      as[i / 96][i % 96] = number(a[(k0 + i / 96) * BATCH_M + i % 96]);
      bs[i / 96][i % 96] = number(b[(k0 + i / 96) * BATCH_N + i % 96]);
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 8; ++kk) {
      float l[8], r[8];
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *reinterpret_cast<float4*>(l + i) = *reinterpret_cast<const float4*>(&as[kk][i * 12 + ty * 4]);
        *reinterpret_cast<float4*>(r + i) = *reinterpret_cast<const float4*>(&bs[kk][i * 12 + tx * 4]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += l[i] * r[j];
    }
    __syncthreads();
  }
  c += blockIdx.z * int64_t{BATCH_M} * BATCH_N + blockIdx.y * 96 * BATCH_N + blockIdx.x * 96;
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) c[(i / 4 * 48 + ty * 4 + i % 4) * BATCH_N + j / 4 * 48 + tx * 4 + j % 4] = sum[i][j];
}

// Three warps, each 32 x 64 of a tile of 96 x 64.
__global__ void __launch_bounds__(96) batch_fixed(const __half* a, const __half* b, float* c) {
  using namespace nvcuda;
  constexpr int K = 32, A_PITCH = 96 + 8, B_PITCH = 64 + 8;
  __shared__ __align__(32) __half as[K * A_PITCH], bs[K * B_PITCH];
  a += blockIdx.z * int64_t{BATCH_K} * BATCH_M + blockIdx.y * 96;
  b += blockIdx.z * int64_t{BATCH_K} * BATCH_N + blockIdx.x * 64;
  const int warp = threadIdx.x / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][4];
  for (auto& row : sums)
    for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);
  for (int k0 = 0; k0 < BATCH_K; k0 += K) {
#pragma unroll
    for (int i = threadIdx.x * 8; i < K * 96; i += 96 * 8)
      *reinterpret_cast<uint4*>(as + i / 96 * A_PITCH + i % 96) =
          *reinterpret_cast<const uint4*>(a + (k0 + i / 96) * BATCH_M + i % 96);
#pragma unroll
    for (int i = threadIdx.x * 8; i < K * 64; i += 96 * 8)
      *reinterpret_cast<uint4*>(bs + i / 64 * B_PITCH + i % 64) =
          *reinterpret_cast<const uint4*>(b + (k0 + i / 64) * BATCH_N + i % 64);
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < K; kk += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::col_major> left[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(left[i], as + kk * A_PITCH + warp * 32 + i * 16, A_PITCH);
#pragma unroll
      for (int j = 0; j < 4; ++j) wmma::load_matrix_sync(right[j], bs + kk * B_PITCH + j * 16, B_PITCH);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
    }
    __syncthreads();
  }
  c += blockIdx.z * int64_t{BATCH_M} * BATCH_N + (blockIdx.y * 96 + warp * 32) * BATCH_N + blockIdx.x * 64;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      wmma::store_matrix_sync(c + i * 16 * BATCH_N + j * 16, sums[i][j], BATCH_N, wmma::mem_row_major);
}

PAIR(holdout, fp32_for_matrix) {
  const int batch = 24;
  const __half* a = pair.input<__half>(int64_t{batch} * BATCH_K * BATCH_M,
                                       [] __device__(int64_t i) { return __float2half(noise(i, 1)); });
  const __half* b = pair.input<__half>(int64_t{batch} * BATCH_K * BATCH_N,
                                       [] __device__(int64_t i) { return __float2half(noise(i, 2)); });
  float* c = pair.output<float>(int64_t{batch} * BATCH_M * BATCH_N);
  pair.expect(
      c, int64_t{batch} * BATCH_M * BATCH_N, 2e-3,
      [=] __device__(int64_t i) {
        const int64_t which = i / BATCH_N / BATCH_M, m = i / BATCH_N % BATCH_M, n = i % BATCH_N;
        double sum = 0;
        for (int k = 0; k < BATCH_K; ++k)
          sum += number(a[(which * BATCH_K + k) * BATCH_M + m]) * number(b[(which * BATCH_K + k) * BATCH_N + n]);
        return sum;
      },
      1 << 14);
  pair.slow([=] { batch_slow<<<dim3(BATCH_N / 96, BATCH_M / 96, batch), 144>>>(a, b, c); });
  pair.fixed([=] { batch_fixed<<<dim3(BATCH_N / 64, BATCH_M / 96, batch), 96>>>(a, b, c); });
}

// --- tensor_starved: a product in TF32, operands from global memory for each instruction against from tiles ---

using Tf32 = nvcuda::wmma::precision::tf32;  // inputs have 11 bits, which TF32 holds

__global__ void __launch_bounds__(96) tf32_product_slow(const float* a, const float* b, float* c, int n) {
  using namespace nvcuda;
  const int row = blockIdx.y * 16, column = (blockIdx.x * 3 + threadIdx.x / 32) * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
#pragma unroll 1
  for (int k = 0; k < n; k += 8) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, Tf32, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, Tf32, wmma::row_major> right;
    wmma::load_matrix_sync(left, a + row * n + k, n);
    wmma::load_matrix_sync(right, b + k * n + column, n);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

// Four warps, each 32 x 48 of a tile of 64 x 96.
__global__ void __launch_bounds__(128) tf32_product_fixed(const float* a, const float* b, float* c, int n) {
  using namespace nvcuda;
  constexpr int K = 16, A_PITCH = K + 4, B_PITCH = 96 + 4;
  __shared__ __align__(32) float as[64 * A_PITCH], bs[K * B_PITCH];
  const int warp = threadIdx.x / 32, row = blockIdx.y * 64, column = blockIdx.x * 96;
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 48;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[2][3];
  for (auto& line : sums)
    for (auto& sum : line) wmma::fill_fragment(sum, 0.0f);
  for (int k0 = 0; k0 < n; k0 += K) {
#pragma unroll
    for (int i = threadIdx.x * 4; i < 64 * K; i += 128 * 4)
      *reinterpret_cast<float4*>(as + i / K * A_PITCH + i % K) =
          *reinterpret_cast<const float4*>(a + (row + i / K) * n + k0 + i % K);
#pragma unroll
    for (int i = threadIdx.x * 4; i < K * 96; i += 128 * 4)
      *reinterpret_cast<float4*>(bs + i / 96 * B_PITCH + i % 96) =
          *reinterpret_cast<const float4*>(b + (k0 + i / 96) * n + column + i % 96);
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < K; kk += 8) {
      wmma::fragment<wmma::matrix_a, 16, 16, 8, Tf32, wmma::row_major> left[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 8, Tf32, wmma::row_major> right[3];
#pragma unroll
      for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(left[i], as + (warp_row + i * 16) * A_PITCH + kk, A_PITCH);
#pragma unroll
      for (int j = 0; j < 3; ++j) wmma::load_matrix_sync(right[j], bs + kk * B_PITCH + warp_column + j * 16, B_PITCH);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 3; ++j) wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 3; ++j)
      wmma::store_matrix_sync(c + (row + warp_row + i * 16) * n + column + warp_column + j * 16, sums[i][j], n,
                              wmma::mem_row_major);
}

PAIR(holdout, tensor_starved) {
  const int n = 1920;
  const float* a = pair.input<float>(n * n, [] __device__(int64_t i) { return noise(i, 1); });
  const float* b = pair.input<float>(n * n, [] __device__(int64_t i) { return noise(i, 2); });
  float* c = pair.output<float>(n * n);
  pair.expect(
      c, n * n, 2e-3,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += double(a[i / n * n + k]) * b[k * n + i % n];
        return sum;
      },
      1 << 14);
  pair.slow([=] { tf32_product_slow<<<dim3(n / 48, n / 16), 96>>>(a, b, c, n); });
  pair.fixed([=] { tf32_product_fixed<<<dim3(n / 96, n / 64), 128>>>(a, b, c, n); });
}
