// Holdout: how global memory is read and written.
#include "../specimen.cuh"

using namespace specimens;

// --- uncoalesced_loads: exponential averages of series of int16, each thread reads its series against by tiles ---

constexpr int SERIES_TILE = 64;  // samples, a word of two a lane

__device__ __forceinline__ float averaged(float before, int sample) { return 0.875f * before + sample; }

__global__ void __launch_bounds__(96) averages_slow(const int16_t* x, float* out, int samples) {
  const int series = blockIdx.x * 96 + threadIdx.x;
  float average = 0;
#pragma unroll 4
  for (int s = 0; s < samples; ++s) average = averaged(average, x[static_cast<int64_t>(series) * samples + s]);
  out[series] = average;
}

__global__ void __launch_bounds__(96) averages_fixed(const int16_t* x, float* out, int samples) {
  __shared__ short2 tile[96][SERIES_TILE / 2 + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float average = 0;
  for (int first = 0; first < samples; first += SERIES_TILE) {
#pragma unroll 8
    for (int row = warp; row < 96; row += 3)
      tile[row][lane] = *reinterpret_cast<const short2*>(x + (blockIdx.x * 96ll + row) * samples + first + 2 * lane);
    __syncthreads();
#pragma unroll 8
    for (int s = 0; s < SERIES_TILE / 2; ++s) {
      const short2 two = tile[threadIdx.x][s];
      average = averaged(averaged(average, two.x), two.y);
    }
    __syncthreads();
  }
  out[blockIdx.x * 96 + threadIdx.x] = average;
}

PAIR(holdout, uncoalesced_loads) {
  const int series = 96 * 704, samples = 1024;
  const int16_t* x = pair.input<int16_t>(int64_t{series} * samples,
                                         [] __device__(int64_t i) { return int16_t(pick(i, 2000) - 1000); });
  float* out = pair.output<float>(series);
  pair.expect(out, series, 1e-3, [=] __device__(int64_t i) {
    double average = 0;
    for (int s = 0; s < samples; ++s) average = 0.875 * average + x[i * samples + s];
    return average;
  });
  pair.slow([=] { averages_slow<<<704, 96>>>(x, out, samples); });
  pair.fixed([=] { averages_fixed<<<704, 96>>>(x, out, samples); });
}

// --- uncoalesced_stores: rotation matrices of quaternions in FP64, nine doubles a thread against through shared memory ---

__device__ __forceinline__ void rotation(double4 q, double m[9]) {
  m[0] = 1 - 2 * (q.y * q.y + q.z * q.z), m[1] = 2 * (q.x * q.y - q.z * q.w), m[2] = 2 * (q.x * q.z + q.y * q.w);
  m[3] = 2 * (q.x * q.y + q.z * q.w), m[4] = 1 - 2 * (q.x * q.x + q.z * q.z), m[5] = 2 * (q.y * q.z - q.x * q.w);
  m[6] = 2 * (q.x * q.z - q.y * q.w), m[7] = 2 * (q.y * q.z + q.x * q.w), m[8] = 1 - 2 * (q.x * q.x + q.y * q.y);
}
__device__ __forceinline__ double4 quaternion(const double* x, int64_t i) {
  const double2 first = reinterpret_cast<const double2*>(x)[2 * i];
  const double2 second = reinterpret_cast<const double2*>(x)[2 * i + 1];
  return {first.x, first.y, second.x, second.y};
}

__global__ void __launch_bounds__(160) rotations_slow(const double* x, double* out) {
  const int64_t i = blockIdx.x * 160ll + threadIdx.x;
  double m[9];
  rotation(quaternion(x, i), m);
#pragma unroll
  for (int j = 0; j < 9; ++j) out[i * 9 + j] = m[j];
}

__global__ void __launch_bounds__(160) rotations_fixed(const double* x, double* out) {
  __shared__ double held[160 * 9];
  double m[9];
  rotation(quaternion(x, blockIdx.x * 160ll + threadIdx.x), m);
#pragma unroll
  for (int j = 0; j < 9; ++j) held[threadIdx.x * 9 + j] = m[j];
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 9; ++j) out[blockIdx.x * 1440ll + j * 160 + threadIdx.x] = held[j * 160 + threadIdx.x];
}

