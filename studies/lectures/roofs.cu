// Issue rates of math instructions: every warp repeats one instruction on CHAINS independent accumulators.
// Shapes   cycles (blocks), sink (blocks * threads); a block writes the cycles of its first warp
// Moves    nothing but the results
// Versus   the datasheet's rates. On sm_90, wgmma is faster than mma.sync, and mma.sync in FP8 is code around HMMA in
//          fp16; so FP8 has only its wgmma, whose operands lie in shared memory.
// Source   PTX ISA 9.0, "Warp-level matrix instructions", "Asynchronous warpgroup level matrix instructions"
#include <cuda_runtime.h>

#include <cstdint>

namespace {
constexpr int CHAINS = 8, THREADS = 256;

struct Dp4a {
  using Item = int;
  __device__ static void step(int (&d)[4], uint32_t (&a)[4], uint32_t (&b)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] = __dp4a(static_cast<int>(a[i]), static_cast<int>(b[i]), d[i]);
  }
};

#define MMA4(NAME, ITEM, CODE, REG, B, OPERANDS, ...)                                                        \
  struct NAME {                                                                                              \
    using Item = ITEM;                                                                                       \
    __device__ static void step(ITEM (&d)[4], uint32_t (&a)[4], uint32_t (&b)[4]) {                          \
      asm volatile(CODE " {%0,%1,%2,%3}, {%4,%5,%6,%7}, " B ", {%0,%1,%2,%3}" OPERANDS ";"                   \
                   : "+" REG(d[0]), "+" REG(d[1]), "+" REG(d[2]), "+" REG(d[3])                              \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), \
                     "r"(0x44444444));                                                                       \
    }                                                                                                        \
  };
MMA4(Bf16, float, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "f", "{%8,%9}", "")
MMA4(Tf32, float, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "f", "{%8,%9}", "")
MMA4(Imma, int, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "r", "{%8,%9}", "")
MMA4(Sparse, float, "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "f", "{%8,%9,%10,%11}",
     ", %12, 0x0")

struct Fp64 {
  using Item = double;
  __device__ static void step(double (&d)[4], uint32_t (&a)[4], uint32_t (&b)[4]) {
    const double left = __hiloint2double(a[0], a[1]), right = __hiloint2double(b[0], b[1]);
#pragma unroll
    for (int i = 0; i < 4; i += 2)
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+d"(d[i]), "+d"(d[i + 1])
                   : "d"(left), "d"(right));
  }
};

struct Fp64Large {  // 16 x 8 x 16, of sm_90 alone
  using Item = double;
  __device__ static void step(double (&d)[4], uint32_t (&a)[4], uint32_t (&b)[4]) {
#if __CUDA_ARCH__ >= 900
    double x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = __hiloint2double(a[i], b[i]);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7,%4,%5,%6,%7}, {%4,%5,%6,%7}, {%0,%1,%2,%3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]));
#endif
  }
};

template <typename Unit>
__global__ void __launch_bounds__(THREADS) repeat(int64_t* cycles, float* sink, int steps) {
  typename Unit::Item d[CHAINS][4];
  uint32_t a[4], b[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = threadIdx.x + i, b[i] = threadIdx.x + 2 * i + 1;
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) d[chain][i] = static_cast<typename Unit::Item>(4 * chain + i);
  }
  __syncthreads();
  const int64_t start = clock64();
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) Unit::step(d[chain], a, b);
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
  float sum = 0;
#pragma unroll
  for (int chain = 0; chain < CHAINS; ++chain)
    sum += static_cast<float>(d[chain][0] + d[chain][1] + d[chain][2] + d[chain][3]);
  sink[blockIdx.x * THREADS + threadIdx.x] = sum;
}

