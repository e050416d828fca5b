// Kernels with one defect each, and the same without it: template argument 0 is slow, 1 is fixed. Clean ones have no twin.
//
// usage: kernels --time [SECONDS]   names, causes and times (us, medians of interleaved rounds with a flushed L2) as CSV
//        kernels --run              each form once inside an NVTX range, between the calls that start and stop a profiler
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_profiler_api.h>
#include <mma.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace cg = cooperative_groups;
using namespace nvcuda;
using i64 = long long;
#define CHECK(call)                                                                                 \
  do {                                                                                              \
    cudaError_t s_ = (call);                                                                        \
    if (s_ != cudaSuccess) {                                                                        \
      std::fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(s_)); \
      std::exit(1);                                                                                 \
    }                                                                                               \
  } while (0)
#define T (blockIdx.x * (i64)blockDim.x + threadIdx.x)
#define STRIDE ((i64)gridDim.x * blockDim.x)

__host__ __device__ inline uint32_t mix(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ (x >> 16);
}
__global__ void fill(float* a, i64 n, int seed) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = (mix((uint32_t)i * 2654435761u + seed) >> 8) * 0x1p-24f;
}
__global__ void fill_half(__half* a, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = __float2half((int)(mix((uint32_t)i) & 7) * 0.125f);
}
__global__ void fill_int(int* a, i64 n, uint32_t most, int seed) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = (int)(mix((uint32_t)i + seed * 77777u) % most);
}
__global__ void flush_l2(float* a, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = a[i] * 0.5f + 1.0f;
}
__device__ inline float warp_sum(float v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  return v;
}