PAIR(holdout, uncoalesced_stores) {
  const int64_t count = 160 * 13000;
  const double* x = pair.input<double>(4 * count, [] __device__(int64_t i) { return double(noise(i)); });
  double* out = pair.output<double>(9 * count);
  pair.expect(
      out, 9 * count, 1e-9,
      [=] __device__(int64_t i) {
        double m[9];
        rotation(quaternion(x, i / 9), m);
        double found = 0;
        for (int j = 0; j < 9; ++j) found += j == i % 9 ? m[j] : 0;
        return found;
      },
      1 << 18);
  pair.slow([=] { rotations_slow<<<count / 160, 160>>>(x, out); });
  pair.fixed([=] { rotations_fixed<<<count / 160, 160>>>(x, out); });
}

// --- strided_sectors: steps of a signal, every 24th sample of the full one against of the one that was thinned out ---

template <int STRIDE>
__device__ __forceinline__ void steps_of(const int16_t* x, int16_t* out, int count) {
  const int i = blockIdx.x * 224 + threadIdx.x;
  if (i >= count) return;
  out[i] = x[(i + 1) * int64_t{STRIDE}] - x[i * int64_t{STRIDE}];
}
__global__ void signal_steps_slow(const int16_t* x, int16_t* out, int count) { steps_of<24>(x, out, count); }
__global__ void signal_steps_fixed(const int16_t* x, int16_t* out, int count) { steps_of<1>(x, out, count); }

PAIR(holdout, strided_sectors) {
  const int count = 11'000'000;
  const auto sample = [] __device__(int64_t i) { return int16_t(pick(i, 1 << 14)); };
  const int16_t* all = pair.input<int16_t>((count + 1) * 24ll, sample);
  const int16_t* thin = pair.input<int16_t>(count + 1, [=] __device__(int64_t i) { return sample(i * 24); });
  int16_t* out = pair.output<int16_t>(count);
  pair.expect(
      out, count, 0, [=] __device__(int64_t i) { return double(sample(24 * i + 24)) - sample(24 * i); }, 1 << 20);
  pair.slow([=] { signal_steps_slow<<<ceil_div(count, 224), 224>>>(all, out, count); });
  pair.fixed([=] { signal_steps_fixed<<<ceil_div(count, 224), 224>>>(thin, out, count); });
}

// --- misaligned_base: sums of 24 random tiles of 16 int16, the tiles begin at 16 bytes against at 0 ---

constexpr int IN_SUM = 24;

__device__ __forceinline__ void add_tile(uint4& sum, const uint4* tiles, int which, int part) {
  const uint4 v = tiles[which * 2 + part];
  sum.x = __vadd2(sum.x, v.x), sum.y = __vadd2(sum.y, v.y), sum.z = __vadd2(sum.z, v.z), sum.w = __vadd2(sum.w, v.w);
}
__device__ __forceinline__ void sum_tiles(const uint4* tiles, const int4* drawn, uint4* out) {
  const int i = blockIdx.x * 288 + threadIdx.x, part = i % 2;
  const int4* mine = drawn + i / 2 * (IN_SUM / 4);
  uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int j = 0; j < IN_SUM / 4; ++j) {
    const int4 four = mine[j];
    add_tile(sum, tiles, four.x, part), add_tile(sum, tiles, four.y, part);
    add_tile(sum, tiles, four.z, part), add_tile(sum, tiles, four.w, part);
  }
  out[i] = sum;
}
__global__ void __launch_bounds__(288) sum_tiles_slow(const uint4* tiles, const int4* drawn, uint4* out) {
  sum_tiles(tiles, drawn, out);
}
__global__ void __launch_bounds__(288) sum_tiles_fixed(const uint4* tiles, const int4* drawn, uint4* out) {
  sum_tiles(tiles, drawn, out);
}

PAIR(holdout, misaligned_base) {
  const int sums = 144 * 6000, known = 3 << 16;  // 6.3 MB, which stay in L2
  const auto value = [] __device__(int64_t i) { return int16_t(pick(i, 1000) - 500); };
  const int16_t* late = pair.input<int16_t>(known * 16 + 8, [=] __device__(int64_t i) { return value(i - 8); });
  const int16_t* aligned = pair.input<int16_t>(known * 16, value);
  const int* drawn = pair.input<int>(sums * IN_SUM, [=] __device__(int64_t i) { return int(pick(i, known, 1)); });
  int16_t* out = pair.output<int16_t>(sums * 16);
  pair.expect(out, sums * 16, 0, [=] __device__(int64_t i) {
    double sum = 0;
    for (int j = 0; j < IN_SUM; ++j) sum += value(int64_t{drawn[i / 16 * IN_SUM + j]} * 16 + i % 16);
    return sum;
  });
  const auto* which = reinterpret_cast<const int4*>(drawn);
  auto* words = reinterpret_cast<uint4*>(out);
  pair.slow([=] { sum_tiles_slow<<<sums / 144, 288>>>(reinterpret_cast<const uint4*>(late + 8), which, words); });
  pair.fixed([=] { sum_tiles_fixed<<<sums / 144, 288>>>(reinterpret_cast<const uint4*>(aligned), which, words); });
}

