// Launchers of the micro-kernels that measure a GPU's roofs, without torch. ceilings/__init__.py calls them through
// ctypes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Each block of read_l1 reads its own L1_BYTES_PER_BLOCK. Two blocks per SM fit into the L1 of every supported GPU.
constexpr int L1_BYTES_PER_BLOCK = 32 << 10;
// run_ffma does 2 * FFMA_PER_STEP * steps floating-point operations in each of blocks * 256 threads.
constexpr int FFMA_PER_STEP = 64;

extern "C" {
int l1_bytes_per_block();
int ffma_per_step();
// A kernel writes `sink` (16 bytes) only if its result has one unlikely value, so the compiler must keep the work.
cudaError_t copy_known_bytes(const void* from, void* to, int64_t bytes, cudaStream_t stream);
cudaError_t read_dram(const void* from, void* sink, int64_t bytes, cudaStream_t stream);
cudaError_t read_l2(const void* from, void* sink, int64_t bytes, int passes, int blocks, cudaStream_t stream);
cudaError_t read_l1(const void* from, void* sink, int passes, int blocks, cudaStream_t stream);
cudaError_t run_ffma(void* sink, float multiplier, float addend, int steps, int blocks, cudaStream_t stream);
}
