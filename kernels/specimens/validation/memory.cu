// Validation half: how global memory is read and written.
#include "../specimen.cuh"

using namespace specimens;

// --- uncoalesced_loads: a transpose of 16-bit words that reads down columns, against one through shared memory ---

__global__ void turn_slow(const uint16_t* x, uint16_t* out, int rows, int columns) {
  const int r = blockIdx.x * 64 + threadIdx.x;
  for (int j = threadIdx.y; j < 64; j += 4) {
    const int c = blockIdx.y * 64 + j;
    out[static_cast<int64_t>(c) * rows + r] = x[static_cast<int64_t>(r) * columns + c];
  }
}

__global__ void turn_fixed(const uint16_t* x, uint16_t* out, int rows, int columns) {
  __shared__ uint16_t tile[64][66];
  for (int j = threadIdx.y; j < 64; j += 4)
    tile[j][threadIdx.x] = x[static_cast<int64_t>(blockIdx.x * 64 + j) * columns + blockIdx.y * 64 + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 64; j += 4)
    out[static_cast<int64_t>(blockIdx.y * 64 + j) * rows + blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x][j];
}

PAIR(validation, uncoalesced_loads) {
  const int rows = 8192, columns = 6144;
  const uint16_t* x =
      pair.input<uint16_t>(int64_t{rows} * columns, [] __device__(int64_t i) { return uint16_t(mix(i)); });
  uint16_t* out = pair.output<uint16_t>(int64_t{rows} * columns);
  pair.expect(
      out, int64_t{rows} * columns, 0, [=] __device__(int64_t i) { return double(x[i % rows * columns + i / rows]); },
      1 << 20);
  const dim3 grid(rows / 64, columns / 64), block(64, 4);
  pair.slow([=] { turn_slow<<<grid, block>>>(x, out, rows, columns); });
  pair.fixed([=] { turn_fixed<<<grid, block>>>(x, out, rows, columns); });
}

// --- uncoalesced_stores: bits written out as integers, 32 by a thread against one ---

__global__ void expand_bits_slow(const unsigned* words, int* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned word = words[i];
  for (int bit = 0; bit < 32; ++bit) out[static_cast<int64_t>(bit) + 32ll * i] = word >> bit & 1;
}

__global__ void expand_bits_fixed(const unsigned* words, int* out, int count) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) * 8 + threadIdx.x;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int64_t i = first + j * blockDim.x;
    if (i < 32ll * count) out[i] = words[i / 32] >> (i % 32) & 1;
  }
}

PAIR(validation, uncoalesced_stores) {
  const int count = 1310720;
  const unsigned* words = pair.input<unsigned>(count, [] __device__(int64_t i) { return unsigned(mix(i)); });
  int* out = pair.output<int>(32ll * count);
  pair.expect(
      out, 32ll * count, 0, [=] __device__(int64_t i) { return double(words[i / 32] >> (i % 32) & 1); }, 1 << 20);
  pair.slow([=] { expand_bits_slow<<<count / 512, 512>>>(words, out, count); });
  pair.fixed([=] { expand_bits_fixed<<<count * 32 / 8 / 512, 512>>>(words, out, count); });
}

// --- strided_sectors: keys below a limit counted in a table of 64-byte rows, against a column of keys ---

struct Order {
  int key, customer;
  double price, tax;
  int64_t placed, shipped, rest[3];
};

template <class Key>
__device__ __forceinline__ void count_below(Key key, int* out, int count, int limit) {
  int found = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int i = (blockIdx.x * 4 + j) * blockDim.x + threadIdx.x;
    found += i < count && key(i) < limit;
  }
  const float total = block_total(static_cast<float>(found));
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(total);
}
__global__ void count_below_slow(const Order* orders, int* out, int count, int limit) {
  count_below([=](int i) { return orders[i].key; }, out, count, limit);
}
__global__ void count_below_fixed(const int* keys, int* out, int count, int limit) {
  count_below([=](int i) { return keys[i]; }, out, count, limit);
}

