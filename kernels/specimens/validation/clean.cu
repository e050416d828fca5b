// Validation half: kernels with nothing to win.
#include "../clean.cuh"

using namespace specimens;

__device__ __forceinline__ unsigned triad_two(unsigned a, unsigned b) {
  const __half2 sum =
      __hfma2(__float2half2_rn(0.5f), *reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const unsigned*>(&sum);
}
__global__ void __launch_bounds__(512) triad(const uint4* a, const uint4* b, uint4* out) {
  const int64_t i = blockIdx.x * 512ll + threadIdx.x;
  const uint4 left = __ldcs(a + i), right = __ldcs(b + i);
  __stcs(out + i, make_uint4(triad_two(left.x, right.x), triad_two(left.y, right.y), triad_two(left.z, right.z),
                             triad_two(left.w, right.w)));
}

CLEAN(validation, dram_triad) {
  const int64_t count = 64ll << 20;
  const auto* a = pair.input<__half>(count, [] __device__(int64_t i) { return __float2half(noise(i, 1)); });
  const auto* b = pair.input<__half>(count, [] __device__(int64_t i) { return __float2half(noise(i, 2)); });
  auto* out = pair.output<__half>(count);
  pair.expect(out, count, 2e-3, [=] __device__(int64_t i) { return 0.5 * number(a[i]) + number(b[i]); }, 1 << 20);
  pair.clean([=] {
    triad<<<count / 8 / 512, 512>>>(reinterpret_cast<const uint4*>(a), reinterpret_cast<const uint4*>(b),
                                    reinterpret_cast<uint4*>(out));
  });
}

// The same twelve megabytes are summed for each of 48 weights, shared by all blocks from L2.
__global__ void __launch_bounds__(512) weighted_l2(const double2* x, double* out, int words) {
  double sum = 0;
  for (int turn = 0; turn < 48; ++turn) {
    const int part = (blockIdx.x * 5 + turn * 61) % gridDim.x;
    double own = 0;
#pragma unroll 6
    for (int i = part * 512 + threadIdx.x; i < words; i += gridDim.x * 512) {
      const double2 v = __ldcg(x + i);
      own += v.x - v.y;
    }
    sum += own * (turn + 1);
  }
  out[blockIdx.x * 512 + threadIdx.x] = sum;
}

CLEAN(validation, l2_sums) {
  const int words = 528 * 512 * 3, blocks = 528;
  const auto* x = pair.input<double>(2 * words, [] __device__(int64_t i) { return double(noise(i)); });
  auto* out = pair.output<double>(blocks * 512);
  pair.expect(out, blocks * 512, 1e-9, [=] __device__(int64_t at) {
    double sum = 0;
    for (int turn = 0; turn < 48; ++turn)
      for (int i = (at / 512 * 5 + turn * 61) % blocks * 512 + at % 512; i < words; i += blocks * 512)
        sum += (x[2 * i] - x[2 * i + 1]) * (turn + 1);
    return sum;
  });
  pair.clean([=] { weighted_l2<<<blocks, 512>>>(reinterpret_cast<const double2*>(x), out, words); });
}

__global__ void __launch_bounds__(128) fp64_chains(double* out, double factor, double addend, int steps) {
  double v[6];
#pragma unroll
  for (int j = 0; j < 6; ++j) v[j] = threadIdx.x * 0.01 + j;
#pragma unroll 1
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int u = 0; u < 8; ++u)
#pragma unroll
      for (int j = 0; j < 6; ++j) v[j] = v[j] * factor + addend;
  double sum = 0;
#pragma unroll
  for (int j = 0; j < 6; ++j) sum += v[j];
  out[blockIdx.x * 128 + threadIdx.x] = sum;
}

CLEAN(validation, fp64_roof) {
  const int steps = 300, count = 132 * 12 * 128;
  double* out = pair.output<double>(count);
  pair.expect(
      out, count, 1e-9,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int j = 0; j < 6; ++j) {
          double v = i % 128 * 0.01 + j;
          for (int s = 0; s < steps * 8; ++s) v = v * 0.9995 + 0.002;
          sum += v;
        }
        return sum;
      },
      1 << 10);
  pair.clean([=] { fp64_chains<<<132 * 12, 128>>>(out, 0.9995, 0.002, steps); });
}

// The Gauss map's logarithms: each needs the function of the one before.
__global__ void __launch_bounds__(384) logarithm_chains(float2* out, int steps) {
  const int i = blockIdx.x * 384 + threadIdx.x;
  float2 v = make_float2(1.25f + i % 1024 * 0.0005f, 1.75f + i % 512 * 0.0005f);
#pragma unroll 4
  for (int s = 0; s < steps; ++s) v = make_float2(__log2f(v.x) + 1.375f, __log2f(v.y) + 1.375f);
  out[i] = v;
}

