// topk v03_radix: one block per row finds the kth entry by digits of 11 bits, then takes all from it on.
// Shapes   x (N, V) row-major; values, indices (N, k).
// Needs    nothing
// Moves    N * V * sizeof(T) bytes from DRAM; three or four later passes read from L2 or L1.
// Versus   v01: a pass for each digit, not for each of k results. It ends once a digit decides.
// Source   Alabi et al. 2012, "Fast k-selection algorithms for graphics processing units"; PyTorch's topk has digits of
//          2 bits or of 8
#include "check.cuh"
#include "entries.cuh"

#ifndef TOPK_V03_THREADS
#define TOPK_V03_THREADS 1024
#endif

namespace {
constexpr int THREADS = TOPK_V03_THREADS;
constexpr int BITS = 11, DIGITS = 1 << BITS;
}  // namespace

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    topk_v03_radix(const T* __restrict__ x, T* __restrict__ values, int64_t* __restrict__ indices, int columns, int k) {
  __shared__ int counts[DIGITS];
  __shared__ Entry found[TOPK_MOST];
  __shared__ int digit, above, inside, taken;
  const int thread = threadIdx.x;
  const int64_t place = blockIdx.x;
  const Row<T> row(x + place * columns, columns);
  const auto each = [&](auto act) {
#pragma unroll 2
    for (int i = thread; i < row.packets; i += THREADS) {
      const auto part = row.load_any(i);
#pragma unroll
      for (int j = 0; j < Row<T>::WIDTH; ++j)
        if (row.has(row.column(i, j))) act(entry_of(to_float(part.values[j]), row.column(i, j)));
    }
  };
  Entry prefix = 0;  // the digits found so far
  int needed = k, shift = 64;
  do {
    const int before = shift;  // its bits above have the digits found so far
    shift = max(0, shift - BITS);
    const int bits = before - shift;
    for (int i = thread; i < DIGITS; i += THREADS) counts[i] = 0;
    __syncthreads();
    each([&](Entry entry) {
      if (before == 64 || entry >> before == prefix >> before)
        atomicAdd(&counts[static_cast<int>(entry >> shift) & ((1 << bits) - 1)], 1);
    });
    __syncthreads();
    // the digit of the kth: a warp sums from the largest digit on, a lane its DIGITS / 32
    if (thread < 32) {
      constexpr int EACH = DIGITS / 32;
      const int top = DIGITS - 1 - thread * EACH;
      int sum = 0;
      for (int i = 0; i < EACH; ++i) sum += counts[top - i];
      int until = sum;
#pragma unroll
      for (int offset = 1; offset < 32; offset <<= 1) {
        const int other = __shfl_up_sync(0xffffffffu, until, offset);
        if (thread >= offset) until += other;
      }
      if (until >= needed && until - sum < needed) {
        int at = top, larger = until - sum;
        while (larger + counts[at] < needed) larger += counts[at--];
        digit = at, above = larger, inside = counts[at];
      }
      if (thread == 0) taken = 0;
    }
    __syncthreads();
    prefix |= static_cast<Entry>(digit) << shift;
    needed -= above;
  } while (inside > needed && shift > 0);
  each([&](Entry entry) {
    if (entry >= prefix) found[atomicAdd(&taken, 1)] = entry;
  });
  __syncthreads();
  write_ranked<THREADS>(found, k, k, values + place * k, indices + place * k);
}

template <typename T>
static cudaError_t launch(const TopkCall& call) {
  topk_v03_radix<<<static_cast<unsigned>(call.rows), THREADS, 0, call.stream>>>(
      static_cast<const T*>(call.x), static_cast<T*>(call.values), call.indices, call.columns, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t topk_v03_radix(const TopkCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