// ---- global memory
template <int V> __global__ void token_energy(const float* a, float* out, int rows, int width) {
  if (V == 0) {  // a thread a row
    i64 r = T;
    if (r >= rows) return;
    float s = 0;
    for (int c = 0; c < width; ++c) s += a[r * width + c] * a[r * width + c];
    out[r] = s;
  } else {
    i64 r = T / 32;
    int lane = threadIdx.x & 31;
    if (r >= rows) return;
    float s = 0;
    for (int c = lane; c < width; c += 32) s += a[r * width + c] * a[r * width + c];
    s = warp_sum(s);
    if (lane == 0) out[r] = s;
  }
}
template <int V> __global__ void planar_to_packed(const float* a, float* out, int pixels, int channels) {
  i64 t = T;
  if (V == 0) {  // lanes are pixels: neighbouring lanes write `channels` floats apart
    i64 c = t / pixels, p = t % pixels;
    if (c < channels) out[p * channels + c] = a[c * pixels + p] * 2.0f;
  } else {  // through a tile
    __shared__ float tile[32][33];
    int tiles = pixels / 32, p0 = (blockIdx.x % tiles) * 32, c0 = (blockIdx.x / tiles) * 32;
    int x = threadIdx.x & 31, y = threadIdx.x / 32;
    for (int k = y; k < 32; k += 8) tile[k][x] = a[(i64)(c0 + k) * pixels + p0 + x] * 2.0f;
    __syncthreads();
    for (int k = y; k < 32; k += 8) out[(i64)(p0 + k) * channels + c0 + x] = tile[x][k];
  }
}
struct Body { float x, y, z, m, vx, vy, vz, q; };
template <int V> __global__ void total_charge(const Body* b, const float* q, float* out, int n) {
  float s = 0;
  for (i64 i = T; i < n; i += STRIDE) s += V == 0 ? b[i].q * b[i].q : q[i] * q[i];
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) out[T / 32] = s;
}
template <int V> __global__ void damp_velocity(Body* b, float* v, const float* f, int n) {
  for (i64 i = T; i < n; i += STRIDE)
    if (V == 0) b[i].vx = f[i] * 0.9f; else v[i] = f[i] * 0.9f;
}
template <int V> __global__ void pool_rows(const float* table, const int* ids, float* out, int rows) {
  i64 r = T / 8;  // eight lanes a row of 32 bytes
  int lane = threadIdx.x & 7;
  if (r >= rows) return;
  float s = 0;
  for (int k = 0; k < 32; ++k) s += table[(i64)ids[r * 32 + k] * 8 + lane + (V == 0 ? 5 : 0)];
  out[r * 8 + lane] = s;
}
template <int V> __global__ void grey(const uint8_t* rgb, uint8_t* out, i64 pixels) {
  if (V == 0) {
    for (i64 i = T; i < pixels; i += STRIDE) out[i] = (rgb[3 * i] * 77 + rgb[3 * i + 1] * 150 + rgb[3 * i + 2] * 29) >> 8;
  } else {
    const uint4* in = (const uint4*)rgb;
    for (i64 i = T; i < pixels / 16; i += STRIDE) {
      union { uint4 v[3]; uint8_t b[48]; } u;
      union { uint4 v; uint8_t b[16]; } w;
      for (int k = 0; k < 3; ++k) u.v[k] = in[3 * i + k];
#pragma unroll
      for (int k = 0; k < 16; ++k) w.b[k] = (u.b[3 * k] * 77 + u.b[3 * k + 1] * 150 + u.b[3 * k + 2] * 29) >> 8;
      ((uint4*)out)[i] = w.v;
    }
  }
}
template <int V> __global__ void count_class(const i64* wide, const uint8_t* slim, unsigned* out, i64 n) {
  unsigned s = 0;
  if (V == 0) {
    for (i64 i = T; i < n / 2; i += STRIDE) {
      longlong2 v = ((const longlong2*)wide)[i];
      s += (v.x == 3) + (v.y == 3);
    }
  } else {
    for (i64 i = T; i < n / 16; i += STRIDE) {
      uint4 v = ((const uint4*)slim)[i];
      for (uint32_t w : {v.x, v.y, v.z, v.w}) s += __popc(__vcmpeq4(w, 0x03030303u)) / 8;
    }
  }
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) atomicAdd(out + (blockIdx.x & 1023), s);
}
template <int V> __global__ void outer_reuse(const float* a, const float* b, float* out, int tiles, int repeats) {
  // a block reads one of `tiles` tiles of 64 KB; `repeats` blocks use the same tile
  int tile = V == 0 ? blockIdx.x % tiles : blockIdx.x / repeats, k = V == 0 ? blockIdx.x / tiles : blockIdx.x % repeats;
  float s = 0;
  const float4* p = (const float4*)(a + (i64)tile * 16384);
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) {
    float4 v = p[i];
    s += v.x * b[k] + v.y + v.z * b[k + 1] + v.w;
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) out[((i64)tile * repeats + k) * 8 + threadIdx.x / 32] = s;
}
template <int V> __global__ void walk_chain(const int* next, const int* order, const float* a, float* out, int chains, int steps) {
  i64 c = T;
  if (c >= chains) return;
  float s = 0;
  if (V == 0) {
    int at = (int)c;
    for (int k = 0; k < steps; ++k) { s += a[at]; at = next[at]; }
  } else {
#pragma unroll 8
    for (int k = 0; k < steps; ++k) s += a[order[(i64)k * chains + c]];
  }
  out[c] = s;
}
// ---- atomics
template <int V> __global__ void count_large(const float* a, unsigned* out, i64 n) {
  unsigned s = 0;
  for (i64 i = T; i < n; i += STRIDE) {
    if (V == 0) { if (a[i] > 0.5f) atomicInc(out, ~0u); } else s += a[i] > 0.5f;
  }
  if (V == 1) {
    s = __reduce_add_sync(~0u, s);
    if ((threadIdx.x & 31) == 0 && s) atomicAdd(out, s);
  }
}
template <int V> __global__ void tone_histogram(const int* a, unsigned* out, i64 n) {
  __shared__ unsigned h[8][256];
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) (&h[0][0])[i] = 0;
  __syncthreads();
  unsigned run = 0;
  for (i64 i = T; i < n; i += STRIDE) {
    int bin = a[i] < 250 ? 7 : a[i];  // nearly all pixels are of one tone
    if (V == 0) atomicAdd(&h[0][bin], 1u);
    else if (bin == 7) ++run; else atomicAdd(&h[threadIdx.x / 32][bin], 1u);
  }
  if (V == 1) { run = __reduce_add_sync(~0u, run); if ((threadIdx.x & 31) == 0) atomicAdd(&h[threadIdx.x / 32][7], run); }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    unsigned s = 0;
    for (int k = 0; k < 8; ++k) s += h[k][i];
    if (s) atomicAdd(out + i, s);
  }
}
template <int V> __global__ void ticket_queue(const float* a, float* out, unsigned* ticket, int n) {
  // persistent threads take the next piece of work from one counter
  const int piece = V == 0 ? 1 : 64;
  while (true) {
    unsigned first = atomicAdd(ticket, piece);
    if (first >= (unsigned)n) break;
    for (int k = 0; k < piece && first + k < (unsigned)n; ++k) out[first + k] = sqrtf(a[first + k]);
  }
}
// ---- shared memory
template <int V> __global__ void turn_tiles(const float* a, float* out, int width) {
  __shared__ float tile[32][V == 0 ? 32 : 33];
  int x = threadIdx.x & 31, y = threadIdx.x / 32, tiles = width / 32, bx = blockIdx.x % tiles * 32, by = blockIdx.x / tiles * 32;
  float s = 0;
  for (int k = y; k < 32; k += 8) tile[k][x] = a[(i64)(by + k) * width + bx + x];
  __syncthreads();
  for (int r = 0; r < 16; ++r)
    for (int k = y; k < 32; k += 8) s += tile[x][(k + r) & 31];
  for (int k = y; k < 32; k += 8) out[(i64)(bx + k) * width + by + x] = tile[x][k] + s * 1e-9f;
}
template <int V> __global__ void tree_sums(const float* a, float* out) {
  __shared__ float s[1024 + 32];
  auto at = [](int i) { return V == 0 ? i : i + i / 32; };
  i64 base = (i64)blockIdx.x * 1024;
  for (int round = 0; round < 8; ++round) {
    for (int i = threadIdx.x; i < 1024; i += 512) s[at(i)] = a[base + i] + round;
    __syncthreads();
    for (int step = 1; step < 1024; step *= 2) {
      int i = (threadIdx.x + 1) * step * 2 - 1;
      if (i < 1024) s[at(i)] += s[at(i - step)];
      __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x * 8 + round] = s[at(1023)];
    __syncthreads();
  }
}
template <int V> __global__ void correlate(const float* a, const float* w, float* out, int n) {
  // each output needs 64 taps of shared memory: one at a time, or a window kept in registers for four outputs
  __shared__ __align__(16) float line[1024 + 64], taps[64];
  for (int i = threadIdx.x; i < 1088; i += blockDim.x) line[i] = a[(i64)blockIdx.x * 1024 + i];
  if (threadIdx.x < 64) taps[threadIdx.x] = w[threadIdx.x];
  __syncthreads();
  if (V == 0) {
    for (int i = threadIdx.x; i < 1024; i += 256) {
      float s = 0;
      for (int k = 0; k < 64; ++k) s += line[i + k] * taps[k];
      out[(i64)blockIdx.x * 1024 + i] = s;
    }
  } else {
    int i = threadIdx.x * 4;
    float s[4] = {};
    for (int k = 0; k < 64; k += 4) {
      float4 t = *(float4*)(taps + k), lo = *(float4*)(line + i + k), hi = *(float4*)(line + i + k + 4);
      float l[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) s[j] += l[j] * t.x + l[j + 1] * t.y + l[j + 2] * t.z + l[j + 3] * t.w;
    }
    for (int j = 0; j < 4; ++j) out[(i64)blockIdx.x * 1024 + i + j] = s[j];
  }
}
template <int V> __global__ void settle(const float* a, float* out, int n) {
  // each warp relaxes its own row; no other warp needs it
  __shared__ float rows[8][64];
  int w = threadIdx.x / 32, lane = threadIdx.x & 31;
  rows[w][lane] = a[T], rows[w][lane + 32] = a[T + n];
  for (int k = 0; k < 512; ++k) {
    float l = rows[w][lane], r = rows[w][(lane + 1 + (k & 31)) & 63];
    if (V == 0) __syncthreads(); else __syncwarp();
    rows[w][lane] = 0.5f * (l + r);
    if (V == 0) __syncthreads(); else __syncwarp();
  }
  out[T] = rows[w][lane];
}
template <int V> __global__ void block_norms(const float* a, float* out, int rounds) {
  __shared__ float s[1024];
  for (int r = 0; r < rounds; ++r) {
    float v = a[((i64)blockIdx.x * rounds + r) * 1024 + threadIdx.x];
    if (V == 0) {
      s[threadIdx.x] = v * v;
      __syncthreads();
      if (threadIdx.x < 32) {
        float t = 0;
        for (int i = threadIdx.x; i < 1024; i += 32) t += s[i];
        t = warp_sum(t);
        if (threadIdx.x == 0) out[blockIdx.x * rounds + r] = t;
      }
    } else {
      float t = warp_sum(v * v);
      if ((threadIdx.x & 31) == 0) s[threadIdx.x / 32] = t;
      __syncthreads();
      if (threadIdx.x < 32) {
        t = warp_sum(s[threadIdx.x]);
        if (threadIdx.x == 0) out[blockIdx.x * rounds + r] = t;
      }
    }
    __syncthreads();
  }
}
// ---- registers, branches, occupancy
template <int V> __global__ void __launch_bounds__(256, V == 0 ? 8 : 2) bank_of_filters(const float* a, float* out, i64 n) {
  float s[64];  // 64 running filters a thread: 32 registers with eight blocks an SM
#pragma unroll
  for (int k = 0; k < 64; ++k) s[k] = 0;
  for (int i = 0; i < 64; ++i) {
    float x = a[T + i * 65536];
#pragma unroll
    for (int k = 0; k < 64; ++k) s[k] = fmaf(s[k], 0.9f - 0.01f * k, x);
  }
  float t = 0;
#pragma unroll
  for (int k = 0; k < 64; ++k) t += s[k] * (k & 1 ? 1.0f : -1.0f);
  out[T] = t;
}
template <int V> __global__ void sort_digits(const int* a, int* out) {
  int c[16] = {};
  __shared__ int shared[16][256];
  for (int k = 0; k < 16; ++k) shared[k][threadIdx.x] = 0;
  for (int i = 0; i < 128; ++i) {
    int d = a[T + (i64)i * 262144] & 15;
    if (V == 0) c[d]++; else shared[d][threadIdx.x]++;
  }
  int s = 0;
  for (int k = 0; k < 16; ++k) s = s * 31 + (V == 0 ? c[k] : shared[k][threadIdx.x]);
  out[T] = s;
}
template <int V> __global__ void collatz(const int* a, int* out, int n) {
  // one start of 32 needs a long walk; a fixed order gives the long ones to the same warps
  i64 i = V == 0 ? T : (T & 31) * (i64)(n / 32) + T / 32;
  int steps = (i & 31) == 5 ? 1024 : 32;
  uint32_t x = a[i];
  for (int k = 0; k < steps; ++k) x = x & 1 ? x * 3 + 1 : (x >> 1) + 77;
  out[i] = (int)x;
}
template <int V> __global__ void integrate(const float* a, float* out, int n) {
  float s = 0;  // the grid has 24 blocks, or 24 times as many
  for (i64 i = T; i < n; i += STRIDE) s += sqrtf(a[i]);
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) atomicAdd(out + (T / 32) % 24, s);
}
template <int V> __global__ void __launch_bounds__(1024, 1) relax_grid(const float* a, float* out, int work) {
  float x = a[T % (1 << 20)];
  for (int k = 0; k < work; ++k) x = fmaf(x, 0.999f, __fdividef(0.5f, x + 1.0f));
  out[T] = x;
}
template <int V> __global__ void probe_table(const float* table, const int* keys, float* out, int n) {
  extern __shared__ float unused[];  // the launch asks for much or none; a block of 32 threads, or 256
  float s = 0;
  for (i64 i = T; i < n; i += STRIDE) s += table[keys[i]] * table[(keys[i] * 7919u) & 0x3ffffff];
  if (s == -1.0f) unused[threadIdx.x] = s;
  out[T] = s;
}
template <int V> __global__ void __launch_bounds__(128, V == 0 ? 1 : 12) probe_registers(const float* table, const int* keys, float* out, int n) {
  float keep[V == 0 ? 160 : 8];  // values that stay alive
  const int K = V == 0 ? 160 : 8;
#pragma unroll
  for (int k = 0; k < K; ++k) keep[k] = table[(T + k * 1000) & 0x3ffffff];
  float s = 0;
#pragma unroll 1
  for (i64 i = T; i < n; i += STRIDE) {
    float v = table[keys[i]];
#pragma unroll
    for (int k = 0; k < K; k += 8) keep[k] += v;
    s += table[((int)(v * 65536.0f) * 7919u + (unsigned)i) & 0x3ffffff];
  }
#pragma unroll
  for (int k = 0; k < K; ++k) s += keep[k] * 1e-20f;
  out[T] = s;
}
template <int V> __global__ void merge_lists(const float* a, float* out, int work) {
  __shared__ float s[256];
  int w = threadIdx.x / 32, lane = threadIdx.x & 31;
  float x = a[T];
  for (int r = 0; r < 16; ++r) {
    int mine = V == 0 ? (w == 0 ? work : work / 16) : (work + 7 * (work / 16)) / 8;
    for (int k = 0; k < mine; ++k) x = fmaf(x, 0.99f, 0.01f);
    s[threadIdx.x] = x;
    __syncthreads();
    x += s[(threadIdx.x + 32) & 255] * 1e-3f;
    __syncthreads();
  }
  out[T] = x + lane * 0;
}
template <int V> __global__ void lower_rows(const float* a, float* out, int rows, unsigned* queue) {
  // persistent blocks: row r has r + 1 elements times 16
  __shared__ int row;
  __shared__ float part[8];
  int per = (rows + gridDim.x - 1) / gridDim.x;
  for (int k = 0;; ++k) {
    if (threadIdx.x == 0) row = V == 0 ? (k < per ? (int)blockIdx.x * per + k : rows) : rows - 1 - (int)atomicAdd(queue, 1u);
    __syncthreads();
    int r = row;
    if (V == 0 ? r >= rows : r < 0) break;
    float s = 0;
    for (int i = threadIdx.x; i < (r + 1) * 16; i += blockDim.x) s += a[(i64)r * 1024 + i];
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) { s = 0; for (float p : part) s += p; out[r] = s; }
    __syncthreads();
  }
}
// ---- arithmetic
template <int V> __global__ void waves(const float* a, float* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float x = a[i], s = 0;
    if (V == 0) {
      for (int k = 1; k <= 32; ++k) s += __sinf(k * x) * __expf(-0.1f * k);
    } else {  // sin(kx) by recurrence, the weights by multiplication
      float c = 2 * __cosf(x), prev = 0, now = __sinf(x), w = 0.904837418f, q = w;
      for (int k = 1; k <= 32; ++k) { s += now * w; float next = c * now - prev; prev = now, now = next, w *= q; }
    }
    out[i] = s;
  }
}
template <int V> __global__ void smoothstep(const float* a, float* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float x = a[i];
    for (int k = 0; k < 8; ++k) x = V == 0 ? (float)(x * x * (3.0 - 2.0 * x) * 0.999) : x * x * (3.0f - 2.0f * x) * 0.999f;
    out[i] = x;
  }
}
template <int V> __global__ void pick_voxels(const float* a, float* out, i64 n, int w, int h, int d) {
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned u = (unsigned)i, x, y, z, t;
    if (V == 0) { x = u % w, y = u / w % h, z = u / w / h % d, t = u / w / h / d; }
    else { x = u & 127, y = u >> 7 & 127, z = u >> 14 & 63, t = u >> 20; }
    out[i] = a[((i64)t << 20 | z << 14 | y << 7 | (x ^ 1))] + x + y * 2 + z;
  }
}
template <int V> __global__ void horner(const float* a, float* out, int n) {
  float x = a[T % 4096] * 0.5f;
  if (V == 0) {
    float s = 1;
    for (int k = 0; k < n; ++k) s = fmaf(s, x, 0.25f);
    out[T] = s;
  } else {  // eight independent chains
    float s[8], y = x * x, z = y * y;
    y = z * z;
#pragma unroll
    for (int j = 0; j < 8; ++j) s[j] = 1;
    for (int k = 0; k < n / 8; ++k)
#pragma unroll
      for (int j = 0; j < 8; ++j) s[j] = fmaf(s[j], y, 0.25f);
    float t = 0;
    for (int j = 0; j < 8; ++j) t = fmaf(t, x, s[j]);
    out[T] = t;
  }
}
__constant__ float table_c[4096];
template <int V> __global__ void recolour(const int* a, float* out, i64 n) {
  __shared__ float table_s[4096];
  if (V == 1) {
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) table_s[i] = table_c[i];
    __syncthreads();
  }
  for (i64 i = T; i < n; i += STRIDE) {
    int k = a[i];
    float s = 0;
    for (int j = 0; j < 8; ++j) { k = (k * 5 + 1) & 4095; s += V == 0 ? table_c[k] : table_s[k]; }
    out[i] = s;
  }
}
template <int K> __device__ __forceinline__ float step_of(float x) { return fmaf(x, 0.5f + K * 1e-4f, __int_as_float(0x3e000000 + K * 977)); }
template <int K, int N> struct Unrolled {
  static __device__ __forceinline__ void run(float& x, float& y) {
    Unrolled<K, N / 2>::run(x, y);
    Unrolled<K + N / 2, N - N / 2>::run(x, y);
  }
};
template <int K> struct Unrolled<K, 1> {
  static __device__ __forceinline__ void run(float& x, float& y) { x = step_of<K>(x); y = fmaf(y, x, 0.1f + K * 1e-5f); }
};
template <int V> __global__ void long_formula(const float* a, float* out, int repeats) {
  float x = a[T], y = 0.5f;
  if (V == 0) {
#pragma unroll 1
    for (int r = 0; r < repeats; ++r) Unrolled<0, 3072>::run(x, y);
  } else {
#pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
      float kf = 0;
      int bits = 0x3e000000;
#pragma unroll 16
      for (int k = 0; k < 3072; ++k, kf += 1, bits += 977) {
        x = fmaf(x, fmaf(kf, 1e-4f, 0.5f), __int_as_float(bits));
        y = fmaf(y, x, fmaf(kf, 1e-5f, 0.1f));
      }
    }
  }
  out[T] = x + y;
}
// ---- products
template <int V> __global__ void product_tile(const float* a, const float* b, float* c, int n) {
  int x = threadIdx.x & 15, y = threadIdx.x / 16, cx = blockIdx.x % (n / 16) * 16 + x, cy = blockIdx.x / (n / 16) * 16 + y;
  if (V == 0) {
    float s = 0;
    for (int k = 0; k < n; ++k) s += a[(i64)cy * n + k] * b[(i64)k * n + cx];
    c[(i64)cy * n + cx] = s;
  } else {  // 64 x 64 outputs a block, 4 x 4 a thread
    if (blockIdx.x >= (n / 64) * (n / 64)) return;
    __shared__ __align__(16) float as[16][64 + 4], bs[16][64];
    int bx = blockIdx.x % (n / 64) * 64, by = blockIdx.x / (n / 64) * 64, t = threadIdx.x;
    float s[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
      for (int i = t; i < 1024; i += 256) as[i & 15][i / 16] = a[(i64)(by + i / 16) * n + k0 + (i & 15)];
      for (int i = t; i < 1024; i += 256) bs[i / 64][i & 63] = b[(i64)(k0 + i / 64) * n + bx + (i & 63)];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        float4 u = *(float4*)&as[k][y * 4], v = *(float4*)&bs[k][x * 4];
        float p[4] = {u.x, u.y, u.z, u.w}, q[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) s[i][j] = fmaf(p[i], q[j], s[i][j]);
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) c[(i64)(by + y * 4 + i) * n + bx + x * 4 + j] = s[i][j];
  }
}
template <int V> __global__ void half_product(const __half* a, const __half* b, float* c, int n) {
  __shared__ __align__(16) __half as[64][32 + 8], bs[32][64 + 8];
  int bx = blockIdx.x % (n / 64) * 64, by = blockIdx.x / (n / 64) * 64, t = threadIdx.x, w = t / 32;
  float s[4][8] = {};
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4];
  if (V == 1) for (auto& f : acc) wmma::fill_fragment(f, 0.0f);
  for (int k0 = 0; k0 < n; k0 += 32) {
    for (int i = t; i < 256; i += 128) *(uint4*)&as[i / 4][(i & 3) * 8] = *(const uint4*)(a + (i64)(by + i / 4) * n + k0 + (i & 3) * 8);
    for (int i = t; i < 256; i += 128) *(uint4*)&bs[i / 8][(i & 7) * 8] = *(const uint4*)(b + (i64)(k0 + i / 8) * n + bx + (i & 7) * 8);
    __syncthreads();
    if (V == 0) {
      for (int k = 0; k < 32; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) s[i][j] = fmaf(__half2float(as[(t / 8) * 4 + i][k]), __half2float(bs[k][(t & 7) * 8 + j]), s[i][j]);
    } else {
      for (int k = 0; k < 32; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
        wmma::load_matrix_sync(fa, &as[w * 16][k], 40);
        for (int j = 0; j < 4; ++j) {
          wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
          wmma::load_matrix_sync(fb, &bs[k][j * 16], 72);
          wmma::mma_sync(acc[j], fa, fb, acc[j]);
        }
      }
    }
    __syncthreads();
  }
  if (V == 0) {
    for (int i = 0; i < 4; ++i) for (int j = 0; j < 8; ++j) c[(i64)(by + (t / 8) * 4 + i) * n + bx + (t & 7) * 8 + j] = s[i][j];
  } else {
    for (int j = 0; j < 4; ++j) wmma::store_matrix_sync(c + (i64)(by + w * 16) * n + bx + j * 16, acc[j], n, wmma::mem_row_major);
  }
}
template <int V> __global__ void fragments(const __half* a, const __half* b, float* c, int n) {
  // a warp makes 16 x 16 outputs straight from global memory, or 64 x 64 from fragments that it keeps
  const int M = V == 0 ? 1 : 4;
  int per = n / (16 * M), w = T / 32;
  if (w >= per * per) return;
  int bx = w % per * 16 * M, by = w / per * 16 * M;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[M][M];
  for (auto& r : acc) for (auto& f : r) wmma::fill_fragment(f, 0.0f);
  for (int k = 0; k < n; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[M];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb[M];
    for (int i = 0; i < M; ++i) wmma::load_matrix_sync(fa[i], a + (i64)(by + 16 * i) * n + k, n);
    for (int i = 0; i < M; ++i) wmma::load_matrix_sync(fb[i], b + (i64)k * n + bx + 16 * i, n);
    for (int i = 0; i < M; ++i) for (int j = 0; j < M; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
  }
  for (int i = 0; i < M; ++i) for (int j = 0; j < M; ++j)
    wmma::store_matrix_sync(c + (i64)(by + 16 * i) * n + bx + 16 * j, acc[i][j], n, wmma::mem_row_major);
}
// ---- pipelines, cooperative groups, specialised warps
template <int V> __global__ void __launch_bounds__(256, 1) stream_filter(const float* a, float* out, int tiles) {
  extern __shared__ float ring[];  // 4 stages of 4096 floats; the slow one waits for each tile
  const int S = V == 0 ? 1 : 4;
  i64 base = (i64)blockIdx.x * tiles * 4096;
  auto load = [&](int t) {
    if (t < tiles) for (int i = threadIdx.x; i < 1024; i += 256) __pipeline_memcpy_async((float4*)(ring + (t % S) * 4096) + i, (const float4*)(a + base + (i64)t * 4096) + i, 16);
    __pipeline_commit();
  };
  for (int t = 0; t < S - 1; ++t) load(t);
  float s = 0;
  for (int t = 0; t < tiles; ++t) {
    load(t + S - 1);
    __pipeline_wait_prior(S - 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 4096; i += 256) {
      float x = ring[(t % S) * 4096 + i];
      for (int k = 0; k < 6; ++k) x = fmaf(x, x, 0.1f);
      s += x;
    }
    __syncthreads();
  }
  out[T] = s;
}
__device__ inline uint32_t address_of(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
template <int V> __global__ void __launch_bounds__(256, 1) bulk_ring(const float* a, float* out, int tiles) {
  extern __shared__ __align__(128) float ring[];  // bulk copies (TMA) with one barrier a stage
  const int S = V == 0 ? 1 : 4;
  __shared__ uint64_t full[4];
  i64 base = (i64)blockIdx.x * tiles * 8192;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S; ++s) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address_of(full + s)));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  auto load = [&](int t) {
    if (t >= tiles || threadIdx.x) return;
    uint32_t bar = address_of(full + t % S);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 32768;" ::"r"(bar) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 32768, [%2];" ::"r"(address_of(ring + (t % S) * 8192)), "l"(a + base + (i64)t * 8192), "r"(bar) : "memory");
  };
  for (int t = 0; t < S; ++t) load(t);
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    uint32_t bar = address_of(full + t % S), done = 0, parity = (t / S) & 1;
    while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    for (int i = threadIdx.x; i < 8192; i += 256) sum += ring[(t % S) * 8192 + i] * 1.5f;
    __syncthreads();
    load(t + S);
  }
  out[T] = sum;
}
template <int V> __global__ void diffuse(float* a, float* b, int n, int steps) {
  // a cooperative grid: a barrier of all blocks after each step, or after four steps of a private halo
  cg::grid_group grid = cg::this_grid();
  const int H = V == 0 ? 1 : 4;
  __shared__ float line[2][512 + 8];
  i64 base = (i64)blockIdx.x * 512;
  for (int s = 0; s < steps; s += H) {
    float* in = (s / H) & 1 ? b : a;
    float* to = (s / H) & 1 ? a : b;
    for (int i = threadIdx.x; i < 512 + 2 * H; i += blockDim.x) line[0][i] = in[(base + i - H + n) % n];
    __syncthreads();
    for (int h = 1; h <= H; ++h) {
      for (int i = threadIdx.x + h; i < 512 + 2 * H - h; i += blockDim.x) line[h & 1][i] = 0.25f * line[~h & 1][i - 1] + 0.5f * line[~h & 1][i] + 0.25f * line[~h & 1][i + 1];
      __syncthreads();
    }
    for (int i = threadIdx.x; i < 512; i += blockDim.x) to[base + i] = line[H & 1][i + H];
    grid.sync();
  }
}
template <int V> __global__ void feed_warps(const float* a, float* out, int tiles) {
  // the slow block has one warp that loads for seven; in the fixed one each warp loads its own part
  __shared__ float tile[2][2048];
  i64 base = (i64)blockIdx.x * tiles * 2048;
  int w = threadIdx.x / 32, lane = threadIdx.x & 31;
  float s = 0;
  for (int t = 0; t <= tiles; ++t) {
    if (t < tiles) {
      if (V == 0) { if (w == 0) for (int i = lane; i < 2048; i += 32) tile[t & 1][i] = a[base + (i64)t * 2048 + i]; }
      else for (int i = threadIdx.x; i < 2048; i += 256) tile[t & 1][i] = a[base + (i64)t * 2048 + i];
    }
    if (t > 0 && (V == 1 || w > 0))
      for (int i = V == 1 ? threadIdx.x : threadIdx.x - 32; i < 2048; i += V == 1 ? 256 : 224) s += tile[(t - 1) & 1][i] * 0.5f;
    __syncthreads();
  }
  out[T] = s;
}
// ---- clean
__global__ void copy_vectors(const float4* a, float4* out, i64 n) { for (i64 i = T; i < n; i += STRIDE) out[i] = a[i]; }
__global__ void axpby(const float4* a, const float4* b, float4* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) { float4 u = a[i], v = b[i]; out[i] = make_float4(u.x + 2 * v.x, u.y + 2 * v.y, u.z + 2 * v.z, u.w + 2 * v.w); }
}
__global__ void max_of_all(const float4* a, float* out, i64 n) {
  float m = 0;
  for (i64 i = T; i < n; i += STRIDE) { float4 v = a[i]; m = fmaxf(fmaxf(m, fmaxf(v.x, v.y)), fmaxf(v.z, v.w)); }
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if ((threadIdx.x & 31) == 0) out[T / 32] = m;
}
__global__ void fma_mill(const float* a, float* out, int n) {
  float x[8];
  for (int j = 0; j < 8; ++j) x[j] = a[T % 1024] + j;
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = fmaf(x[j], 0.99f, 0.01f);
  float s = 0;
  for (float v : x) s += v;
  out[T] = s;
}
__global__ void hash_mill(const int* a, int* out, int n) {
  uint32_t x[4];
  for (int j = 0; j < 4; ++j) x[j] = a[T % 1024] + j;
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = x[j] * 1664525u + 1013904223u;
  out[T] = x[0] ^ x[1] ^ x[2] ^ x[3];
}
__global__ void root_mill(const float* a, float* out, int n) {
  float x = a[T % 1024] + 2, y = x + 1;
  for (int k = 0; k < n; ++k) { x = rsqrtf(x) + 1.5f; y = rsqrtf(y) + 1.5f; }
  out[T] = x + y;
}
__global__ void bump(float* out) { out[T] = T * 0.5f; }
__global__ void tensor_mill(float* out, int n) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4];
  wmma::fill_fragment(fa, __float2half(0.5f)), wmma::fill_fragment(fb, __float2half(0.25f));
  for (auto& f : acc) wmma::fill_fragment(f, 0.0f);
  for (int k = 0; k < n; ++k) for (auto& f : acc) wmma::mma_sync(f, fa, fb, f);
  float s = 0;
  for (auto& f : acc) s += f.x[0];
  out[T] = s;
}

