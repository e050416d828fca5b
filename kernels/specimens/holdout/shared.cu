// Holdout: shared memory and barriers.
#include <cuda_pipeline.h>

#include "../specimen.cuh"

using namespace specimens;

// --- shared_bank_conflicts: running sums of stretches, a thread's 32 values in one bank with those of its warp or not ---

constexpr int RUN = 32, RUNNERS = 224;

template <int PITCH>
__device__ __forceinline__ void running_sums(const int* x, int* out) {
  extern __shared__ int runs[];
  __shared__ int totals[RUNNERS];
  const int64_t first = blockIdx.x * static_cast<int64_t>(RUN * RUNNERS);
  for (int i = threadIdx.x; i < RUN * RUNNERS; i += RUNNERS) runs[i / RUN * PITCH + i % RUN] = x[first + i];
  __syncthreads();
  int sum = 0;
#pragma unroll 8
  for (int j = 0; j < RUN; ++j) {
    sum += runs[threadIdx.x * PITCH + j];
    runs[threadIdx.x * PITCH + j] = sum;
  }
  totals[threadIdx.x] = sum;
  __syncthreads();
  int before = 0;
  for (int t = threadIdx.x % 32; t < threadIdx.x / 32 * 32; t += 32) before += totals[t];
  before = __reduce_add_sync(~0u, before);  // of the warps before
  for (int t = threadIdx.x / 32 * 32; t < threadIdx.x; ++t) before += totals[t];
#pragma unroll 8
  for (int j = 0; j < RUN; ++j) runs[threadIdx.x * PITCH + j] += before;
  __syncthreads();
  for (int i = threadIdx.x; i < RUN * RUNNERS; i += RUNNERS) out[first + i] = runs[i / RUN * PITCH + i % RUN];
}
__global__ void __launch_bounds__(RUNNERS) running_sums_slow(const int* x, int* out) { running_sums<RUN>(x, out); }
__global__ void __launch_bounds__(RUNNERS) running_sums_fixed(const int* x, int* out) { running_sums<RUN + 1>(x, out); }

PAIR(holdout, shared_bank_conflicts) {
  const int blocks = 3400, stretch = RUN * RUNNERS;
  const int* x = pair.input<int>(int64_t{blocks} * stretch, [] __device__(int64_t i) { return int(pick(i, 100)); });
  int* out = pair.output<int>(int64_t{blocks} * stretch);
  pair.expect(
      out, int64_t{blocks} * stretch, 0,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int64_t j = i / stretch * stretch; j <= i; ++j) sum += x[j];
        return sum;
      },
      1 << 14);
  pair.slow([=] { running_sums_slow<<<blocks, RUNNERS, RUNNERS * RUN * 4>>>(x, out); });
  pair.fixed([=] { running_sums_fixed<<<blocks, RUNNERS, RUNNERS*(RUN + 1) * 4>>>(x, out); });
}

// --- shared_atomics_one_address: hashes of rows of int16, a 64-bit atomic XOR a value against shuffles ---

constexpr int HASHED = 736 * 12;

// Each value and its place as 64 bits; their XOR in any order is the hash.
__device__ __forceinline__ unsigned long long placed(int16_t value, int place) {
  const unsigned long long word = static_cast<unsigned long long>(value + 32769) * (2 * place + 1);
  return (word << 21 ^ word) * 0x9e3779b97f4a7c15ull;
}

__global__ void __launch_bounds__(736) row_hashes_slow(const int16_t* x, unsigned long long* out) {
  __shared__ unsigned long long hash;
  if (threadIdx.x == 0) hash = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < HASHED; i += 736)
    atomicXor(&hash, placed(x[blockIdx.x * static_cast<int64_t>(HASHED) + i], i));
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = hash;
}

