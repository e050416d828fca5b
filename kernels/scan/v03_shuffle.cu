// scan v03_shuffle: one launch sums every tile, one block scans the sums, one launch scans; warps exchange by shuffles.
// Shapes   x, out (N,).
// Needs    nothing (16-byte packets if x and out are aligned)
// Moves    3 * N * 4 bytes: every element in twice, out once.
// Versus   v02: no shared memory but for a sum a warp, two barriers instead of 20, and 3 passes over memory instead of 4.
// Source   reduce, then scan: Sengupta, Harris and Garland 2008, NVR-2008-003
#include "check.cuh"
#include "scan.h"
#include "tile.cuh"

#ifndef SCAN_V03_THREADS
#define SCAN_V03_THREADS 256
#endif
#ifndef SCAN_V03_PACKETS
#define SCAN_V03_PACKETS 4
#endif

namespace {
constexpr int THREADS = SCAN_V03_THREADS;
using Part = Tile<THREADS, SCAN_V03_PACKETS>;
static_assert(Part::SIZE >= scan::CHUNK, "the workspace holds a sum a chunk");
}  // namespace

__global__ void __launch_bounds__(THREADS) scan_v03_sums(const float* x, float* sums, int64_t elements) {
  __shared__ float of_warp[Part::WARPS];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * Part::SIZE;
  Part part;
  part.load(x + start, elements - start, aligned(x, nullptr));
  float sum = 0.0f;
#pragma unroll
  for (auto& packet : part.value)
    for (float value : packet) sum += value;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  float total;
  scan_lanes(threadIdx.x < Part::WARPS ? of_warp[threadIdx.x] : 0.0f, total);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// sums[i] becomes the sum of those before it; one block.
__global__ void __launch_bounds__(1024) scan_v03_before(float* sums, int64_t count) {
  __shared__ float of_warp[32], done;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) done = 0.0f;
  for (int64_t start = 0; start < count; start += 1024) {
    const int64_t at = start + threadIdx.x;
    float total, all;
    float before = scan_lanes(at < count ? sums[at] : 0.0f, total);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[warp] = total;
    __syncthreads();
    const float warps = scan_lanes(of_warp[threadIdx.x % 32], all);
    before += done + __shfl_sync(0xffffffffu, warps, warp);
    if (at < count) sums[at] = before;
    __syncthreads();
    if (threadIdx.x == 0) done += all;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(THREADS)
    scan_v03_shuffle(const float* x, const float* before, float* out, int64_t elements) {
  __shared__ float of_warp[Part::WARPS];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * Part::SIZE;
  const bool wide = aligned(x, out);
  Part part;
  part.load(x + start, elements - start, wide);
  const float total = part.scan_warp();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = total;
  __syncthreads();
  part.store(out + start, Part::with_warps_before(before[blockIdx.x], of_warp), elements - start, wide);
}

cudaError_t scan_v03_shuffle(const ScanCall& call) {
  const int64_t tiles = (call.elements - 1) / Part::SIZE + 1;
  if (tiles > 0x7fffffff) return cudaErrorInvalidConfiguration;
  const unsigned blocks = static_cast<unsigned>(tiles);
  scan_v03_sums<<<blocks, THREADS, 0, call.stream>>>(call.x, call.workspace, call.elements);
  RETURN_IF_LAUNCH_FAILED();
  scan_v03_before<<<1, 1024, 0, call.stream>>>(call.workspace, tiles);
  RETURN_IF_LAUNCH_FAILED();
  scan_v03_shuffle<<<blocks, THREADS, 0, call.stream>>>(call.x, call.workspace, call.out, call.elements);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