// --- narrow_accesses: saturated sums of two int8 tensors, a byte an instruction against sixteen ---

__global__ void __launch_bounds__(320)
    saturated_sum_slow(const int8_t* x, const int8_t* y, int8_t* out, int64_t count) {
  for (int64_t i = blockIdx.x * 320ll + threadIdx.x; i < count; i += gridDim.x * 320ll)
    out[i] = static_cast<int8_t>(max(-128, min(127, x[i] + y[i])));
}
__global__ void __launch_bounds__(320) saturated_sum_fixed(const uint4* x, const uint4* y, uint4* out, int64_t words) {
  for (int64_t i = blockIdx.x * 320ll + threadIdx.x; i < words; i += gridDim.x * 320ll) {
    const uint4 a = x[i], b = y[i];
    out[i] = make_uint4(__vaddss4(a.x, b.x), __vaddss4(a.y, b.y), __vaddss4(a.z, b.z), __vaddss4(a.w, b.w));
  }
}

PAIR(holdout, narrow_accesses) {
  const int64_t count = 90ll << 20;
  const int8_t* x = pair.input<int8_t>(count, [] __device__(int64_t i) { return int8_t(mix(i)); });
  const int8_t* y = pair.input<int8_t>(count, [] __device__(int64_t i) { return int8_t(mix(i) >> 32); });
  int8_t* out = pair.output<int8_t>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) { return double(max(-128, min(127, x[i] + y[i]))); });
  pair.slow([=] { saturated_sum_slow<<<132 * 6 * 8, 320>>>(x, y, out, count); });
  pair.fixed([=] {
    saturated_sum_fixed<<<132 * 6 * 8, 320>>>(reinterpret_cast<const uint4*>(x), reinterpret_cast<const uint4*>(y),
                                              reinterpret_cast<uint4*>(out), count / 16);
  });
}

// --- partial_sector_writes: 64-bit stamps of records of 48 bytes, written in place against into an array of stamps ---

__device__ __forceinline__ int64_t stamp(const int* ticks, int i) { return ticks[i] * 1'000'003ll + i; }

__global__ void __launch_bounds__(352) stamps_slow(const int* ticks, int64_t* records, int count) {
  const int i = blockIdx.x * 352 + threadIdx.x;
  if (i < count) records[i * 6ll] = stamp(ticks, i);
}
__global__ void __launch_bounds__(352) stamps_fixed(const int* ticks, int64_t* stamps, int count) {
  const int i = blockIdx.x * 352 + threadIdx.x;
  if (i < count) stamps[i] = stamp(ticks, i);
}

PAIR(holdout, partial_sector_writes) {
  const int count = 352 * 18000;
  const int* ticks = pair.input<int>(count, [] __device__(int64_t i) { return int(pick(i, 1 << 20)); });
  int64_t* records = pair.output<int64_t>(count * 6ll);
  pair.expect(
      records, count * 6ll, 0,
      [=] __device__(int64_t i) {
        const bool packed = records[1] != 0;  // an array of stamps: the second place is written
        const int64_t at = packed ? i : i / 6;
        return at < count && (packed || i % 6 == 0) ? double(stamp(ticks, int(at))) : 0.0;
      },
      1 << 18);
  pair.slow([=] { stamps_slow<<<count / 352, 352>>>(ticks, records, count); });
  pair.fixed([=] { stamps_fixed<<<count / 352, 352>>>(ticks, records, count); });
}

// --- wide_data: inner products of stretches, values below 128 kept in 32 bits against in 8 ---

constexpr int STRETCH = 320 * 16;

__global__ void __launch_bounds__(320) products_wide_slow(const int4* x, const int4* y, float* out) {
  const int64_t first = blockIdx.x * 1280ll + threadIdx.x;
  int sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int4 a = x[first + j * 320], b = y[first + j * 320];
    sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
  }
  const float total = block_total(static_cast<float>(sum));
  if (threadIdx.x == 0) out[blockIdx.x] = total;
}
__global__ void __launch_bounds__(320) products_wide_fixed(const int4* x, const int4* y, float* out) {
  const int64_t at = blockIdx.x * 320ll + threadIdx.x;
  const int4 a = x[at], b = y[at];
  const int sum = __dp4a(a.x, b.x, __dp4a(a.y, b.y, __dp4a(a.z, b.z, __dp4a(a.w, b.w, 0))));
  const float total = block_total(static_cast<float>(sum));
  if (threadIdx.x == 0) out[blockIdx.x] = total;
}

