// ceilings: micro-kernels whose bytes or operations are known, for the measured roofs of the roofline.
// Shapes   flat buffers of 16-byte words.
// Needs    sizes that are multiples of 4096 bytes
// Moves    known_bytes_copy reads its bytes and writes as many; the others only read.
// Versus   the datasheet: a kernel reaches these rates.
// Source   measured on an H200: of 17 shapes of the copy, one 16-byte word per thread and 256 threads per block was
//          best
#include "ceilings.h"
#include "check.cuh"

namespace {
constexpr int THREADS = 256;
constexpr int L1_THREADS = 1024;
constexpr int L1_WORDS = L1_BYTES_PER_BLOCK / (16 * L1_THREADS);
constexpr unsigned UNLIKELY = 0x9e3779b9u;
}  // namespace

__device__ __forceinline__ unsigned fold(const uint4& word) { return word.x ^ word.y ^ word.z ^ word.w; }

__global__ void __launch_bounds__(THREADS) known_bytes_copy(const uint4* from, uint4* to) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  __stcs(to + at, __ldcs(from + at));
}

// Eight independent 16-byte reads per thread.
__global__ void __launch_bounds__(THREADS) ceiling_dram_read(const uint4* from, unsigned* sink, int64_t words) {
  constexpr int READS = 8;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS * READS + threadIdx.x;
  uint4 read[READS] = {};
#pragma unroll
  for (int i = 0; i < READS; ++i)
    if (first + i * THREADS < words) read[i] = __ldcs(from + first + i * THREADS);
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < READS; ++i) sum ^= fold(read[i]);
  if (sum == UNLIKELY) *sink = sum;
}

// Each pass of the grid reads the whole set once. A block reads another part in every pass, and its loads bypass L1
// (.cg), so only L2 can serve them.
__global__ void __launch_bounds__(L1_THREADS)
    ceiling_l2_read(const uint4* from, unsigned* sink, int64_t words, int passes) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * L1_THREADS;
  unsigned sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t block = (blockIdx.x + static_cast<int64_t>(pass) * 37) % gridDim.x;
#pragma unroll 4
    for (int64_t at = block * L1_THREADS + threadIdx.x; at < words; at += stride) {
      uint4 word;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                   : "l"(from + at));
      sum ^= fold(word);
    }
  }
  if (sum == UNLIKELY) *sink = sum;
}

// Every block reads its own 32 KiB in every pass. Lanes swap addresses from pass to pass, because ptxas moves loads
// from constant addresses out of the loop, even volatile ones.
__global__ void __launch_bounds__(L1_THREADS) ceiling_l1_read(const uint4* from, unsigned* sink, int passes) {
  const uint4* own = from + static_cast<int64_t>(blockIdx.x) * L1_THREADS * L1_WORDS;
  unsigned sum = 0;
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    const uint4* mine = own + (threadIdx.x ^ (pass & 31));
#pragma unroll
    for (int i = 0; i < L1_WORDS; ++i) {
      uint4 word;
      asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                   : "l"(mine + i * L1_THREADS));
      sum ^= fold(word);
    }
  }
  if (sum == UNLIKELY) *sink = sum;
}

// Eight chains of dependent FFMAs per thread. Multiplier and addend come from the host, so the compiler folds nothing.
__global__ void __launch_bounds__(THREADS) ceiling_fp32_ffma(float* sink, float multiplier, float addend, int steps) {
  constexpr int CHAINS = 8;
  float value[CHAINS];
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) value[i] = static_cast<float>(threadIdx.x + i);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int repeat = 0; repeat < FFMA_PER_STEP / CHAINS; ++repeat) {
#pragma unroll
      for (int i = 0; i < CHAINS; ++i) value[i] = fmaf(value[i], multiplier, addend);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) sum += value[i];
  if (sum == 12345.678f) *sink = sum;
}

int l1_bytes_per_block() { return L1_BYTES_PER_BLOCK; }
int ffma_per_step() { return FFMA_PER_STEP; }

cudaError_t copy_known_bytes(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  if (bytes <= 0 || bytes % (THREADS * 16) != 0) return cudaErrorInvalidValue;
  known_bytes_copy<<<static_cast<unsigned>(bytes / (THREADS * 16)), THREADS, 0, stream>>>(
      static_cast<const uint4*>(from), static_cast<uint4*>(to));
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t read_dram(const void* from, void* sink, int64_t bytes, cudaStream_t stream) {
  const int64_t words = bytes / 16, per_block = THREADS * 8;
  ceiling_dram_read<<<static_cast<unsigned>((words + per_block - 1) / per_block), THREADS, 0, stream>>>(
      static_cast<const uint4*>(from), static_cast<unsigned*>(sink), words);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t read_l2(const void* from, void* sink, int64_t bytes, int passes, int blocks, cudaStream_t stream) {
  ceiling_l2_read<<<blocks, L1_THREADS, 0, stream>>>(static_cast<const uint4*>(from), static_cast<unsigned*>(sink),
                                                     bytes / 16, passes);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t read_l1(const void* from, void* sink, int passes, int blocks, cudaStream_t stream) {
  ceiling_l1_read<<<blocks, L1_THREADS, 0, stream>>>(static_cast<const uint4*>(from), static_cast<unsigned*>(sink),
                                                     passes);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t run_ffma(void* sink, float multiplier, float addend, int steps, int blocks, cudaStream_t stream) {
  ceiling_fp32_ffma<<<blocks, THREADS, 0, stream>>>(static_cast<float*>(sink), multiplier, addend, steps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
