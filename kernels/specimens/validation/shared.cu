// Validation half: shared memory and barriers.
#include <cuda_pipeline.h>

#include "../specimen.cuh"

using namespace specimens;

// --- shared_bank_conflicts: a recursive filter along rows of 64 doubles, all rows of a warp in one bank or not ---

template <int PITCH>
__device__ __forceinline__ void filter_rows(const double* x, double* out) {
  extern __shared__ double rows[];
  for (int i = threadIdx.x; i < 64 * 64; i += 64) rows[i / 64 * PITCH + i % 64] = x[blockIdx.x * 4096ll + i];
  __syncthreads();
  double y = 0;
  for (int c = 0; c < 64; ++c) {
    double& place = rows[threadIdx.x * PITCH + c];
    y = 0.75 * y + place;
    place = y;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 64; i += 64) out[blockIdx.x * 4096ll + i] = rows[i / 64 * PITCH + i % 64];
}
__global__ void filter_rows_slow(const double* x, double* out) { filter_rows<64>(x, out); }
__global__ void filter_rows_fixed(const double* x, double* out) { filter_rows<65>(x, out); }

PAIR(validation, shared_bank_conflicts) {
  const int blocks = 3000;
  const double* x = pair.input<double>(blocks * 4096ll, [] __device__(int64_t i) { return double(noise(i)); });
  double* out = pair.output<double>(blocks * 4096ll);
  pair.expect(out, blocks * 4096ll, 1e-9, [=] __device__(int64_t i) {
    double y = 0;
    for (int64_t c = i / 64 * 64; c <= i; ++c) y = 0.75 * y + x[c];
    return y;
  });
  pair.slow([=] { filter_rows_slow<<<blocks, 64, 64 * 64 * 8>>>(x, out); });
  pair.fixed([=] { filter_rows_fixed<<<blocks, 64, 64 * 65 * 8>>>(x, out); });
}

// --- shared_atomics_one_address: amounts added up by kinds, of which one is frequent, one copy against one a lane ---

__global__ void ledger_slow(const uint8_t* kind, const unsigned* amount, unsigned long long* out, int count) {
  __shared__ unsigned long long sums[64];
  if (threadIdx.x < 64) sums[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 128 + threadIdx.x; i < count; i += gridDim.x * 128)
    atomicAdd(&sums[kind[i]], static_cast<unsigned long long>(amount[i]));
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&out[threadIdx.x], sums[threadIdx.x]);
}

__global__ void ledger_fixed(const uint8_t* kind, const unsigned* amount, unsigned long long* out, int count) {
  __shared__ unsigned long long sums[64][32];
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < 64 * 32; i += 128) sums[i / 32][i % 32] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 128 + threadIdx.x; i < count; i += gridDim.x * 128)
    atomicAdd(&sums[kind[i]][lane], static_cast<unsigned long long>(amount[i]));
  __syncthreads();
  if (threadIdx.x < 64) {
    unsigned long long sum = 0;
    for (int j = 0; j < 32; ++j) sum += sums[threadIdx.x][(threadIdx.x + j) % 32];
    atomicAdd(&out[threadIdx.x], sum);
  }
}

PAIR(validation, shared_atomics_one_address) {
  const int count = 8 << 20;
  const uint8_t* kind =
      pair.input<uint8_t>(count, [] __device__(int64_t i) { return uint8_t(pick(i, 50) ? 7 : mix(i) >> 58); });
  const unsigned* amount = pair.input<unsigned>(count, [] __device__(int64_t i) { return unsigned(mix(i) >> 40); });
  auto* out = pair.output<unsigned long long>(64);
  auto* sums = pair.input<unsigned long long>(64, [] __device__(int64_t) { return 0ull; });
  pair.input<uint8_t>(count, [=] __device__(int64_t i) {
    atomicAdd(sums + kind[i], static_cast<unsigned long long>(amount[i]));
    return uint8_t{};
  });
  pair.expect(out, 64, 0, [=] __device__(int64_t i) { return double(sums[i]); });
  pair.slow([=] { ledger_slow<<<1056, 128>>>(kind, amount, out, count); });
  pair.fixed([=] { ledger_fixed<<<1056, 128>>>(kind, amount, out, count); });
}

// --- shared_instruction_bound: a filter of 64 taps, two shared loads for each product against two for sixteen ---

constexpr int TAPS = 64;

