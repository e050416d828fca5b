// topk v04_cluster: a row in the registers of a cluster's blocks; maxima of parts bound the kth value from below.
// Shapes   x (N, V) row-major; values, indices (N, k).
// Needs    sm_90, k of 256 or less, rows that fit into a cluster's registers (163,832 values in fp32); otherwise v03 runs
// Moves    N * V * sizeof(T) bytes, once.
// Versus   v03: one read of a row, by up to eight blocks. The kth largest of the maxima of 512 parts is at most the kth
//          value, so only what reaches it, little more than k values, is ordered. If more than 1024 values reach it (ties, as
//          in rows of -inf), the blocks find the kth entry bit by bit, with a barrier of the cluster for each bit.
// Source   CUDA C++ Programming Guide, "Distributed Shared Memory"; thresholds from maxima as in FAISS's and RAFT's
//          selections
#include <cooperative_groups.h>

#include "check.cuh"
#include "entries.cuh"
#include "overlap.cuh"

cudaError_t topk_v03_radix(const TopkCall& call);

#ifndef TOPK_V04_CAPACITY
#define TOPK_V04_CAPACITY 1024
#endif

namespace {
constexpr int THREADS = 512, BLOCKS = 2;           // per SM
constexpr int MOST_BLOCKS = 8, MOST_PACKETS = 10;  // blocks of a cluster, packets of a thread
constexpr int MOST_K = 256;
}  // namespace

__device__ __forceinline__ float max_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a;
#endif
}

// Block `rank` of a cluster has the packets from rank * COUNT * THREADS on.
template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    topk_v04_cluster(const T* x, T* values, int64_t* indices, int columns, int k) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int WIDTH = Row<T>::WIDTH;
  __shared__ uint32_t maxima[THREADS];
  constexpr int CAPACITY = TOPK_V04_CAPACITY;
  __shared__ Entry found[CAPACITY];
  __shared__ int reached, counts[64];
  __shared__ float bound;
  const int thread = threadIdx.x;
  if (thread < 64) counts[thread] = 0;
  if (thread == 0) reached = 0;
  let_next_start();
  auto cluster = cooperative_groups::this_cluster();
  const int size = cluster.num_blocks(), rank = cluster.block_rank();
  const int64_t place = blockIdx.x / size;
  cluster.barrier_arrive();
  const Row<T> row(x + place * columns, columns);
  const int begin = rank * COUNT * THREADS + thread;
  wait_for_previous();
  Packet<T, WIDTH> part[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    part[i] = Row<T>::nothing();
    if (row.whole(begin + i * THREADS)) part[i] = row.load(begin + i * THREADS);
  }

  // the maxima of parts of `size` threads, in every block
  float most[COUNT], largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    if (row.cut(begin + i * THREADS)) part[i] = row.load_cut(begin + i * THREADS);
    most[i] = to_float(part[i].values[0]);
