// Holdout: how many threads there are, how long each block takes, and what they wait for.
#include "../specimen.cuh"

using namespace specimens;

// The place of a random line of 32 elements, one a lane, in a table of a power of two: a warp waits for memory and does
// not fill it.
__device__ __forceinline__ unsigned line(unsigned mask, unsigned i, unsigned step) {
  return (i / 32 * 2246822519u ^ step * 3266489917u) * 668265263u & mask & ~31u | i % 32;
}

// --- grid_too_small: changes of sign in 24 channels of int16, a block a channel against 44 ---

__device__ __forceinline__ int sign_changes(const int16_t* x, int64_t from, int64_t to) {
  int found = 0;
#pragma unroll 4
  for (int64_t i = from + threadIdx.x; i < to; i += 704) found += (x[i] < 0) != (x[i + 1] < 0);
  return __reduce_add_sync(~0u, found);
}
__global__ void __launch_bounds__(704) sign_changes_slow(const int16_t* x, int* out, int64_t length) {
  const int found = sign_changes(x + blockIdx.x * length, 0, length - 1);
  if (threadIdx.x % 32 == 0) atomicAdd(out + blockIdx.x, found);
}
__global__ void __launch_bounds__(704) sign_changes_fixed(const int16_t* x, int* out, int64_t length) {
  const int64_t part = (length - 1 + gridDim.x - 1) / gridDim.x;
  const int found = sign_changes(x + blockIdx.y * length, blockIdx.x * part, min((blockIdx.x + 1) * part, length - 1));
  if (threadIdx.x % 32 == 0) atomicAdd(out + blockIdx.y, found);
}

PAIR(holdout, grid_too_small) {
  const int channels = 24;
  const int64_t length = 1'500'000;
  const int16_t* x =
      pair.input<int16_t>(channels * length, [] __device__(int64_t i) { return int16_t(pick(i, 2001) - 1000); });
  int* out = pair.output<int>(channels);
  pair.expect(out, channels, 0, [=] __device__(int64_t i) {
    double found = 0;
    for (int64_t j = i * length; j < (i + 1) * length - 1; ++j) found += (x[j] < 0) != (x[j + 1] < 0);
    return found;
  });
  pair.slow([=] { sign_changes_slow<<<channels, 704>>>(x, out, length); });
  pair.fixed([=] { sign_changes_fixed<<<dim3(44, channels), 704>>>(x, out, length); });
}

// --- tail_effect: a congruential generator run on, 410 long blocks where 396 fit at once against 4100 short ones ---

template <int EACH>
__device__ __forceinline__ void run_on(unsigned* out, int steps) {
#pragma unroll 1
  for (int j = 0; j < EACH; ++j) {
    const int i = (blockIdx.x * EACH + j) * 640 + threadIdx.x;
    unsigned state = i;
#pragma unroll 8
    for (int s = 0; s < steps; ++s) state = (state ^ state >> 9) * 1103515245u + 12345u;
    out[i] = state;
  }
}
__global__ void __launch_bounds__(640, 3) generators_slow(unsigned* out, int steps) { run_on<10>(out, steps); }
__global__ void __launch_bounds__(640, 3) generators_fixed(unsigned* out, int steps) { run_on<1>(out, steps); }

PAIR(holdout, tail_effect) {
  const int count = 410 * 10 * 640, steps = 800;
  unsigned* out = pair.output<unsigned>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    unsigned state = unsigned(i);
    for (int s = 0; s < steps; ++s) state = (state ^ state >> 9) * 1103515245u + 12345u;
    return double(state);
  });
  pair.slow([=] { generators_slow<<<410, 640>>>(out, steps); });
  pair.fixed([=] { generators_fixed<<<4100, 640>>>(out, steps); });
}

// --- occupancy_registers: means of random lines of halves, then a determinant of 12 x 12, eliminated against in closed
// form ---

constexpr int ORDER = 12;
constexpr unsigned HALVES_MASK = (1u << 26) - 1;

