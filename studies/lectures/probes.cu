// probes: the kernels of the lecture's studies, each slow or fast in one way that is known. Launched through ctypes.
#include <cuda_runtime.h>

#include <cstdint>

namespace {
constexpr int THREADS = 256;
}

// --- latencies: one thread follows a chain of addresses; cycles[0] is what the chain took ---

enum Level { GLOBAL = 0, L2 = 1, L1 = 2 };

template <int LEVEL>
__device__ __forceinline__ uint64_t load(uint64_t at) {
  uint64_t value;
  if constexpr (LEVEL == L1)
    asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(value) : "l"(at));
  else
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(value) : "l"(at));
  return value;
}

template <int LEVEL>
__global__ void chase_global(uint64_t at, int64_t* cycles, int warm, int steps) {
  for (int i = 0; i < warm; ++i) at = load<LEVEL>(at);
  const int64_t start = clock64();
#pragma unroll 16
  for (int i = 0; i < steps; ++i) at = load<LEVEL>(at);
  cycles[1] = at;
  const int64_t end = clock64();
  cycles[0] = end - start;
}

constexpr int CHAIN = 1024;

__global__ void chase_shared(int64_t* cycles, int steps, int stores) {
  __shared__ uint32_t chain[CHAIN];
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(chain));
  for (int i = 0; i < CHAIN; ++i) chain[i] = base + 4 * ((i + 33) % CHAIN);
  __syncthreads();
  uint32_t at = base;
  const int64_t start = clock64();
  if (stores) {
#pragma unroll 16
    for (int i = 0; i < steps; ++i)  // the load behind a store reads what was just stored
      asm volatile("st.shared.u32 [%0], %0;\nld.shared.u32 %0, [%0];" : "+r"(at)::"memory");
  } else {
#pragma unroll 16
    for (int i = 0; i < steps; ++i) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at)::"memory");
  }
  cycles[1] = at;
  const int64_t end = clock64();
  cycles[0] = end - start;
}

// A load behind a store of the same word, at an address that the assembler cannot know to be the same: `offset` is 0.
// A step is an addition, the issue of the store, and the load, which has to see what was stored.
__global__ void chase_behind_store(int64_t* cycles, int steps, uint32_t offset) {
  __shared__ uint32_t chain[CHAIN];
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(chain));
  uint32_t at = base;
  const int64_t start = clock64();
#pragma unroll 16
  for (int i = 0; i < steps; ++i) {
    const uint32_t same = at + offset;
    asm volatile("st.shared.u32 [%0], %0;\nld.shared.u32 %0, [%1];" : "+r"(at) : "r"(same) : "memory");
  }
  cycles[1] = at;
  const int64_t end = clock64();
  cycles[0] = end - start;
}

__constant__ uint32_t constants[CHAIN];

__global__ void chase_constant(int64_t* cycles, int steps) {
  const char* base = reinterpret_cast<const char*>(constants);
  uint32_t at = 0;
  for (int i = 0; i < CHAIN; ++i) at = *reinterpret_cast<const uint32_t*>(base + at);
  const int64_t start = clock64();
#pragma unroll 16
  for (int i = 0; i < steps; ++i) at = *reinterpret_cast<const uint32_t*>(base + at);
  cycles[1] = at;
  const int64_t end = clock64();
  cycles[0] = end - start;
}

// Two blocks of a cluster; the first follows a chain in the shared memory of the second.
__global__ void __cluster_dims__(2, 1, 1) chase_neighbour(int64_t* cycles, int steps) {
#if __CUDA_ARCH__ >= 900
  __shared__ uint32_t chain[CHAIN];
  const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(chain));
  uint32_t base, rank;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(base) : "r"(own));
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  for (int i = 0; i < CHAIN; ++i) chain[i] = base + 4 * ((i + 33) % CHAIN);
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (rank == 0) {
    uint32_t at = base;
    const int64_t start = clock64();
#pragma unroll 16
    for (int i = 0; i < steps; ++i) asm volatile("ld.shared::cluster.u32 %0, [%0];" : "+r"(at)::"memory");
    cycles[1] = at;
    const int64_t end = clock64();
    cycles[0] = end - start;
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// --- divergence: lanes take `paths` ways, one after the other ---

__global__ void diverge(float* out, int paths, int steps) {
  float value = threadIdx.x;
  const int mine = threadIdx.x % paths;
  for (int path = 0; path < paths; ++path) {
    if (mine == path) {
      for (int i = 0; i < steps; ++i) value = fmaf(value, 0.999f, static_cast<float>(path));
    }
    __syncwarp();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

// --- fusion: sin² + cos² in one kernel ---

__global__ void sin_cos_fused(const float* in, float* out, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < count) {
    const float s = sinf(in[at]), c = cosf(in[at]);
    out[at] = s * s + c * c;
  }
}

// --- recomputation: three sigmoids, what is between them stored or computed again ---

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

__global__ void sigmoids_store(const float* x, float* first, float* second, float* out, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < count) {
    const float a = sigmoid(x[at]), b = sigmoid(a);
    first[at] = a;
    second[at] = b;
    out[at] = sigmoid(b);
  }
}

__global__ void sigmoids_backward(const float* first, const float* second, const float* gradient, float* out,
                                  int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < count) {
    const float a = first[at], b = second[at], c = sigmoid(b);
    out[at] = gradient[at] * c * (1.f - c) * b * (1.f - b) * a * (1.f - a);
  }
}

__global__ void sigmoids_only(const float* x, float* out, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < count) out[at] = sigmoid(sigmoid(sigmoid(x[at])));
}

