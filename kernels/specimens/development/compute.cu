// Development half: what the instructions are, and how many.
#include "../tensor.cuh"

using namespace specimens;

// --- divergence: one of eight polynomials by the element's number, neighbours in a warp apart against together ---

template <int KIND>
__device__ __forceinline__ float path(float x) {
  float sum = 1;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) sum = sum * x + (KIND + 1) * 0.125f;
  return sum;
}
__device__ __forceinline__ float by_kind(int kind, float x) {
  switch (kind) {
    case 0:
      return path<0>(x);
    case 1:
      return path<1>(x) + x;
    case 2:
      return path<2>(x) - x;
    case 3:
      return path<3>(x) * x;
    case 4:
      return path<4>(x) + 2 * x;
    case 5:
      return path<5>(x) - 2 * x;
    case 6:
      return path<6>(x) * 2 * x;
    default:
      return path<7>(x) + 3 * x;
  }
}
__global__ void kinds_slow(const float* x, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = by_kind(i % 8, x[i]);
}
__global__ void kinds_fixed(const float* x, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x % 32 * 8 + threadIdx.x / 32;  // a warp has one kind
  out[i] = by_kind(i % 8, x[i]);
}

PAIR(development, divergence) {
  const int count = 16 << 20;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return 0.9f * noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    const int kind = i % 8;
    const double v = x[i];
    double sum = 1;
    for (int k = 0; k < 64; ++k) sum = sum * v + (kind + 1) * 0.125;
    const double all[8] = {sum, sum + v, sum - v, sum * v, sum + 2 * v, sum - 2 * v, sum * 2 * v, sum + 3 * v};
    return all[kind];
  });
  pair.slow([=] { kinds_slow<<<count / 256, 256>>>(x, out); });
  pair.fixed([=] { kinds_fixed<<<count / 256, 256>>>(x, out); });
}

// --- special_functions: a series of sines, each by the special function unit against by a recurrence ---

__global__ void sines_slow(const float* x, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const float v = x[i];
  float sum = 0;
#pragma unroll 8
  for (int k = 1; k <= 64; ++k) sum += __sinf(k * v);
  out[i] = sum;
}
__global__ void sines_fixed(const float* x, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float s, c;
  __sincosf(x[i], &s, &c);
  float before = 0, now = s, sum = 0;  // sin((k + 1) x) = 2 cos(x) sin(k x) - sin((k - 1) x)
#pragma unroll 8
  for (int k = 1; k <= 64; ++k) {
    sum += now;
    const float next = 2 * c * now - before;
    before = now, now = next;
  }
  out[i] = sum;
}

PAIR(development, special_functions) {
  const int count = 8 << 20;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return 1.5f + noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 0.01, [=] __device__(int64_t i) {
    double sum = 0;
    for (int k = 1; k <= 64; ++k) sum += sin(double(x[i]) * k);
    return sum;
  });
  pair.slow([=] { sines_slow<<<count / 256, 256>>>(x, out); });
  pair.fixed([=] { sines_fixed<<<count / 256, 256>>>(x, out); });
}

// --- fp64_by_accident: a damped iteration with literals of type double against float ---

template <class Literal>
__device__ __forceinline__ float damped(float x) {
#pragma unroll 8
  for (int k = 0; k < 64; ++k) x = x * static_cast<Literal>(0.97) + static_cast<Literal>(0.011);
  return x;
}
__global__ void damped_slow(const float* x, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = damped<double>(x[i]);
}
__global__ void damped_fixed(const float* x, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  out[i] = damped<float>(x[i]);
}

PAIR(development, fp64_by_accident) {
  const int count = 12 << 20;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    double v = x[i];
    for (int k = 0; k < 64; ++k) v = v * 0.97 + 0.011;
    return v;
  });
  pair.slow([=] { damped_slow<<<count / 256, 256>>>(x, out); });
  pair.fixed([=] { damped_fixed<<<count / 256, 256>>>(x, out); });
}

// --- integer_division: axes of a tensor swapped, places by 64-bit division against by the grid ---

__global__ void swap_axes_slow(const float* x, float* out, int64_t b, int64_t h, int64_t t, int64_t d) {
  const int64_t i = blockIdx.x * 192ll + threadIdx.x;
  if (i >= b * h * t * d) return;
  const int64_t in_d = i % d, in_t = i / d % t, in_h = i / d / t % h, in_b = i / d / t / h;
  out[((in_b * t + in_t) * h + in_h) * d + in_d] = x[i];
}
__global__ void swap_axes_fixed(const float* x, float* out, int h, int t, int d) {
  const int in_d = threadIdx.x, in_t = blockIdx.x * blockDim.y + threadIdx.y, in_h = blockIdx.y, in_b = blockIdx.z;
  out[((static_cast<int64_t>(in_b) * t + in_t) * h + in_h) * d + in_d] =
      x[((static_cast<int64_t>(in_b) * h + in_h) * t + in_t) * d + in_d];
}