// A warpgroup's instruction 64 x 128, its operands 32 bytes deep: rows of 128 bytes, swizzled, in shared memory.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TEN(P) "%" P "0,%" P "1,%" P "2,%" P "3,%" P "4,%" P "5,%" P "6,%" P "7,%" P "8,%" P "9,"
#define OUT(C, I) "+" C(d[I]), "+" C(d[I + 1]), "+" C(d[I + 2]), "+" C(d[I + 3])
#define OUTS(C, I) OUT(C, I), OUT(C, I + 4), OUT(C, I + 8), OUT(C, I + 12)
#define WGMMA(NAME, ITEM, CODE, REG, OPERANDS)                                                                 \
  struct NAME {                                                                                                \
    using Item = ITEM;                                                                                         \
    __device__ static void step(ITEM (&d)[64], uint64_t a, uint64_t b) {                                       \
      asm volatile("wgmma.mma_async." CODE " {" TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5")            \
                   "%60,%61,%62,%63}, %64, %65" OPERANDS ";"                                                   \
                   : OUTS(REG, 0), OUTS(REG, 16), OUTS(REG, 32), OUTS(REG, 48)                                 \
                   : "l"(a), "l"(b), "r"(0x44444444));                                                         \
    }                                                                                                          \
  };
#else  // no device code: run_roof is not called for them
#define WGMMA(NAME, ITEM, CODE, REG, OPERANDS)                              \
  struct NAME {                                                             \
    using Item = ITEM;                                                      \
    __device__ static void step(ITEM (&d)[64], uint64_t a, uint64_t b) {}   \
  };
#endif
WGMMA(WideBf16, float, "sync.aligned.m64n128k16.f32.bf16.bf16", "f", ", 1, 1, 1, 0, 0")
WGMMA(WideTf32, float, "sync.aligned.m64n128k8.f32.tf32.tf32", "f", ", 1, 1, 1")
WGMMA(WideFp8, float, "sync.aligned.m64n128k32.f32.e4m3.e4m3", "f", ", 1, 1, 1")
WGMMA(WideInt8, int, "sync.aligned.m64n128k32.s32.s8.s8", "r", ", 1")
WGMMA(WideSparse, float, "sp.sync.aligned.m64n128k32.f32.bf16.bf16", "f", ", %66, 0, 1, 1, 1, 0, 0")

template <typename Unit>
__global__ void __launch_bounds__(THREADS) repeat_wide(int64_t* cycles, float* sink, int steps) {
  __shared__ alignas(1024) uint32_t operands[6144];  // 64 rows of a, 128 rows of b
  for (int i = threadIdx.x; i < 6144; i += THREADS) operands[i] = (i * 2654435761u) & 0x3b3b3b3b;
  typename Unit::Item d[64] = {};
  const auto start_of = static_cast<uint32_t>(__cvta_generic_to_shared(operands));
  const uint64_t shape = 1ull << 62 | 64ull << 32 | 1ull << 16;  // 128-byte swizzle, 1024 bytes from 8 rows to the next
  const uint64_t a = shape | start_of >> 4, b = shape | (start_of + 8192) >> 4;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int64_t start = clock64();
  for (int step = 0; step < steps; ++step) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) Unit::step(d, a, b);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
#endif
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += static_cast<float>(d[i]);
  sink[blockIdx.x * THREADS + threadIdx.x] = sum;
}
}  // namespace

// Runs instruction `unit` (in the order of ROOFS in measure.py) steps * 8 times a warp, in 8 warps a block.
extern "C" int run_roof(int unit, void* cycles, void* sink, int steps, int blocks, void* stream) {
  const auto go = [&](auto kernel) {
    kernel<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<int64_t*>(cycles),
                                                                      static_cast<float*>(sink), steps);
    return static_cast<int>(cudaGetLastError());
  };
  switch (unit) {
    case 0:
      return go(repeat<Dp4a>);
    case 1:
      return go(repeat<Imma>);
    case 2:
      return go(repeat<Tf32>);
    case 3:
      return go(repeat<Bf16>);
    case 4:
      return go(repeat<Sparse>);
    case 5:
      return go(repeat<Fp64>);
    case 6:
      return go(repeat<Fp64Large>);
    case 7:
      return go(repeat_wide<WideBf16>);
    case 8:
      return go(repeat_wide<WideTf32>);
    case 9:
      return go(repeat_wide<WideFp8>);
    case 10:
      return go(repeat_wide<WideInt8>);
    case 11:
      return go(repeat_wide<WideSparse>);
    default:
      return static_cast<int>(cudaErrorInvalidValue);
  }
}
