// Validation half: how many threads there are, how long each block takes, and what they wait for.
#include "../specimen.cuh"

using namespace specimens;

// An element of a table of a power of two: lanes of a warp read 32 in a row from a random place, so that a warp waits for
// memory and does not fill it.
template <class T>
__device__ __forceinline__ T anywhere(const T* table, unsigned mask, unsigned i, unsigned step) {
  return table[(i / 32 * 2246822519u + step * 3266489917u) * 668265263u & mask & ~31u | i % 32];
}
constexpr unsigned PLACES = 1u << 25;

// --- grid_too_small: the largest magnitude of each of ten tensors of bfloat16, a block a tensor against 106 ---

__device__ __forceinline__ int magnitude(const uint4* x, int64_t from, int64_t to) {
  unsigned most = 0;
#pragma unroll 2
  for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x) {
    const uint4 v = x[i];
    most = __vmaxu2(
        most, __vmaxu2(__vmaxu2(v.x & 0x7fff7fffu, v.y & 0x7fff7fffu), __vmaxu2(v.z & 0x7fff7fffu, v.w & 0x7fff7fffu)));
  }
  return __reduce_max_sync(~0u, max(most & 0xffffu, most >> 16));
}
__global__ void magnitudes_slow(const uint4* x, int* out, int64_t length) {
  const int most = magnitude(x + blockIdx.x * length, 0, length);
  if (threadIdx.x % 32 == 0) atomicMax(out + blockIdx.x, most);
}
__global__ void magnitudes_fixed(const uint4* x, int* out, int64_t length) {
  const int64_t part = (length + gridDim.x - 1) / gridDim.x;
  const int most = magnitude(x + blockIdx.y * length, blockIdx.x * part, min((blockIdx.x + 1) * part, length));
  if (threadIdx.x % 32 == 0) atomicMax(out + blockIdx.y, most);
}

PAIR(validation, grid_too_small) {
  const int64_t length = 393216;  // of eight numbers
  const auto* x = pair.input<uint16_t>(10 * 8 * length, [] __device__(int64_t i) { return uint16_t(mix(i) & 0xbfff); });
  int* out = pair.output<int>(10);
  pair.expect(out, 10, 0, [=] __device__(int64_t i) {
    int most = 0;
    for (int64_t j = 0; j < 8 * length; ++j) most = max(most, x[i * 8 * length + j] & 0x7fff);
    return double(most);
  });
  const auto* words = reinterpret_cast<const uint4*>(x);
  pair.slow([=] { magnitudes_slow<<<10, 1024>>>(words, out, length); });
  pair.fixed([=] { magnitudes_fixed<<<dim3(106, 10), 256>>>(words, out, length); });
}

// --- tail_effect: rounds of a 64-bit hash, 560 long blocks where 528 fit at once against 3920 short ones ---

template <int EACH>
__device__ __forceinline__ void hash_rounds(uint64_t* out, int rounds) {
#pragma unroll 1
  for (int j = 0; j < EACH; ++j) {
    const int i = (blockIdx.x * EACH + j) * 512 + threadIdx.x;
    uint64_t h = i;
#pragma unroll 2
    for (int r = 0; r < rounds; ++r) h = mix(h);
    out[i] = h >> 12;
  }
}
__global__ void __launch_bounds__(512, 4) hash_rounds_slow(uint64_t* out, int rounds) { hash_rounds<7>(out, rounds); }
__global__ void __launch_bounds__(512, 4) hash_rounds_fixed(uint64_t* out, int rounds) { hash_rounds<1>(out, rounds); }

PAIR(validation, tail_effect) {
  const int count = 560 * 7 * 512, rounds = 96;
  uint64_t* out = pair.output<uint64_t>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    uint64_t h = i;
    for (int r = 0; r < rounds; ++r) h = mix(h);
    return double(h >> 12);
  });
  pair.slow([=] { hash_rounds_slow<<<560, 512>>>(out, rounds); });
  pair.fixed([=] { hash_rounds_fixed<<<560 * 7, 512>>>(out, rounds); });
}