PAIR(holdout, wide_data) {
  const int64_t blocks = 9000, count = blocks * STRETCH;
  const auto left = [] __device__(int64_t i) { return int(pick(i, 255, 1)) - 127; };
  const auto right = [] __device__(int64_t i) { return int(pick(i, 255, 2)) - 127; };
  const int *x = pair.input<int>(count, left), *y = pair.input<int>(count, right);
  const int8_t* narrow_x = pair.input<int8_t>(count, [=] __device__(int64_t i) { return int8_t(left(i)); });
  const int8_t* narrow_y = pair.input<int8_t>(count, [=] __device__(int64_t i) { return int8_t(right(i)); });
  float* out = pair.output<float>(blocks);
  // whole numbers below 2^24, exact as floats in any order
  pair.expect(out, blocks, 0, [=] __device__(int64_t i) {
    double sum = 0;
    for (int64_t j = i * STRETCH; j < (i + 1) * STRETCH; ++j) sum += x[j] * y[j];
    return sum;
  });
  pair.slow([=] {
    products_wide_slow<<<blocks, 320>>>(reinterpret_cast<const int4*>(x), reinterpret_cast<const int4*>(y), out);
  });
  pair.fixed([=] {
    products_wide_fixed<<<blocks, 320>>>(reinterpret_cast<const int4*>(narrow_x),
                                         reinterpret_cast<const int4*>(narrow_y), out);
  });
}

// --- block_order_l2: autocorrelations at ten lags, all stretches at one lag, then the next, against all lags of one ---

constexpr int LAGS = 10, LAGGED = 12800;  // samples of a stretch

__device__ __forceinline__ int product_of_twos(unsigned a, unsigned b) {
  return static_cast<int16_t>(a) * static_cast<int16_t>(b) + (static_cast<int>(a) >> 16) * (static_cast<int>(b) >> 16);
}
__device__ __forceinline__ void lagged_product(const int16_t* x, float* out, int stretch, int lag, int stretches) {
  const auto* here = reinterpret_cast<const uint4*>(x + static_cast<int64_t>(stretch) * LAGGED);
  int sum = 0;
#pragma unroll 5
  for (int i = threadIdx.x; i < LAGGED / 8; i += 160) {
    const uint4 a = here[i], b = here[i + lag];  // lags are of eight samples
    sum +=
        product_of_twos(a.x, b.x) + product_of_twos(a.y, b.y) + product_of_twos(a.z, b.z) + product_of_twos(a.w, b.w);
  }
  const float total = block_total(static_cast<float>(sum));
  if (threadIdx.x == 0) out[lag * stretches + stretch] = total;
}
__global__ void __launch_bounds__(160) lagged_products_slow(const int16_t* x, float* out, int stretches) {
  lagged_product(x, out, blockIdx.x % stretches, blockIdx.x / stretches, stretches);
}
__global__ void __launch_bounds__(160) lagged_products_fixed(const int16_t* x, float* out, int stretches) {
  lagged_product(x, out, blockIdx.x / LAGS, blockIdx.x % LAGS, stretches);
}

PAIR(holdout, block_order_l2) {
  const int stretches = 5000;
  const int64_t count = int64_t{stretches} * LAGGED;
  const int16_t* x =
      pair.input<int16_t>(count + 8 * LAGS, [] __device__(int64_t i) { return int16_t(pick(i, 61) - 30); });
  float* out = pair.output<float>(stretches * LAGS);
  // whole numbers below 2^24, exact as floats in any order
  pair.expect(
      out, stretches * LAGS, 0,
      [=] __device__(int64_t i) {
        const int16_t* here = x + i % stretches * LAGGED;
        double sum = 0;
        for (int j = 0; j < LAGGED; ++j) sum += here[j] * here[j + i / stretches * 8];
        return sum;
      },
      1 << 12);
  pair.slow([=] { lagged_products_slow<<<stretches * LAGS, 160>>>(x, out, stretches); });
  pair.fixed([=] { lagged_products_fixed<<<stretches * LAGS, 160>>>(x, out, stretches); });
}

// --- no_tile: a step of shortest paths (a min-plus product), an output a thread from global memory against by tiles ---

