// A scan in levels: every block scans a chunk and keeps its total, the totals are scanned in the same way, and each
// chunk adds the sum of those before it.
#pragma once

#include "check.cuh"
#include "scan.h"

// out[i] += totals[chunk before i]; totals are scanned. One block a chunk, from the second on.
__device__ __forceinline__ void add_before(float* out, const float* totals, int64_t elements) {
  const int64_t chunk = blockIdx.x + 1;
  const float before = totals[chunk - 1];
  for (int64_t at = chunk * scan::CHUNK + threadIdx.x; at < elements && at < (chunk + 1) * scan::CHUNK;
       at += blockDim.x)
    out[at] += before;
}

// SCAN<<<chunks, threads>>>(x, out, totals, elements) and ADD<<<chunks - 1, threads>>>(out, totals, elements).
template <typename Scan, typename Add>
static cudaError_t scan_levels(Scan scan_chunk, Add add_totals, int threads, const float* x, float* out, float* totals,
                               int64_t elements, cudaStream_t stream) {
  const int64_t blocks = scan::chunks(elements);
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  scan_chunk<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(x, out, totals, elements);
  RETURN_IF_LAUNCH_FAILED();
  if (blocks == 1) return cudaSuccess;
  const cudaError_t status =
      scan_levels(scan_chunk, add_totals, threads, totals, totals, totals + blocks, blocks, stream);
  if (status != cudaSuccess) return status;
  add_totals<<<static_cast<unsigned>(blocks - 1), threads, 0, stream>>>(out, totals, elements);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
