// What several files of this set need beyond set.h: PTX under names, data in other types, and a product of halves that keeps tensor cores fed.
#pragma once
#include "set.h"

using half = __half;

__device__ inline unsigned in_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- latches: barriers in shared memory that await arrivals and bytes
__device__ inline void latch_make(u64* latch, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(in_shared(latch)), "r"(arrivals) : "memory"); }
__device__ inline void latches_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void latch_arrive(u64* latch) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(in_shared(latch)) : "memory"); }
__device__ inline void latch_await(u64* latch, int phase) {
  for (unsigned open = 0; !open;)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(open) : "r"(in_shared(latch)), "r"(phase) : "memory");
}
__device__ inline void bulk_fetch(void* to, const void* from, int bytes, u64* latch) {  // one thread; arrives with the bytes
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(in_shared(latch)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(in_shared(to)), "l"(from), "r"(bytes), "r"(in_shared(latch)) : "memory");
}

// ---- one instruction each
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- data
template <class X> static __global__ void convert(const float* a, X* out, i64 n, float less) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = X(a[i] - less);
}
template <class X> X* converted(const float* a, i64 n, float less) {
  X* p = device<X>(n);
  convert<<<1056, 256>>>(a, p, n, less);
  return p;
}
static __global__ void pick_words(const float* a, float* out, int n, int step, int first) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = a[(i64)i * step + first];
}
inline float unit(unsigned k) { return (float)(mix(k ^ 0x15aa15u) >> 8) * 0x1p-24f; }  // in [0, 1)

// ---- tensor cores: four matrices of 8 x 8 halves from shared memory, and 16 x 16 by 16 x 8
__device__ inline void four_matrices(unsigned (&v)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(in_shared(row)) : "memory");
}
__device__ inline void multiply_halves(float (&s)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// out = x times w transposed, rows along the depth in both, a product for each z: blocks of 128 x 128, warps of 64 x 32, and three slices of 32
// of the depth on their way while a fourth is used. Rows in shared memory are 80 bytes apart, so eight of them lie in different banks.
constexpr int APART = 40, SLICE = 256 * APART, FED_BYTES = 4 * SLICE * 2;
static __global__ void __launch_bounds__(256, 2) fed_product(const half* x, const half* w, float* out, int depth, int rows, int columns) {
  extern __shared__ __align__(128) unsigned char ring[];
  half* slices = (half*)ring;
  int t = threadIdx.x, lane = t & 31, warp = t / 32, top = (warp & 1) * 64, left = warp / 2 * 32;
  x += (blockIdx.z * (i64)rows + blockIdx.y * 128) * depth, w += (blockIdx.z * (i64)columns + blockIdx.x * 128) * depth;
  auto order = [&](int n) {
    if (n * 32 < depth) {
      half* to = slices + (n & 3) * SLICE;
#pragma unroll
      for (int h = 0; h < 4; ++h) {
        int row = h * 64 + t / 4, part = (t & 3) * 8;
        const half* from = row < 128 ? x + (i64)row * depth : w + (i64)(row - 128) * depth;
        __pipeline_memcpy_async(to + row * APART + part, from + n * 32 + part, 16);
      }
    }
    __pipeline_commit();
  };
  float s[4][4][4] = {};
  order(0), order(1), order(2);
#pragma unroll 1
  for (int n = 0; n * 32 < depth; ++n) {
    __pipeline_wait_prior(2);
    __syncthreads();
    order(n + 3);
    const half* slice = slices + (n & 3) * SLICE;
#pragma unroll
    for (int k = 0; k < 32; k += 16) {
      unsigned a[4][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four_matrices(a[i], slice + (top + i * 16 + (lane & 15)) * APART + k + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < 2; ++j) four_matrices(b[j], slice + (128 + left + j * 16 + lane / 16 * 8 + (lane & 7)) * APART + k + (lane >> 3 & 1) * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply_halves(s[i][j], a[i], b[j / 2][(j & 1) * 2], b[j / 2][(j & 1) * 2 + 1]);
    }
  }
  out += (blockIdx.z * (i64)rows + blockIdx.y * 128 + top + lane / 4) * columns + blockIdx.x * 128 + left + (lane & 3) * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float* to = out + (i64)i * 16 * columns + j * 8;
      *(float2*)to = {s[i][j][0], s[i][j][1]}, *(float2*)(to + 8ll * columns) = {s[i][j][2], s[i][j][3]};
    }
}
static inline void launch_fed_product(const half* x, const half* w, float* out, int rows, int columns, int depth, int count) {
  dynamic_shared(fed_product, FED_BYTES);
  fed_product<<<dim3(columns / 128, rows / 128, count), 256, FED_BYTES>>>(x, w, out, depth, rows, columns);
}