__global__ void __launch_bounds__(256) paths_slow(const int* a, const int* b, int* c, int n) {
  const int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  int best = 1 << 30;
  for (int k = 0; k < n; ++k) best = min(best, a[row * n + k] + b[k * n + column]);
  c[row * n + column] = best;
}

__global__ void __launch_bounds__(256) paths_fixed(const int* a, const int* b, int* c, int n) {
  __shared__ __align__(16) int as[16][84], bs[16][80];
  const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  int best[5][5];
#pragma unroll
  for (auto& row : best)
#pragma unroll
    for (int& one : row) one = 1 << 30;
  for (int k0 = 0; k0 < n; k0 += 16) {
    for (int i = thread; i < 80 * 16; i += 256) {
      as[i % 16][i / 16] = a[(blockIdx.y * 80 + i / 16) * n + k0 + i % 16];
      bs[i / 80][i % 80] = b[(k0 + i / 80) * n + blockIdx.x * 80 + i % 80];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      int l[5], r[5];
#pragma unroll
      for (int i = 0; i < 5; ++i) l[i] = as[k][i * 16 + ty], r[i] = bs[k][i * 16 + tx];
#pragma unroll
      for (int i = 0; i < 5; ++i)
#pragma unroll
        for (int j = 0; j < 5; ++j) best[i][j] = min(best[i][j], l[i] + r[j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 5; ++j) c[(blockIdx.y * 80 + i * 16 + ty) * n + blockIdx.x * 80 + j * 16 + tx] = best[i][j];
}

PAIR(holdout, no_tile) {
  const int n = 1360;
  const int* a = pair.input<int>(n * n, [] __device__(int64_t i) { return int(pick(i, 100000, 1)); });
  const int* b = pair.input<int>(n * n, [] __device__(int64_t i) { return int(pick(i, 100000, 2)); });
  int* c = pair.output<int>(n * n);
  pair.expect(
      c, n * n, 0,
      [=] __device__(int64_t i) {
        int best = 1 << 30;
        for (int k = 0; k < n; ++k) best = min(best, a[i / n * n + k] + b[k * n + i % n]);
        return double(best);
      },
      1 << 14);
  pair.slow([=] { paths_slow<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a, b, c, n); });
  pair.fixed([=] { paths_fixed<<<dim3(n / 80, n / 80), dim3(16, 16)>>>(a, b, c, n); });
}

// --- pointer_chasing: discounted weights along paths of a graph, followed node by node against written out ---

struct Place {
  int64_t next;
  double weight;
};

__host__ __device__ inline int64_t place_after(int64_t at, int64_t count) { return (at * 22695477 + 1) & (count - 1); }

__global__ void __launch_bounds__(96) discounts_slow(const Place* places, double* out, int paths, int length) {
  const int path = blockIdx.x * 96 + threadIdx.x;
  int64_t at = path;
  double sum = 0;
  for (int step = 0; step < length; ++step) {
    const Place place = places[at];
    sum = 0.75 * sum + place.weight;
    at = place.next;
  }
  out[path] = sum;
}
__global__ void __launch_bounds__(96) discounts_fixed(const double* weights, double* out, int paths, int length) {
  const int path = blockIdx.x * 96 + threadIdx.x;
  double sum = 0;
#pragma unroll 10
  for (int step = 0; step < length; ++step) sum = 0.75 * sum + weights[static_cast<int64_t>(step) * paths + path];
  out[path] = sum;
}

PAIR(holdout, pointer_chasing) {
  const int paths = 96 * 220, length = 300, count = 1 << 23;
  // the successor of place j is (22695477 j + 1) mod count: one cycle through all places, in far jumps
  const Place* places =
      pair.input<Place>(count, [=] __device__(int64_t j) { return Place{place_after(j, count), double(noise(j))}; });
  const double* weights = pair.input<double>(int64_t{paths} * length, [=] __device__(int64_t i) {
    int64_t at = i % paths;
    for (int64_t step = 0; step < i / paths; ++step) at = place_after(at, count);
    return double(noise(at));
  });
  double* out = pair.output<double>(paths);
  pair.expect(out, paths, 1e-9, [=] __device__(int64_t i) {
    double sum = 0;
    int64_t at = i;
    for (int step = 0; step < length; ++step) sum = 0.75 * sum + noise(at), at = place_after(at, count);
    return sum;
  });
  pair.slow([=] { discounts_slow<<<paths / 96, 96>>>(places, out, paths, length); });
  pair.fixed([=] { discounts_fixed<<<paths / 96, 96>>>(weights, out, paths, length); });
}