PAIR(validation, strided_sectors) {
  const int count = 4 << 20, limit = 300;
  const Order* orders = pair.input<Order>(count, [] __device__(int64_t i) {
    Order order{};
    order.key = int(pick(i, 1000));
    return order;
  });
  const int* keys = pair.input<int>(count, [] __device__(int64_t i) { return int(pick(i, 1000)); });
  int* out = pair.output<int>(count / 2048);
  pair.expect(out, count / 2048, 0, [=] __device__(int64_t i) {
    double found = 0;
    for (int j = 0; j < 2048; ++j) found += keys[i * 2048 + j] < limit;
    return found;
  });
  pair.slow([=] { count_below_slow<<<count / 2048, 512>>>(orders, out, count, limit); });
  pair.fixed([=] { count_below_fixed<<<count / 2048, 512>>>(keys, out, count, limit); });
}

// --- misaligned_base: a hash table of buckets of four 64-bit keys, begun 8 bytes too late against an aligned one ---

constexpr int BUCKET_BITS = 18;  // 8 MB, which stay in L2

__device__ __forceinline__ int bucket_of(int64_t key) {
  return static_cast<unsigned>(key) * 0x9e3779b1u >> (32 - BUCKET_BITS);
}
// Four lanes look through a bucket; a warp has 32 keys.
__device__ __forceinline__ void probe(const int64_t* table, const int64_t* keys, int* out) {
  const int i = blockIdx.x * 192 + threadIdx.x, lane = threadIdx.x % 32;
  const int64_t own = keys[i];
  unsigned here[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t key = __shfl_sync(~0u, own, r * 8 + lane / 4);
    here[r] = __ballot_sync(~0u, table[bucket_of(key) * 4 + lane % 4] == key);
  }
  const unsigned mine = lane < 16 ? (lane < 8 ? here[0] : here[1]) : (lane < 24 ? here[2] : here[3]);
  out[i] = (mine >> lane % 8 * 4 & 15u) != 0;
}
__global__ void __launch_bounds__(192) probe_slow(const int64_t* table, const int64_t* keys, int* out) {
  probe(table, keys, out);
}
__global__ void __launch_bounds__(192) probe_fixed(const int64_t* table, const int64_t* keys, int* out) {
  probe(table, keys, out);
}

PAIR(validation, misaligned_base) {
  const int count = 3 << 22, places = 4 << BUCKET_BITS;
  // every third key is put into its bucket, as far as no other overwrites it there
  const int64_t* keys = pair.input<int64_t>(count, [] __device__(int64_t i) { return int64_t(mix(i) >> 20); });
  int64_t* table = pair.input<int64_t>(places, [] __device__(int64_t) { return int64_t{-1}; });
  pair.input<int>(count, [=] __device__(int64_t i) {
    if (i % 3 == 0) table[bucket_of(keys[i]) * 4 + i % 4] = keys[i];
    return 0;
  });
  int64_t* late = pair.input<int64_t>(
      places + 4, [=] __device__(int64_t i) { return i > 0 && i <= places ? table[i - 1] : int64_t{-1}; });
  int* out = pair.output<int>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) {
    bool found = false;
    for (int j = 0; j < 4; ++j) found |= table[bucket_of(keys[i]) * 4 + j] == keys[i];
    return double(found);
  });
  pair.slow([=] { probe_slow<<<count / 192, 192>>>(late + 1, keys, out); });
  pair.fixed([=] { probe_fixed<<<count / 192, 192>>>(table, keys, out); });
}

// --- narrow_accesses: a x + y of bfloat16, one a thread against eight ---

__global__ void axpy_slow(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* out, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < count) out[i] = __float2bfloat16(0.5f * __bfloat162float(x[i]) + __bfloat162float(y[i]));
}

