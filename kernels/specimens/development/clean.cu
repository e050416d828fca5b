// Development half: kernels with nothing to win.
#include "../clean.cuh"

using namespace specimens;

__global__ void __launch_bounds__(256) copy_words(const uint4* from, uint4* to) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  __stcs(to + i, __ldcs(from + i));
}

CLEAN(development, dram_copy) {
  const int64_t count = 12ll << 20;
  const uint4* x = pair.input<uint4>(
      count, [] __device__(int64_t i) { return make_uint4(unsigned(mix(i)), unsigned(i), unsigned(mix(i) >> 32), 1); });
  uint4* out = pair.output<uint4>(count);
  const auto *from = reinterpret_cast<const unsigned*>(x), *to = reinterpret_cast<const unsigned*>(out);
  pair.expect(to, 4 * count, 0, [=] __device__(int64_t i) { return double(from[i]); }, 1 << 20);
  pair.clean([=] { copy_words<<<count / 256, 256>>>(x, out); });
}

// Every block reads eight megabytes, a part of which is on its way to another SM too, again and again from L2.
__global__ void __launch_bounds__(1024) read_l2(const uint4* x, unsigned* out, int words, int passes) {
  unsigned sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const int first = (blockIdx.x + pass * 37) % gridDim.x * 1024 + threadIdx.x;
#pragma unroll 4
    for (int i = first; i < words; i += gridDim.x * 1024) {
      const uint4 v = __ldcg(x + i);
      sum += v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  atomicAdd(out, __reduce_add_sync(~0u, sum) * (threadIdx.x % 32 == 0));
}

CLEAN(development, l2_read) {
  const int words = 264 * 1024 * 2, passes = 64;
  const auto word = [] __device__(int64_t i) { return make_uint4(unsigned(i), unsigned(i) / 3, 5, unsigned(mix(i))); };
  const uint4* x = pair.input<uint4>(words, word);
  unsigned* out = pair.output<unsigned>(1);
  unsigned* expected = pair.input<unsigned>(1, [] __device__(int64_t) { return 0u; });
  pair.input<uint8_t>(words, [=] __device__(int64_t i) {
    atomicAdd(expected, passes * (x[i].x ^ x[i].y ^ x[i].z ^ x[i].w));
    return uint8_t{};
  });
  pair.expect(out, 1, 0, [=] __device__(int64_t) { return double(*expected); });
  pair.clean([=] { read_l2<<<264, 1024>>>(x, out, words, passes); });
}

__global__ void __launch_bounds__(256) fma_chains(float* out, float factor, float addend, int steps) {
  float v[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = threadIdx.x * 0.001f + j;
#pragma unroll 1
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int u = 0; u < 16; ++u)
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = v[j] * factor + addend;
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum += v[j];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

CLEAN(development, fma_roof) {
  const int steps = 200, count = 132 * 8 * 256;
  float* out = pair.output<float>(count);
  pair.expect(
      out, count, 1e-3,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int j = 0; j < 8; ++j) {
          double v = i % 256 * 0.001 + j;
          for (int s = 0; s < steps * 16; ++s) v = v * 0.999f + 0.001f;
          sum += v;
        }
        return sum;
      },
      1 << 10);
  pair.clean([=] { fma_chains<<<132 * 8, 256>>>(out, 0.999f, 0.001f, steps); });
}

// Exponentials of exponentials: nothing but the function itself gives the next one.
__global__ void __launch_bounds__(256) exponential_towers(const float4* x, float4* out, int steps) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float4 v = x[i];
#pragma unroll 4
  for (int s = 0; s < steps; ++s) v = make_float4(exp2f(-v.x), exp2f(-v.y), exp2f(-v.z), exp2f(-v.w));
  out[i] = v;
}

CLEAN(development, special_roof) {
  const int count = 1 << 20, steps = 64;
  const auto* x = pair.input<float>(4 * count, [] __device__(int64_t i) { return 1.0f + noise(i); });
  auto* out = pair.output<float>(4 * count);
  pair.expect(out, 4 * count, 1e-4, [=] __device__(int64_t i) {
    double v = x[i];
    for (int s = 0; s < steps; ++s) v = exp2(-v);
    return v;
  });
  pair.clean([=] {
    exponential_towers<<<count / 256, 256>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(out), steps);
  });
}

__global__ void __launch_bounds__(256) norm_rows(const float4* x, const float4* weight, float4* out) {
  const int64_t at = blockIdx.x * 256ll + threadIdx.x;
  const float4 v = x[at], w = weight[threadIdx.x];
  const float mean = block_total(v.x + v.y + v.z + v.w) / 1024;
  const float4 d = make_float4(v.x - mean, v.y - mean, v.z - mean, v.w - mean);
  const float scale = rsqrtf(block_total(d.x * d.x + d.y * d.y + d.z * d.z + d.w * d.w) / 1024 + 1e-5f);
  out[at] = make_float4(d.x * scale * w.x, d.y * scale * w.y, d.z * scale * w.z, d.w * scale * w.w);
}

CLEAN(development, fused_layernorm) {
  const int rows = 24576;
  const auto* x = pair.input<float>(rows * 1024ll, [] __device__(int64_t i) { return noise(i); });
  const auto* weight = pair.input<float>(1024, [] __device__(int64_t i) { return 1.5f + noise(i); });
  auto* out = pair.output<float>(rows * 1024ll);
  pair.expect(
      out, rows * 1024ll, 1e-4,
      [=] __device__(int64_t i) {
        const float* row = x + i / 1024 * 1024;
        double mean = 0, variance = 0;
        for (int j = 0; j < 1024; ++j) mean += row[j];
        mean /= 1024;
        for (int j = 0; j < 1024; ++j) variance += (row[j] - mean) * (row[j] - mean);
        return (x[i] - mean) / sqrt(variance / 1024 + 1e-5) * weight[i % 1024];
      },
      1 << 14);
  pair.clean([=] {
    norm_rows<<<rows, 256>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<const float4*>(weight),
                             reinterpret_cast<float4*>(out));
  });
}

CLEAN(development, cublas_bf16) {
  const int n = 4096;
  const auto make = [] __device__(int64_t i) { return __float2bfloat16(noise(i)); };
  const auto* a = pair.input<__nv_bfloat16>(n * n, make);
  const auto* b = pair.input<__nv_bfloat16>(n * n, make);
  auto* c = pair.output<__nv_bfloat16>(n * n);
  pair.expect(
      c, n * n, 0.02,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += number(a[int64_t{k} * n + i % n]) * number(b[i / n * n + k]);
        return sum;
      },
      1 << 12);
  pair.clean([=] { cublas_square(a, b, c, n, CUDA_R_16BF); });
}

__global__ void __launch_bounds__(256) add_bias(const float* x, const float* bias, float* out, int columns) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = x[i] + bias[i % columns];
}

CLEAN(development, tiny_bias) {
  const int columns = 768, count = 12 * columns;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return noise(i); });
  const float* bias = pair.input<float>(columns, [] __device__(int64_t i) { return noise(i, 1); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-6, [=] __device__(int64_t i) { return double(x[i]) + bias[i % columns]; });
  pair.clean([=] { add_bias<<<count / 256, 256>>>(x, bias, out, columns); });
}
