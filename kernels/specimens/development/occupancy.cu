// Development half: how many threads there are, how long each block takes, and what they wait for.
#include "../specimen.cuh"

using namespace specimens;

// An element of a table of a power of two of floats: lanes of a warp read one random line of 32, so that a warp waits for
// memory and does not fill it.
__device__ __forceinline__ float drawn(const float* table, unsigned mask, unsigned i, unsigned step) {
  return table[(i / 32 * 2654435761u + step * 0x9e3779b9u) * 2246822519u & mask & ~31u | i % 32];
}
constexpr unsigned TABLE = 1u << 26;

// --- grid_too_small: sums of squares of sixteen rows, a block a row against 66 ---

__device__ __forceinline__ float squares(const float4* x, int64_t from, int64_t to) {
  float sum = 0;
#pragma unroll 4
  for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x) {
    const float4 v = x[i];
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  return block_total(sum);
}
__global__ void squares_slow(const float4* x, float* out, int64_t length) {
  const float sum = squares(x + blockIdx.x * length, 0, length);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
__global__ void squares_fixed(const float4* x, float* out, int64_t length) {
  const int64_t part = (length + gridDim.x - 1) / gridDim.x;
  const float sum = squares(x + blockIdx.y * length, blockIdx.x * part, min((blockIdx.x + 1) * part, length));
  if (threadIdx.x == 0) atomicAdd(out + blockIdx.y, sum);
}

PAIR(development, grid_too_small) {
  const int64_t length = 1 << 18;  // of four floats
  const auto* x = pair.input<float>(16 * 4 * length, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(16);
  pair.expect(out, 16, 1e-3, [=] __device__(int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < 4 * length; ++j) sum += double(x[i * 4 * length + j]) * x[i * 4 * length + j];
    return sum;
  });
  const auto* words = reinterpret_cast<const float4*>(x);
  pair.slow([=] { squares_slow<<<16, 512>>>(words, out, length); });
  pair.fixed([=] { squares_fixed<<<dim3(66, 16), 512>>>(words, out, length); });
}

// --- tail_effect: an iterated map, 276 long blocks where 264 fit at once against 2208 short ones ---

__device__ __forceinline__ float iterate(float value, int steps) {
#pragma unroll 8
  for (int s = 0; s < steps; ++s) value = 0.875f * value * (1.0f - value);
  return value;
}
template <int EACH>
__device__ __forceinline__ void iterate_all(const float* x, float* out, int steps) {
#pragma unroll 1
  for (int j = 0; j < EACH; ++j) {
    const int i = (blockIdx.x * EACH + j) * 1024 + threadIdx.x;
    out[i] = iterate(x[i], steps);
  }
}
__global__ void __launch_bounds__(1024, 2) iterated_slow(const float* x, float* out, int steps) {
  iterate_all<8>(x, out, steps);
}
__global__ void __launch_bounds__(1024, 2) iterated_fixed(const float* x, float* out, int steps) {
  iterate_all<1>(x, out, steps);
}

PAIR(development, tail_effect) {
  const int count = 276 * 8 * 1024, steps = 1000;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return 0.5f + 0.4f * noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    double value = x[i];
    for (int s = 0; s < steps; ++s) value = 0.875 * value * (1 - value);
    return value;
  });
  pair.slow([=] { iterated_slow<<<276, 1024>>>(x, out, steps); });
  pair.fixed([=] { iterated_fixed<<<276 * 8, 1024>>>(x, out, steps); });
}

// --- occupancy_registers: random lines, then polynomials, 128 of them at a time in registers against 16 ---

template <int AT_ONCE>
__device__ __forceinline__ void drawn_polynomials(const float* table, float* out, int draws) {
  const unsigned i = blockIdx.x * 128 + threadIdx.x;
  float drawn_sum = 0;
#pragma unroll 1
  for (int d = 0; d < draws; ++d) drawn_sum += drawn(table, TABLE - 1, i, d);
  const float x = drawn_sum / draws;
  float total = 0;
#pragma unroll 1
  for (int first = 0; first < 128; first += AT_ONCE) {
    float sums[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) sums[j] = 0.01f * (first + j);
#pragma unroll 1
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int j = 0; j < AT_ONCE; ++j) sums[j] = sums[j] * x + 0.5f;
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) total += sums[j] * sums[j];
  }
  out[i] = total;
}
__global__ void __launch_bounds__(128) drawn_polynomials_slow(const float* table, float* out, int draws) {
  drawn_polynomials<128>(table, out, draws);
}
__global__ void __launch_bounds__(128) drawn_polynomials_fixed(const float* table, float* out, int draws) {
  drawn_polynomials<16>(table, out, draws);
}