// --- occupancy_registers: random lines, and for few items a median, sorted in registers against counted ---

__device__ __forceinline__ double median_sorted(const double* x) {
  double v[64];
#pragma unroll
  for (int j = 0; j < 64; ++j) v[j] = x[j];
#pragma unroll
  for (int size = 2; size <= 64; size *= 2)
#pragma unroll
    for (int step = size / 2; step; step /= 2)
#pragma unroll
      for (int j = 0; j < 64; ++j)
        if ((j ^ step) > j) {
          const bool up = (j & size) == 0;
          const double low = fmin(v[j], v[j ^ step]), high = fmax(v[j], v[j ^ step]);
          v[j] = up ? low : high, v[j ^ step] = up ? high : low;
        }
  return v[32];
}
__host__ __device__ __forceinline__ double median_counted(const double* x) {
#pragma unroll 1
  for (int j = 0; j < 64; ++j) {
    int before = 0;
#pragma unroll 4
    for (int k = 0; k < 64; ++k) before += x[k] < x[j] || (x[k] == x[j] && k < j);
    if (before == 32) return x[j];
  }
  return 0;
}
template <bool SORTED>
__device__ __forceinline__ void refined(const double* table, double* out, int draws) {
  const unsigned i = blockIdx.x * 64 + threadIdx.x;
  double sum = 0;
#pragma unroll 1
  for (int d = 0; d < draws; ++d) sum += anywhere(table, PLACES - 1, i, d);
  if (i % 8192 == 77) {
    const double* near = table + i * 64ll % (PLACES - 64);
    sum += SORTED ? median_sorted(near) : median_counted(near);
  }
  out[i] = sum;
}
__global__ void __launch_bounds__(64) refined_slow(const double* table, double* out, int draws) {
  refined<true>(table, out, draws);
}
__global__ void __launch_bounds__(64) refined_fixed(const double* table, double* out, int draws) {
  refined<false>(table, out, draws);
}

PAIR(validation, occupancy_registers) {
  const int count = 3 << 18, draws = 90;
  const double* table = pair.input<double>(PLACES, [] __device__(int64_t i) { return double(noise(i)); });
  double* out = pair.output<double>(count);
  pair.expect(
      out, count, 1e-9,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int d = 0; d < draws; ++d) sum += anywhere(table, PLACES - 1, unsigned(i), d);
        return i % 8192 == 77 ? sum + median_counted(table + i * 64 % (PLACES - 64)) : sum;
      },
      count);
  pair.slow([=] { refined_slow<<<count / 64, 64>>>(table, out, draws); });
  pair.fixed([=] { refined_fixed<<<count / 64, 64>>>(table, out, draws); });
}

// --- occupancy_shared: a histogram, a counter of 32 bits for each thread and bin against one of 8 ---

template <class Counter>
__device__ __forceinline__ void count_bytes(const uint8_t* x, int* out, int each) {
  extern __shared__ unsigned words[];
  constexpr int IN_WORD = 4 / sizeof(Counter);
  Counter* counters = reinterpret_cast<Counter*>(words);
  for (int w = 0; w < 128 / IN_WORD; ++w) words[w * 128 + threadIdx.x] = 0;
#pragma unroll 1
  for (int j = 0; j < each; ++j) {
    const int bin = x[(blockIdx.x * static_cast<int64_t>(each) + j) * 128 + threadIdx.x];
    ++counters[(bin / IN_WORD * 128 + threadIdx.x) * IN_WORD + bin % IN_WORD];
  }
  __syncthreads();
  int sum = 0;
  const int bin = threadIdx.x;
  for (int t = 0; t < 128; ++t) sum += counters[(bin / IN_WORD * 128 + (t + bin) % 128) * IN_WORD + bin % IN_WORD];
  out[blockIdx.x * 128 + bin] = sum;
}
__global__ void __launch_bounds__(128) count_bytes_slow(const uint8_t* x, int* out, int each) {
  count_bytes<unsigned>(x, out, each);
}
__global__ void __launch_bounds__(128) count_bytes_fixed(const uint8_t* x, int* out, int each) {
  count_bytes<uint8_t>(x, out, each);
}

