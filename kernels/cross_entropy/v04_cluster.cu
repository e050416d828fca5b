// cross_entropy v04_cluster: loss and gradient with the row in the registers of a cluster's blocks, read once.
// Shapes   logits, gradient (N, V) row-major; target (N,) int64; loss (N,).
// Needs    sm_90 (v03 runs on other GPUs, without a gradient, and for rows longer than a cluster's registers)
// Moves    2 * N * V * sizeof(T) bytes: every logit once from DRAM, every gradient once out.
// Versus   v03: no second read. The blocks of a row exchange their maxima and sums through distributed shared memory.
//          Meanwhile the L2 fetches the row that the cluster's place gets next.
// Source   CUDA C++ Programming Guide, "Distributed Shared Memory"; QuACK's cluster reductions
#include <cooperative_groups.h>

#include "check.cuh"
#include "online.cuh"
#include "overlap.cuh"

cudaError_t cross_entropy_v03_online(const CrossEntropyCall& call);

#ifndef CROSS_ENTROPY_V04_THREADS
#define CROSS_ENTROPY_V04_THREADS 512
#endif
#ifndef CROSS_ENTROPY_V04_AHEAD
#define CROSS_ENTROPY_V04_AHEAD 1
#endif

namespace {
constexpr int THREADS = CROSS_ENTROPY_V04_THREADS;
constexpr int AHEAD = CROSS_ENTROPY_V04_AHEAD;  // rows of the whole GPU by which the prefetch into L2 is ahead
constexpr int BLOCKS = 1024 / THREADS;          // per SM
constexpr int MOST = 8, MOST_PACKETS = 8;       // blocks of a cluster, packets of a thread
}  // namespace

// Block `rank` of a cluster has the packets from rank * COUNT * THREADS on; the last one has the edges, too.
template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    cross_entropy_v04_cluster(const T* logits, const int64_t* target, T* loss, T* gradient, float scale, int rows,
                              int columns, int ahead) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int WIDTH = 16 / sizeof(T);
  using Part = Packet<T, WIDTH>;
  __shared__ Powers found[MOST];
  let_next_start();
  auto cluster = cooperative_groups::this_cluster();
  const int size = cluster.num_blocks(), rank = cluster.block_rank(), thread = threadIdx.x;
  if (size > 1) cluster.barrier_arrive();
  const int place = blockIdx.x / size;
  const T* row = logits + static_cast<int64_t>(place) * columns;
  const Edges<T> edges(row, columns);
  const T* body = row + edges.head;
  const int begin = rank * COUNT * THREADS + thread;
  const bool has_edge = rank == size - 1 && thread < edges.count;

  wait_for_previous();
  Part part[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
    if (begin + k * THREADS < edges.packets) part[k] = Part::load(body + (begin + k * THREADS) * WIDTH);
  const float edge = has_edge ? to_float(row[edges.column(thread)]) : -INFINITY;
  const Wanted wanted = Wanted::load(target + place, row, columns);
  if (AHEAD > 0 && thread < 32 && ahead < rows - place) {  // this block's part, in pieces of a warp
    const T* later = row + static_cast<int64_t>(ahead) * columns;
    const Edges<T> of_later(later, columns);
    constexpr int PIECE = COUNT * THREADS / 32;
    const int from = rank * COUNT * THREADS + thread * PIECE, most = min(PIECE, of_later.packets - from);
    if (most > 0) prefetch_l2(later + of_later.head + from * WIDTH, most * 16u);
  }

  Powers powers;
  const float only[1] = {edge};
  add(powers, only);
#pragma unroll
  for (int k = 0; k < COUNT; ++k)
    if (begin + k * THREADS < edges.packets) {
      float value[WIDTH];
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) value[j] = to_float(part[k].values[j]);
      add(powers, value);
    }
  powers = merged_in_block<THREADS>(powers);
  if (size > 1) {
    cluster.barrier_wait();  // every block runs, so that its shared memory may be written
    if (thread < size) *cluster.map_shared_rank(found + rank, thread) = powers;
    cluster.sync();  // and every block has read the target's logit
    powers = found[0];
    for (int other = 1; other < size; ++other) powers = merge(powers, found[other]);
  }
  if (rank == 0 && thread == 0) loss[place] = from_float<T>(wanted.loss(powers));

  T* to = gradient + static_cast<int64_t>(place) * columns;
  const float factor = wanted.factor(powers, scale);
  const auto of = [&](float logit) { return wanted.ignored ? 0.0f : exp_fast(logit - powers.largest) * factor; };
  const int wanted_packet = wanted.column < edges.head ? -1 : (wanted.column - edges.head) / WIDTH;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int packet = begin + k * THREADS;
    if (packet >= edges.packets) break;
    float value[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value[j] = of(to_float(part[k].values[j]));
    Part::scaled(value, 1.0f).store(to + edges.head + packet * WIDTH);
    if (packet == wanted_packet) to[wanted.column] = from_float<T>(wanted.gradient(powers, scale));
  }
  if (has_edge) {
    const int column = edges.column(thread);
    to[column] = from_float<T>(column == wanted.column ? wanted.gradient(powers, scale) : of(edge));
  }
#endif
}

template <typename T, int COUNT>
static cudaError_t launch_rows(const CrossEntropyCall& call, int size) {
  const auto kernel = cross_entropy_v04_cluster<T, COUNT>;
  static const bool waits = compiled_to_wait(kernel);
  if (!waits) return cross_entropy_v03_online(call);
  int device = 0, multiprocessors = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return status;
  const int rows = static_cast<int>(call.rows), ahead = AHEAD * BLOCKS * multiprocessors / size;
  const cudaError_t status = launch_overlapped(
      kernel, waits, Grid{rows * size, THREADS, size}, call.stream, static_cast<const T*>(call.logits), call.target,
      static_cast<T*>(call.loss), static_cast<T*>(call.gradient), call.scale, rows, call.columns, ahead);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const CrossEntropyCall& call) {
  const auto apart = reinterpret_cast<uintptr_t>(call.logits) ^ reinterpret_cast<uintptr_t>(call.gradient);
  const int packets = static_cast<int>(call.columns * sizeof(T) / 16);
  if (!call.gradient || apart % 16 || packets > MOST * MOST_PACKETS * THREADS || call.rows > (1 << 24))
    return cross_entropy_v03_online(call);
  int size = 1;
  while (packets > size * MOST_PACKETS * THREADS) size *= 2;
  const int count = (packets - 1) / (size * THREADS) + 1;
  if (count <= 1) return launch_rows<T, 1>(call, size);
  if (count <= 2) return launch_rows<T, 2>(call, size);
  if (count <= 4) return launch_rows<T, 4>(call, size);
  if (count <= 5) return launch_rows<T, 5>(call, size);
  if (count <= 7) return launch_rows<T, 7>(call, size);
  return launch_rows<T, 8>(call, size);
}

cudaError_t cross_entropy_v04_cluster(const CrossEntropyCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
