// Issue rates of math instructions: every warp repeats one instruction on CHAINS independent accumulators.
// Shapes   cycles (blocks), sink (blocks * threads); a block writes the cycles of its first warp
// Moves    nothing but the results
// Versus   the datasheet's rates. On sm_90, wgmma is faster than mma.sync, and mma.sync in FP8 is code around HMMA in
//          fp16, so FP8 is not here: torch._scaled_mm measures it.
// Source   PTX ISA 9.0, "Warp-level matrix instructions"
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
    default:
      return static_cast<int>(cudaErrorInvalidValue);
  }
}
