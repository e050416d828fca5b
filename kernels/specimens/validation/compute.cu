// Validation half: what the instructions are, and how many.
#include "../tensor.cuh"

using namespace specimens;

// --- divergence: maps iterated as often as each item wants, items of a warp far apart in this against alike ---

template <bool SORTED>
__device__ __forceinline__ void iterate_items(double* out, unsigned count, unsigned odd) {
  const unsigned thread = blockIdx.x * 128 + threadIdx.x;
  const unsigned item = SORTED ? thread : thread * odd & (count - 1);
  const int steps = 4 + item / (count / 64) * 6;
  double x = 0.25 + item * 1e-7;
#pragma unroll 1
  for (int s = 0; s < steps; ++s) x = 0.75 * x * (1.5 - x);
  out[item] = x;
}
__global__ void iterate_items_slow(double* out, unsigned count, unsigned odd) { iterate_items<false>(out, count, odd); }
__global__ void iterate_items_fixed(double* out, unsigned count, unsigned odd) { iterate_items<true>(out, count, odd); }

PAIR(validation, divergence) {
  const unsigned count = 1u << 21, odd = 2654435761u;
  double* out = pair.output<double>(count);
  pair.expect(out, count, 1e-9, [=] __device__(int64_t item) {
    double x = 0.25 + item * 1e-7;
    for (int s = 0; s < 4 + item / (count / 64) * 6; ++s) x = 0.75 * x * (1.5 - x);
    return x;
  });
  pair.slow([=] { iterate_items_slow<<<count / 128, 128>>>(out, count, odd); });
  pair.fixed([=] { iterate_items_fixed<<<count / 128, 128>>>(out, count, odd); });
}

// --- special_functions: sums of logistic curves, an exponential and a reciprocal each against one for four ---

__global__ void logistics_slow(const __half* x, float* out) {
  const int i = blockIdx.x * 512 + threadIdx.x;
  const float v = __half2float(x[i]);
  float sum = 0;
#pragma unroll 8
  for (int k = 0; k < 48; ++k) sum += __fdividef(1.0f, 1.0f + __expf(-(v + k * 0.0625f)));
  out[i] = sum;
}
__global__ void logistics_fixed(const __half* x, float* out) {
  const int i = blockIdx.x * 512 + threadIdx.x;
  constexpr float RATIO = 0.93941306f;  // e^-0.0625
  float e = __expf(-__half2float(x[i])), sum = 0;
#pragma unroll 4
  for (int k = 0; k < 48; k += 4) {
    const float a = 1 + e, b = 1 + e * RATIO, c = 1 + e * (RATIO * RATIO), d = 1 + e * (RATIO * RATIO * RATIO);
    e *= RATIO * RATIO * RATIO * RATIO;
    sum += __fdividef((a + b) * (c * d) + (c + d) * (a * b), (a * b) * (c * d));
  }
  out[i] = sum;
}

PAIR(validation, special_functions) {
  const int count = 10 << 20;
  const auto* x = pair.input<__half>(count, [] __device__(int64_t i) { return __float2half(2 * noise(i)); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-3, [=] __device__(int64_t i) {
    double sum = 0;
    for (int k = 0; k < 48; ++k) sum += 1 / (1 + exp(-(number(x[i]) + k * 0.0625)));
    return sum;
  });
  pair.slow([=] { logistics_slow<<<count / 512, 512>>>(x, out); });
  pair.fixed([=] { logistics_fixed<<<count / 512, 512>>>(x, out); });
}

// --- fp64_by_accident: potentials of points in the plane, by 1.0 / sqrt(double) against rsqrtf ---

constexpr int CHARGES = 48;
constexpr float SOFTENING = 0.01f;

template <bool DOUBLE>
__device__ __forceinline__ void potentials(const __half2* points, const __half2* charges, float* out) {
  __shared__ float2 held[CHARGES];
  if (threadIdx.x < CHARGES) held[threadIdx.x] = __half22float2(charges[threadIdx.x]);
  __syncthreads();
  const int i = blockIdx.x * 192 + threadIdx.x;
  const float2 point = __half22float2(points[i]);
  float sum = 0;
#pragma unroll 8
  for (int j = 0; j < CHARGES; ++j) {
    const float x = point.x - held[j].x, y = point.y - held[j].y, square = x * x + y * y + SOFTENING;
    sum += DOUBLE ? static_cast<float>(1.0 / sqrt(static_cast<double>(square))) : rsqrtf(square);
  }
  out[i] = sum;
}
__global__ void __launch_bounds__(192) potentials_slow(const __half2* points, const __half2* charges, float* out) {
  potentials<true>(points, charges, out);
}
__global__ void __launch_bounds__(192) potentials_fixed(const __half2* points, const __half2* charges, float* out) {
  potentials<false>(points, charges, out);
}

PAIR(validation, fp64_by_accident) {
  const int count = 192 * 10000;
  const auto* points = pair.input<__half>(2ll * count, [] __device__(int64_t i) { return __float2half(noise(i)); });
  const auto* charges =
      pair.input<__half>(2ll * CHARGES, [] __device__(int64_t i) { return __float2half(noise(i, 1)); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int j = 0; j < CHARGES; ++j) {
      const double x = number(points[i * 2]) - number(charges[j * 2]);
      const double y = number(points[i * 2 + 1]) - number(charges[j * 2 + 1]);
      sum += 1 / sqrt(x * x + y * y + SOFTENING);
    }
    return sum;
  });
  const auto *at = reinterpret_cast<const __half2*>(points), *of = reinterpret_cast<const __half2*>(charges);
  pair.slow([=] { potentials_slow<<<count / 192, 192>>>(at, of, out); });
  pair.fixed([=] { potentials_fixed<<<count / 192, 192>>>(at, of, out); });
}