CLEAN(validation, special_logarithms) {
  const int count = 384 * 5280, steps = 40;
  auto* out = pair.output<float>(2 * count);
  pair.expect(out, 2 * count, 1e-3, [=] __device__(int64_t at) {
    const int i = at / 2;
    double v = at % 2 ? 1.75 + i % 512 * 0.0005 : 1.25 + i % 1024 * 0.0005;
    for (int s = 0; s < steps; ++s) v = log2(v) + 1.375;
    return v;
  });
  pair.clean([=] { logarithm_chains<<<count / 384, 384>>>(reinterpret_cast<float2*>(out), steps); });
}

__device__ __forceinline__ float2 pair_of(unsigned word) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&word));
}
__device__ __forceinline__ unsigned packed(float x, float y) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const unsigned*>(&two);
}
__global__ void __launch_bounds__(512) residual_rmsnorm(const uint4* x, const uint4* residual, uint4* out) {
  const int64_t at = blockIdx.x * 512ll + threadIdx.x;
  const uint4 a = x[at], b = residual[at];
  const unsigned left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
  float v[8], sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 l = pair_of(left[j]), r = pair_of(right[j]);
    v[2 * j] = l.x + r.x, v[2 * j + 1] = l.y + r.y;
    sum += v[2 * j] * v[2 * j] + v[2 * j + 1] * v[2 * j + 1];
  }
  const float scale = rsqrtf(block_total(sum) / 4096 + 1e-6f);
  out[at] = make_uint4(packed(v[0] * scale, v[1] * scale), packed(v[2] * scale, v[3] * scale),
                       packed(v[4] * scale, v[5] * scale), packed(v[6] * scale, v[7] * scale));
}

CLEAN(validation, fused_rmsnorm) {
  const int rows = 8192;
  const auto* x =
      pair.input<__nv_bfloat16>(rows * 4096ll, [] __device__(int64_t i) { return __float2bfloat16(noise(i, 1)); });
  const auto* r =
      pair.input<__nv_bfloat16>(rows * 4096ll, [] __device__(int64_t i) { return __float2bfloat16(noise(i, 2)); });
  auto* out = pair.output<__nv_bfloat16>(rows * 4096ll);
  pair.expect(
      out, rows * 4096ll, 0.01,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int64_t j = i / 4096 * 4096; j < i / 4096 * 4096 + 4096; ++j)
          sum += (number(x[j]) + number(r[j])) * (number(x[j]) + number(r[j]));
        return (number(x[i]) + number(r[i])) / sqrt(sum / 4096 + 1e-6);
      },
      1 << 12);
  pair.clean([=] {
    residual_rmsnorm<<<rows, 512>>>(reinterpret_cast<const uint4*>(x), reinterpret_cast<const uint4*>(r),
                                    reinterpret_cast<uint4*>(out));
  });
}

CLEAN(validation, cublas_fp16) {
  const int n = 6144;
  const auto make = [] __device__(int64_t i) { return __float2half(noise(i)); };
  const auto* a = pair.input<__half>(n * n, make);
  const auto* b = pair.input<__half>(n * n, make);
  auto* c = pair.output<__half>(n * n);
  pair.expect(
      c, n * n, 0.01,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += number(a[int64_t{k} * n + i % n]) * number(b[i / n * n + k]);
        return sum;
      },
      1 << 12);
  pair.clean([=] { cublas_square(a, b, c, n, CUDA_R_16F); });
}

__global__ void __launch_bounds__(64)
    append_token(const __half* key, __half* cache, int heads, int width, int at, int most) {
  const int i = blockIdx.x * 64 + threadIdx.x, head = i / width;
  cache[(head * most + at) * width + i % width] = key[i];
}

CLEAN(validation, tiny_append) {
  const int heads = 16, width = 128, most = 64, at = 21;
  const auto* key = pair.input<__half>(heads * width, [] __device__(int64_t i) { return __float2half(noise(i)); });
  auto* cache = pair.output<__half>(heads * width * most);
  pair.expect(cache, heads * width * most, 0, [=] __device__(int64_t i) {
    return i / width % most == at ? number(key[i / width / most * width + i % width]) : 0.0;
  });
  pair.clean([=] { append_token<<<heads * width / 64, 64>>>(key, cache, heads, width, at, most); });
}