__device__ __forceinline__ unsigned long long hash_of_warp(unsigned long long hash) {
#pragma unroll
  for (int offset = 16; offset; offset >>= 1) hash ^= __shfl_xor_sync(~0u, hash, offset);
  return hash;
}
__global__ void __launch_bounds__(736) row_hashes_fixed(const int16_t* x, unsigned long long* out) {
  __shared__ unsigned long long parts[32];
  if (threadIdx.x < 32) parts[threadIdx.x] = 0;
  unsigned long long hash = 0;
  for (int i = threadIdx.x; i < HASHED; i += 736) hash ^= placed(x[blockIdx.x * static_cast<int64_t>(HASHED) + i], i);
  hash = hash_of_warp(hash);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = hash;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  hash = hash_of_warp(parts[threadIdx.x]);
  if (threadIdx.x == 0) out[blockIdx.x] = hash;
}

PAIR(holdout, shared_atomics_one_address) {
  const int rows = 2200;
  const int16_t* x =
      pair.input<int16_t>(rows * int64_t{HASHED}, [] __device__(int64_t i) { return int16_t(pick(i, 65536) - 32768); });
  auto* out = pair.output<unsigned long long>(rows);
  pair.expect(out, rows, 0, [=] __device__(int64_t i) {
    unsigned long long hash = 0;
    for (int j = 0; j < HASHED; ++j) hash ^= placed(x[i * HASHED + j], j);
    return double(hash);
  });
  pair.slow([=] { row_hashes_slow<<<rows, 736>>>(x, out); });
  pair.fixed([=] { row_hashes_fixed<<<rows, 736>>>(x, out); });
}

// --- shared_instruction_bound: a 9 x 9 filter of int16, two shared loads a product against 25 for 72 products ---

constexpr int SIDE = 9, WIDE = 64, HIGH = 32, IMAGE = 72 * WIDE;  // a block has 64 x 32 outputs

__device__ __forceinline__ void load_patch(const int16_t* x, const int16_t* weight, int16_t (*patch)[WIDE + SIDE - 1],
                                           int16_t* weights) {
  const int thread = threadIdx.y * WIDE + threadIdx.x, pitch = IMAGE + SIDE - 1;
  for (int i = thread; i < (HIGH + SIDE - 1) * (WIDE + SIDE - 1); i += 4 * WIDE) {
    const int r = i / (WIDE + SIDE - 1), c = i % (WIDE + SIDE - 1);
    patch[r][c] = x[(blockIdx.y * HIGH + r) * pitch + blockIdx.x * WIDE + c];
  }
  if (thread < SIDE * SIDE) weights[thread] = weight[thread];
  __syncthreads();
}

