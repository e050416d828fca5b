// Development half: how global memory is read and written.
#include "../specimen.cuh"

using namespace specimens;

// --- uncoalesced_loads: row sums, a thread a row against a warp a row ---

__global__ void row_sums_slow(const float* x, float* out, int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
#pragma unroll 4
  for (int c = 0; c < columns; ++c) sum += x[static_cast<int64_t>(row) * columns + c];
  out[row] = sum;
}

__global__ void row_sums_fixed(const float* x, float* out, int rows, int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0;
#pragma unroll 4
  for (int c = lane; c < columns; c += 32) sum += x[static_cast<int64_t>(row) * columns + c];
  sum = warp_total(sum);
  if (lane == 0) out[row] = sum;
}

PAIR(development, uncoalesced_loads) {
  const int rows = 131072, columns = 256;
  const float* x = pair.input<float>(int64_t{rows} * columns, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(rows);
  pair.expect(out, rows, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int c = 0; c < columns; ++c) sum += x[i * columns + c];
    return sum;
  });
  pair.slow([=] { row_sums_slow<<<rows / 128, 128>>>(x, out, rows, columns); });
  pair.fixed([=] { row_sums_fixed<<<rows / 8, 256>>>(x, out, rows, columns); });
}

// --- uncoalesced_stores: a transpose that writes down columns against one through shared memory ---

__global__ void transpose_stores_slow(const float* x, float* out, int rows, int columns) {
  const int c = blockIdx.x * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8) {
    const int r = blockIdx.y * 32 + j;
    out[static_cast<int64_t>(c) * rows + r] = x[static_cast<int64_t>(r) * columns + c];
  }
}

__global__ void transpose_stores_fixed(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[32][33];
  for (int j = threadIdx.y; j < 32; j += 8)
    tile[j][threadIdx.x] = x[static_cast<int64_t>(blockIdx.y * 32 + j) * columns + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8)
    out[static_cast<int64_t>(blockIdx.x * 32 + j) * rows + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][j];
}

PAIR(development, uncoalesced_stores) {
  const int rows = 4096, columns = 8192;
  const float* x = pair.input<float>(int64_t{rows} * columns, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(int64_t{rows} * columns);
  pair.expect(
      out, int64_t{rows} * columns, 0, [=] __device__(int64_t i) { return double(x[i % rows * columns + i / rows]); },
      1 << 20);
  const dim3 grid(columns / 32, rows / 32), block(32, 8);
  pair.slow([=] { transpose_stores_slow<<<grid, block>>>(x, out, rows, columns); });
  pair.fixed([=] { transpose_stores_fixed<<<grid, block>>>(x, out, rows, columns); });
}

// --- strided_sectors: one field of an array of structs against an array of that field ---

struct Body {
  float x, y, z, mass, vx, vy, vz, charge;
};

__global__ void charges_slow(const Body* bodies, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = bodies[i].charge * bodies[i].charge;
}

__global__ void charges_fixed(const float* charge, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = charge[i] * charge[i];
}

PAIR(development, strided_sectors) {
  const int count = 6 << 20;
  const Body* bodies =
      pair.input<Body>(count, [] __device__(int64_t i) { return Body{1, 2, 3, 4, 5, 6, 7, noise(i)}; });
  const float* charge = pair.input<float>(count, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-6, [=] __device__(int64_t i) { return double(noise(i)) * noise(i); }, 1 << 20);
  pair.slow([=] { charges_slow<<<ceil_div(count, 256), 256>>>(bodies, out, count); });
  pair.fixed([=] { charges_fixed<<<ceil_div(count, 256), 256>>>(charge, out, count); });
}

// --- misaligned_base: sums of 16 random rows of 32 bytes, the table begun 4 bytes too late against an aligned one ---

constexpr int IN_BAG = 16;

__device__ __forceinline__ void sum_bags(const float* table, const int4* row, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const int4* rows = row + i / 8 * (IN_BAG / 4);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < IN_BAG / 4; ++j) {
    const int4 four = rows[j];
    sum += table[four.x * 8 + i % 8];
    sum += table[four.y * 8 + i % 8];
    sum += table[four.z * 8 + i % 8];
    sum += table[four.w * 8 + i % 8];
  }
  out[i] = sum;
}
__global__ void __launch_bounds__(256) sum_bags_slow(const float* table, const int4* row, float* out) {
  sum_bags(table, row, out);
}
__global__ void __launch_bounds__(256) sum_bags_fixed(const float* table, const int4* row, float* out) {
  sum_bags(table, row, out);
}