PAIR(validation, occupancy_shared) {
  const int blocks = 5280, each = 250;
  const uint8_t* x =
      pair.input<uint8_t>(blocks * 128ll * each, [] __device__(int64_t i) { return uint8_t(mix(i) % 128); });
  int* out = pair.output<int>(blocks * 128);
  pair.expect(
      out, blocks * 128, 0,
      [=] __device__(int64_t i) {
        double found = 0;
        for (int j = 0; j < each * 128; ++j) found += x[i / 128 * each * 128 + j] == i % 128;
        return found;
      },
      1 << 12);
  allow_shared(count_bytes_slow, 64 << 10);
  pair.slow([=] { count_bytes_slow<<<blocks, 128, 64 << 10>>>(x, out, each); });
  pair.fixed([=] { count_bytes_fixed<<<blocks, 128, 16 << 10>>>(x, out, each); });
}

// --- occupancy_block_size: the largest of each row of 96 doubles, blocks of one row against of sixteen ---

__device__ __forceinline__ void largest_of_row(const double* x, double* out) {
  const int64_t row = blockIdx.x * blockDim.y + threadIdx.y;
  double most = -1e300;
#pragma unroll 1
  for (int c = threadIdx.x; c < 96; c += 32) most = fmax(most, x[row * 96 + c]);
#pragma unroll
  for (int offset = 16; offset; offset >>= 1) most = fmax(most, __shfl_xor_sync(~0u, most, offset));
  if (threadIdx.x == 0) out[row] = most;
}
__global__ void largest_of_row_slow(const double* x, double* out) { largest_of_row(x, out); }
__global__ void largest_of_row_fixed(const double* x, double* out) { largest_of_row(x, out); }

PAIR(validation, occupancy_block_size) {
  const int rows = 300000;
  const double* x = pair.input<double>(rows * 96ll, [] __device__(int64_t i) { return double(noise(i)); });
  double* out = pair.output<double>(rows);
  pair.expect(out, rows, 0, [=] __device__(int64_t i) {
    double most = -1e300;
    for (int c = 0; c < 96; ++c) most = fmax(most, x[i * 96 + c]);
    return most;
  });
  pair.slow([=] { largest_of_row_slow<<<rows, dim3(32, 1)>>>(x, out); });
  pair.fixed([=] { largest_of_row_fixed<<<rows / 16, dim3(32, 16)>>>(x, out); });
}

// --- uneven_blocks: the Mandelbrot set, a band of rows a block against rows in turn ---

constexpr int WIDTH = 2048, HEIGHT = 2112, LIMIT = 400;

__device__ __forceinline__ int escapes(int column, int row) {
  const float cx = __fmaf_rn(column, 3.0f / WIDTH, -2.25f), cy = __fmaf_rn(row, 2.5f / HEIGHT, -1.25f);
  float x = 0, y = 0;
  int n = 0;
  while (n < LIMIT) {
    const float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
    if (__fadd_rn(xx, yy) > 4.0f) break;
    y = __fmaf_rn(__fadd_rn(x, x), y, cy);
    x = __fadd_rn(__fsub_rn(xx, yy), cx);
    ++n;
  }
  return n;
}
template <bool BAND>
__device__ __forceinline__ void mandelbrot(int* out) {
  const int each = HEIGHT / gridDim.x;
  for (int j = 0; j < each; ++j) {
    const int row = BAND ? blockIdx.x * each + j : j * gridDim.x + blockIdx.x;
    for (int column = threadIdx.x; column < WIDTH; column += 256) out[row * WIDTH + column] = escapes(column, row);
  }
}
__global__ void __launch_bounds__(256) mandelbrot_slow(int* out) { mandelbrot<true>(out); }
__global__ void __launch_bounds__(256) mandelbrot_fixed(int* out) { mandelbrot<false>(out); }