__global__ void __launch_bounds__(256) filter_image_slow(const int16_t* x, const int16_t* weight, int* out) {
  __shared__ int16_t patch[HIGH + SIDE - 1][WIDE + SIDE - 1], weights[SIDE * SIDE];
  load_patch(x, weight, patch, weights);
  for (int r = threadIdx.y; r < HIGH; r += 4) {
    int sum = 0;
#pragma unroll
    for (int dy = 0; dy < SIDE; ++dy)
#pragma unroll
      for (int dx = 0; dx < SIDE; ++dx)
        sum += patch[r + dy][threadIdx.x + dx] * *(volatile int16_t*)&weights[dy * SIDE + dx];
    out[(blockIdx.y * HIGH + r) * IMAGE + blockIdx.x * WIDE + threadIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(256) filter_image_fixed(const int16_t* x, const int16_t* weight, int* out) {
  __shared__ int16_t patch[HIGH + SIDE - 1][WIDE + SIDE - 1], weights[SIDE * SIDE];
  load_patch(x, weight, patch, weights);
  const int first = threadIdx.y * 8;
  int sum[8] = {};
#pragma unroll
  for (int dx = 0; dx < SIDE; ++dx) {
    int column[8 + SIDE - 1];
#pragma unroll
    for (int r = 0; r < 8 + SIDE - 1; ++r) column[r] = patch[first + r][threadIdx.x + dx];
#pragma unroll
    for (int dy = 0; dy < SIDE; ++dy) {
      const int w = weights[dy * SIDE + dx];
#pragma unroll
      for (int r = 0; r < 8; ++r) sum[r] += column[r + dy] * w;
    }
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) out[(blockIdx.y * HIGH + first + r) * IMAGE + blockIdx.x * WIDE + threadIdx.x] = sum[r];
}

PAIR(holdout, shared_instruction_bound) {
  const int rows = 96 * HIGH, pitch = IMAGE + SIDE - 1;
  const int16_t* x = pair.input<int16_t>((rows + SIDE - 1) * int64_t{pitch},
                                         [] __device__(int64_t i) { return int16_t(pick(i, 1000)); });
  const int16_t* weight =
      pair.input<int16_t>(SIDE * SIDE, [] __device__(int64_t i) { return int16_t(pick(i, 201, 1) - 100); });
  int* out = pair.output<int>(rows * int64_t{IMAGE});
  pair.expect(
      out, rows * int64_t{IMAGE}, 0,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int j = 0; j < SIDE * SIDE; ++j)
          sum += double(x[(i / IMAGE + j / SIDE) * pitch + i % IMAGE + j % SIDE]) * weight[j];
        return sum;
      },
      1 << 15);
  const dim3 grid(IMAGE / WIDE, rows / HIGH), block(WIDE, 4);
  pair.slow([=] { filter_image_slow<<<grid, block>>>(x, weight, out); });
  pair.fixed([=] { filter_image_fixed<<<grid, block>>>(x, weight, out); });
}

// --- needless_barriers: rings of 32 cells a warp that look at their neighbour, barriers around each exchange or none ---

template <bool BLOCK>
__device__ __forceinline__ void rings(unsigned* out, int steps) {
  const unsigned i = blockIdx.x * 480 + threadIdx.x, left = (threadIdx.x + 31) % 32;
  unsigned cell = i * 2654435761u;
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    if (BLOCK) __syncthreads();
    const unsigned other = __shfl_sync(~0u, cell, left);
    if (BLOCK) __syncthreads();
    cell = (cell << 7 | cell >> 25) ^ (other + s);
  }
  out[i] = cell;
}
__global__ void __launch_bounds__(480) rings_slow(unsigned* out, int steps) { rings<true>(out, steps); }
__global__ void __launch_bounds__(480) rings_fixed(unsigned* out, int steps) { rings<false>(out, steps); }

PAIR(holdout, needless_barriers) {
  const int count = 264 * 480, steps = 1500;
  unsigned* out = pair.output<unsigned>(count);
  pair.expect(
      out, count, 0,
      [=] __device__(int64_t i) {
        unsigned ring[32], next[32];
        for (unsigned j = 0; j < 32; ++j) ring[j] = (unsigned(i) / 32 * 32 + j) * 2654435761u;
        for (int s = 0; s < steps; ++s) {
          for (int j = 0; j < 32; ++j) next[j] = (ring[j] << 7 | ring[j] >> 25) ^ (ring[(j + 31) % 32] + s);
          for (int j = 0; j < 32; ++j) ring[j] = next[j];
        }
        return double(ring[i % 32]);
      },
      1 << 10);
  pair.slow([=] { rings_slow<<<264, 480>>>(out, steps); });
  pair.fixed([=] { rings_fixed<<<264, 480>>>(out, steps); });
}

// --- one_warp_reduction: rows of bfloat16 without their mean, which one warp finds against every warp ---

constexpr int CENTRED = 6144;

__global__ void __launch_bounds__(768) centre_slow(const __nv_bfloat162* x, __nv_bfloat162* out) {
  __shared__ float2 row[CENTRED / 2];
  __shared__ float mean;
  const int64_t first = blockIdx.x * static_cast<int64_t>(CENTRED / 2);
  for (int i = threadIdx.x; i < CENTRED / 2; i += 768) row[i] = __bfloat1622float2(x[first + i]);
  __syncthreads();
  if (threadIdx.x < 32) {
    float sum = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < CENTRED / 2; i += 32) sum += row[i].x + row[i].y;
    sum = warp_total(sum);
    if (threadIdx.x == 0) mean = sum / CENTRED;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < CENTRED / 2; i += 768)
    out[first + i] = __floats2bfloat162_rn(row[i].x - mean, row[i].y - mean);
}