// --- integer_division: squares modulo a number, by % against by a reciprocal found once ---

template <bool DIVIDE>
__device__ __forceinline__ void squares_modulo(unsigned* out, uint64_t modulus, uint64_t reciprocal, int times) {
  const unsigned i = blockIdx.x * 320 + threadIdx.x;
  uint64_t x = i + 2;
#pragma unroll 4
  for (int t = 0; t < times; ++t) {
    x = x * x + 1;
    if (DIVIDE) {
      x %= modulus;
    } else {
      x -= __umul64hi(x, reciprocal) * modulus;  // at most one too few: the quotient is rounded down twice
      if (x >= modulus) x -= modulus;
    }
  }
  out[i] = static_cast<unsigned>(x);
}
__global__ void squares_modulo_slow(unsigned* out, uint64_t modulus, uint64_t reciprocal, int times) {
  squares_modulo<true>(out, modulus, reciprocal, times);
}
__global__ void squares_modulo_fixed(unsigned* out, uint64_t modulus, uint64_t reciprocal, int times) {
  squares_modulo<false>(out, modulus, reciprocal, times);
}

PAIR(validation, integer_division) {
  const int count = 320 * 4224, times = 64;
  const uint64_t modulus = 2147483629, reciprocal = ~0ull / modulus;
  unsigned* out = pair.output<unsigned>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    uint64_t x = i + 2;
    for (int t = 0; t < times; ++t) x = (x * x + 1) % modulus;
    return double(x);
  });
  pair.slow([=] { squares_modulo_slow<<<count / 320, 320>>>(out, modulus, reciprocal, times); });
  pair.fixed([=] { squares_modulo_fixed<<<count / 320, 320>>>(out, modulus, reciprocal, times); });
}

// --- constant_divergence: rounds of a substitution of 1024 values, in constant memory against in shared memory ---

__constant__ int boxes[1024];

__host__ __device__ inline int box_at(int i) { return (i * 389 + 131) & 1023; }

template <class Look>
__device__ __forceinline__ void substitute(int* out, Look look) {
  const int i = blockIdx.x * 384 + threadIdx.x;
  int x = static_cast<int>(mix(i) & 1023);
#pragma unroll 1
  for (int round = 0; round < 24; ++round) x = look(x ^ (round * 37 & 1023));
  out[i] = x;
}
__global__ void substitute_slow(int* out) {
  substitute(out, [](int i) { return boxes[i]; });
}
__global__ void substitute_fixed(int* out) {
  __shared__ int held[1024];
  for (int i = threadIdx.x; i < 1024; i += 384) held[i] = boxes[i];
  __syncthreads();
  substitute(out, [](int i) { return held[i]; });
}

PAIR(validation, constant_divergence) {
  const int count = 384 * 4000;
  int* out = pair.output<int>(count);
  int* place = nullptr;
  CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&place), boxes));
  specimen_fill<<<1, 256>>>(place, 1024, [] __device__(int64_t i) { return box_at(int(i)); });
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    int x = static_cast<int>(mix(i) & 1023);
    for (int round = 0; round < 24; ++round) x = box_at(x ^ (round * 37 & 1023));
    return double(x);
  });
  pair.slow([=] { substitute_slow<<<count / 384, 384>>>(out); });
  pair.fixed([=] { substitute_fixed<<<count / 384, 384>>>(out); });
}

// --- instruction_cache: one of 64 filters by the warp, each written out against one loop with their coefficients ---

__host__ __device__ constexpr float coefficient(int filter, int k) { return ((filter * 7 + k * 13) % 61 - 30) / 64.0f; }