__global__ void sigmoids_again(const float* x, const float* gradient, float* out, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at < count) {
    const float a = sigmoid(x[at]), b = sigmoid(a), c = sigmoid(b);
    out[at] = gradient[at] * c * (1.f - c) * b * (1.f - b) * a * (1.f - a);
  }
}

// --- coalescing: a block takes 256 neighbours of a row, or of a column, and adds each into its own place ---

__global__ void walk_rows(const float* in, float* out, int n) {
  const int64_t at = static_cast<int64_t>(blockIdx.y) * n + blockIdx.x * THREADS + threadIdx.x;
  out[at] = in[at] + 1.f;
}

__global__ void walk_columns(const float* in, float* out, int n) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * n + blockIdx.y;
  out[at] = in[at] + 1.f;
}

// --- tiling: C = A B of n x n, by elements from global memory or by tiles in shared memory ---

__global__ void matmul_naive(const float* a, const float* b, float* c, int n) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n || column >= n) return;
  float sum = 0.f;
  for (int k = 0; k < n; ++k) sum = fmaf(a[static_cast<int64_t>(row) * n + k], b[static_cast<int64_t>(k) * n + column], sum);
  c[static_cast<int64_t>(row) * n + column] = sum;
}

template <int TILE>
__global__ void matmul_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
  float sum = 0.f;
  for (int k = 0; k < n; k += TILE) {
    left[y][x] = row < n && k + x < n ? a[static_cast<int64_t>(row) * n + k + x] : 0.f;
    right[y][x] = column < n && k + y < n ? b[static_cast<int64_t>(k + y) * n + column] : 0.f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum = fmaf(left[y][i], right[i][x], sum);
    __syncthreads();
  }
  if (row < n && column < n) c[static_cast<int64_t>(row) * n + column] = sum;
}

namespace {
int blocks(int64_t count) { return static_cast<int>((count + THREADS - 1) / THREADS); }
}  // namespace

extern "C" {
int chase(int level, uint64_t next, int64_t* cycles, int warm, int steps, cudaStream_t stream) {
  if (level == GLOBAL) chase_global<GLOBAL><<<1, 1, 0, stream>>>(next, cycles, warm, steps);
  if (level == L2) chase_global<L2><<<1, 1, 0, stream>>>(next, cycles, warm, steps);
  if (level == L1) chase_global<L1><<<1, 1, 0, stream>>>(next, cycles, warm, steps);
  return cudaGetLastError();
}
int chase_in_shared(int64_t* cycles, int steps, int stores, cudaStream_t stream) {
  chase_shared<<<1, 1, 0, stream>>>(cycles, steps, stores);
  return cudaGetLastError();
}
int chase_behind_stores(int64_t* cycles, int steps, cudaStream_t stream) {
  chase_behind_store<<<1, 1, 0, stream>>>(cycles, steps, 0);
  return cudaGetLastError();
}
int chase_in_constant(int64_t* cycles, int steps, cudaStream_t stream) {
  uint32_t chain[CHAIN];
  for (int i = 0; i < CHAIN; ++i) chain[i] = 4 * ((i + 33) % CHAIN);
  if (cudaError_t error = cudaMemcpyToSymbol(constants, chain, sizeof(chain))) return error;
  chase_constant<<<1, 1, 0, stream>>>(cycles, steps);
  return cudaGetLastError();
}
int chase_in_neighbour(int64_t* cycles, int steps, cudaStream_t stream) {
  chase_neighbour<<<2, 1, 0, stream>>>(cycles, steps);
  return cudaGetLastError();
}
int run_diverge(float* out, int paths, int steps, int grid, cudaStream_t stream) {
  diverge<<<grid, THREADS, 0, stream>>>(out, paths, steps);
  return cudaGetLastError();
}
int run_sin_cos(const float* in, float* out, int64_t count, cudaStream_t stream) {
  sin_cos_fused<<<blocks(count), THREADS, 0, stream>>>(in, out, count);
  return cudaGetLastError();
}
int run_sigmoids(int again, const float* x, float* first, float* second, float* out, const float* gradient,
                 float* result, int64_t count, cudaStream_t stream) {
  if (again) {
    sigmoids_only<<<blocks(count), THREADS, 0, stream>>>(x, out, count);
    sigmoids_again<<<blocks(count), THREADS, 0, stream>>>(x, gradient, result, count);
  } else {
    sigmoids_store<<<blocks(count), THREADS, 0, stream>>>(x, first, second, out, count);
    sigmoids_backward<<<blocks(count), THREADS, 0, stream>>>(first, second, gradient, result, count);
  }
  return cudaGetLastError();
}
int run_walk(int by_columns, const float* in, float* out, int n, cudaStream_t stream) {
  const dim3 grid(n / THREADS, n);
  if (by_columns)
    walk_columns<<<grid, THREADS, 0, stream>>>(in, out, n);
  else
    walk_rows<<<grid, THREADS, 0, stream>>>(in, out, n);
  return cudaGetLastError();
}
int run_matmul(int tile, const float* a, const float* b, float* c, int n, cudaStream_t stream) {
  const int side = tile ? tile : 32, across = (n + side - 1) / side;
  const dim3 grid(across, across), block(side, side);
  if (tile == 0) matmul_naive<<<grid, block, 0, stream>>>(a, b, c, n);
  if (tile == 8) matmul_tiled<8><<<grid, block, 0, stream>>>(a, b, c, n);
  if (tile == 16) matmul_tiled<16><<<grid, block, 0, stream>>>(a, b, c, n);
  if (tile == 32) matmul_tiled<32><<<grid, block, 0, stream>>>(a, b, c, n);
  return cudaGetLastError();
}
}