__global__ void __launch_bounds__(768) centre_fixed(const __nv_bfloat162* x, __nv_bfloat162* out) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(CENTRED / 2) + threadIdx.x;
  float2 mine[CENTRED / 1536];
  float sum = 0;
#pragma unroll
  for (int j = 0; j < CENTRED / 1536; ++j) {
    mine[j] = __bfloat1622float2(x[first + j * 768]);
    sum += mine[j].x + mine[j].y;
  }
  const float mean = block_total(sum) / CENTRED;
#pragma unroll
  for (int j = 0; j < CENTRED / 1536; ++j)
    out[first + j * 768] = __floats2bfloat162_rn(mine[j].x - mean, mine[j].y - mean);
}

PAIR(holdout, one_warp_reduction) {
  const int rows = 5200;
  const __nv_bfloat16* x = pair.input<__nv_bfloat16>(
      rows * int64_t{CENTRED}, [] __device__(int64_t i) { return __float2bfloat16(noise(i) + 0.25f); });
  __nv_bfloat16* out = pair.output<__nv_bfloat16>(rows * int64_t{CENTRED});
  pair.expect(
      out, rows * int64_t{CENTRED}, 0.01,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int64_t j = i / CENTRED * CENTRED; j < (i / CENTRED + 1) * CENTRED; ++j) sum += number(x[j]);
        return number(x[i]) - sum / CENTRED;
      },
      1 << 13);
  const auto* from = reinterpret_cast<const __nv_bfloat162*>(x);
  auto* to = reinterpret_cast<__nv_bfloat162*>(out);
  pair.slow([=] { centre_slow<<<rows, 768>>>(from, to); });
  pair.fixed([=] { centre_fixed<<<rows, 768>>>(from, to); });
}

// --- uneven_warps: energies of the levels of image pyramids, a warp a level against all warps on each ---

constexpr int LEVELS = 5, PYRAMID = 4096 + 1024 + 256 + 64 + 16;  // of two halves

__device__ __forceinline__ int level_length(int level) { return 4096 >> 2 * level; }
__device__ __forceinline__ int level_start(int level) {
  int start = 0;
  for (int l = 0; l < level; ++l) start += level_length(l);
  return start;
}

template <bool EVEN>
__device__ __forceinline__ void energies(const __half2* x, float* out, int pyramids) {
  __shared__ float sums[LEVELS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int p = blockIdx.x; p < pyramids; p += gridDim.x) {
    if (threadIdx.x < LEVELS) sums[threadIdx.x] = 0;
    __syncthreads();
    for (int level = EVEN ? 0 : warp; level < (EVEN ? LEVELS : warp + 1); ++level) {
      const __half2* from = x + static_cast<int64_t>(p) * PYRAMID + level_start(level);
      float sum = 0;
#pragma unroll 4
      for (int i = EVEN ? threadIdx.x : lane; i < level_length(level); i += EVEN ? 160 : 32) {
        const float2 two = __half22float2(from[i]);
        sum += two.x * two.x + two.y * two.y;
      }
      sum = warp_total(sum);
      if (lane == 0) atomicAdd(&sums[level], sum);
    }
    __syncthreads();
    if (threadIdx.x < LEVELS) out[p * LEVELS + threadIdx.x] = sums[threadIdx.x];
    __syncthreads();
  }
}
__global__ void __launch_bounds__(160) energies_slow(const __half2* x, float* out, int pyramids) {
  energies<false>(x, out, pyramids);
}
__global__ void __launch_bounds__(160) energies_fixed(const __half2* x, float* out, int pyramids) {
  energies<true>(x, out, pyramids);
}

