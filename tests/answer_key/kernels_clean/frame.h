// What the files of this set share beside set.h: barriers in shared memory, bulk copies, conversions, sums and permutations.
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

using bf16 = __nv_bfloat16;
__device__ inline void fetch_four(unsigned (&v)[4], const void* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(place(from)) : "memory");
}
void stream_cases(), row_cases(), cache_cases(), mill_cases(), matrix_cases(), group_cases(), small_cases(), tempting_cases();
__device__ inline float4 scaled(float4 v, float by, float more) { return {fmaf(v.x, by, more), fmaf(v.y, by, more), fmaf(v.z, by, more), fmaf(v.w, by, more)}; }
__device__ inline float total(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ inline float sum_of_block(float v, float* part) {  // of eight warps; each call takes eight words of its own
  v = warp_sum(v);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
__device__ inline float2 two_of(unsigned w) { return {__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u)}; }  // of BF16
__device__ inline unsigned packed(float x, float y) {
  __nv_bfloat162 v = __floats2bfloat162_rn(x, y);
  return *(unsigned*)&v;
}
inline int* permutation(int n) {
  std::vector<int> v(n);
  for (int i = 0; i < n; ++i) v[i] = i;
  for (unsigned i = n - 1; i; --i) std::swap(v[i], v[mix(i) % (i + 1)]);
  return upload(v);
}
