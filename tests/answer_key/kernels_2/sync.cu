// Defects of atomics, shared memory, barriers and the distribution of work.
#include "set.h"

namespace cg = cooperative_groups;

// ---- atomics
__global__ void fill_shades(uint8_t* a, i64 n) {  // six of ten pixels are black
  for (i64 i = T; i < n; i += STRIDE) a[i] = mix((uint32_t)i) % 10 < 6 ? 0 : mix((uint32_t)i + 99) & 255;
}
template <int V> __global__ void histogram_hot(const uint8_t* a, unsigned* out, i64 n) {
  __shared__ unsigned own[256];
  if (V == 1) {
    own[threadIdx.x] = 0;
    __syncthreads();
  }
  for (i64 i = T; i < n / 4; i += STRIDE) {
    uint32_t v = ((const uint32_t*)a)[i];
    for (int k = 0; k < 4; ++k) atomicAdd((V == 0 ? out : own) + (v >> (8 * k) & 255), 1u);
  }
  if (V == 1) {
    __syncthreads();
    if (own[threadIdx.x]) atomicAdd(out + threadIdx.x, own[threadIdx.x]);
  }
}
template <int V> __global__ void squared_loss(const float* predicted, const float* target, float* loss, int n) {
  i64 i = T;
  float d = i < n ? predicted[i] - target[i] : 0, s = d * d;
  if (V == 0) {
    atomicAdd(loss, s);
  } else {
    __shared__ float part[8];
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) { for (int k = 1; k < 8; ++k) s += part[k]; atomicAdd(loss, s); }
  }
}
struct Best { int lock, index; float value; };
template <int V> __global__ void best_match(const float* scores, Best* best, u64* packed, int each) {
  // the best score of all and its place: under a lock, or packed into one word
  __shared__ u64 part[8];
  u64 mine = 0;
  i64 base = (i64)blockIdx.x * each;
  for (int i = threadIdx.x; i < each; i += blockDim.x) mine = max(mine, (u64)__float_as_uint(scores[base + i]) << 32 | (unsigned)(base + i));
  for (int o = 16; o; o >>= 1) mine = max(mine, (u64)__shfl_xor_sync(~0u, (unsigned long long)mine, o));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x) return;
  for (u64 p : part) mine = max(mine, p);
  if (V == 1) {
    atomicMax(packed, mine);
  } else {
    while (atomicCAS(&best->lock, 0, 1)) {}
    __threadfence();
    volatile Best* b = best;
    if (__uint_as_float((unsigned)(mine >> 32)) > b->value) b->value = __uint_as_float((unsigned)(mine >> 32)), b->index = (int)mine;
    __threadfence();
    atomicExch(&best->lock, 0);
  }
}
template <int V> __global__ void block_energy(const float* a, float* out) {
  __shared__ float energy;
  if (threadIdx.x == 0) energy = 0;
  __syncthreads();
  float s = 0;
  for (int k = 0; k < 16; ++k) {
    float v = a[((i64)blockIdx.x * 16 + k) * 256 + threadIdx.x];
    if (V == 0) atomicAdd(&energy, v * v); else s += v * v;
  }
  if (V == 1) { s = warp_sum(s); if ((threadIdx.x & 31) == 0) atomicAdd(&energy, s); }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = energy;
}
// ---- shared memory
template <int V> __global__ void row_recursion(const float* a, float* out) {
  // a recursive filter along rows of 64: lane r walks row r of the tile, there and back
  __shared__ float tile[128][V == 0 ? 64 : 65];
  const float* in = a + (i64)blockIdx.x * 8192;
  for (int i = threadIdx.x; i < 8192; i += 128) tile[i / 64][i & 63] = in[i];
  __syncthreads();
  float y = 0;
  for (int c = 0; c < 64; ++c) tile[threadIdx.x][c] = y = fmaf(y, 0.8f, tile[threadIdx.x][c]);
  for (int c = 63; c >= 0; --c) tile[threadIdx.x][c] = y = fmaf(y, 0.8f, tile[threadIdx.x][c]);
  __syncthreads();
  for (int i = threadIdx.x; i < 8192; i += 128) out[(i64)blockIdx.x * 8192 + i] = tile[i / 64][i & 63];
}
template <int V> __global__ void delay_line(const float* a, float* out, int steps) {
  // an echo: each thread keeps its last 16 samples in shared memory
  __shared__ float ring[16 * 256];
  auto at = [](int k) { return V == 0 ? (int)threadIdx.x * 16 + (k & 15) : (k & 15) * 256 + (int)threadIdx.x; };
  for (int k = 0; k < 16; ++k) ring[at(k)] = 0;
  for (int k = 0; k < steps; ++k) {
    float v = a[(i64)k * STRIDE + T], echo = ring[at(k + 3)] * 0.3f + ring[at(k + 7)] * 0.2f + ring[at(k + 12)] * 0.1f;
    ring[at(k)] = v + echo;
    out[(i64)k * STRIDE + T] = v + echo;
  }
}
template <int V> __global__ void __launch_bounds__(V == 0 ? 1024 : 256) tiled_matmul(const float* a, const float* b, float* c, int n) {
  if (V == 0) {  // the tile of the tutorials: two words of shared memory for each multiply-add
    __shared__ float as[32][32], bs[32][32];
    int x = threadIdx.x & 31, y = threadIdx.x / 32, cx = blockIdx.x * 32 + x, cy = blockIdx.y * 32 + y;
    float s = 0;
    for (int k0 = 0; k0 < n; k0 += 32) {
      as[y][x] = a[(i64)cy * n + k0 + x], bs[y][x] = b[(i64)(k0 + y) * n + cx];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < 32; ++k) s = fmaf(as[y][k], bs[k][x], s);
      __syncthreads();
    }
    c[(i64)cy * n + cx] = s;
  } else {  // 128 x 128 outputs a block, 8 x 8 a thread
    __shared__ __align__(16) float as[8][128 + 4], bs[8][128];
    int x = threadIdx.x & 15, y = threadIdx.x / 16, bx = blockIdx.x * 128, by = blockIdx.y * 128;
    float s[8][8] = {};
    for (int k0 = 0; k0 < n; k0 += 8) {
      for (int i = threadIdx.x; i < 1024; i += 256) as[i & 7][i / 8] = a[(i64)(by + i / 8) * n + k0 + (i & 7)];
      for (int i = threadIdx.x; i < 1024; i += 256) bs[i / 128][i & 127] = b[(i64)(k0 + i / 128) * n + bx + (i & 127)];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        float p[8], q[8];
        *(float4*)p = *(float4*)&as[k][y * 4], *(float4*)(p + 4) = *(float4*)&as[k][64 + y * 4];
        *(float4*)q = *(float4*)&bs[k][x * 4], *(float4*)(q + 4) = *(float4*)&bs[k][64 + x * 4];
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) s[i][j] = fmaf(p[i], q[j], s[i][j]);
      }
      __syncthreads();
    }
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; j += 4)
        *(float4*)(c + (i64)(by + (i / 4) * 64 + y * 4 + (i & 3)) * n + bx + (j / 4) * 64 + x * 4) = make_float4(s[i][j], s[i][j + 1], s[i][j + 2], s[i][j + 3]);
  }
}
// ---- barriers
template <int V> __global__ void warp_sort(const float* a, float* out, int rounds) {
  // each warp sorts its own rows of 64 in shared memory
  __shared__ float rows[32][64];
  int w = threadIdx.x / 32, lane = threadIdx.x & 31;
  auto wait = [] { if (V == 0) __syncthreads(); else __syncwarp(); };
  for (int r = 0; r < rounds; ++r) {
    i64 base = (((i64)blockIdx.x * rounds + r) * 32 + w) * 64;
    rows[w][lane] = a[base + lane], rows[w][lane + 32] = a[base + lane + 32];
    wait();
    for (int size = 2; size <= 64; size *= 2)
      for (int step = size / 2; step; step /= 2) {
        int lo = 2 * lane - (lane & (step - 1)), hi = lo + step;
        float u = rows[w][lo], v = rows[w][hi];
        bool down = lo & size;
        if ((u > v) != down) rows[w][lo] = v, rows[w][hi] = u;
        wait();
      }
    out[base + lane] = rows[w][lane], out[base + lane + 32] = rows[w][lane + 32];
    wait();
  }
}
template <int V> __global__ void newton_grid(const float* a, float* out, int steps) {
  // cube roots by iteration: blocks exchange nothing, and the slow one has a barrier of the grid in each step
  cg::grid_group grid = cg::this_grid();
  float x = a[T] + 1, y = x;
  for (int k = 0; k < steps; ++k) {
    for (int j = 0; j < 8; ++j) y = y - (y - __fdividef(x, y * y)) * 0.3333f;
    out[T] = y;
    if (V == 0) grid.sync();
  }
}
template <int V> __global__ void first_thread_best(const float* a, int* out, int rounds) {
  __shared__ float values[512];
  __shared__ u64 part[16];
  for (int r = 0; r < rounds; ++r) {
    i64 row = (i64)blockIdx.x * rounds + r;
    float v = a[row * 512 + threadIdx.x];
    if (V == 0) {
      values[threadIdx.x] = v;
      __syncthreads();
      if (threadIdx.x == 0) {
        int best = 0;
        for (int i = 1; i < 512; ++i) if (values[i] > values[best]) best = i;
        out[row] = best;
      }
    } else {
      u64 p = (u64)__float_as_uint(v) << 32 | (511 - threadIdx.x);
      for (int o = 16; o; o >>= 1) p = max(p, (u64)__shfl_xor_sync(~0u, (unsigned long long)p, o));
      if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = p;
      __syncthreads();
      if (threadIdx.x == 0) { for (u64 q : part) p = max(p, q); out[row] = 511 - (int)(p & 511); }
    }
    __syncthreads();
  }
}
// ---- distribution of work
template <int V> __global__ void segment_means(const float* a, const int* offsets, float* out) {
  // segment 0 has a quarter of all elements; a block a segment, or a block a piece of 4096
  __shared__ float part[8];
  int segment = V == 0 ? blockIdx.x : max(0, (int)blockIdx.x - 1023);
  i64 first = V == 0 ? offsets[segment] : (i64)blockIdx.x * 4096, last = V == 0 ? offsets[segment + 1] : first + 4096;
  float s = 0;
  for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) s += a[i];
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < 8; ++k) s += part[k];
    atomicAdd(out + segment, s / (offsets[segment + 1] - offsets[segment]));
  }
}
__device__ float block_scan(float v, float* part, float& total) {  // inclusive, of 1024 threads
  int w = threadIdx.x / 32, lane = threadIdx.x & 31;
  for (int o = 1; o < 32; o *= 2) { float u = __shfl_up_sync(~0u, v, o); if (lane >= o) v += u; }
  if (lane == 31) part[w] = v;
  __syncthreads();
  if (w == 0) {
    float p = part[lane];
    for (int o = 1; o < 32; o *= 2) { float u = __shfl_up_sync(~0u, p, o); if (lane >= o) p += u; }
    part[lane] = p;
  }
  __syncthreads();
  if (w) v += part[w - 1];
  total = part[31];
  __syncthreads();
  return v;
}
__global__ void __launch_bounds__(1024) prefix_sum(const float* a, const float* before, float* out, int each) {
  __shared__ float part[32];
  float carry = 0, total;
  for (int k = threadIdx.x; before && k < (int)blockIdx.x; k += 1024) carry += before[k];
  if (before) { carry = block_scan(carry, part, total); carry = total; }
  for (int i = 0; i < each; i += 1024) {
    i64 at = (i64)blockIdx.x * each + i + threadIdx.x;
    float v = block_scan(a[at], part, total);
    out[at] = carry + v;
    carry += total;
  }
}
__global__ void __launch_bounds__(1024) block_totals(const float* a, float* totals, int each) {
  __shared__ float part[32];
  float s = 0, total;
  for (int i = threadIdx.x; i < each; i += 1024) s += a[(i64)blockIdx.x * each + i];
  block_scan(s, part, total);
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}
__global__ void few_rows(const float* a, const float* x, float* y, i64 width) {
  // a matrix of 8 rows times a vector: gridDim.y blocks a row
  float s = 0;
  const float4 *row = (const float4*)(a + blockIdx.x * width), *v = (const float4*)x;
  for (i64 i = blockIdx.y * 256 + threadIdx.x; i < width / 4; i += 256 * gridDim.y) {
    float4 p = row[i], q = v[i];
    s += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) atomicAdd(y + blockIdx.x, s);
}
__global__ void __launch_bounds__(512) relax_tiles(const float* a, float* out, int each, int sweeps) {
  // a tile fills the shared memory of an SM; a block works on `each` tiles
  extern __shared__ float tile[];
  for (int k = 0; k < each; ++k) {
    i64 base = ((i64)blockIdx.x * each + k) * 49152;
    for (int i = threadIdx.x; i < 49152; i += 512) tile[i] = a[base % N + i];
    __syncthreads();
    for (int s = 0; s < sweeps; ++s) {
      for (int i = threadIdx.x; i < 24575; i += 512) {
        if (s & 1) tile[i] = 0.5f * (tile[i] + tile[i + 24577]); else tile[i + 24576] = 0.5f * (tile[i + 24576] + tile[i + 1]);
      }
      __syncthreads();
    }
    for (int i = threadIdx.x; i < 49152; i += 512) out[base % N + i] = tile[i];
    __syncthreads();
  }
}
template <class F, class... X> static void cooperative(F f, int grid, int block, X... x) {
  void* args[] = {&x...};
  CHECK(cudaLaunchCooperativeKernel((const void*)f, grid, block, args, 0, 0));
}