// I plus the outer product of u with itself, u_j = x / (j + 1).
__device__ __forceinline__ float eliminated(float x) {
  float m[ORDER][ORDER];
#pragma unroll
  for (int i = 0; i < ORDER; ++i)
#pragma unroll
    for (int j = 0; j < ORDER; ++j) m[i][j] = x * (1.0f / (i + 1)) * (x * (1.0f / (j + 1))) + (i == j ? 1.0f : 0.0f);
  float determinant = 1;
#pragma unroll
  for (int k = 0; k < ORDER; ++k) {
    determinant *= m[k][k];
    const float inverse = __fdividef(1.0f, m[k][k]);
#pragma unroll
    for (int i = k + 1; i < ORDER; ++i) {
      const float factor = m[i][k] * inverse;
#pragma unroll
      for (int j = k + 1; j < ORDER; ++j) m[i][j] -= factor * m[k][j];
    }
  }
  return determinant;
}
__device__ __forceinline__ float in_closed_form(float x) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < ORDER; ++j) squares += 1.0f / ((j + 1) * (j + 1));
  return 1.0f + x * x * squares;
}
__device__ __forceinline__ float mean_drawn(const __half* table, unsigned i, int draws) {
  float sum = 0;
#pragma unroll 1
  for (int d = 0; d < draws; ++d) sum += __half2float(table[line(HALVES_MASK, i, d)]);
  return sum / draws;
}
__global__ void __launch_bounds__(96) determinants_slow(const __half* table, float* out, int draws) {
  const unsigned i = blockIdx.x * 96 + threadIdx.x;
  out[i] = eliminated(4.0f * mean_drawn(table, i, draws));
}
__global__ void __launch_bounds__(96) determinants_fixed(const __half* table, float* out, int draws) {
  const unsigned i = blockIdx.x * 96 + threadIdx.x;
  out[i] = in_closed_form(4.0f * mean_drawn(table, i, draws));
}

PAIR(holdout, occupancy_registers) {
  const int count = 96 * 5280, draws = 160;
  const __half* table =
      pair.input<__half>(HALVES_MASK + 1, [] __device__(int64_t i) { return __float2half(noise(i)); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-3, [=] __device__(int64_t i) {
    double x = 0, squares = 0;
    for (int d = 0; d < draws; ++d) x += number(table[line(HALVES_MASK, i, d)]);
    for (int j = 1; j <= ORDER; ++j) squares += 1.0 / (j * j);
    return 1 + 16 * x / draws * x / draws * squares;
  });
  pair.slow([=] { determinants_slow<<<count / 96, 96>>>(table, out, draws); });
  pair.fixed([=] { determinants_fixed<<<count / 96, 96>>>(table, out, draws); });
}

// --- occupancy_shared: how many kinds a block of random lines of uint16 has, a word a kind against a bit ---

constexpr int KINDS = 20480;
constexpr unsigned KINDS_MASK = (1u << 27) - 1;

__device__ __forceinline__ void count_block(int found, int* out) {
  found = __reduce_add_sync(~0u, found);
  if (threadIdx.x % 32 == 0) atomicAdd(out + blockIdx.x, found);
}
__global__ void __launch_bounds__(160) kinds_seen_slow(const uint16_t* table, int* out, int draws) {
  extern __shared__ unsigned seen[];
  for (int k = threadIdx.x; k < KINDS; k += 160) seen[k] = 0;
  __syncthreads();
#pragma unroll 1
  for (int d = 0; d < draws; ++d) seen[table[line(KINDS_MASK, blockIdx.x * 160 + threadIdx.x, d)]] = 1;
  __syncthreads();
  int found = 0;
  for (int k = threadIdx.x; k < KINDS; k += 160) found += seen[k];
  count_block(found, out);
}
__global__ void __launch_bounds__(160) kinds_seen_fixed(const uint16_t* table, int* out, int draws) {
  extern __shared__ unsigned seen[];
  for (int k = threadIdx.x; k < KINDS / 32; k += 160) seen[k] = 0;
  __syncthreads();
#pragma unroll 1
  for (int d = 0; d < draws; ++d) {
    const unsigned kind = table[line(KINDS_MASK, blockIdx.x * 160 + threadIdx.x, d)];
    atomicOr(&seen[kind / 32], 1u << kind % 32);
  }
  __syncthreads();
  int found = 0;
  for (int k = threadIdx.x; k < KINDS / 32; k += 160) found += __popc(seen[k]);
  count_block(found, out);
}

PAIR(holdout, occupancy_shared) {
  const int blocks = 2112, draws = 200;
  const auto kind = [] __device__(int64_t i) { return uint16_t(pick(i, KINDS)); };
  const uint16_t* table = pair.input<uint16_t>(KINDS_MASK + 1, kind);
  int* out = pair.output<int>(blocks);
  pair.expect(
      out, blocks, 0,
      [=] __device__(int64_t block) {
        unsigned seen[KINDS / 32];
        for (unsigned& word : seen) word = 0;
        for (int t = 0; t < 160; ++t)
          for (int d = 0; d < draws; ++d) {
            const unsigned one = table[line(KINDS_MASK, unsigned(block) * 160 + t, d)];
            seen[one / 32] |= 1u << one % 32;
          }
        double found = 0;
        for (const unsigned word : seen) found += __popc(word);
        return found;
      },
      1 << 9);
  allow_shared(kinds_seen_slow, KINDS * 4);
  pair.slow([=] { kinds_seen_slow<<<blocks, 160, KINDS * 4>>>(table, out, draws); });
  pair.fixed([=] { kinds_seen_fixed<<<blocks, 160, KINDS / 8>>>(table, out, draws); });
}

// --- occupancy_block_size: hashes of random lines of bytes by blocks of one warp against of seven ---

constexpr unsigned BYTES_MASK = (1u << 27) - 1;

__device__ __forceinline__ void hash_drawn(const uint8_t* table, uint64_t* out, int draws) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  uint64_t hash = i;
#pragma unroll 1
  for (int d = 0; d < draws; ++d) hash = (hash << 5 | hash >> 59) ^ table[line(BYTES_MASK, i, d)];
  out[i] = hash;
}
__global__ void hash_drawn_slow(const uint8_t* table, uint64_t* out, int draws) { hash_drawn(table, out, draws); }
__global__ void hash_drawn_fixed(const uint8_t* table, uint64_t* out, int draws) { hash_drawn(table, out, draws); }

