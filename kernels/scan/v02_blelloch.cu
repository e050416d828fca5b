// scan v02_blelloch: a tree of sums in shared memory, up and down again: 2 additions an element instead of 10.
// Shapes   x, out (N,).
// Needs    nothing
// Moves    4 * N * 4 bytes, as v01.
// Versus   v01: fewer additions, but 20 steps with a barrier each, in which ever fewer threads work.
// Source   Blelloch 1990, CMU-CS-90-190; the padding against bank conflicts: Harris, Sengupta and Owens, GPU Gems 3, ch. 39
#include "levels.cuh"

namespace {
constexpr int WIDTH = scan::CHUNK;
constexpr int THREADS = WIDTH / 2;
__device__ __forceinline__ int padded(int place) { return place + place / 32; }
}  // namespace

__global__ void __launch_bounds__(THREADS)
    scan_v02_blelloch(const float* x, float* out, float* totals, int64_t elements) {
  __shared__ float sums[WIDTH + WIDTH / 32];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * WIDTH;
  float own[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = threadIdx.x + half * THREADS;
    own[half] = start + place < elements ? x[start + place] : 0.0f;
    sums[padded(place)] = own[half];
  }
  for (int distance = 1; distance < WIDTH; distance *= 2) {  // up: the last place of every pair holds its sum
    __syncthreads();
    if (threadIdx.x < WIDTH / (2 * distance)) {
      const int right = 2 * distance * (threadIdx.x + 1) - 1;
      sums[padded(right)] += sums[padded(right - distance)];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    totals[blockIdx.x] = sums[padded(WIDTH - 1)];
    sums[padded(WIDTH - 1)] = 0.0f;
  }
  for (int distance = WIDTH / 2; distance > 0; distance /= 2) {  // down: every place gets the sum of those before it
    __syncthreads();
    if (threadIdx.x < WIDTH / (2 * distance)) {
      const int right = 2 * distance * (threadIdx.x + 1) - 1;
      const float left = sums[padded(right - distance)];
      sums[padded(right - distance)] = sums[padded(right)];
      sums[padded(right)] += left;
    }
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = threadIdx.x + half * THREADS;
    if (start + place < elements) out[start + place] = sums[padded(place)] + own[half];
  }
}

__global__ void __launch_bounds__(THREADS) scan_v02_add(float* out, const float* totals, int64_t elements) {
  add_before(out, totals, elements);
}

cudaError_t scan_v02_blelloch(const ScanCall& call) {
  return scan_levels<void (*)(const float*, float*, float*, int64_t)>(
      scan_v02_blelloch, scan_v02_add, THREADS, call.x, call.out, call.workspace, call.elements, call.stream);
}