PAIR(development, integer_division) {
  const int b = 8, h = 24, t = 2000, d = 96;
  const int64_t count = int64_t{b} * h * t * d;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    const int64_t in_d = i % d, in_h = i / d % h, in_t = i / d / h % t, in_b = i / d / h / t;
    return double(x[((in_b * h + in_h) * t + in_t) * d + in_d]);
  });
  pair.slow([=] { swap_axes_slow<<<count / 192, 192>>>(x, out, b, h, t, d); });
  pair.fixed([=] { swap_axes_fixed<<<dim3(t / 2, h, b), dim3(96, 2)>>>(x, out, h, t, d); });
}

// --- constant_divergence: bytes through a curve, held in constant memory against in shared memory ---

__constant__ float curve[256];

__device__ float curve_at(int i) { return i * i / 65025.0f; }

template <class Look>
__device__ __forceinline__ void through_curve(const uint4* x, float* out, Look look) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const uint4 v = x[i];
  float sum = 0;
  for (const unsigned word : {v.x, v.y, v.z, v.w})
#pragma unroll
    for (int j = 0; j < 32; j += 8) sum += look(word >> j & 255);
  out[i] = sum;
}
__global__ void through_curve_slow(const uint4* x, float* out) {
  through_curve(x, out, [](int i) { return curve[i]; });
}
__global__ void through_curve_fixed(const uint4* x, float* out) {
  __shared__ float held[256];
  held[threadIdx.x] = curve[threadIdx.x];
  __syncthreads();
  through_curve(x, out, [](int i) { return held[i]; });
}

PAIR(development, constant_divergence) {
  const int count = 4 << 20;  // of sixteen bytes
  const auto* x = pair.input<uint8_t>(16ll * count, [] __device__(int64_t i) { return uint8_t(mix(i)); });
  float* out = pair.output<float>(count);
  float* place = nullptr;
  CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&place), curve));
  specimen_fill<<<1, 256>>>(place, 256, [] __device__(int64_t i) { return curve_at(int(i)); });
  pair.expect(out, count, 1e-5, [=] __device__(int64_t i) {
    double sum = 0;
    for (int j = 0; j < 16; ++j) sum += curve_at(x[i * 16 + j]);
    return sum;
  });
  const auto* words = reinterpret_cast<const uint4*>(x);
  pair.slow([=] { through_curve_slow<<<count / 256, 256>>>(words, out); });
  pair.fixed([=] { through_curve_fixed<<<count / 256, 256>>>(words, out); });
}

// --- instruction_cache: rounds of a hash on four seeds, 2048 of them written out against four in a loop ---

template <int WRITTEN_OUT>
__device__ __forceinline__ void rounds(unsigned* out, int times) {
  const unsigned i = blockIdx.x * 128 + threadIdx.x;
  unsigned h[4] = {i * 4, i * 4 + 1, i * 4 + 2, i * 4 + 3};
#pragma unroll 1
  for (int t = 0; t < times; ++t)
#pragma unroll WRITTEN_OUT
    for (int k = 0; k < 2048; ++k)
#pragma unroll
      for (unsigned& one : h) one = (one ^ one >> 15) * 0x9e3779b1u;
  out[i] = h[0] ^ h[1] ^ h[2] ^ h[3];
}
__global__ void __launch_bounds__(128) rounds_slow(unsigned* out, int times) { rounds<2048>(out, times); }
__global__ void __launch_bounds__(128) rounds_fixed(unsigned* out, int times) { rounds<4>(out, times); }

PAIR(development, instruction_cache) {
  const int count = 132 * 2 * 128, times = 6;
  unsigned* out = pair.output<unsigned>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    unsigned all = 0;
    for (unsigned seed = 0; seed < 4; ++seed) {
      unsigned h = unsigned(i) * 4 + seed;
      for (int t = 0; t < times * 2048; ++t) h = (h ^ h >> 15) * 0x9e3779b1u;
      all ^= h;
    }
    return double(all);
  });
  pair.slow([=] { rounds_slow<<<132 * 2, 128>>>(out, times); });
  pair.fixed([=] { rounds_fixed<<<132 * 2, 128>>>(out, times); });
}

// --- register_spills: a matrix product with 8 x 8 outputs a thread, within 32 registers against as many as it needs ---

__global__ void __launch_bounds__(256, 8) spilled_product_slow(const float* a, const float* b, float* c, int n) {
  scalar_product<float, false>(a, b, c, n, n);
}
__global__ void __launch_bounds__(256) spilled_product_fixed(const float* a, const float* b, float* c, int n) {
  scalar_product<float, false>(a, b, c, n, n);
}