__global__ void __launch_bounds__(128) taps_slow(const int* x, const int* taps, int* out) {
  __shared__ int held[1024 + TAPS], weights[TAPS];
  for (int i = threadIdx.x; i < 1024 + TAPS; i += 128) held[i] = x[blockIdx.x * 1024ll + i];
  if (threadIdx.x < TAPS) weights[threadIdx.x] = taps[threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.x; i < 1024; i += 128) {
    int sum = 0;
#pragma unroll 16
    for (int k = 0; k < TAPS; ++k) sum += held[i + k] * *(volatile int*)&weights[k];
    out[blockIdx.x * 1024ll + i] = sum;
  }
}

__global__ void __launch_bounds__(128) taps_fixed(const int* x, const int* taps, int* out) {
  __shared__ __align__(16) int held[1024 + TAPS + 4], weights[TAPS];
  for (int i = threadIdx.x; i < 1024 + TAPS; i += 128) held[i] = x[blockIdx.x * 1024ll + i];
  if (threadIdx.x < TAPS) weights[threadIdx.x] = taps[threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.x * 4; i < 1024; i += 512) {
    int sum[4] = {}, window[8];
    *reinterpret_cast<int4*>(window) = *reinterpret_cast<const int4*>(held + i);
#pragma unroll
    for (int k = 0; k < TAPS; k += 4) {
      *reinterpret_cast<int4*>(window + 4) = *reinterpret_cast<const int4*>(held + i + k + 4);
      const int4 w = *reinterpret_cast<const int4*>(weights + k);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        sum[j] += window[j] * w.x + window[j + 1] * w.y + window[j + 2] * w.z + window[j + 3] * w.w;
#pragma unroll
      for (int j = 0; j < 4; ++j) window[j] = window[j + 4];
    }
    *reinterpret_cast<int4*>(out + blockIdx.x * 1024ll + i) = make_int4(sum[0], sum[1], sum[2], sum[3]);
  }
}

PAIR(validation, shared_instruction_bound) {
  const int blocks = 6336;
  const int* x = pair.input<int>(blocks * 1024ll + TAPS, [] __device__(int64_t i) { return int(pick(i, 1000)); });
  const int* taps = pair.input<int>(TAPS, [] __device__(int64_t i) { return int(pick(i, 100, 1)); });
  int* out = pair.output<int>(blocks * 1024ll);
  pair.expect(out, blocks * 1024ll, 0, [=] __device__(int64_t i) {
    double sum = 0;
    for (int k = 0; k < TAPS; ++k) sum += double(x[i + k]) * taps[k];
    return sum;
  });
  pair.slow([=] { taps_slow<<<blocks, 128>>>(x, taps, out); });
  pair.fixed([=] { taps_fixed<<<blocks, 128>>>(x, taps, out); });
}

// --- needless_barriers: sums of rows, a row a warp, by a tree in shared memory with barriers of the block or the warp ---

template <bool BLOCK>
__device__ __forceinline__ void tree_sums(const __half* x, float* out, int rounds) {
  __shared__ float tree[16][64];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto join = [] {
    if (BLOCK)
      __syncthreads();
    else
      __syncwarp();
  };
  for (int round = 0; round < rounds; ++round) {
    const int64_t row = (blockIdx.x * static_cast<int64_t>(rounds) + round) * 16 + warp;
    const float2 two = __half22float2(reinterpret_cast<const __half2*>(x)[row * 32 + lane]);
    tree[warp][lane] = two.x;
    tree[warp][lane + 32] = two.y;
    join();
#pragma unroll
    for (int half = 32; half; half >>= 1) {
      if (lane < half) tree[warp][lane] += tree[warp][lane + half];
      join();
    }
    if (lane == 0) out[row] = tree[warp][0];
    join();
  }
}
__global__ void tree_sums_slow(const __half* x, float* out, int rounds) { tree_sums<true>(x, out, rounds); }
__global__ void tree_sums_fixed(const __half* x, float* out, int rounds) { tree_sums<false>(x, out, rounds); }

PAIR(validation, needless_barriers) {
  const int blocks = 2640, rounds = 24, rows = blocks * rounds * 16;
  const auto* x = pair.input<__half>(rows * 64ll, [] __device__(int64_t i) { return __float2half(noise(i)); });
  float* out = pair.output<float>(rows);
  pair.expect(out, rows, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int j = 0; j < 64; ++j) sum += number(x[i * 64 + j]);
    return sum;
  });
  pair.slow([=] { tree_sums_slow<<<blocks, 512>>>(x, out, rounds); });
  pair.fixed([=] { tree_sums_fixed<<<blocks, 512>>>(x, out, rounds); });
}