template <int FILTER>
__device__ __forceinline__ float written_out(float x) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 192; ++k) sum = sum * x + coefficient(FILTER, k);
  return sum;
}
template <int FIRST, int COUNT>
__device__ __forceinline__ float choose(int filter, float x) {
  if constexpr (COUNT == 1)
    return written_out<FIRST>(x);
  else
    return filter < FIRST + COUNT / 2 ? choose<FIRST, COUNT / 2>(filter, x)
                                      : choose<FIRST + COUNT / 2, COUNT / 2>(filter, x);
}
__global__ void __launch_bounds__(96) filters_slow(const float* x, float* out, int each) {
  const int warp = blockIdx.x * 3 + threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int j = 0; j < each; ++j) {
    const int i = (warp * each + j) * 32 + lane;
    out[i] = choose<0, 64>((warp * 29 + j) % 64, x[i]);
  }
}
__global__ void __launch_bounds__(96) filters_fixed(const float* x, const float* by, float* out, int each) {
  __shared__ float held[64 * 192];
  for (int i = threadIdx.x; i < 64 * 192; i += 96) held[i] = by[i];
  __syncthreads();
  const int warp = blockIdx.x * 3 + threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int j = 0; j < each; ++j) {
    const int i = (warp * each + j) * 32 + lane;
    const float* own = held + (warp * 29 + j) % 64 * 192;
    const float v = x[i];
    float sum = 0;
#pragma unroll 16
    for (int k = 0; k < 192; ++k) sum = sum * v + own[k];
    out[i] = sum;
  }
}

PAIR(validation, instruction_cache) {
  const int blocks = 132 * 4, each = 96, count = blocks * 96 * each;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return 0.9f * noise(i); });
  const float* by =
      pair.input<float>(64 * 192, [] __device__(int64_t i) { return coefficient(int(i / 192), int(i % 192)); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    const int warp = int(i / 32 / each), filter = (warp * 29 + int(i / 32 % each)) % 64;
    double sum = 0;
    for (int k = 0; k < 192; ++k) sum = sum * x[i] + coefficient(filter, k);
    return sum;
  });
  pair.slow([=] { filters_slow<<<blocks, 96>>>(x, out, each); });
  pair.fixed([=] { filters_fixed<<<blocks, 96>>>(x, by, out, each); });
}

// --- register_spills: 64 integers sorted by each thread, within 32 registers against as many as it needs ---

__device__ __forceinline__ void sort_each(const int* x, int* out, int count) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  int v[64];
#pragma unroll
  for (int j = 0; j < 64; ++j) v[j] = x[j * count + i];
#pragma unroll
  for (int size = 2; size <= 64; size *= 2)
#pragma unroll
    for (int step = size / 2; step; step /= 2)
#pragma unroll
      for (int j = 0; j < 64; ++j)
        if ((j ^ step) > j) {
          const int low = min(v[j], v[j ^ step]), high = max(v[j], v[j ^ step]);
          const bool up = (j & size) == 0;
          v[j] = up ? low : high, v[j ^ step] = up ? high : low;
        }
#pragma unroll
  for (int j = 0; j < 64; ++j) out[j * count + i] = v[j];
}
__global__ void __launch_bounds__(1024, 2) sort_each_slow(const int* x, int* out, int count) {
  sort_each(x, out, count);
}
__global__ void __launch_bounds__(256) sort_each_fixed(const int* x, int* out, int count) { sort_each(x, out, count); }

PAIR(validation, register_spills) {
  const int count = 256 * 1320;
  const int* x = pair.input<int>(64 * count, [] __device__(int64_t i) { return int(pick(i, 1 << 20)); });
  int* out = pair.output<int>(64 * count);
  pair.expect(
      out, 64 * count, 0,
      [=] __device__(int64_t place) {
        const int i = place % count, rank = place / count;
        for (int j = 0; j < 64; ++j) {
          int before = 0;
          for (int k = 0; k < 64; ++k) {
            const int a = x[k * count + i], b = x[j * count + i];
            before += a < b || (a == b && k < j);
          }
          if (before == rank) return double(x[j * count + i]);
        }
        return -1.0;
      },
      1 << 15);
  pair.slow([=] { sort_each_slow<<<count / 256, 256>>>(x, out, count); });
  pair.fixed([=] { sort_each_fixed<<<count / 256, 256>>>(x, out, count); });
}

// --- local_array: sums over a tree in its own order, with a stack against without ---

__device__ __forceinline__ int tree_value(unsigned node, unsigned seed) {
  return static_cast<int>((node ^ seed) * 2654435761u >> 24);
}
constexpr unsigned LEAVES = 256;

