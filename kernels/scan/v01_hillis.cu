// scan v01_hillis: every block scans 1024 elements in shared memory, in ten steps that each add the value 2^k places back.
// Shapes   x, out (N,).
// Needs    nothing
// Moves    4 * N * 4 bytes: the elements in and out, and once more in and out for the sum of the chunks before.
// Versus   PyTorch: no look-back. 10 additions an element, where one would do.
// Source   Hillis and Steele 1986, "Data parallel algorithms"
#include "levels.cuh"

namespace {
constexpr int THREADS = scan::CHUNK;
}

__global__ void __launch_bounds__(THREADS)
    scan_v01_hillis(const float* x, float* out, float* totals, int64_t elements) {
  __shared__ float sums[2][THREADS];
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  const int place = threadIdx.x;
  int from = 0;
  sums[0][place] = at < elements ? x[at] : 0.0f;
  for (int distance = 1; distance < THREADS; distance *= 2, from ^= 1) {
    __syncthreads();
    sums[from ^ 1][place] = sums[from][place] + (place >= distance ? sums[from][place - distance] : 0.0f);
  }
  if (at < elements) out[at] = sums[from][place];
  if (place == THREADS - 1) totals[blockIdx.x] = sums[from][place];
}

__global__ void __launch_bounds__(THREADS) scan_v01_add(float* out, const float* totals, int64_t elements) {
  add_before(out, totals, elements);
}

cudaError_t scan_v01_hillis(const ScanCall& call) {
  return scan_levels<void (*)(const float*, float*, float*, int64_t)>(
      scan_v01_hillis, scan_v01_add, THREADS, call.x, call.out, call.workspace, call.elements, call.stream);
}