PAIR(holdout, occupancy_block_size) {
  const int count = 224 * 5280, draws = 120;
  const uint8_t* table =
      pair.input<uint8_t>(int64_t{BYTES_MASK} + 1, [] __device__(int64_t i) { return uint8_t(mix(i)); });
  uint64_t* out = pair.output<uint64_t>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    uint64_t hash = i;
    for (int d = 0; d < draws; ++d) hash = (hash << 5 | hash >> 59) ^ table[line(BYTES_MASK, i, d)];
    return double(hash);
  });
  pair.slow([=] { hash_drawn_slow<<<count / 32, 32>>>(table, out, draws); });
  pair.fixed([=] { hash_drawn_fixed<<<count / 224, 224>>>(table, out, draws); });
}

// --- uneven_blocks: for each number how many before it are larger, a block's numbers in a row against from both ends ---

constexpr int BEFORE = 640;

__device__ __forceinline__ int larger_before(const int16_t* x, int i) {
  const int own = x[i];
  int found = 0, j = 0;
#pragma unroll 2
  for (; j + 8 <= i; j += 8) {
    const uint4 v = *reinterpret_cast<const uint4*>(x + j);
#pragma unroll
    for (const unsigned word : {v.x, v.y, v.z, v.w})
      found += (static_cast<int16_t>(word) > own) + ((static_cast<int>(word) >> 16) > own);
  }
  for (; j < i; ++j) found += x[j] > own;
  return found;
}
__global__ void __launch_bounds__(BEFORE) larger_before_slow(const int16_t* x, int* out) {
  const int i = blockIdx.x * BEFORE + threadIdx.x;
  out[i] = larger_before(x, i);
}
__global__ void __launch_bounds__(BEFORE) larger_before_fixed(const int16_t* x, int* out) {
  constexpr int HALF = BEFORE / 2;
  const int chunk = threadIdx.x < HALF ? blockIdx.x : 2 * gridDim.x - 1 - blockIdx.x;
  const int i = chunk * HALF + threadIdx.x % HALF;
  out[i] = larger_before(x, i);
}