PAIR(development, register_spills) {
  const int n = 1792;
  const float* a = pair.input<float>(n * n, [] __device__(int64_t i) { return noise(i, 1); });
  const float* b = pair.input<float>(n * n, [] __device__(int64_t i) { return noise(i, 2); });
  float* c = pair.output<float>(n * n);
  pair.expect(
      c, n * n, 1e-3,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += double(a[i / n * n + k]) * b[k * n + i % n];
        return sum;
      },
      1 << 14);
  pair.slow([=] { spilled_product_slow<<<dim3(n / 128, n / 128), 256>>>(a, b, c, n); });
  pair.fixed([=] { spilled_product_fixed<<<dim3(n / 128, n / 128), 256>>>(a, b, c, n); });
}

// --- local_array: counts of 64 kinds for each thread, in an array of its own against in shared memory ---

__device__ __forceinline__ int kind_of(unsigned i, int step) {
  return (i * 2654435761u + step * 2246822519u) >> 13 & 63;
}

__global__ void __launch_bounds__(128) counts_slow(int* out, int steps) {
  const unsigned i = blockIdx.x * 128 + threadIdx.x;
  int counts[64];
#pragma unroll
  for (int j = 0; j < 64; ++j) counts[j] = 0;
  for (int s = 0; s < steps; ++s) counts[kind_of(i, s)] += s;
  int sum = 0;
  for (int j = 0; j < 64; ++j) sum += counts[j] >> 3;
  out[i] = sum;
}
__global__ void __launch_bounds__(128) counts_fixed(int* out, int steps) {
  __shared__ int counts[64][128];
  const unsigned i = blockIdx.x * 128 + threadIdx.x;
  for (int j = 0; j < 64; ++j) counts[j][threadIdx.x] = 0;
  for (int s = 0; s < steps; ++s) counts[kind_of(i, s)][threadIdx.x] += s;
  int sum = 0;
  for (int j = 0; j < 64; ++j) sum += counts[j][threadIdx.x] >> 3;
  out[i] = sum;
}

PAIR(development, local_array) {
  const int count = 132 * 32 * 128, steps = 200;
  int* out = pair.output<int>(count);
  pair.expect(
      out, count, 0,
      [=] __device__(int64_t i) {
        int sum = 0;
        for (int j = 0; j < 64; ++j) {
          int own = 0;
          for (int s = 0; s < steps; ++s) own += kind_of(i, s) == j ? s : 0;
          sum += own >> 3;
        }
        return double(sum);
      },
      1 << 13);
  pair.slow([=] { counts_slow<<<count / 128, 128>>>(out, steps); });
  pair.fixed([=] { counts_fixed<<<count / 128, 128>>>(out, steps); });
}

// --- fp32_for_matrix: a product of bfloat16 by FP32 units against by tensor cores ---

using bf16 = __nv_bfloat16;

__global__ void __launch_bounds__(256) half_product_slow(const bf16* a, const bf16* b, float* c, int n) {
  scalar_product<bf16, false>(a, b, c, n, n);
}
__global__ void __launch_bounds__(128) half_product_fixed(const bf16* a, const bf16* b, float* c, int n) {
  tensor_product<bf16, float, false>(a, b, c, n, n);
}

void bf16_products(Pair& pair, int n, void (*slow)(const bf16*, const bf16*, float*, int), dim3 grid, int threads,
                   void (*fixed)(const bf16*, const bf16*, float*, int)) {
  const bf16* a = pair.input<bf16>(n * n, [] __device__(int64_t i) { return __float2bfloat16(noise(i, 1)); });
  const bf16* b = pair.input<bf16>(n * n, [] __device__(int64_t i) { return __float2bfloat16(noise(i, 2)); });
  float* c = pair.output<float>(n * n);
  pair.expect(
      c, n * n, 2e-3,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += number(a[i / n * n + k]) * number(b[k * n + i % n]);
        return sum;
      },
      1 << 14);
  pair.slow([=] { slow<<<grid, threads>>>(a, b, c, n); });
  pair.fixed([=] { fixed<<<dim3(n / 64, n / 64), 128>>>(a, b, c, n); });
}

PAIR(development, fp32_for_matrix) {
  bf16_products(pair, 2304, half_product_slow, dim3(2304 / 128, 2304 / 128), 256, half_product_fixed);
}

// --- tensor_starved: tensor cores whose operands come from global memory each time, against from tiles ---

__global__ void __launch_bounds__(64) starved_slow(const bf16* a, const bf16* b, float* c, int n) {
  starved_product<bf16, float, false>(a, b, c, n, n);
}
__global__ void __launch_bounds__(128) starved_fixed(const bf16* a, const bf16* b, float* c, int n) {
  tensor_product<bf16, float, false>(a, b, c, n, n);
}

PAIR(development, tensor_starved) {
  bf16_products(pair, 2048, starved_slow, dim3(2048 / 32, 2048 / 16), 64, starved_fixed);
}