__global__ void axpy_fixed(const uint4* x, const uint4* y, uint4* out, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i * 8 >= count) return;
  const uint4 left = x[i], right = y[i];
  uint4 result;
  const auto* l = reinterpret_cast<const __nv_bfloat162*>(&left);
  const auto* r = reinterpret_cast<const __nv_bfloat162*>(&right);
  auto* to = reinterpret_cast<__nv_bfloat162*>(&result);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 a = __bfloat1622float2(l[j]), b = __bfloat1622float2(r[j]);
    to[j] = __floats2bfloat162_rn(0.5f * a.x + b.x, 0.5f * a.y + b.y);
  }
  out[i] = result;
}

PAIR(validation, narrow_accesses) {
  const int64_t count = 24ll << 20;
  const auto* x = pair.input<__nv_bfloat16>(count, [] __device__(int64_t i) { return __float2bfloat16(noise(i, 1)); });
  const auto* y = pair.input<__nv_bfloat16>(count, [] __device__(int64_t i) { return __float2bfloat16(noise(i, 2)); });
  auto* out = pair.output<__nv_bfloat16>(count);
  pair.expect(out, count, 0.004, [=] __device__(int64_t i) { return 0.5 * number(x[i]) + number(y[i]); });
  pair.slow([=] { axpy_slow<<<count / 1024, 1024>>>(x, y, out, count); });
  pair.fixed([=] {
    axpy_fixed<<<count / 8 / 512, 512>>>(reinterpret_cast<const uint4*>(x), reinterpret_cast<const uint4*>(y),
                                         reinterpret_cast<uint4*>(out), count);
  });
}

// --- partial_sector_writes: a byte of state in each 128-byte record, against an array of states ---

__device__ __forceinline__ void mark(const int64_t* stamp, uint8_t* state, int count, int pitch) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) state[static_cast<int64_t>(i) * pitch] = stamp[i] % 251 + 1;
}
__global__ void mark_slow(const int64_t* stamp, uint8_t* records, int count) { mark(stamp, records, count, 128); }
__global__ void mark_fixed(const int64_t* stamp, uint8_t* states, int count) { mark(stamp, states, count, 1); }

PAIR(validation, partial_sector_writes) {
  const int count = 3 << 20;
  const int64_t* stamp = pair.input<int64_t>(count, [] __device__(int64_t i) { return pick(i, 1 << 30); });
  uint8_t* out = pair.output<uint8_t>(128ll * count);
  pair.expect(
      out, count, 0,
      [=] __device__(int64_t i) {
        const int pitch = out[1] ? 1 : 128;  // a state is never 0
        return i % pitch ? 0.0 : double(stamp[i / pitch] % 251 + 1);
      },
      1 << 18);
  pair.slow([=] { mark_slow<<<count / 512, 512>>>(stamp, out, count); });
  pair.fixed([=] { mark_fixed<<<count / 512, 512>>>(stamp, out, count); });
}

// --- wide_data: a matrix times a vector, weights kept in 32 bits that fit into 16 ---