PAIR(development, misaligned_base) {
  const int bags = 1 << 20, known = 1 << 18;  // 8 MB, which stay in L2
  const float* late = pair.input<float>(known * 8 + 8, [] __device__(int64_t i) { return noise(i - 1); });
  const float* aligned = pair.input<float>(known * 8, [] __device__(int64_t i) { return noise(i); });
  const int* row = pair.input<int>(bags * IN_BAG, [=] __device__(int64_t i) { return int(pick(i, known)); });
  float* out = pair.output<float>(bags * 8);
  pair.expect(out, bags * 8, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int j = 0; j < IN_BAG; ++j) sum += noise(int64_t{row[i / 8 * IN_BAG + j]} * 8 + i % 8);
    return sum;
  });
  const auto* rows = reinterpret_cast<const int4*>(row);
  pair.slow([=] { sum_bags_slow<<<bags * 8 / 256, 256>>>(late + 1, rows, out); });
  pair.fixed([=] { sum_bags_fixed<<<bags * 8 / 256, 256>>>(aligned, rows, out); });
}

// --- narrow_accesses: brightness of bytes, one a thread against sixteen ---

__device__ __forceinline__ unsigned brighter(unsigned four) { return __vaddus4(four, 0x20202020u); }

__global__ void brighten_slow(const uint8_t* x, uint8_t* out, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < count) out[i] = static_cast<uint8_t>(min(x[i] + 0x20, 255));
}

__global__ void brighten_fixed(const uint4* x, uint4* out, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i * 16 >= count) return;
  const uint4 v = x[i];
  out[i] = make_uint4(brighter(v.x), brighter(v.y), brighter(v.z), brighter(v.w));
}

PAIR(development, narrow_accesses) {
  const int64_t count = 128ll << 20;
  const uint8_t* x = pair.input<uint8_t>(count, [] __device__(int64_t i) { return uint8_t(mix(i)); });
  uint8_t* out = pair.output<uint8_t>(count);
  pair.expect(out, count, 0, [=] __device__(int64_t i) { return double(min(x[i] + 0x20, 255)); });
  pair.slow([=] { brighten_slow<<<count / 256, 256>>>(x, out, count); });
  pair.fixed([=] {
    brighten_fixed<<<count / 16 / 256, 256>>>(reinterpret_cast<const uint4*>(x), reinterpret_cast<uint4*>(out), count);
  });
}

// --- partial_sector_writes: one field of each 32-byte struct updated, against an array of that field ---

__global__ void kick_slow(const float* force, float* bodies, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) bodies[static_cast<int64_t>(i) * 8] = 0.5f * force[i];
}

__global__ void kick_fixed(const float* force, float* velocity, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) velocity[i] = 0.5f * force[i];
}

PAIR(development, partial_sector_writes) {
  const int count = 8 << 20;
  const float* force = pair.input<float>(count, [] __device__(int64_t i) { return 1.0f + noise(i); });
  float* out = pair.output<float>(int64_t{count} * 8);
  // at 8 * i or at i: what stands there is half of some force, and the last place written says which version ran
  pair.expect(
      out, count, 1e-6,
      [=] __device__(int64_t i) {
        const bool packed = out[1] != 0 || out[2] != 0 || out[3] != 0;
        return packed ? 0.5 * force[i] : i % 8 == 0 ? 0.5 * force[i / 8] : 0.0;
      },
      1 << 18);
  pair.slow([=] { kick_slow<<<count / 128, 128>>>(force, out, count); });
  pair.fixed([=] { kick_fixed<<<count / 128, 128>>>(force, out, count); });
}

// --- wide_data: labels below 200 counted by block, kept as 64 bits against 8 ---

template <class T>
__device__ __forceinline__ void count_labels(const T* labels, int* out, int64_t count, int wanted) {
  constexpr int EACH = 16;
  const int64_t first = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * EACH;
  int found = 0;
  alignas(16) T mine[EACH];
  if (first < count) {
#pragma unroll
    for (int j = 0; j < static_cast<int>(EACH * sizeof(T) / 16); ++j)
      reinterpret_cast<uint4*>(mine)[j] = reinterpret_cast<const uint4*>(labels + first)[j];
#pragma unroll
    for (int j = 0; j < EACH; ++j) found += mine[j] == static_cast<T>(wanted);
  }
  const float total = block_total(static_cast<float>(found));
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(total);
}
__global__ void count_labels_slow(const int64_t* labels, int* out, int64_t count, int wanted) {
  count_labels(labels, out, count, wanted);
}
__global__ void count_labels_fixed(const uint8_t* labels, int* out, int64_t count, int wanted) {
  count_labels(labels, out, count, wanted);
}

PAIR(development, wide_data) {
  const int64_t count = 32ll << 20;
  const int64_t* wide = pair.input<int64_t>(count, [] __device__(int64_t i) { return pick(i, 200); });
  const uint8_t* narrow = pair.input<uint8_t>(count, [] __device__(int64_t i) { return uint8_t(pick(i, 200)); });
  int* out = pair.output<int>(count / 4096);
  pair.expect(out, count / 4096, 0, [=] __device__(int64_t i) {
    double found = 0;
    for (int64_t j = 0; j < 4096; ++j) found += narrow[i * 4096 + j] == 17;
    return found;
  });
  pair.slow([=] { count_labels_slow<<<count / 16 / 256, 256>>>(wide, out, count, 17); });
  pair.fixed([=] { count_labels_fixed<<<count / 16 / 256, 256>>>(narrow, out, count, 17); });
}

