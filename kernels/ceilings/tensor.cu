// tensor: products of what lies in shared memory, for the roof of Hopper's tensor cores.
// Shapes   PARTS tiles of a (128 rows) and of a weight (256 rows), 128 bytes of K each, e4m3 or bf16.
// Needs    sm_90a
// Moves    nothing after the first copy of the tiles
// Versus   a library's 8192 cubed: that loads its operands and writes its outputs, too, so that kernels can be faster.
// Source   the tiles and the depth of matmul v23 and matmul_fp8 v08; a sum has 64 steps, as with K of 8192 bytes
#include <cuda_runtime.h>

#include "../matmul_fp8/fp8_tile.cuh"
#include "check.cuh"
#include "overlap_shared.cuh"

namespace {
[[maybe_unused]] constexpr int DEEP = 64;
constexpr int PARTS = 4, THREADS = 256;
constexpr uint32_t A_BYTES = 128 * 128, WEIGHT_BYTES = 256 * 128, BYTES = PARTS * (A_BYTES + WEIGHT_BYTES) + 1024;
}  // namespace

template <bool FP8>
__global__ void __launch_bounds__(THREADS, 1) ceiling_tensor(const uint4* tiles, float* sink, int steps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t skipped = -shared_address(memory) & 1023U;
  uint4* const words = reinterpret_cast<uint4*>(memory + skipped);
  for (uint32_t i = threadIdx.x; i < (BYTES - 1024) / 16; i += THREADS) words[i] = tiles[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint32_t all = shared_address(words);
  const uint64_t a = rows_at(all + threadIdx.x / 128 * 64 * 128), weight = rows_at(all + PARTS * A_BYTES);
  float sums[128];
  for (int step = 0; step < steps; ++step) {
    const uint64_t of_a = advanced(a, step % PARTS * A_BYTES);
    const uint64_t of_weight = advanced(weight, step % PARTS * WEIGHT_BYTES);
    begin_multiply();
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const uint64_t left = advanced(of_a, part * 32), right = advanced(of_weight, part * 32);
      const bool keep = step % DEEP > 0 || part > 0;
      if constexpr (FP8)
        multiply_fp8(sums, left, right, keep);
      else
        multiply<false>(sums, left, right, keep);
    }
    commit_multiply();
    wait_multiply<1>();
  }
  wait_multiply<0>();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += sums[i];
  if (sum == 12345.678f) *sink = sum;
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

// Runs `steps` steps in a block of each SM: 2 * 128 * 256 operations for each element along K, 128 (e4m3) or 64 (bf16) a
// step. `tiles` holds tensor_bytes() of random elements.
extern "C" int64_t tensor_bytes() { return BYTES - 1024; }

extern "C" cudaError_t run_tensor(const void* tiles, void* sink, int fp8, int steps, int blocks, cudaStream_t stream) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  const auto kernel = fp8 ? ceiling_tensor<true> : ceiling_tensor<false>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(BYTES)))
    return status;
  kernel<<<blocks, THREADS, BYTES, stream>>>(static_cast<const uint4*>(tiles), static_cast<float*>(sink), steps);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