__device__ __forceinline__ float four(const float* w, const float* x, int at) {
  const float4 a = *reinterpret_cast<const float4*>(w + at), b = *reinterpret_cast<const float4*>(x + at);
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ __forceinline__ float four(const __nv_bfloat16* w, const float* x, int at) {
  const uint2 raw = *reinterpret_cast<const uint2*>(w + at);
  const float4 b = *reinterpret_cast<const float4*>(x + at);
  const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.x));
  const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.y));
  return low.x * b.x + low.y * b.y + high.x * b.z + high.y * b.w;
}
template <class T>
__device__ __forceinline__ void matrix_vector(const T* w, const float* x, float* out, int columns) {
  const T* row = w + static_cast<int64_t>(blockIdx.x) * columns;
  float sum = 0;
#pragma unroll 8
  for (int c = threadIdx.x * 4; c < columns; c += 4 * 128) sum += four(row, x, c);
  sum = block_total(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
__global__ void matrix_vector_slow(const float* w, const float* x, float* out, int columns) {
  matrix_vector(w, x, out, columns);
}
__global__ void matrix_vector_fixed(const __nv_bfloat16* w, const float* x, float* out, int columns) {
  matrix_vector(w, x, out, columns);
}

PAIR(validation, wide_data) {
  const int rows = 12288, columns = 4096;
  const int64_t count = int64_t{rows} * columns;
  const float* wide = pair.input<float>(count, [] __device__(int64_t i) { return number(__float2bfloat16(noise(i))); });
  const auto* narrow =
      pair.input<__nv_bfloat16>(count, [] __device__(int64_t i) { return __float2bfloat16(noise(i)); });
  const float* x = pair.input<float>(columns, [] __device__(int64_t i) { return noise(i, 3); });
  float* out = pair.output<float>(rows);
  pair.expect(out, rows, 1e-3, [=] __device__(int64_t i) {
    double sum = 0;
    for (int c = 0; c < columns; ++c) sum += double(wide[i * columns + c]) * x[c];
    return sum;
  });
  pair.slow([=] { matrix_vector_slow<<<rows, 128>>>(wide, x, out, columns); });
  pair.fixed([=] { matrix_vector_fixed<<<rows, 128>>>(narrow, x, out, columns); });
}

// --- block_order_l2: one matrix of half precision times six vectors, vector by vector against row by row ---

__device__ __forceinline__ void row_times_vector(const __half2* w, const __half2* x, float* out, int row, int vector,
                                                 int rows, int pairs) {
  const __half2* weights = w + static_cast<int64_t>(row) * pairs;
  const __half2* values = x + static_cast<int64_t>(vector) * pairs;
  float sum = 0;
#pragma unroll 4
  for (int c = threadIdx.x; c < pairs; c += 512) {
    const float2 a = __half22float2(weights[c]), b = __half22float2(values[c]);
    sum += a.x * b.x + a.y * b.y;
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) out[vector * rows + row] = sum;
}
__global__ void many_vectors_slow(const __half2* w, const __half2* x, float* out, int rows, int pairs) {
  row_times_vector(w, x, out, blockIdx.x, blockIdx.y, rows, pairs);
}
__global__ void many_vectors_fixed(const __half2* w, const __half2* x, float* out, int rows, int pairs) {
  row_times_vector(w, x, out, blockIdx.y, blockIdx.x, rows, pairs);
}

PAIR(validation, block_order_l2) {
  const int rows = 4096, pairs = 6144, vectors = 6;
  const auto two = [] __device__(int64_t i) { return __floats2half2_rn(noise(2 * i), noise(2 * i + 1)); };
  const __half2* w = pair.input<__half2>(int64_t{rows} * pairs, two);
  const __half2* x = pair.input<__half2>(vectors * pairs, two);
  float* out = pair.output<float>(rows * vectors);
  pair.expect(
      out, rows * vectors, 2e-3,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int c = 0; c < pairs; ++c) {
          const float2 a = __half22float2(w[i % rows * pairs + c]), b = __half22float2(x[i / rows * pairs + c]);
          sum += double(a.x) * b.x + double(a.y) * b.y;
        }
        return sum;
      },
      1 << 12);
  pair.slow([=] { many_vectors_slow<<<dim3(rows, vectors), 512>>>(w, x, out, rows, pairs); });
  pair.fixed([=] { many_vectors_fixed<<<dim3(vectors, rows), 512>>>(w, x, out, rows, pairs); });
}

// --- no_tile: L1 distances between two sets of points, each read again for every pair against tiles of 32 x 32 ---

__global__ void distances_slow(const __half* a, const __half* b, float* out, int points, int length) {
  const int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < length; ++k)
    sum += fabsf(__half2float(a[row * length + k]) - __half2float(b[k * points + column]));
  out[row * points + column] = sum;
}