PAIR(holdout, uneven_warps) {
  const int pyramids = 132 * 8 * 8;
  const __half* x =
      pair.input<__half>(pyramids * int64_t{2 * PYRAMID}, [] __device__(int64_t i) { return __float2half(noise(i)); });
  float* out = pair.output<float>(pyramids * LEVELS);
  pair.expect(out, pyramids * LEVELS, 1e-3, [=] __device__(int64_t i) {
    const int level = i % LEVELS;
    const __half* from = x + i / LEVELS * 2 * PYRAMID + 2 * level_start(level);
    double sum = 0;
    for (int j = 0; j < 2 * level_length(level); ++j) sum += number(from[j]) * number(from[j]);
    return sum;
  });
  const auto* twos = reinterpret_cast<const __half2*>(x);
  pair.slow([=] { energies_slow<<<132 * 8, 160>>>(twos, out, pyramids); });
  pair.fixed([=] { energies_fixed<<<132 * 8, 160>>>(twos, out, pyramids); });
}

// --- no_overlap: a filter over long streams of halves, tile by tile: load, barrier, filter, against the next on its way ---

constexpr int STREAM_TILE = 288, STREAM_TAPS = 24;  // of two halves; a tile is a word a thread

template <bool OVERLAP>
__device__ __forceinline__ void filter_stream(const __half2* x, float2* out, int tiles) {
  __shared__ __half2 held[2][STREAM_TILE];
  const __half2* stream = x + static_cast<int64_t>(blockIdx.x) * tiles * STREAM_TILE;
  float2 sum = make_float2(0, 0);
  int stage = 0;
  if (OVERLAP) {
    __pipeline_memcpy_async(&held[0][threadIdx.x], stream + threadIdx.x, 4);
    __pipeline_commit();
  }
  for (int tile = 0; tile < tiles; ++tile) {
    if (OVERLAP) {
      if (tile + 1 < tiles)
        __pipeline_memcpy_async(&held[stage ^ 1][threadIdx.x], stream + (tile + 1) * STREAM_TILE + threadIdx.x, 4);
      __pipeline_commit();
      __pipeline_wait_prior(1);
    } else {
      held[0][threadIdx.x] = stream[tile * STREAM_TILE + threadIdx.x];
    }
    __syncthreads();
#pragma unroll 8
    for (int tap = 0; tap < STREAM_TAPS; ++tap) {
      const float2 two = __half22float2(held[stage][(threadIdx.x + tap) % STREAM_TILE]);
      sum.x = 0.875f * sum.x + two.x;
      sum.y = 0.875f * sum.y + two.y;
    }
    __syncthreads();
    if (OVERLAP) stage ^= 1;
  }
  out[blockIdx.x * STREAM_TILE + threadIdx.x] = sum;
}
__global__ void __launch_bounds__(STREAM_TILE) filter_stream_slow(const __half2* x, float2* out, int tiles) {
  filter_stream<false>(x, out, tiles);
}
__global__ void __launch_bounds__(STREAM_TILE) filter_stream_fixed(const __half2* x, float2* out, int tiles) {
  filter_stream<true>(x, out, tiles);
}

PAIR(holdout, no_overlap) {
  const int tiles = 400, blocks = 132;
  const __half* x = pair.input<__half>(2ll * blocks * tiles * STREAM_TILE,
                                       [] __device__(int64_t i) { return __float2half(noise(i)); });
  float* out = pair.output<float>(2 * blocks * STREAM_TILE);
  pair.expect(out, 2 * blocks * STREAM_TILE, 1e-4, [=] __device__(int64_t i) {
    const int64_t block = i / 2 / STREAM_TILE, thread = i / 2 % STREAM_TILE;
    double sum = 0;
    for (int tile = 0; tile < tiles; ++tile)
      for (int tap = 0; tap < STREAM_TAPS; ++tap)
        sum =
            0.875 * sum + number(x[2 * ((block * tiles + tile) * STREAM_TILE + (thread + tap) % STREAM_TILE) + i % 2]);
    return sum;
  });
  const auto* twos = reinterpret_cast<const __half2*>(x);
  pair.slow([=] { filter_stream_slow<<<blocks, STREAM_TILE>>>(twos, reinterpret_cast<float2*>(out), tiles); });
  pair.fixed([=] { filter_stream_fixed<<<blocks, STREAM_TILE>>>(twos, reinterpret_cast<float2*>(out), tiles); });
}
