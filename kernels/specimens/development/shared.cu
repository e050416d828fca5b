// Development half: shared memory and barriers.
#include <cuda_pipeline.h>

#include "../specimen.cuh"

using namespace specimens;

// --- shared_bank_conflicts: a transpose through a tile of 32 x 32 against one of 32 x 33 ---

template <int PITCH>
__device__ __forceinline__ void flip(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[32 * PITCH];
  for (int j = threadIdx.y; j < 32; j += 16)
    tile[j * PITCH + threadIdx.x] =
        x[static_cast<int64_t>(blockIdx.y * 32 + j) * columns + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 16)
    out[static_cast<int64_t>(blockIdx.x * 32 + j) * rows + blockIdx.y * 32 + threadIdx.x] =
        tile[threadIdx.x * PITCH + j];
}
__global__ void flip_slow(const float* x, float* out, int rows, int columns) { flip<32>(x, out, rows, columns); }
__global__ void flip_fixed(const float* x, float* out, int rows, int columns) { flip<33>(x, out, rows, columns); }

PAIR(development, shared_bank_conflicts) {
  const int rows = 5120, columns = 7168;
  const float* x = pair.input<float>(int64_t{rows} * columns, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(int64_t{rows} * columns);
  pair.expect(
      out, int64_t{rows} * columns, 0, [=] __device__(int64_t i) { return double(x[i % rows * columns + i / rows]); },
      1 << 20);
  const dim3 grid(columns / 32, rows / 32), block(32, 16);
  pair.slow([=] { flip_slow<<<grid, block>>>(x, out, rows, columns); });
  pair.fixed([=] { flip_fixed<<<grid, block>>>(x, out, rows, columns); });
}

// --- shared_atomics_one_address: block sums by atomic additions to one word against shuffles ---

__global__ void block_sums_slow(const float* x, float* out) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  for (int j = 0; j < 4; ++j) atomicAdd(&sum, x[(blockIdx.x * 4 + j) * blockDim.x + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void block_sums_fixed(const float* x, float* out) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) sum += x[(blockIdx.x * 4 + j) * blockDim.x + threadIdx.x];
  sum = block_total(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

PAIR(development, shared_atomics_one_address) {
  const int blocks = 8192, each = 4 * 256;
  const float* x = pair.input<float>(blocks * each, [] __device__(int64_t i) { return noise(i); });
  float* out = pair.output<float>(blocks);
  pair.expect(out, blocks, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int j = 0; j < each; ++j) sum += x[i * each + j];
    return sum;
  });
  pair.slow([=] { block_sums_slow<<<blocks, 256>>>(x, out); });
  pair.fixed([=] { block_sums_fixed<<<blocks, 256>>>(x, out); });
}

// --- shared_instruction_bound: a matrix product, a shared load for each FMA and more, against four for 64 ---

__global__ void __launch_bounds__(1024) tiled_product_slow(const float* a, const float* b, float* c, int n) {
  __shared__ float as[32][32], bs[32][32];
  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 32 + ty, column = blockIdx.x * 32 + tx;
  float sum = 0;
  for (int k0 = 0; k0 < n; k0 += 32) {
    as[ty][tx] = a[row * n + k0 + tx];
    bs[ty][tx] = b[(k0 + ty) * n + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) sum += as[ty][k] * bs[k][tx];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void __launch_bounds__(256) tiled_product_fixed(const float* a, const float* b, float* c, int n) {
  __shared__ float as[8][132], bs[8][128];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[8][8] = {};
  for (int k0 = 0; k0 < n; k0 += 8) {
    for (int i = threadIdx.x; i < 128 * 8; i += 256) {
      as[i % 8][i / 8] = a[(blockIdx.y * 128 + i / 8) * n + k0 + i % 8];
      bs[i / 128][i % 128] = b[(k0 + i / 128) * n + blockIdx.x * 128 + i % 128];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float l[8], r[8];
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *reinterpret_cast<float4*>(l + i) = *reinterpret_cast<const float4*>(&as[k][i * 16 + ty * 4]);
        *reinterpret_cast<float4*>(r + i) = *reinterpret_cast<const float4*>(&bs[k][i * 16 + tx * 4]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += l[i] * r[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
      c[(blockIdx.y * 128 + i / 4 * 64 + ty * 4 + i % 4) * n + blockIdx.x * 128 + j / 4 * 64 + tx * 4 + j % 4] =
          sum[i][j];
}

PAIR(development, shared_instruction_bound) {
  const int n = 2048;
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
  pair.slow([=] { tiled_product_slow<<<dim3(n / 32, n / 32), dim3(32, 32)>>>(a, b, c, n); });
  pair.fixed([=] { tiled_product_fixed<<<dim3(n / 128, n / 128), 256>>>(a, b, c, n); });
}

// --- needless_barriers: a map iterated by each thread on its own, a barrier after each step against none ---

template <bool BARRIER>
__device__ __forceinline__ void logistic(const float* x, float* out, int steps) {
  __shared__ volatile float own[1024];
  const int i = blockIdx.x * 1024 + threadIdx.x;
  own[threadIdx.x] = x[i];
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    if (BARRIER) __syncthreads();
    const float value = own[threadIdx.x];
    own[threadIdx.x] = 0.875f * value * (1.0f - value);
    if (BARRIER) __syncthreads();
  }
  out[i] = own[threadIdx.x];
}
__global__ void __launch_bounds__(1024) logistic_slow(const float* x, float* out, int steps) {
  logistic<true>(x, out, steps);
}
__global__ void __launch_bounds__(1024) logistic_fixed(const float* x, float* out, int steps) {
  logistic<false>(x, out, steps);
}

PAIR(development, needless_barriers) {
  const int count = 1056 * 1024, steps = 256;
  const float* x = pair.input<float>(count, [] __device__(int64_t i) { return 0.5f + 0.4f * noise(i); });
  float* out = pair.output<float>(count);
  pair.expect(out, count, 1e-4, [=] __device__(int64_t i) {
    double value = x[i];
    for (int s = 0; s < steps; ++s) value = 0.875 * value * (1 - value);
    return value;
  });
  pair.slow([=] { logistic_slow<<<count / 1024, 1024>>>(x, out, steps); });
  pair.fixed([=] { logistic_fixed<<<count / 1024, 1024>>>(x, out, steps); });
}

// --- one_warp_reduction: rows over their sums, added up by the first warp alone against by all warps ---

__global__ void __launch_bounds__(512) normalise_slow(const float* x, float* out) {
  __shared__ float row[2048], total;
  for (int i = threadIdx.x; i < 2048; i += 512) row[i] = x[blockIdx.x * 2048ll + i];
  __syncthreads();
  if (threadIdx.x < 32) {
    float sum = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < 2048; i += 32) sum += row[i];
    sum = warp_total(sum);
    if (threadIdx.x == 0) total = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2048; i += 512) out[blockIdx.x * 2048ll + i] = row[i] / total;
}

__global__ void __launch_bounds__(512) normalise_fixed(const float* x, float* out) {
  float mine[4], sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) mine[j] = x[blockIdx.x * 2048ll + j * 512 + threadIdx.x];
#pragma unroll
  for (int j = 0; j < 4; ++j) sum += mine[j];
  const float total = block_total(sum);
#pragma unroll
  for (int j = 0; j < 4; ++j) out[blockIdx.x * 2048ll + j * 512 + threadIdx.x] = mine[j] / total;
}

PAIR(development, one_warp_reduction) {
  const int rows = 12000;
  const float* x = pair.input<float>(rows * 2048ll, [] __device__(int64_t i) { return 2.0f + noise(i); });
  float* out = pair.output<float>(rows * 2048ll);
  pair.expect(
      out, rows * 2048ll, 1e-5,
      [=] __device__(int64_t i) {
        double sum = 0;
        for (int j = 0; j < 2048; ++j) sum += x[i / 2048 * 2048 + j];
        return x[i] / sum;
      },
      1 << 14);
  pair.slow([=] { normalise_slow<<<rows, 512>>>(x, out); });
  pair.fixed([=] { normalise_fixed<<<rows, 512>>>(x, out); });
}

// --- uneven_warps: triangular matrices times vectors, warps with long and with short rows between barriers ---

template <bool EVEN>
__device__ __forceinline__ void triangular(const float* l, const float* x, float* out) {
  __shared__ float sums[8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* matrix = l + blockIdx.x * 65536ll;
  for (int s = 0; s < 32; ++s) {
    const int row = EVEN ? s * 8 + warp : warp * 32 + s;
    float sum = 0;
    for (int c = lane; c <= row; c += 32) sum += matrix[row * 256 + c] * x[c];
    sum = warp_total(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x < 8)
      out[blockIdx.x * 256 + (EVEN ? s * 8 + threadIdx.x : threadIdx.x * 32 + s)] = sums[threadIdx.x];
    __syncthreads();
  }
}
__global__ void triangular_slow(const float* l, const float* x, float* out) { triangular<false>(l, x, out); }
__global__ void triangular_fixed(const float* l, const float* x, float* out) { triangular<true>(l, x, out); }

PAIR(development, uneven_warps) {
  const int matrices = 1024;
  const float* l = pair.input<float>(matrices * 65536ll, [] __device__(int64_t i) { return noise(i); });
  const float* x = pair.input<float>(256, [] __device__(int64_t i) { return noise(i, 1); });
  float* out = pair.output<float>(matrices * 256);
  pair.expect(out, matrices * 256, 1e-4, [=] __device__(int64_t i) {
    double sum = 0;
    for (int c = 0; c <= i % 256; ++c) sum += double(l[i * 256 + c]) * x[c];
    return sum;
  });
  pair.slow([=] { triangular_slow<<<matrices, 256>>>(l, x, out); });
  pair.fixed([=] { triangular_fixed<<<matrices, 256>>>(l, x, out); });
}

// --- no_overlap: polynomials of chunks, load then barrier then compute, against the next chunk on its way ---

constexpr int CHUNK = 8192;

__device__ __forceinline__ float polynomial(float x) {
  float sum = 1;
#pragma unroll
  for (int k = 0; k < 40; ++k) sum = sum * x + 0.25f;
  return sum;
}

__global__ void __launch_bounds__(512) chunks_slow(const float4* x, float* out, int chunks) {
  extern __shared__ float4 held[];
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
#pragma unroll
    for (int i = threadIdx.x; i < CHUNK / 4; i += 512) held[i] = x[chunk * int64_t{CHUNK / 4} + i];
    __syncthreads();
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < CHUNK; i += 512) sum += polynomial(reinterpret_cast<float*>(held)[i]);
    sum = block_total(sum);
    if (threadIdx.x == 0) out[chunk] = sum;
  }
}

__global__ void __launch_bounds__(512) chunks_fixed(const float4* x, float* out, int chunks) {
  extern __shared__ float4 held[];
  const auto fetch = [&](int chunk, int stage) {
    if (chunk < chunks)
      for (int i = threadIdx.x; i < CHUNK / 4; i += 512)
        __pipeline_memcpy_async(held + stage * (CHUNK / 4) + i, x + chunk * int64_t{CHUNK / 4} + i, 16);
    __pipeline_commit();
  };
  fetch(blockIdx.x, 0);
  int stage = 0;
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x, stage ^= 1) {
    fetch(chunk + gridDim.x, stage ^ 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < CHUNK; i += 512)
      sum += polynomial(reinterpret_cast<float*>(held + stage * (CHUNK / 4))[i]);
    sum = block_total(sum);
    if (threadIdx.x == 0) out[chunk] = sum;
    __syncthreads();
  }
}

PAIR(development, no_overlap) {
  const int chunks = 132 * 48;
  const auto* x = pair.input<float>(int64_t{chunks} * CHUNK, [] __device__(int64_t i) { return 0.9f * noise(i); });
  float* out = pair.output<float>(chunks);
  pair.expect(
      out, chunks, 1e-4,
      [=] __device__(int64_t i) {
        double total = 0;
        for (int j = 0; j < CHUNK; ++j) {
          double sum = 1;
          for (int k = 0; k < 40; ++k) sum = sum * x[i * CHUNK + j] + 0.25;
          total += sum;
        }
        return total;
      },
      1 << 10);
  allow_shared(chunks_slow, CHUNK * 4);
  allow_shared(chunks_fixed, CHUNK * 8);
  const auto* words = reinterpret_cast<const float4*>(x);
  pair.slow([=] { chunks_slow<<<132, 512, CHUNK * 4>>>(words, out, chunks); });
  pair.fixed([=] { chunks_fixed<<<132, 512, CHUNK * 8>>>(words, out, chunks); });
}