#pragma unroll
    for (int j = 1; j < WIDTH; ++j) most[i] = max_or_nan(most[i], to_float(part[i].values[j]));
    largest = max_or_nan(largest, most[i]);
  }
  for (int offset = 1; offset < size; offset <<= 1)
    largest = max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  cluster.barrier_wait();  // every block runs, so that its shared memory may be written
  cluster.map_shared_rank(maxima, thread % size)[(rank * THREADS + thread) / size] = key_of(largest);
  cluster.sync();
  if (thread < 32) {
    uint32_t own[THREADS / 32], least = 0;
#pragma unroll
    for (int i = 0; i < THREADS / 32; ++i) own[i] = maxima[i * 32 + thread];
    for (int bit = 31; bit >= 16; --bit) {  // without its lower half the kth largest is less, which does no harm
      const uint32_t tried = least | 1u << bit;
      unsigned reach = 0;
#pragma unroll
      for (int i = 0; i < THREADS / 32; ++i) reach += own[i] >= tried;
      if (__reduce_add_sync(0xffffffffu, reach) >= k) least = tried;
    }
    if (thread == 0) bound = value_of(least);
  }
  __syncthreads();

  // what reaches the bound (if that is NaN, all does) goes to the first block
  Entry* const target = cluster.map_shared_rank(found, 0);
  int* const total = cluster.map_shared_rank(&reached, 0);
  const auto of_packet = [&](int i, auto act) {  // from L1 or L2: few packets have such values
    const Packet<T, WIDTH> again = row.load_any(begin + i * THREADS);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const int column = row.column(begin + i * THREADS, j);
      if (row.has(column)) act(to_float(again.values[j]), column);
    }
  };
  const float least = bound;
  unsigned packets = 0;
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if (!(most[i] < least)) packets |= 1u << i;
  for (; packets; packets &= packets - 1)
    of_packet(__ffs(packets) - 1, [&](float value, int column) {
      if (value < least) return;
      const int slot = atomicAdd(total, 1);
      if (slot < CAPACITY) target[slot] = entry_of(value, column);
    });
  cluster.sync();
  int count = *total;
  if (count > CAPACITY) {
    Entry kth = 0;
    for (int bit = 63; bit >= 0; --bit) {
      const Entry tried = kth | 1ull << bit;
      unsigned reach = 0;
#pragma unroll 1
      for (int i = 0; i < COUNT; ++i)
        of_packet(i, [&](float value, int column) { reach += entry_of(value, column) >= tried; });
      reach = __reduce_add_sync(0xffffffffu, reach);
      int* const sum = cluster.map_shared_rank(counts + bit, 0);
      if (thread % 32 == 0) atomicAdd(sum, static_cast<int>(reach));
      cluster.sync();
      count = *sum;
      if (count >= k) kth = tried;
      if (count == k) break;
    }
    if (rank == 0 && thread == 0) reached = 0;
    cluster.sync();
#pragma unroll 1
    for (int i = 0; i < COUNT; ++i)
      of_packet(i, [&](float value, int column) {
        const Entry entry = entry_of(value, column);
        if (entry >= kth) target[atomicAdd(total, 1)] = entry;
      });
    cluster.sync();
    count = k;
  }
  if (rank == 0) {
    write_ranked<THREADS>(found, count, k, values + place * k, indices + place * k);
    cluster.sync();  // until no other block reads this one's shared memory; one that has ended does not
  }
#endif
}

template <typename T, int COUNT>
static cudaError_t launch_rows(const TopkCall& call, int size) {
  const auto kernel = topk_v04_cluster<T, COUNT>;
  static const bool waits = compiled_to_wait(kernel);
  if (!waits) return topk_v03_radix(call);
  const cudaError_t status = launch_overlapped(kernel, waits, Grid{static_cast<int>(call.rows) * size, THREADS, size},
                                               call.stream, static_cast<const T*>(call.x), static_cast<T*>(call.values),
                                               call.indices, call.columns, call.k);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const TopkCall& call) {
  const int packets = (call.columns - 1) / Row<T>::WIDTH + 2;  // of a row that begins and ends inside of packets
  if (call.k > MOST_K || packets > MOST_BLOCKS * MOST_PACKETS * THREADS || call.rows > (1 << 24))
    return topk_v03_radix(call);
  int device = 0, multiprocessors = 0, size = 1;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return status;
  while (packets > size * MOST_PACKETS * THREADS ||
         (size < MOST_BLOCKS && 2 * size * call.rows <= BLOCKS * multiprocessors))
    size *= 2;
  const int count = (packets - 1) / (size * THREADS) + 1;
  if (count <= 1) return launch_rows<T, 1>(call, size);
  if (count <= 2) return launch_rows<T, 2>(call, size);
  if (count <= 4) return launch_rows<T, 4>(call, size);
  if (count <= 5) return launch_rows<T, 5>(call, size);
  if (count <= 8) return launch_rows<T, 8>(call, size);
  return launch_rows<T, 10>(call, size);
}

cudaError_t topk_v04_cluster(const TopkCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