PAIR(development, occupancy_registers) {
  const int count = 1 << 19, draws = 128;
  const float* table = pair.input<float>(TABLE, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    double x = 0, total = 0;
    for (int d = 0; d < draws; ++d) x += drawn(table, TABLE - 1, i, d);
    x /= draws;
    for (int j = 0; j < 128; ++j) {
      double sum = 0.01 * j;
      for (int k = 0; k < 4; ++k) sum = sum * x + 0.5;
      total += sum * sum;
    }
    return total;
  });
  pair.slow([=] { drawn_polynomials_slow<<<count / 128, 128>>>(table, out, draws); });
  pair.fixed([=] { drawn_polynomials_fixed<<<count / 128, 128>>>(table, out, draws); });
}

// --- occupancy_shared: weighted random lines, shared memory for the largest table against for the one in use ---

__device__ __forceinline__ void weighted_draws(const float* table, const float* weights, float* out, int draws) {
  extern __shared__ float held[];
  if (threadIdx.x < draws) held[threadIdx.x] = weights[threadIdx.x];
  __syncthreads();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
#pragma unroll 1
  for (int d = 0; d < draws; ++d) sum += held[d] * drawn(table, TABLE - 1, i, d);
  out[i] = sum;
}
__global__ void weighted_draws_slow(const float* table, const float* weights, float* out, int draws) {
  weighted_draws(table, weights, out, draws);
}
__global__ void weighted_draws_fixed(const float* table, const float* weights, float* out, int draws) {
  weighted_draws(table, weights, out, draws);
}

PAIR(development, occupancy_shared) {
  const int count = 1 << 20, draws = 96, most = 96 << 10;
  const float* table = pair.input<float>(TABLE, [] __device__(int64_t i) { return noise(i); });
  const float* weights = pair.input<float>(draws, [] __device__(int64_t i) { return noise(i, 1); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int d = 0; d < draws; ++d) sum += double(weights[d]) * drawn(table, TABLE - 1, i, d);
    return sum;
  });
  allow_shared(weighted_draws_slow, most);
  pair.slow([=] { weighted_draws_slow<<<count / 128, 128, most>>>(table, weights, out, draws); });
  pair.fixed([=] { weighted_draws_fixed<<<count / 128, 128, draws * 4>>>(table, weights, out, draws); });
}

// --- occupancy_block_size: random lines by blocks of one warp against of eight ---

__device__ __forceinline__ void largest_drawn(const float* table, float* out, int draws) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float most = -2;
#pragma unroll 1
  for (int d = 0; d < draws; ++d) most = fmaxf(most, drawn(table, TABLE - 1, i, d));
  out[i] = most;
}
__global__ void largest_drawn_slow(const float* table, float* out, int draws) { largest_drawn(table, out, draws); }
__global__ void largest_drawn_fixed(const float* table, float* out, int draws) { largest_drawn(table, out, draws); }

PAIR(development, occupancy_block_size) {
  const int count = 3 << 19, draws = 96;
  const float* table = pair.input<float>(TABLE, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    double most = -2;
    for (int d = 0; d < draws; ++d) most = fmax(most, double(drawn(table, TABLE - 1, i, d)));
    return most;
  });
  pair.slow([=] { largest_drawn_slow<<<count / 32, 32>>>(table, out, draws); });
  pair.fixed([=] { largest_drawn_fixed<<<count / 256, 256>>>(table, out, draws); });
}

// --- uneven_blocks: sums of sparse rows, some 256 times as long, a block a row against a block a piece ---

constexpr int SPARSE_SHORT = 1024, SPARSE_LONG = 262144, SPARSE_EVERY = 512;