// --- one_warp_reduction: how far below the largest of its row each element is, sought by one warp against by all ---

__device__ __forceinline__ int warp_largest(int value) { return __reduce_max_sync(~0u, value); }

__global__ void __launch_bounds__(1024) below_largest_slow(const int* x, int* out) {
  __shared__ int row[4096], largest;
  for (int i = threadIdx.x; i < 4096; i += 1024) row[i] = x[blockIdx.x * 4096ll + i];
  __syncthreads();
  if (threadIdx.x < 32) {
    int most = row[threadIdx.x];
#pragma unroll 1
    for (int i = threadIdx.x; i < 4096; i += 32) most = max(most, row[i]);
    most = warp_largest(most);
    if (threadIdx.x == 0) largest = most;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 4096; i += 1024) out[blockIdx.x * 4096ll + i] = largest - row[i];
}

__global__ void __launch_bounds__(1024) below_largest_fixed(const int* x, int* out) {
  __shared__ int parts[32];
  const int4 mine = reinterpret_cast<const int4*>(x)[blockIdx.x * 1024ll + threadIdx.x];
  int most = warp_largest(max(max(mine.x, mine.y), max(mine.z, mine.w)));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
  __syncthreads();
  most = warp_largest(parts[threadIdx.x % 32]);
  reinterpret_cast<int4*>(out)[blockIdx.x * 1024ll + threadIdx.x] =
      make_int4(most - mine.x, most - mine.y, most - mine.z, most - mine.w);
}

PAIR(validation, one_warp_reduction) {
  const int rows = 7000;
  const int* x = pair.input<int>(rows * 4096ll, [] __device__(int64_t i) { return int(pick(i, 1 << 24)); });
  int* out = pair.output<int>(rows * 4096ll);
  pair.expect(
      out, rows * 4096ll, 0,
      [=] __device__(int64_t i) {
        int most = 0;
        for (int j = 0; j < 4096; ++j) most = max(most, x[i / 4096 * 4096 + j]);
        return double(most - x[i]);
      },
      1 << 14);
  pair.slow([=] { below_largest_slow<<<rows, 1024>>>(x, out); });
  pair.fixed([=] { below_largest_fixed<<<rows, 1024>>>(x, out); });
}

// --- uneven_warps: checksums of messages, one in eight is long, a warp a message against all warps on each ---

constexpr int SHORT = 256, LONG = 6144, GROUP = 7 * SHORT + LONG;

__device__ __forceinline__ int message_start(int which) {
  return which <= 3 ? which * SHORT : (which - 1) * SHORT + LONG;
}

template <bool EVEN>
__device__ __forceinline__ void checksums(const int* x, int* out, int groups) {
  __shared__ int sums[8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int group = blockIdx.x; group < groups; group += gridDim.x) {
    const int* messages = x + group * static_cast<int64_t>(GROUP);
    if (threadIdx.x < 8) sums[threadIdx.x] = 0;
    __syncthreads();
    for (int m = EVEN ? 0 : warp; m < (EVEN ? 8 : warp + 1); ++m) {
      const int start = message_start(m), length = m == 3 ? LONG : SHORT;
      int sum = 0;
      for (int i = EVEN ? threadIdx.x : lane; i < length; i += EVEN ? 256 : 32) sum += messages[start + i] ^ i;
      sum = __reduce_add_sync(~0u, sum);
      if (lane == 0) atomicAdd(&sums[m], sum);
    }
    __syncthreads();
    if (threadIdx.x < 8) out[group * 8 + threadIdx.x] = sums[threadIdx.x];
    __syncthreads();
  }
}
__global__ void checksums_slow(const int* x, int* out, int groups) { checksums<false>(x, out, groups); }
__global__ void checksums_fixed(const int* x, int* out, int groups) { checksums<true>(x, out, groups); }

