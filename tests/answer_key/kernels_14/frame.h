// Shared by the files of this set: PTX that has no C++ name (barriers that count bytes, bulk copies, fragments), and one good product of BF16.
#pragma once
#include "set.h"

__device__ inline unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
// A barrier in shared memory that counts arrivals and bytes
__device__ inline void gate_open(u64* gate, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(gate)), "r"(arrivals) : "memory"); }
__device__ inline void gates_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void gate_arrive(u64* gate) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(gate)) : "memory"); }
__device__ inline void gate_bytes(u64* gate, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(gate)), "r"(bytes) : "memory"); }
__device__ inline void gate_pass(u64* gate, int phase) {
  unsigned done;
  do {
    asm volatile("{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2; selp.u32 %0, 1, 0, q; }" : "=r"(done) : "r"(address(gate)), "r"(phase) : "memory");
  } while (!done);
}
__device__ inline void bulk_in(void* to, const void* from, int bytes, u64* gate) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)), "l"(from), "r"(bytes), "r"(address(gate)) : "memory");
}
__device__ inline void bulk_out(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(address(from)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int LEFT> __device__ inline void bulk_read_until() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory"); }
template <int LEFT> __device__ inline void bulk_done_until() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(LEFT) : "memory"); }
__device__ inline void show_to_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline float raise_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float inverse_of(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float soft_sign(float x) {  // the hyperbolic tangent
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Fragments: four matrices of 8 x 8 halves whose rows the lanes point at; a product of 16 x 16 and 16 x 8
using bf16 = __nv_bfloat16;
__device__ inline void read_matrices(unsigned (&v)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address(row)) : "memory");
}
__device__ inline void tensor_step(float (&d)[4], const unsigned (&a)[4], unsigned b, unsigned c) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(c));
}
inline float share(unsigned k) { return (float)(mix(k + 0x51edu) >> 8) * 0x1p-24f; }  // in [0, 1)

template <class X> static __global__ void recode(const float* a, X* out, i64 n, float less) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = X(a[i] - less);
}
template <class X> X* recoded(const float* a, i64 n, float less) {
  X* p = device<X>(n);
  recode<<<1056, 256>>>(a, p, n, less);
  return p;
}

// out = x * transposed w, both with the depth as rows: tiles of 128 x 128 by eight warps of 32 x 64, four stages of 32 of the depth, whose
// pieces of 16 bytes are swizzled
const int STAGE = 128 * 32, PRODUCT_BYTES = 4 * 2 * STAGE * 2;
static __global__ void __launch_bounds__(256, 2) good_product(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  extern __shared__ __align__(128) unsigned char pool[];
  bf16* room = (bf16*)pool;
  int t = threadIdx.x, lane = t & 31, warp = t / 32, down = warp / 2 * 32, across = (warp & 1) * 64;
  const bf16 *rows = x + (i64)blockIdx.y * 128 * depth, *others = w + (i64)blockIdx.x * 128 * depth;
  auto piece = [](int row, int part) { return row * 32 + ((part ^ (row >> 1 & 3)) * 8); };
  auto bring = [&](int n) {
    if (n * 32 < depth) {
      bf16 *left = room + (n & 3) * 2 * STAGE, *right = left + STAGE;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int i = t + h * 256, row = i / 4, part = i & 3;
        __pipeline_memcpy_async(left + piece(row, part), rows + (i64)row * depth + n * 32 + part * 8, 16);
        __pipeline_memcpy_async(right + piece(row, part), others + (i64)row * depth + n * 32 + part * 8, 16);
      }
    }
    __pipeline_commit();
  };
  float s[2][8][4] = {};
  bring(0), bring(1), bring(2);
#pragma unroll 1
  for (int n = 0; n * 32 < depth; ++n) {
    __pipeline_wait_prior(2);
    __syncthreads();
    bring(n + 3);
    const bf16 *left = room + (n & 3) * 2 * STAGE, *right = left + STAGE;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      unsigned a[2][4], b[4][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) read_matrices(a[i], left + piece(down + i * 16 + (lane & 15), k * 2 + lane / 16));
#pragma unroll
      for (int j = 0; j < 4; ++j) read_matrices(b[j], right + piece(across + j * 16 + (lane & 7) + lane / 16 * 8, k * 2 + (lane >> 3 & 1)));
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) tensor_step(s[i][j], a[i], b[j / 2][(j & 1) * 2], b[j / 2][(j & 1) * 2 + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float* to = out + (blockIdx.y * 128ll + down + i * 16 + lane / 4) * columns + blockIdx.x * 128 + across + j * 8 + (lane & 3) * 2;
      *(float2*)to = {s[i][j][0], s[i][j][1]}, *(float2*)(to + 8 * columns) = {s[i][j][2], s[i][j][3]};
    }
}
static inline void launch_good_product(const bf16* x, const bf16* w, float* out, int rows, int columns, int depth) {
  dynamic_shared(good_product, PRODUCT_BYTES);
  good_product<<<dim3(columns / 128, rows / 128), 256, PRODUCT_BYTES>>>(x, w, out, depth, columns);
}