__device__ __forceinline__ int64_t sparse_start(int row) {
  return row * int64_t{SPARSE_SHORT} + (row + SPARSE_EVERY - 6) / SPARSE_EVERY * int64_t{SPARSE_LONG - SPARSE_SHORT};
}
__device__ __forceinline__ void sparse_sum(const float* x, float* out, int row, int64_t from, int64_t to) {
  float sum = 0;
#pragma unroll 4
  for (int64_t i = from + threadIdx.x; i < to; i += 128) sum += x[i];
  sum = block_total(sum);
  if (threadIdx.x == 0) atomicAdd(out + row, sum);
}
__global__ void sparse_sums_slow(const float* x, float* out) {
  sparse_sum(x, out, blockIdx.x, sparse_start(blockIdx.x), sparse_start(blockIdx.x + 1));
}
__global__ void sparse_sums_fixed(const float* x, const int* row_of, float* out) {
  sparse_sum(x, out, row_of[blockIdx.x], blockIdx.x * 1024ll, (blockIdx.x + 1) * 1024ll);
}

PAIR(development, uneven_blocks) {
  const int rows = 4096;
  const int64_t total = rows * int64_t{SPARSE_SHORT} + rows / SPARSE_EVERY * int64_t{SPARSE_LONG - SPARSE_SHORT};
  const float* x = pair.input<float>(total, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(rows);
  pair.expect(out, rows, 1e-3, [=] __device__(int64_t row) {
    double sum = 0;
    for (int64_t i = sparse_start(row); i < sparse_start(row + 1); ++i) sum += x[i];
    return sum;
  });
  const int* row_of = pair.input<int>(total / 1024, [=] __device__(int64_t piece) {
    int row = 0;
    while (sparse_start(row + 1) <= piece * 1024) ++row;
    return row;
  });
  pair.slow([=] { sparse_sums_slow<<<rows, 128>>>(x, out); });
  pair.fixed([=] { sparse_sums_fixed<<<total / 1024, 128>>>(x, row_of, out); });
}

// --- dependent_chain: a polynomial by one chain of FMAs a thread against eight ---

struct Coefficients {
  float c[8];
};

__global__ void horner_slow(const float* x, float* out, Coefficients by, int degree) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  const float v = x[i];
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < degree; k += 8)
#pragma unroll
    for (int j = 7; j >= 0; --j) sum = sum * v + by.c[j];
  out[i] = sum;
}

__global__ void horner_fixed(const float* x, float* out, Coefficients by, int degree) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  const float v = x[i], v2 = v * v, v4 = v2 * v2, v8 = v4 * v4;
  float sums[8] = {};
#pragma unroll 4
  for (int k = 0; k < degree; k += 8)
#pragma unroll
    for (int j = 0; j < 8; ++j) sums[j] = sums[j] * v8 + by.c[j];
  float sum = 0;
#pragma unroll
  for (int j = 7; j >= 0; --j) sum = sum * v + sums[j];
  out[i] = sum;
}

PAIR(development, dependent_chain) {
  const int count = 132 * 128, degree = 32768;
  const Coefficients by = {{0.5f, -0.25f, 0.75f, 1.0f, -0.5f, 0.125f, 0.25f, -1.0f}};
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return 0.9f * noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int k = degree - 1; k >= 0; --k) sum = sum * x[i] + by.c[k % 8];
    return sum;
  });
  pair.slow([=] { horner_slow<<<132, 128>>>(x, out, by, degree); });
  pair.fixed([=] { horner_fixed<<<132, 128>>>(x, out, by, degree); });
}

// --- global_atomics_one_address: a sum by an atomic addition of each thread against one of each block ---

__global__ void total_slow(const float* x, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(out, x[i]);
}
__global__ void total_fixed(const float* x, float* out, int count) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += x[i];
  sum = block_total(sum);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}

PAIR(development, global_atomics_one_address) {
  const int count = 1 << 21;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return (i % 8) / 8.0f; });
  float* out = pair.output<float>(1);
  pair.expect(out, 1, 1e-6, [=] __device__(int64_t) { return count * 0.4375; });
  pair.slow([=] { total_slow<<<count / 256, 256>>>(x, out, count); });
  pair.fixed([=] { total_fixed<<<264, 256>>>(x, out, count); });
}