struct Case {
  std::string name, cause;
  std::function<void()> slow, fixed;  // no fixed one: clean
  void* out;
  i64 count;  // floats or ints to compare
  bool ints;
};
float *A, *B, *C, *D, *FLUSH;
int *I, *J;
__half *HA, *HB;
std::vector<Case> cases;
const i64 N = 1 << 26;  // floats in A, B, C and D: 256 MB each
const i64 FLUSHED = 64 << 20;

void dynamic_shared(const void* f, int bytes) { CHECK(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)); }
template <class F, class... X> void cooperative(F f, int grid, int block, X... x) {
  void* args[] = {&x...};
  CHECK(cudaLaunchCooperativeKernel((const void*)f, grid, block, args, 0, 0));
}
#define PAIR(name, cause, out, count, ints, slow, fixed) cases.push_back({name, cause, [] { slow; }, [] { fixed; }, out, count, ints})
#define CLEAN(name, cause, call) cases.push_back({name, cause, [] { call; }, nullptr, nullptr, 0, false})

void declare() {
  static Body* bodies = (Body*)A;  // 8 M bodies
  PAIR("token_energy", "uncoalesced_loads", C, 65536, 0, (token_energy<0><<<256, 256>>>(A, C, 65536, 1024)), (token_energy<1><<<8192, 256>>>(A, C, 65536, 1024)));
  PAIR("planar_to_packed", "uncoalesced_stores", C, 1 << 25, 0, (planar_to_packed<0><<<131072, 256>>>(A, C, 1 << 18, 128)), (planar_to_packed<1><<<8192 * 4, 256>>>(A, C, 1 << 18, 128)));
  PAIR("total_charge", "strided_sectors", nullptr, 0, 0, (total_charge<0><<<528, 256>>>(bodies, B, C, 1 << 23)), (total_charge<1><<<528, 256>>>(bodies, B, C, 1 << 23)));
  PAIR("damp_velocity", "partial_sector_writes", nullptr, 0, 0, (damp_velocity<0><<<1056, 256>>>((Body*)D, C, B, 1 << 23)), (damp_velocity<1><<<1056, 256>>>((Body*)D, C, B, 1 << 23)));
  PAIR("pool_rows", "misaligned_base", nullptr, 0, 0, (pool_rows<0><<<16384, 256>>>(A, I, C, 1 << 19)), (pool_rows<1><<<16384, 256>>>(A, I, C, 1 << 19)));
  PAIR("grey", "narrow_accesses", C, 1 << 22, 1, (grey<0><<<2112, 256>>>((uint8_t*)A, (uint8_t*)C, 1 << 26)), (grey<1><<<2112, 256>>>((uint8_t*)A, (uint8_t*)C, 1 << 26)));
  PAIR("count_class", "wide_data", nullptr, 0, 0, (count_class<0><<<1056, 256>>>((i64*)A, (uint8_t*)B, (unsigned*)C, 1 << 25)), (count_class<1><<<1056, 256>>>((i64*)A, (uint8_t*)B, (unsigned*)C, 1 << 25)));
  PAIR("outer_reuse", "block_order_l2", C, 4096 * 8 * 8, 0, (outer_reuse<0><<<4096 * 8, 256>>>(A, B, C, 4096, 8)), (outer_reuse<1><<<4096 * 8, 256>>>(A, B, C, 4096, 8)));
  PAIR("walk_chain", "pointer_chasing", nullptr, 0, 0, (walk_chain<0><<<128, 128>>>(I, I, A, C, 16384, 256)), (walk_chain<1><<<128, 128>>>(I, I, A, C, 16384, 256)));
  PAIR("count_large", "global_atomics_one_address", C, 1, 1, (count_large<0><<<1056, 256>>>(A, (unsigned*)C, 1 << 24)), (count_large<1><<<1056, 256>>>(A, (unsigned*)C, 1 << 24)));
  PAIR("tone_histogram", "shared_atomics_one_address", C, 256, 1, (tone_histogram<0><<<1056, 256>>>(J, (unsigned*)C, 1 << 25)), (tone_histogram<1><<<1056, 256>>>(J, (unsigned*)C, 1 << 25)));
  PAIR("ticket_queue", "global_atomics_one_address", C, 1 << 22, 0, (ticket_queue<0><<<264, 256>>>(A, C, (unsigned*)D, 1 << 22)), (ticket_queue<1><<<264, 256>>>(A, C, (unsigned*)D, 1 << 22)));
  PAIR("turn_tiles", "shared_bank_conflicts", C, 4096 * 4096, 0, (turn_tiles<0><<<16384, 256>>>(A, C, 4096)), (turn_tiles<1><<<16384, 256>>>(A, C, 4096)));
  PAIR("tree_sums", "shared_bank_conflicts", C, 32768, 0, (tree_sums<0><<<4096, 512>>>(A, C)), (tree_sums<1><<<4096, 512>>>(A, C)));
  PAIR("correlate", "shared_instruction_bound", C, 1 << 24, 0, (correlate<0><<<16384, 256>>>(A, B, C, 1 << 24)), (correlate<1><<<16384, 256>>>(A, B, C, 1 << 24)));
  PAIR("settle", "needless_barriers", C, 1 << 20, 0, (settle<0><<<4096, 256>>>(A, C, 1 << 20)), (settle<1><<<4096, 256>>>(A, C, 1 << 20)));
  PAIR("block_norms", "one_warp_reduction", C, 16384, 0, (block_norms<0><<<264, 1024>>>(A, C, 64)), (block_norms<1><<<264, 1024>>>(A, C, 64)));
  PAIR("bank_of_filters", "register_spills", C, 1 << 18, 0, (bank_of_filters<0><<<1024, 256>>>(A, C, N)), (bank_of_filters<1><<<1024, 256>>>(A, C, N)));
  PAIR("sort_digits", "local_array", C, 1 << 18, 1, (sort_digits<0><<<1024, 256>>>(I, (int*)C)), (sort_digits<1><<<1024, 256>>>(I, (int*)C)));
  PAIR("collatz", "divergence", C, 1 << 20, 1, (collatz<0><<<4096, 256>>>(I, (int*)C, 1 << 20)), (collatz<1><<<4096, 256>>>(I, (int*)C, 1 << 20)));
  PAIR("integrate", "grid_too_small", nullptr, 0, 0, (integrate<0><<<24, 256>>>(A, C, 1 << 22)), (integrate<1><<<24 * 24, 256>>>(A, C, 1 << 22)));
  PAIR("relax_grid", "tail_effect", nullptr, 0, 0, (relax_grid<0><<<132 * 2 + 8, 1024>>>(A, C, 3000)), (relax_grid<1><<<132 * 2, 1024>>>(A, C, 3090)));
  PAIR("probe_shared", "occupancy_shared", nullptr, 0, 0, (probe_table<0><<<132 * 8, 256, 100 * 1024>>>(A, I, C, 1 << 23)), (probe_table<0><<<132 * 8, 256>>>(A, I, C, 1 << 23)));
  PAIR("probe_blocks", "occupancy_block_size", nullptr, 0, 0, (probe_table<1><<<132 * 64, 32>>>(A, I, C, 1 << 23)), (probe_table<1><<<132 * 8, 256>>>(A, I, C, 1 << 23)));
  PAIR("probe_registers", "occupancy_registers", nullptr, 0, 0, (probe_registers<0><<<132 * 12, 128>>>(A, I, C, 1 << 23)), (probe_registers<1><<<132 * 12, 128>>>(A, I, C, 1 << 23)));
  PAIR("merge_lists", "uneven_warps", nullptr, 0, 0, (merge_lists<0><<<528, 256>>>(A, C, 1024)), (merge_lists<1><<<528, 256>>>(A, C, 1024)));
  PAIR("lower_rows", "uneven_blocks", C, 8192, 0, (lower_rows<0><<<528, 256>>>(A, C, 4096, (unsigned*)D)), (lower_rows<1><<<528, 256>>>(A, C, 4096, (unsigned*)D)));
  PAIR("waves", "special_functions", nullptr, 0, 0, (waves<0><<<2112, 256>>>(A, C, 1 << 24)), (waves<1><<<2112, 256>>>(A, C, 1 << 24)));
  PAIR("smoothstep", "fp64_by_accident", C, 1 << 23, 0, (smoothstep<0><<<2112, 256>>>(A, C, 1 << 23)), (smoothstep<1><<<2112, 256>>>(A, C, 1 << 23)));
  PAIR("pick_voxels", "integer_division", C, 1 << 25, 0, (pick_voxels<0><<<2112, 256>>>(A, C, 1 << 25, 128, 128, 64)), (pick_voxels<1><<<2112, 256>>>(A, C, 1 << 25, 128, 128, 64)));
  PAIR("horner", "dependent_chain", nullptr, 0, 0, (horner<0><<<132, 128>>>(A, C, 65536)), (horner<1><<<132, 128>>>(A, C, 65536)));
  PAIR("recolour", "constant_divergence", C, 1 << 22, 0, (recolour<0><<<1056, 256>>>(J, C, 1 << 22)), (recolour<1><<<1056, 256>>>(J, C, 1 << 22)));
  PAIR("long_formula", "instruction_cache", nullptr, 0, 0, (long_formula<0><<<132, 128>>>(A, C, 24)), (long_formula<1><<<132, 128>>>(A, C, 24)));
  PAIR("product_tile", "no_tile", C, 2048 * 2048, 0, (product_tile<0><<<128 * 128, 256>>>(A, B, C, 2048)), (product_tile<1><<<32 * 32, 256>>>(A, B, C, 2048)));
  PAIR("half_product", "fp32_for_matrix", C, 2048 * 2048, 0, (half_product<0><<<1024, 128>>>(HA, HB, C, 2048)), (half_product<1><<<1024, 128>>>(HA, HB, C, 2048)));
  PAIR("fragments", "tensor_starved", C, 2048 * 2048, 0, (fragments<0><<<128 * 128 / 4, 128>>>(HA, HB, C, 2048)), (fragments<1><<<32 * 32 / 4, 128>>>(HA, HB, C, 2048)));
  dynamic_shared((const void*)stream_filter<0>, 150000), dynamic_shared((const void*)stream_filter<1>, 150000);
  dynamic_shared((const void*)bulk_ring<0>, 150000), dynamic_shared((const void*)bulk_ring<1>, 150000);
  dynamic_shared((const void*)probe_table<0>, 100 * 1024);
  PAIR("stream_filter", "no_overlap", C, 132 * 256, 0, (stream_filter<0><<<132, 256, 65536>>>(A, C, 120)), (stream_filter<1><<<132, 256, 65536>>>(A, C, 120)));
  PAIR("bulk_ring", "no_overlap", C, 132 * 256, 0, (bulk_ring<0><<<132, 256, 131072>>>(A, C, 60)), (bulk_ring<1><<<132, 256, 131072>>>(A, C, 60)));
  PAIR("diffuse", "needless_barriers", nullptr, 0, 0, (cooperative(diffuse<0>, 264, 256, A, B, 264 * 512, 256)), (cooperative(diffuse<1>, 264, 256, A, B, 264 * 512, 256)));
  PAIR("feed_warps", "uneven_warps", nullptr, 0, 0, (feed_warps<0><<<528, 256>>>(A, C, 60)), (feed_warps<1><<<528, 256>>>(A, C, 60)));
  CLEAN("copy_vectors", "none_at_roof", (copy_vectors<<<2112, 512>>>((float4*)A, (float4*)C, N / 4)));
  CLEAN("axpby", "none_at_roof", (axpby<<<2112, 512>>>((float4*)A, (float4*)B, (float4*)C, N / 4)));
  CLEAN("max_of_all", "none_at_roof", (max_of_all<<<1056, 1024>>>((float4*)A, C, N / 4)));
  CLEAN("fma_mill", "none_at_roof", (fma_mill<<<1056, 1024>>>(A, C, 2048)));
  CLEAN("hash_mill", "none_at_roof", (hash_mill<<<1056, 1024>>>(I, (int*)C, 2048)));
  CLEAN("root_mill", "none_at_roof", (root_mill<<<1056, 1024>>>(A, C, 1024)));
  CLEAN("bump", "launch_latency", (bump<<<16, 128>>>(C)));
  CLEAN("tensor_mill", "none_at_roof", (tensor_mill<<<1056, 256>>>(C, 2048)));
}