// --- block_order_l2: sums of powers of chunks, all chunks of one power after another against all powers of a chunk ---

__device__ __forceinline__ void power_sum(const float* x, float* out, int chunk, int power, int chunks, int length) {
  float sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < length; i += blockDim.x) {
    const float value = x[static_cast<int64_t>(chunk) * length + i];
    float raised = 1;
    for (int p = 0; p < power; ++p) raised *= value;
    sum += raised;
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) out[power * chunks + chunk] = sum;
}
__global__ void power_sums_slow(const float* x, float* out, int chunks, int length) {
  power_sum(x, out, blockIdx.x % chunks, blockIdx.x / chunks, chunks, length);
}
__global__ void power_sums_fixed(const float* x, float* out, int chunks, int length) {
  power_sum(x, out, blockIdx.x / 8, blockIdx.x % 8, chunks, length);
}

PAIR(development, block_order_l2) {
  const int chunks = 4096, length = 8192, powers = 8;
  const float* x = pair.input<float>(int64_t{chunks} * length, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(chunks * powers);
  pair.expect(
      out, chunks * powers, 1e-3,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int j = 0; j < length; ++j) sum += pow(double(x[i % chunks * length + j]), double(i / chunks));
        return sum;
      },
      1 << 12);
  pair.slow([=] { power_sums_slow<<<chunks * powers, 256>>>(x, out, chunks, length); });
  pair.fixed([=] { power_sums_fixed<<<chunks * powers, 256>>>(x, out, chunks, length); });
}

// --- no_tile: a matrix product that reads its operands again for every output, against tiles of 64 x 64 ---

__global__ void product_slow(const float* a, const float* b, float* c, int n) {
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

__global__ void __launch_bounds__(256) product_fixed(const float* a, const float* b, float* c, int n) {
  __shared__ float as[16][68], bs[16][64];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < n; k0 += 16) {
    for (int i = threadIdx.x; i < 64 * 16; i += 256) {
      as[i % 16][i / 16] = a[(blockIdx.y * 64 + i / 16) * n + k0 + i % 16];
      bs[i / 64][i % 64] = b[(k0 + i / 64) * n + blockIdx.x * 64 + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const float4 left = *reinterpret_cast<const float4*>(&as[k][ty * 4]);
      const float4 right = *reinterpret_cast<const float4*>(&bs[k][tx * 4]);
      const float l[4] = {left.x, left.y, left.z, left.w}, r[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += l[i] * r[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) c[(blockIdx.y * 64 + ty * 4 + i) * n + blockIdx.x * 64 + tx * 4 + j] = sum[i][j];
}

PAIR(development, no_tile) {
  const int n = 1536;
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
  pair.slow([=] { product_slow<<<dim3(n / 32, n / 8), dim3(32, 8)>>>(a, b, c, n); });
  pair.fixed([=] { product_fixed<<<dim3(n / 64, n / 64), 256>>>(a, b, c, n); });
}

// --- pointer_chasing: sums over linked lists, against the same lists with their places written out ---

struct Node {
  int next;
  float value;
};

__global__ void list_sums_slow(const Node* nodes, float* out, int lists, int length) {
  const int list = blockIdx.x * blockDim.x + threadIdx.x;
  if (list >= lists) return;
  int at = list;
  float sum = 0;
  for (int step = 0; step < length; ++step) {
    const Node node = nodes[at];
    sum += node.value;
    at = node.next;
  }
  out[list] = sum;
}

__global__ void list_sums_fixed(const float* values, float* out, int lists, int length) {
  const int list = blockIdx.x * blockDim.x + threadIdx.x;
  if (list >= lists) return;
  float sum = 0;
#pragma unroll 8
  for (int step = 0; step < length; ++step) sum += values[static_cast<int64_t>(step) * lists + list];
  out[list] = sum;
}

PAIR(development, pointer_chasing) {
  const int lists = 1 << 15, length = 256, count = lists * length;
  // the successor of node j is (1664525 j + 1013904223) mod count: one cycle through all nodes, in far jumps
  const Node* nodes = pair.input<Node>(
      count, [=] __device__(int64_t j) { return Node{int((j * 1664525 + 1013904223) & (count - 1)), noise(j)}; });
  const float* values = pair.input<float>(count, [=] __device__(int64_t i) {
    int64_t at = i % lists;
    for (int64_t step = 0; step < i / lists; ++step) at = (at * 1664525 + 1013904223) & (count - 1);
    return noise(at);
  });
  float* out = pair.output<float>(lists);
  pair.expect(out, lists, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    int64_t at = i;
    for (int step = 0; step < length; ++step) sum += noise(at), at = (at * 1664525 + 1013904223) & (count - 1);
    return sum;
  });
  pair.slow([=] { list_sums_slow<<<lists / 128, 128>>>(nodes, out, lists, length); });
  pair.fixed([=] { list_sums_fixed<<<lists / 128, 128>>>(values, out, lists, length); });
}