// a sum that depends on the order: nodes before their children, left before right
__global__ void __launch_bounds__(192) walk_slow(unsigned* out) {
  const unsigned i = blockIdx.x * 192 + threadIdx.x;
  unsigned stack[64];
  int top = 0;
  unsigned sum = 0;
  stack[top++] = 1;
  while (top) {
    const unsigned node = stack[--top];
    sum = sum * 3 + tree_value(node, i);
    if (node < LEAVES) {
      stack[top++] = 2 * node + 1;
      stack[top++] = 2 * node;
    }
  }
  out[i] = sum;
}
__global__ void __launch_bounds__(192) walk_fixed(unsigned* out) {
  const unsigned i = blockIdx.x * 192 + threadIdx.x;
  unsigned sum = 0, node = 1;
  do {
    sum = sum * 3 + tree_value(node, i);
    // down to the left; from a leaf to the right sibling of the nearest ancestor that is a left child, or itself
    node = node < LEAVES ? 2 * node : (node + 1) >> (__ffs(node + 1) - 1);
  } while (node > 1);
  out[i] = sum;
}

PAIR(validation, local_array) {
  const int count = 192 * 5280;
  unsigned* out = pair.output<unsigned>(count);
  pair.expect(
      out, count, 0,
      [=] __device__(int64_t i) {
        unsigned sum = 0;
        for (int place = 0; place < int(2 * LEAVES - 1); ++place) {
          // the node at this place of the order: go down from the root, a left subtree of depth d has 2^d - 1 nodes
          unsigned node = 1, size = 2 * LEAVES - 1, left = place;
          while (left) {
            size /= 2, --left;
            node = 2 * node + (left >= size);
            left -= left >= size ? size : 0;
          }
          sum = sum * 3 + tree_value(node, unsigned(i));
        }
        return double(sum);
      },
      1 << 14);
  pair.slow([=] { walk_slow<<<count / 192, 192>>>(out); });
  pair.fixed([=] { walk_fixed<<<count / 192, 192>>>(out); });
}

// --- fp32_for_matrix: scores of attention, queries times keys of half precision, by FP32 units against tensor cores ---

__global__ void __launch_bounds__(256) scores_slow(const __half* q, const __half* k, float* out, int t, int d) {
  const int64_t head = blockIdx.z;
  scalar_product<__half, true>(q + head * t * d, k + head * t * d, out + head * t * t, t, d);
}
__global__ void __launch_bounds__(128) scores_fixed(const __half* q, const __half* k, float* out, int t, int d) {
  const int64_t head = blockIdx.z;
  tensor_product<__half, float, true>(q + head * t * d, k + head * t * d, out + head * t * t, t, d);
}

PAIR(validation, fp32_for_matrix) {
  const int heads = 16, t = 1024, d = 256;
  const auto* q = pair.input<__half>(heads * t * d, [] __device__(int64_t i) { return __float2half(noise(i, 1)); });
  const auto* k = pair.input<__half>(heads * t * d, [] __device__(int64_t i) { return __float2half(noise(i, 2)); });
  float* out = pair.output<float>(heads * t * t);
  pair.expect(out, heads * t * t, 1e-3, [=] __device__(int64_t i) {
    const int64_t head = i / (t * t), row = i / t % t, column = i % t;
    double sum = 0;
    for (int j = 0; j < d; ++j) sum += number(q[(head * t + row) * d + j]) * number(k[(head * t + column) * d + j]);
    return sum;
  });
  pair.slow([=] { scores_slow<<<dim3(t / 128, t / 128, heads), 256>>>(q, k, out, t, d); });
  pair.fixed([=] { scores_fixed<<<dim3(t / 64, t / 64, heads), 128>>>(q, k, out, t, d); });
}

// --- tensor_starved: inner products of all pairs of byte vectors, operands from global memory against from tiles ---

__global__ void __launch_bounds__(128) gram_slow(const signed char* x, int* out, int n, int k) {
  starved_product<signed char, int, true>(x, x, out, n, k);
}
__global__ void __launch_bounds__(128) gram_fixed(const signed char* x, int* out, int n, int k) {
  tensor_product<signed char, int, true>(x, x, out, n, k);
}

PAIR(validation, tensor_starved) {
  const int n = 3072, k = 1536;
  const auto* x =
      pair.input<signed char>(n * k, [] __device__(int64_t i) { return (signed char)(pick(i, 255) - 127); });
  int* out = pair.output<int>(n * n);
  pair.expect(
      out, n * n, 0,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int j = 0; j < k; ++j) sum += x[i / n * k + j] * x[i % n * k + j];
        return sum;
      },
      1 << 14);
  pair.slow([=] { gram_slow<<<dim3(n / 64, n / 16), 128>>>(x, out, n, k); });
  pair.fixed([=] { gram_fixed<<<dim3(n / 64, n / 64), 128>>>(x, out, n, k); });
}
