// Holdout: kernels with nothing to win.
#include "../clean.cuh"

using namespace specimens;

// --- at the DRAM roof ---

__global__ void __launch_bounds__(448) count_bits(const ulonglong2* x, int* out, int64_t words) {
  int found = 0;
#pragma unroll 4
  for (int64_t i = blockIdx.x * 448ll + threadIdx.x; i < words; i += gridDim.x * 448ll) {
    const ulonglong2 v = __ldcs(x + i);
    found += __popcll(v.x ^ v.y);
  }
  found = __reduce_add_sync(~0u, found);
  if (threadIdx.x % 32 == 0) atomicAdd(out + blockIdx.x, found);
}

CLEAN(holdout, dram_bits) {
  const int64_t words = 528 * 448ll * 80;
  const int blocks = 528;
  const uint64_t* x = pair.input<uint64_t>(2 * words, [] __device__(int64_t i) { return mix(i); });
  int* out = pair.output<int>(blocks);
  pair.expect(out, blocks, 0, [=] __device__(int64_t block) {
    double found = 0;
    for (int64_t j = 0; j < 80; ++j)
      for (int64_t i = j * blocks * 448 + block * 448; i < j * blocks * 448 + block * 448 + 448; ++i)
        found += __popcll(x[2 * i] ^ x[2 * i + 1]);
    return found;
  });
  pair.clean([=] { count_bits<<<blocks, 448>>>(reinterpret_cast<const ulonglong2*>(x), out, words); });
}

// --- at the L2 roof: ten megabytes for each of 56 turns ---

__global__ void __launch_bounds__(640) blend_l2(const uint4* x, unsigned* out, int words) {
  unsigned sum = 0;
  for (int turn = 0; turn < 56; ++turn) {
    const int part = (blockIdx.x * 7 + turn * 43) % gridDim.x;
#pragma unroll 4
    for (int i = part * 640 + threadIdx.x; i < words; i += gridDim.x * 640) {
      const uint4 v = __ldcg(x + i);
      sum += __vavgu4(v.x, v.y) ^ __vavgu4(v.z, v.w);
    }
  }
  out[blockIdx.x * 640 + threadIdx.x] = sum;
}

CLEAN(holdout, l2_blend) {
  const int blocks = 396, words = blocks * 640 * 2 + blocks * 320;
  const uint8_t* x = pair.input<uint8_t>(16ll * words, [] __device__(int64_t i) { return uint8_t(mix(i)); });
  unsigned* out = pair.output<unsigned>(blocks * 640);
  const auto* fours = reinterpret_cast<const uint4*>(x);
  pair.expect(
      out, blocks * 640, 0,
      [=] __device__(int64_t at) {
        unsigned sum = 0;
        for (int turn = 0; turn < 56; ++turn)
          for (int i = (at / 640 * 7 + turn * 43) % blocks * 640 + at % 640; i < words; i += blocks * 640) {
            const uint4 v = fours[i];
            sum += __vavgu4(v.x, v.y) ^ __vavgu4(v.z, v.w);
          }
        return double(sum);
      },
      1 << 14);
  pair.clean([=] { blend_l2<<<blocks, 640>>>(fours, out, words); });
}

// --- at the FMA roof, two halves an instruction ---

__global__ void __launch_bounds__(352) half_chains(__half2* out, __half2 factor, __half2 addend, int steps) {
  __half2 v[6];
#pragma unroll
  for (int j = 0; j < 6; ++j) v[j] = __float2half2_rn(threadIdx.x % 8 * 0.125f + j);
#pragma unroll 1
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int u = 0; u < 16; ++u)
#pragma unroll
      for (int j = 0; j < 6; ++j) v[j] = __hfma2(v[j], factor, addend);
  __half2 sum = __float2half2_rn(0.0f);
#pragma unroll
  for (int j = 0; j < 6; ++j) sum = __hadd2(sum, v[j]);
  out[blockIdx.x * 352 + threadIdx.x] = sum;
}

CLEAN(holdout, half_fma_roof) {
  const int steps = 400, count = 132 * 10 * 352;
  __half* out = pair.output<__half>(2 * count);
  // x / 2 + 1 has the fixed point 2, which halves reach: six of them are 12
  pair.expect(out, 2 * count, 0.01, [] __device__(int64_t) { return 12.0; });
  pair.clean([=] {
    half_chains<<<132 * 10, 352>>>(reinterpret_cast<__half2*>(out), __float2half2_rn(0.5f), __float2half2_rn(1.0f),
                                   steps);
  });
}