PAIR(holdout, uneven_blocks) {
  const int blocks = 132, count = blocks * BEFORE;
  const int16_t* x = pair.input<int16_t>(count, [] __device__(int64_t i) { return int16_t(pick(i, 4001) - 2000); });
  int* out = pair.output<int>(count);
  pair.expect(
      out, count, 0,
      [=] __device__(int64_t i) {
        double found = 0;
        for (int j = 0; j < i; ++j) found += x[j] > x[i];
        return found;
      },
      1 << 12);
  pair.slow([=] { larger_before_slow<<<blocks, BEFORE>>>(x, out); });
  pair.fixed([=] { larger_before_fixed<<<blocks, BEFORE>>>(x, out); });
}

// --- dependent_chain: a long product in FP64, one chain a thread against six ---

struct Factors {
  double f[6];
};

__global__ void __launch_bounds__(96) long_products_slow(const double* x, double* out, Factors by, int turns) {
  const int i = blockIdx.x * 96 + threadIdx.x;
  const double v = x[i];
  double product = 1;
#pragma unroll 1
  for (int k = 0; k < turns; ++k)
#pragma unroll
    for (int j = 0; j < 6; ++j) product *= 1 + by.f[j] * v;
  out[i] = product;
}
__global__ void __launch_bounds__(96) long_products_fixed(const double* x, double* out, Factors by, int turns) {
  const int i = blockIdx.x * 96 + threadIdx.x;
  const double v = x[i];
  double products[6] = {1, 1, 1, 1, 1, 1};
#pragma unroll 1
  for (int k = 0; k < turns; ++k)
#pragma unroll
    for (int j = 0; j < 6; ++j) products[j] *= 1 + by.f[j] * v;
  out[i] = products[0] * products[1] * (products[2] * products[3]) * (products[4] * products[5]);
}

PAIR(holdout, dependent_chain) {
  const int count = 132 * 96, turns = 4000;
  const Factors by = {{1e-4, -1e-4, 2e-4, -2e-4, 3e-4, -3e-4}};
  const double* x = pair.input<double>(count, [] __device__(int64_t i) { return double(noise(i)); });
  double* out = pair.output<double>(count);
  pair.expect(
      out, count, 1e-9,
      [=] __device__(int64_t i) {
        double product = 1;
        for (int k = 0; k < turns; ++k)
          for (int j = 0; j < 6; ++j) product *= 1 + by.f[j] * x[i];
        return product;
      },
      1 << 11);
  pair.slow([=] { long_products_slow<<<132, 96>>>(x, out, by, turns); });
  pair.fixed([=] { long_products_fixed<<<132, 96>>>(x, out, by, turns); });
}

// --- global_atomics_one_address: which of 64 flags occur, an atomic OR a thread against one a block ---

__global__ void __launch_bounds__(416) flags_slow(const uint64_t* x, unsigned long long* out) {
  atomicOr(out, x[blockIdx.x * 416 + threadIdx.x]);
}
__global__ void __launch_bounds__(416) flags_fixed(const uint64_t* x, unsigned long long* out, int count) {
  __shared__ unsigned low, high;
  if (threadIdx.x == 0) low = high = 0;
  __syncthreads();
  uint64_t found = 0;
  for (int i = blockIdx.x * 416 + threadIdx.x; i < count; i += gridDim.x * 416) found |= x[i];
  const unsigned of_low = __reduce_or_sync(~0u, static_cast<unsigned>(found));
  const unsigned of_high = __reduce_or_sync(~0u, static_cast<unsigned>(found >> 32));
  if (threadIdx.x % 32 == 0) atomicOr(&low, of_low), atomicOr(&high, of_high);
  __syncthreads();
  if (threadIdx.x == 0) atomicOr(out, static_cast<unsigned long long>(high) << 32 | low);
}

PAIR(holdout, global_atomics_one_address) {
  const int count = 416 * 4400;
  // below bit 53, which a double holds; bit 17 nowhere
  const auto flag = [] __device__(int64_t i) { return uint64_t{1} << (pick(i, 50) == 17 ? 18 : pick(i, 50)); };
  const uint64_t* x = pair.input<uint64_t>(count, flag);
  auto* out = pair.output<unsigned long long>(1);
  pair.expect(out, 1, 0, [=] __device__(int64_t) { return double(((1ull << 50) - 1) & ~(1ull << 17)); });
  pair.slow([=] { flags_slow<<<4400, 416>>>(x, out); });
  pair.fixed([=] { flags_fixed<<<264, 416>>>(x, out, count); });
}