PAIR(validation, uneven_warps) {
  const int groups = 4224;
  const int* x =
      pair.input<int>(groups * static_cast<int64_t>(GROUP), [] __device__(int64_t i) { return int(pick(i, 4096)); });
  int* out = pair.output<int>(groups * 8);
  pair.expect(out, groups * 8, 0, [=] __device__(int64_t i) {
    const int* message = x + i / 8 * GROUP + message_start(i % 8);
    double sum = 0;
    for (int j = 0; j < (i % 8 == 3 ? LONG : SHORT); ++j) sum += message[j] ^ j;
    return sum;
  });
  pair.slow([=] { checksums_slow<<<1056, 256>>>(x, out, groups); });
  pair.fixed([=] { checksums_fixed<<<1056, 256>>>(x, out, groups); });
}

// --- no_overlap: nearest of many byte vectors, tile by tile: load, barrier, compare, against the next tile on its way ---

constexpr int TILE = 64, WORDS = 16;  // vectors of 64 bytes

__device__ __forceinline__ int best_of_tile(const int4* tile, const int4* query, int quarter, int best) {
#pragma unroll 4
  for (int v = quarter; v < TILE; v += 4) {
    int dot = 0;
#pragma unroll
    for (int w = 0; w < WORDS / 4; ++w) {
      const int4 held = tile[v * (WORDS / 4) + w], own = query[w];
      dot = __dp4a(held.x, own.x, dot), dot = __dp4a(held.y, own.y, dot);
      dot = __dp4a(held.z, own.z, dot), dot = __dp4a(held.w, own.w, dot);
    }
    best = max(best, dot);
  }
  return best;
}

template <bool OVERLAP>
__device__ __forceinline__ void nearest(const int4* known, const int4* queries, int* out, int tiles) {
  __shared__ int4 held[2][TILE * WORDS / 4];  // one 16-byte word a thread
  const int which = blockIdx.x * 64 + threadIdx.x / 4, quarter = threadIdx.x % 4;
  int4 query[WORDS / 4];
#pragma unroll
  for (int w = 0; w < WORDS / 4; ++w) query[w] = queries[which * (WORDS / 4) + w];
  int best = -(1 << 30), stage = 0;
  if (OVERLAP) {
    __pipeline_memcpy_async(&held[0][threadIdx.x], known + threadIdx.x, 16);
    __pipeline_commit();
  }
  for (int tile = 0; tile < tiles; ++tile) {
    if (OVERLAP) {
      if (tile + 1 < tiles)
        __pipeline_memcpy_async(&held[stage ^ 1][threadIdx.x], known + (tile + 1) * 256 + threadIdx.x, 16);
      __pipeline_commit();
      __pipeline_wait_prior(1);
    } else {
      held[stage][threadIdx.x] = known[tile * 256 + threadIdx.x];
    }
    __syncthreads();
    best = best_of_tile(held[stage], query, quarter, best);
    __syncthreads();
    if (OVERLAP) stage ^= 1;
  }
  best = max(best, __shfl_xor_sync(~0u, best, 1));
  best = max(best, __shfl_xor_sync(~0u, best, 2));
  if (quarter == 0) out[which] = best;
}
__global__ void __launch_bounds__(256) nearest_slow(const int4* known, const int4* queries, int* out, int tiles) {
  nearest<false>(known, queries, out, tiles);
}
__global__ void __launch_bounds__(256) nearest_fixed(const int4* known, const int4* queries, int* out, int tiles) {
  nearest<true>(known, queries, out, tiles);
}

PAIR(validation, no_overlap) {
  const int tiles = 256, queries = 132 * 64;
  const int8_t* known =
      pair.input<int8_t>(tiles * TILE * 64, [] __device__(int64_t i) { return int8_t(pick(i, 255) - 127); });
  const int8_t* asked =
      pair.input<int8_t>(queries * 64, [] __device__(int64_t i) { return int8_t(pick(i, 255, 1) - 127); });
  int* out = pair.output<int>(queries);
  pair.expect(
      out, queries, 0,
      [=] __device__(int64_t i) {
        int best = -(1 << 30);
        for (int v = 0; v < tiles * TILE; ++v) {
          int dot = 0;
          for (int b = 0; b < 64; ++b) dot += known[v * 64 + b] * asked[i * 64 + b];
          best = max(best, dot);
        }
        return double(best);
      },
      1 << 9);
  const auto *k = reinterpret_cast<const int4*>(known), *a = reinterpret_cast<const int4*>(asked);
  pair.slow([=] { nearest_slow<<<132, 256>>>(k, a, out, tiles); });
  pair.fixed([=] { nearest_fixed<<<132, 256>>>(k, a, out, tiles); });
}