void prepare(const Case& c) {  // outputs that kernels add to, and the queue of persistent blocks
  CHECK(cudaMemset(C, 0, 1 << 16));
  if (c.name == "ticket_queue" || c.name == "lower_rows") CHECK(cudaMemset(D, 0, 256));
}
float once(const Case& c, const std::function<void()>& f, cudaEvent_t a, cudaEvent_t b) {
  prepare(c);
  flush_l2<<<2112, 256>>>(FLUSH, FLUSHED);
  CHECK(cudaEventRecord(a));
  f();
  CHECK(cudaEventRecord(b));
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  float ms;
  CHECK(cudaEventElapsedTime(&ms, a, b));
  return ms * 1000;
}
std::string quantiles(std::vector<float> v) {
  std::sort(v.begin(), v.end());
  char s[64];
  std::snprintf(s, 64, "%.3f,%.3f,%.3f", v[v.size() / 2], v[v.size() / 10], v[v.size() * 9 / 10]);
  return v.empty() ? ",," : s;
}
double difference(const Case& c) {  // of the two forms, relative
  std::vector<float> x(c.count), y(c.count);
  cudaEvent_t a, b;
  cudaEventCreate(&a), cudaEventCreate(&b);
  once(c, c.slow, a, b);
  CHECK(cudaMemcpy(x.data(), c.out, c.count * 4, cudaMemcpyDefault));
  once(c, c.fixed, a, b);
  CHECK(cudaMemcpy(y.data(), c.out, c.count * 4, cudaMemcpyDefault));
  double worst = 0;
  for (i64 i = 0; i < c.count; ++i) {
    double u = c.ints ? ((int*)x.data())[i] : x[i], v = c.ints ? ((int*)y.data())[i] : y[i];
    worst = std::max(worst, std::fabs(u - v) / (1e-3 + std::fabs(u) + std::fabs(v)));
  }
  return worst;
}