PAIR(validation, uneven_blocks) {
  int* out = pair.output<int>(WIDTH * HEIGHT);
  pair.expect(
      out, WIDTH * HEIGHT, 0, [=] __device__(int64_t i) { return double(escapes(i % WIDTH, i / WIDTH)); }, 1 << 18);
  pair.slow([=] { mandelbrot_slow<<<264, 256>>>(out); });
  pair.fixed([=] { mandelbrot_fixed<<<264, 256>>>(out); });
}

// --- dependent_chain: a checksum of counted words, one chain of multiplications a thread against six ---

constexpr unsigned FACTOR = 31;
__host__ __device__ constexpr unsigned power_of(unsigned factor, int times) {
  return times ? factor * power_of(factor, times - 1) : 1;
}

template <int CHAINS>
__device__ __forceinline__ void chain_sum(unsigned* out, int words) {
  const unsigned i = blockIdx.x * 64 + threadIdx.x;
  unsigned h[CHAINS] = {};
#pragma unroll 1
  for (int k = 0; k < words; k += 24) {
#pragma unroll
    for (int j = 0; j < 24; ++j) h[j % CHAINS] = h[j % CHAINS] * power_of(FACTOR, CHAINS) + (i ^ (k + j));
  }
  unsigned sum = 0;
#pragma unroll
  for (int j = 0; j < CHAINS; ++j) sum += h[j] * power_of(FACTOR, CHAINS - 1 - j);
  out[i] = sum;
}
__global__ void __launch_bounds__(64) chain_sum_slow(unsigned* out, int words) { chain_sum<1>(out, words); }
__global__ void __launch_bounds__(64) chain_sum_fixed(unsigned* out, int words) { chain_sum<6>(out, words); }

PAIR(validation, dependent_chain) {
  const int count = 132 * 64, words = 24 * 2000;
  unsigned* out = pair.output<unsigned>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    unsigned h = 0;
    for (int k = 0; k < words; ++k) h = h * FACTOR + (unsigned(i) ^ k);
    return double(h);
  });
  pair.slow([=] { chain_sum_slow<<<132, 64>>>(out, words); });
  pair.fixed([=] { chain_sum_fixed<<<132, 64>>>(out, words); });
}

// --- global_atomics_one_address: the largest of 64-bit keys, an atomic maximum of each thread against of each block ---

using Key = unsigned long long;

__global__ void largest_key_slow(const Key* keys, Key* out) { atomicMax(out, keys[blockIdx.x * 512 + threadIdx.x]); }

__global__ void largest_key_fixed(const Key* keys, Key* out, int each) {
  __shared__ Key parts[16];
  Key most = 0;
  for (int j = 0; j < each; ++j) most = max(most, keys[(blockIdx.x * each + j) * 512 + threadIdx.x]);
#pragma unroll
  for (int offset = 16; offset; offset >>= 1) most = max(most, __shfl_xor_sync(~0u, most, offset));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int j = 1; j < 16; ++j) most = max(most, parts[j]);
    atomicMax(out, most);
  }
}

PAIR(validation, global_atomics_one_address) {
  const int count = 3 << 19;
  const Key* keys = pair.input<Key>(count, [] __device__(int64_t i) { return Key(mix(i) >> 12); });
  Key* out = pair.output<Key>(1);
  pair.expect(out, 1, 0, [=] __device__(int64_t) {
    Key most = 0;
    for (int i = 0; i < count; ++i) most = max(most, keys[i]);
    return double(most);
  });
  pair.slow([=] { largest_key_slow<<<count / 512, 512>>>(keys, out); });
  pair.fixed([=] { largest_key_fixed<<<count / 512 / 8, 512>>>(keys, out, 8); });
}