__global__ void __launch_bounds__(64)
    distances_fixed(const __half* a, const __half* b, float* out, int points, int length) {
  __shared__ float as[32][36], bs[32][32];
  const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < length; k0 += 32) {
    for (int i = threadIdx.x; i < 32 * 32; i += 64) {
      as[i % 32][i / 32] = __half2float(a[(blockIdx.y * 32 + i / 32) * length + k0 + i % 32]);
      bs[i / 32][i % 32] = __half2float(b[(k0 + i / 32) * points + blockIdx.x * 32 + i % 32]);
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < 32; ++k) {
      const float4 left = *reinterpret_cast<const float4*>(&as[k][ty * 4]);
      const float4 right = *reinterpret_cast<const float4*>(&bs[k][tx * 4]);
      const float l[4] = {left.x, left.y, left.z, left.w}, r[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += fabsf(l[i] - r[j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) out[(blockIdx.y * 32 + ty * 4 + i) * points + blockIdx.x * 32 + tx * 4 + j] = sum[i][j];
}

PAIR(validation, no_tile) {
  const int points = 2048, length = 320;
  const auto* a = pair.input<__half>(points * length, [] __device__(int64_t i) { return __float2half(noise(i, 1)); });
  const auto* b = pair.input<__half>(points * length, [] __device__(int64_t i) { return __float2half(noise(i, 2)); });
  float* out = pair.output<float>(points * points);
  pair.expect(out, points * points, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int k = 0; k < length; ++k)
      sum += fabs(number(a[i / points * length + k]) - number(b[k * points + i % points]));
    return sum;
  });
  pair.slow([=] { distances_slow<<<dim3(points / 16, points / 16), dim3(16, 16)>>>(a, b, out, points, length); });
  pair.fixed([=] { distances_fixed<<<dim3(points / 32, points / 32), 64>>>(a, b, out, points, length); });
}

// --- pointer_chasing: look-ups in a hash table of chains, against one of buckets ---

struct Entry {
  int64_t key, value;
  int next;
};

__global__ void look_up_slow(const Entry* entries, const int64_t* keys, int64_t* out, int count, int buckets) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t key = keys[i];
  int64_t value = -1;
  for (int at = static_cast<int>(key % buckets); at >= 0;) {
    const Entry entry = entries[at];
    if (entry.key == key) {
      value = entry.value;
      break;
    }
    at = entry.next;
  }
  out[i] = value;
}

// place j of the chain of bucket b stands at j * buckets + b here too, and no place has to be read to know the next
__global__ void look_up_fixed(const int64_t* known, const int64_t* values, const int64_t* keys, int64_t* out, int count,
                              int buckets, int depth) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t key = keys[i], bucket = key % buckets;
  int found = 0;
#pragma unroll 8
  for (int j = 0; j < depth; ++j) found = known[bucket * depth + j] == key ? j : found;
  out[i] = values[bucket * depth + found];
}

PAIR(validation, pointer_chasing) {
  const int buckets = 1 << 18, depth = 16, count = 1 << 18;
  const int total = buckets * depth;
  // place j of the chain of bucket b stands at (b + j * 40503) mod buckets of layer j; its key is b + j * buckets
  const Entry* entries = pair.input<Entry>(total, [=] __device__(int64_t at) {
    const int64_t layer = at / buckets, b = (at - layer * 40503 % buckets + buckets) % buckets;
    const int next = layer + 1 < depth ? int((layer + 1) * buckets + (b + (layer + 1) * 40503) % buckets) : -1;
    return Entry{b + layer * buckets, 3 * (b + layer * buckets), next};
  });
  const int64_t* known =
      pair.input<int64_t>(total, [=] __device__(int64_t i) { return i / depth + i % depth * buckets; });
  const int64_t* values =
      pair.input<int64_t>(total, [=] __device__(int64_t i) { return 3 * (i / depth + i % depth * buckets); });
  const int64_t* keys =
      pair.input<int64_t>(count, [=] __device__(int64_t i) { return total - 1 - pick(i, total / 2); });
  int64_t* out = pair.output<int64_t>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) { return 3.0 * keys[i]; });
  pair.slow([=] { look_up_slow<<<count / 64, 64>>>(entries, keys, out, count, buckets); });
  pair.fixed([=] { look_up_fixed<<<count / 64, 64>>>(known, values, keys, out, count, buckets, depth); });
}