int main(int argc, char** argv) {
  bool run = argc > 1 && !std::strcmp(argv[1], "--run");
  double seconds = argc > 2 ? std::atof(argv[2]) : 60;
  for (float** p : {&A, &B, &C, &D}) CHECK(cudaMalloc(p, N * 4 + 4096));
  CHECK(cudaMalloc(&FLUSH, FLUSHED * 4));
  CHECK(cudaMalloc(&I, (1 << 25) * 4));
  CHECK(cudaMalloc(&J, (1 << 25) * 4));
  CHECK(cudaMalloc(&HA, 4096 * 4096 * 2));
  CHECK(cudaMalloc(&HB, 4096 * 4096 * 2));
  fill<<<2112, 256>>>(A, N, 1), fill<<<2112, 256>>>(B, N, 2), fill<<<2112, 256>>>(C, N, 3), fill<<<2112, 256>>>(D, N, 4);
  fill_half<<<2112, 256>>>(HA, 4096 * 4096), fill_half<<<2112, 256>>>(HB, 4096 * 4096);
  fill_int<<<2112, 256>>>(I, 1 << 25, 1 << 22, 5), fill_int<<<2112, 256>>>(J, 1 << 25, 256, 6);
  std::vector<float> table(4096, 0.5f);
  CHECK(cudaMemcpyToSymbol(table_c, table.data(), 16384));
  fill<<<2112, 256>>>(FLUSH, FLUSHED, 7);
  declare();
  CHECK(cudaDeviceSynchronize());
  cudaEvent_t a, b;
  cudaEventCreate(&a), cudaEventCreate(&b);
  if (run) {
    CHECK(cudaProfilerStart());
    for (auto& c : cases)
      for (int fixed = 0; fixed < (c.fixed ? 2 : 1); ++fixed) {
        prepare(c);
        nvtxRangePushA((c.name + (c.fixed ? fixed ? "/fixed" : "/slow" : "/clean")).c_str());
        (fixed ? c.fixed : c.slow)();
        CHECK(cudaDeviceSynchronize());
        nvtxRangePop();
      }
    CHECK(cudaProfilerStop());
    return 0;
  }
  std::printf("name,cause,slow_us,slow_p10,slow_p90,fixed_us,fixed_p10,fixed_p90,rounds,difference\n");
  for (auto& c : cases) {
    std::vector<float> s, f;
    double spent = 0, share = seconds / cases.size() * 1e6;
    for (int r = -2; r < 40 && (r < 8 || spent < share); ++r) {
      float x = once(c, c.slow, a, b), y = c.fixed ? once(c, c.fixed, a, b) : 0;
      spent += x + y + 200;
      if (r >= 0) { s.push_back(x); if (c.fixed) f.push_back(y); }
    }
    std::printf("%s,%s,%s,%s,%zu,%.2g\n", c.name.c_str(), c.cause.c_str(), quantiles(s).c_str(), f.empty() ? ",," : quantiles(f).c_str(), s.size(), c.out && c.fixed ? difference(c) : -1.0);
    std::fflush(stdout);
  }
}