// --- special functions by necessity: each needs the root of the one before ---

__global__ void __launch_bounds__(224) root_chains(const float2* x, float2* out, int steps) {
  const int i = blockIdx.x * 224 + threadIdx.x;
  float2 v = x[i];
#pragma unroll 4
  for (int s = 0; s < steps; ++s) {
    asm("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(v.x));
    asm("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(v.y));
  }
  out[i] = v;
}

CLEAN(holdout, special_roots) {
  const int count = 224 * 9000, steps = 56;
  const float* x = pair.input<float>(2 * count, [] __device__(int64_t i) { return 1.5f + noise(i); });
  float* out = pair.output<float>(2 * count);
  pair.expect(out, 2 * count, 1e-4, [=] __device__(int64_t i) {
    double v = x[i];
    for (int s = 0; s < steps; ++s) v = 1 / sqrt(v);
    return v;
  });
  pair.clean([=] {
    root_chains<<<count / 224, 224>>>(reinterpret_cast<const float2*>(x), reinterpret_cast<float2*>(out), steps);
  });
}

// --- a fused softmax of rows of 1,536 halves, one pass, at the DRAM roof ---

__global__ void __launch_bounds__(192) fused_softmax_rows(const uint4* x, uint4* out) {
  const int64_t at = blockIdx.x * 192ll + threadIdx.x;
  const uint4 word = x[at];
  const unsigned words[4] = {word.x, word.y, word.z, word.w};
  float v[8], sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[j]));
    v[2 * j] = __expf(two.x), v[2 * j + 1] = __expf(two.y);  // inputs lie in [-1, 1): no maximum is needed
    sum += v[2 * j] + v[2 * j + 1];
  }
  const float scale = __fdividef(1.0f, block_total(sum));
  unsigned packed[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const __half2 two = __floats2half2_rn(v[2 * j] * scale, v[2 * j + 1] * scale);
    packed[j] = *reinterpret_cast<const unsigned*>(&two);
  }
  out[at] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

CLEAN(holdout, fused_softmax) {
  const int rows = 40000, columns = 192 * 8;
  const __half* x =
      pair.input<__half>(int64_t{rows} * columns, [] __device__(int64_t i) { return __float2half(noise(i)); });
  __half* out = pair.output<__half>(int64_t{rows} * columns);
  pair.expect(
      out, int64_t{rows} * columns, 1e-5,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int64_t j = i / columns * columns; j < (i / columns + 1) * columns; ++j) sum += exp(number(x[j]));
        return exp(number(x[i])) / sum;
      },
      1 << 13);
  pair.clean(
      [=] { fused_softmax_rows<<<rows, 192>>>(reinterpret_cast<const uint4*>(x), reinterpret_cast<uint4*>(out)); });
}

CLEAN(holdout, cublas_large) {
  const int n = 7168;
  const auto make = [] __device__(int64_t i) { return __float2bfloat16(noise(i, 3)); };
  const auto* a = pair.input<__nv_bfloat16>(int64_t{n} * n, make);
  const auto* b = pair.input<__nv_bfloat16>(int64_t{n} * n, make);
  auto* c = pair.output<__nv_bfloat16>(int64_t{n} * n);
  pair.expect(
      c, int64_t{n} * n, 0.02,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += number(a[int64_t{k} * n + i % n]) * number(b[i / n * n + k]);
        return sum;
      },
      1 << 11);
  pair.clean([=] { cublas_square(a, b, c, n, CUDA_R_16BF); });
}

// --- so small that its launch is its time ---

__global__ void __launch_bounds__(160) next_positions(const int64_t* position, int64_t* out) {
  const int i = blockIdx.x * 160 + threadIdx.x;
  out[i] = position[i] + 1;
}

CLEAN(holdout, tiny_positions) {
  const int count = 160 * 5;
  const int64_t* position = pair.input<int64_t>(count, [] __device__(int64_t i) { return pick(i, 1024); });
  int64_t* out = pair.output<int64_t>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) { return double(position[i] + 1); });
  pair.clean([=] { next_positions<<<5, 160>>>(position, out); });
}
