// Shared by the files of this set, beside set.h: every piece of PTX that the kernels need, and small helpers. Kernels themselves hold no PTX.
#pragma once
#include "set.h"

using bf16 = __nv_bfloat16;
namespace cg = cooperative_groups;

__device__ inline unsigned shared_at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- barriers that count bytes, and copies by the copy engine
__device__ inline void open_gate(u64* gate, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(gate)), "r"(arrivals) : "memory"); }
__device__ inline void publish_gates() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void await_gate(u64* gate, unsigned phase) {
  unsigned done = 0;
  do asm volatile("{ .reg .pred ok; mbarrier.try_wait.parity.shared::cta.b64 ok, [%1], %2; selp.u32 %0, 1, 0, ok; }" : "=r"(done) : "r"(shared_at(gate)), "r"(phase) : "memory");
  while (!done);
}
__device__ inline void pull(void* to, const void* from, int bytes, u64* gate) {  // one thread; its bytes complete the gate's phase
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(gate)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)), "l"(from), "r"(bytes), "r"(shared_at(gate)) : "memory");
}

// ---- approximate functions, one instruction each
__device__ inline float exp_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float inverse_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float sine(float x) {
  float y;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- tensor cores: four 8 x 8 pieces from shared memory, and a product of 16 x 16 by 16 x 8
__device__ inline void take_pieces(unsigned (&v)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(shared_at(row)) : "memory");
}
__device__ inline void tensor_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- data
template <class X> static __global__ void cast_to(const float* a, X* out, i64 n, float less) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = X(a[i] - less);
}
template <class X> X* cast(const float* a, i64 n, float less) {
  X* p = device<X>(n);
  cast_to<<<1056, 256>>>(a, p, n, less);
  return p;
}
static __global__ void keep_every(const float* a, float* out, int n, int step) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = a[(i64)i * step];
}
inline float dice(unsigned k) { return (float)(mix(k) >> 8) * 0x1p-24f; }
template <class F> std::vector<float> filled(unsigned n, F f) {
  std::vector<float> v(n);
  for (unsigned k = 0; k < n; ++k) v[k] = f(k);
  return v;
}
