// What the files of this set share beside set.h: barriers in shared memory, bulk copies, conversions, and products on tensor cores.
#pragma once
#include "set.h"

__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ inline void expect(u64* bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place(bar)), "r"(count) : "memory"); }
__device__ inline void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive(u64* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place(bar)) : "memory"); }
__device__ inline void announce(u64* bar, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(bar)), "r"(bytes) : "memory"); }
__device__ inline void wait(u64* bar, int parity) {
  int seen = 0;
  while (!seen)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(bar)), "r"(parity) : "memory");
}
__device__ inline void load_bulk(void* to, const void* from, int bytes, u64* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(to)), "l"(from), "r"(bytes), "r"(place(bar)) : "memory");
}
__device__ inline void store_bulk(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(place(from)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class X> static __global__ void convert(const float* a, X* out, i64 n, float less) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = X(a[i] - less);
}
template <class X> X* converted(const float* a, i64 n, float less) {
  X* p = device<X>(n);
  convert<<<1056, 256>>>(a, p, n, less);
  return p;
}
inline float uniform(unsigned k) { return (float)(mix(k) >> 8) * 0x1p-24f; }

// Tensor cores: fragments of 16 x 16 and 16 x 8 of BF16
using bf16 = __nv_bfloat16;
__device__ inline void fetch_four(unsigned (&v)[4], const void* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(place(from)) : "memory");
}
__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// A tile of 128 x 128 of x times w transposed, both row by row along the depth, by eight warps of 64 x 32, copied two steps of 32 ahead;
// each fragment once for all its products, or (KEPT 0) again for each
const int TILE_BYTES = 3 * 2 * 128 * 40 * 2;
template <int KEPT> static __global__ void __launch_bounds__(256, 2) product_in_tiles(const bf16* x, const bf16* w, float* out, int depth, int columns, int skew) {  // skew is 0
  extern __shared__ __align__(128) unsigned char tiles[];
  bf16 (*left)[128][40] = (bf16(*)[128][40])tiles, (*right)[128][40] = left + 3;
  int t = threadIdx.x, lane = t & 31, warp = t / 32, y = (warp & 1) * 64, c = warp / 2 * 32;
  i64 row = blockIdx.y * 128, column = blockIdx.x * 128;
  float s[4][4][4] = {};
  auto request = [&](int k, int to) {
    if (k < depth)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int i = t + h * 256;
        __pipeline_memcpy_async(&left[to][i / 4][(i & 3) * 8], &x[(row + i / 4) * depth + k + (i & 3) * 8], 16);
        __pipeline_memcpy_async(&right[to][i / 4][(i & 3) * 8], &w[(column + i / 4) * depth + k + (i & 3) * 8], 16);
      }
    __pipeline_commit();
  };
  request(0, 0), request(32, 1);
  int at = 0;
  for (int k = 0; k < depth; k += 32, at = at == 2 ? 0 : at + 1) {
    __pipeline_wait_prior(1);
    __syncthreads();
    request(k + 64, at == 0 ? 2 : at - 1);
#pragma unroll
    for (int j = 0; j < 32; j += 16) {
      unsigned a[4][4], b[2][4];
      auto fetch_left = [&](int i, int more) { fetch_four(a[i], &left[at][y + i * 16 + (lane & 15) + more][j + lane / 16 * 8]); };
      auto fetch_right = [&](int n, int more) { fetch_four(b[n], &right[at][c + n * 16 + (lane & 7) + lane / 16 * 8 + more][j + (lane >> 3 & 1) * 8]); };
#pragma unroll
      for (int i = 0; i < 4 && KEPT; ++i) fetch_left(i, 0);
#pragma unroll
      for (int n = 0; n < 2 && KEPT; ++n) fetch_right(n, 0);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          if (KEPT == 0) fetch_left(i, (n + 1) * skew), fetch_right(n / 2, (i * 4 + n + 1) * skew);
          multiply(s[i][n], a[i], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) *(float2*)&out[(row + y + i * 16 + lane / 4 + h * 8) * columns + column + c + n * 8 + (lane & 3) * 2] = {s[i][n][h * 2], s[i][n][h * 2 + 1]};
}
template <int KEPT = 1> void launch_product_in_tiles(const bf16* x, const bf16* w, float* out, int rows, int columns, int depth) {
  dynamic_shared(product_in_tiles<KEPT>, TILE_BYTES);
  product_in_tiles<KEPT><<<dim3(columns / 128, rows / 128), 256, TILE_BYTES>>>(x, w, out, depth, columns, 0);
}