void sync_cases() {
  static uint8_t* shades;
  static Best* best;
  static u64* packed;
  static int* offsets;
  cases.push_back({"histogram_hot", "global_atomics_one_address", "", [] { histogram_hot<0><<<1056, 256>>>(shades, (unsigned*)C, 1 << 24); }, [] { histogram_hot<1><<<1056, 256>>>(shades, (unsigned*)C, 1 << 24); }, C, 256, true, [] {
    shades = device<uint8_t>(1 << 24);
    fill_shades<<<2112, 256>>>(shades, 1 << 24);
  }});
  cases.push_back({"squared_loss", "global_atomics_one_address", "", [] { squared_loss<0><<<1 << 13, 256>>>(A, B, C, 1 << 21); }, [] { squared_loss<1><<<1 << 13, 256>>>(A, B, C, 1 << 21); }, C, 1});
  cases.push_back({"best_match", "global_atomics_one_address", "", [] { best_match<0><<<1024, 256>>>(A, best, packed, 16384); }, [] { best_match<1><<<1024, 256>>>(A, best, packed, 16384); }, nullptr, 0, false, [] { best = device<Best>(1), packed = device<u64>(1); }, [] {
    CHECK(cudaMemset(best, 0, sizeof(Best)));
    CHECK(cudaMemset(packed, 0, 8));
  }});
  cases.push_back({"block_energy", "shared_atomics_one_address", "", [] { block_energy<0><<<8192, 256>>>(A, C); }, [] { block_energy<1><<<8192, 256>>>(A, C); }, C, 8192});
  cases.push_back({"row_recursion", "shared_bank_conflicts", "", [] { row_recursion<0><<<4096, 128>>>(A, C); }, [] { row_recursion<1><<<4096, 128>>>(A, C); }, C, 1 << 25});
  cases.push_back({"delay_line", "shared_bank_conflicts", "", [] { delay_line<0><<<512, 256>>>(A, C, 256); }, [] { delay_line<1><<<512, 256>>>(A, C, 256); }, C, 1 << 25});
  cases.push_back({"tiled_matmul", "shared_instruction_bound", "", [] { tiled_matmul<0><<<dim3(64, 64), 1024>>>(A, B, C, 2048); }, [] { tiled_matmul<1><<<dim3(16, 16), 256>>>(A, B, C, 2048); }, C, 1 << 22});
  cases.push_back({"warp_sort", "needless_barriers", "", [] { warp_sort<0><<<528, 1024>>>(A, C, 32); }, [] { warp_sort<1><<<528, 1024>>>(A, C, 32); }, C, 1 << 25});
  cases.push_back({"newton_grid", "needless_barriers", "", [] { cooperative(newton_grid<0>, 528, 256, A, C, 64); }, [] { cooperative(newton_grid<1>, 528, 256, A, C, 64); }, C, 528 * 256});
  cases.push_back({"first_thread_best", "one_warp_reduction", "", [] { first_thread_best<0><<<528, 512>>>(A, (int*)C, 32); }, [] { first_thread_best<1><<<528, 512>>>(A, (int*)C, 32); }, C, 528 * 32, true});
  cases.push_back({"segment_means", "uneven_blocks", "", [] { segment_means<0><<<3073, 256>>>(A, offsets, C); }, [] { segment_means<1><<<4096, 256>>>(A, offsets, C); }, C, 3073, false, [] {
    std::vector<int> v(3074, 0);
    for (int k = 1; k < 3074; ++k) v[k] = (1024 + k - 1) * 4096;
    offsets = upload(v);
  }});
  cases.push_back({"prefix_sum", "grid_too_small", "", [] { prefix_sum<<<1, 1024>>>(A, nullptr, C, 1 << 20); }, [] { block_totals<<<256, 1024>>>(A, D, 4096), prefix_sum<<<256, 1024>>>(A, D, C, 4096); }, C, 1 << 20});
  cases.push_back({"few_rows", "grid_too_small", "", [] { few_rows<<<dim3(8, 1), 256>>>(A, B, C, 1 << 20); }, [] { few_rows<<<dim3(8, 64), 256>>>(A, B, C, 1 << 20); }, C, 8});
  cases.push_back({"relax_tiles", "tail_effect", "", [] { relax_tiles<<<133, 512, 49152 * 4>>>(A, C, 8, 16); }, [] { relax_tiles<<<1064, 512, 49152 * 4>>>(A, C, 1, 16); }, C, 1 << 24, false, [] { dynamic_shared(relax_tiles, 49152 * 4); }});
}
