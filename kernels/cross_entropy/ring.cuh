// What v05 is made of: blocks that stay, whose rows come into a ring in shared memory.
#pragma once

#include "bulk_rows.cuh"
#include "overlap.cuh"

namespace {
constexpr int THREADS = 416, PACKETS = 2;  // that compute, one warp more starts the copies; of a thread in a stage
constexpr int CHUNK = PACKETS * THREADS;   // packets of a stage
constexpr int AHEAD = 2;                   // stages that a block has left, at least, beside its part of a row
constexpr int MOST = 4;                    // blocks of a cluster
// of the ring, if so many blocks share an SM
template <int BLOCKS>
constexpr int STAGES_OF = (224 << 10) / (BLOCKS * CHUNK * 16);
}  // namespace

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {
constexpr int WARPS = THREADS / 32;

__device__ __forceinline__ int cluster_size() {
  int size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return size;
}

__device__ __forceinline__ int rank_in_cluster() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void join_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// A cluster has every row that is its number plus a multiple of the clusters; its blocks have a part of the row each.
template <typename T, bool GRADIENT, int BLOCKS>
__device__ __forceinline__ void rows_through_ring(const T* logits, const int64_t* target, T* loss, T* gradient,
                                                  float scale, int rows, int columns) {
  constexpr int STAGES = STAGES_OF<BLOCKS>;
  constexpr int WIDTH = 16 / sizeof(T);
  using Part = Packet<T, WIDTH>;
  extern __shared__ __align__(128) uint4 ring_data[];  // STAGES x CHUNK
  __shared__ float2 parts[2][MOST * WARPS];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES], gathered[2];
  let_next_start();
  const int size = cluster_size(), rank = rank_in_cluster(), thread = threadIdx.x, lane = thread % 32;
  const int clusters = gridDim.x / size, cluster = blockIdx.x / size;
  const uint32_t fulls = shared_address(full), empties = shared_address(empty), gathers = shared_address(gathered);
  if (thread == 0) {
    for (int turn = 0; turn < 2; ++turn) init_barrier(gathers + 8 * turn, size > 1 ? 1 : WARPS);
    init_ring<STAGES>(fulls, empties, WARPS);
  }
  __syncthreads();
  if (size > 1) join_cluster();
  // this block's packets of a row
  const int parts_log2 = __ffs(size) - 1;
  const auto begin_of = [&](int packets) { return min(rank * (((packets - 1) >> parts_log2) + 1), packets); };
  const auto end_of = [&](int packets) { return min((rank + 1) * (((packets - 1) >> parts_log2) + 1), packets); };
  Ring<STAGES> ring;
  wait_for_previous();
  if (thread == THREADS) {
    for (int64_t place = cluster; place < rows; place += clusters) {
      const T* row = logits + place * columns;
      const Edges<T> edges(row, columns);
      const T* body = row + edges.head;
      const int end = end_of(edges.packets);
      for (int packet = begin_of(edges.packets); packet < end; packet += CHUNK, ring.advance()) {
        const uint32_t bytes = min(CHUNK, end - packet) * 16, barrier = fulls + 8 * ring.stage;
        wait_barrier(empties + 8 * ring.stage, ring.phase ^ 1);
        expect_bytes(barrier, bytes);
        load_bulk(shared_address(ring_data + ring.stage * CHUNK), body + static_cast<int64_t>(packet) * WIDTH, bytes,
                  barrier);
      }
    }
  } else if (thread < THREADS) {
    int64_t column = cluster < rows ? target[cluster] : 0;
    uint32_t turn = 0, parity = 0;
    for (int64_t place = cluster; place < rows; place += clusters) {
      const T* row = logits + place * columns;
      const Edges<T> edges(row, columns);
      const bool inside = column >= 0 && column < columns, ignored = column == CROSS_ENTROPY_IGNORED;
      const bool tells = rank == 0 && thread == 0, has_edge = rank == 0 && thread < edges.count;
      Wanted wanted = {inside ? static_cast<int>(column) : -1, __int_as_float(0x7fffffff), ignored};
      T of_column, at_edge;  // converted only behind the row, as they come late
      if (tells && inside) of_column = row[column];
      if (has_edge) at_edge = row[edges.column(thread)];
      if (place + clusters < rows) column = target[place + clusters];
      const int begin = begin_of(edges.packets), end = end_of(edges.packets);
      Ring<STAGES> again = ring;
      if (thread == 0 && size > 1) expect_bytes(gathers + 8 * turn, size * WARPS * 8);

      Powers powers;
      for (int packet = begin; packet < end; packet += CHUNK, ring.advance()) {
        const uint4* data = ring_data + ring.stage * CHUNK + thread;
        wait_barrier(fulls + 8 * ring.stage, ring.phase);
        if (packet + CHUNK <= end) {
          Part part[PACKETS];
#pragma unroll
          for (int k = 0; k < PACKETS; ++k) part[k].raw = data[k * THREADS];
          add_packets(powers, part);
        } else {
#pragma unroll
          for (int k = 0; k < PACKETS; ++k)
            if (packet + k * THREADS + thread < end) {
              Part part[1];
              part[0].raw = data[k * THREADS];
              add_packets(powers, part);
            }
        }
        if (!GRADIENT) {
          __syncwarp();
          if (lane == 0) arrive(empties + 8 * ring.stage);
        }
      }
      const float edge = has_edge ? to_float(at_edge) : -INFINITY, only[1] = {edge};
      add(powers, only);
      if (tells && inside) wanted.logit = to_float(of_column);

      powers = merged_in_warp(powers);
      // a barrier's parts are used again two rows later: by then every warp has waited for the row between, and read them
      float2* const part = &parts[turn][rank * WARPS + thread / 32];
      if (size > 1) {
        if (lane < size) send(shared_address(part), gathers + 8 * turn, lane, powers);
      } else if (lane == 0) {
        *part = {powers.largest, powers.sum};
        arrive(gathers + 8 * turn);
      }
      wait_barrier(gathers + 8 * turn, parity);
      if (GRADIENT || thread < 32) {
        powers = Powers{};
        for (int i = lane; i < size * WARPS; i += 32) powers = merge(powers, {parts[turn][i].x, parts[turn][i].y});
        powers = merged_in_warp(powers);
        if (tells) loss[place] = from_float<T>(wanted.loss(powers));
      }
      parity ^= turn, turn ^= 1;

      if constexpr (GRADIENT) {
        T* to = gradient + place * columns;
        const float factor = wanted.factor(powers, scale);
        const auto of = [&](float logit) { return ignored ? 0.0f : exp_fast(logit - powers.largest) * factor; };
        const int wanted_packet = wanted.column < edges.head ? -1 : (wanted.column - edges.head) / WIDTH;
        const auto of_target = [&](float logit) {
          wanted.logit = logit;
          return from_float<T>(wanted.gradient(powers, scale));
        };
        for (int packet = begin; packet < end; packet += CHUNK, again.advance()) {
          const uint4* data = ring_data + again.stage * CHUNK + thread;
          Part part[PACKETS];
          float logit = 0.0f;
#pragma unroll
          for (int k = 0; k < PACKETS; ++k) {
            part[k].raw = data[k * THREADS];
            if (packet + k * THREADS + thread == wanted_packet)
              logit = to_float(reinterpret_cast<const T*>(data + k * THREADS)[(wanted.column - edges.head) % WIDTH]);
          }
          __syncwarp();
          if (lane == 0) arrive(empties + 8 * again.stage);
#pragma unroll
          for (int k = 0; k < PACKETS; ++k) {
            const int at = packet + k * THREADS + thread;
            if (at >= end) break;
            float value[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) value[j] = of(to_float(part[k].values[j]));
            Part::scaled(value, 1.0f).store(to + edges.head + static_cast<int64_t>(at) * WIDTH);
            if (at == wanted_packet) to[wanted.column] = of_target(logit);
          }
        }
        if (has_edge) {
          const int at = edges.column(thread);
          to[at] = at == wanted.column ? of_target(edge) : from_float<T>(of(edge));
        }
      }
    }
  }
  __syncwarp();
  if (size > 1) join_cluster();  // a block that has ended takes no powers
}
}  // namespace
#endif

// The blocks of a cluster for a row of so many bytes in rings of STAGES; 0 if none has room for it.
inline int blocks_for_row(int64_t bytes, int stages) {
  for (int size = 1; size <= MOST; size *= 2)
    if (bytes / 16 / size / CHUNK + 1 + AHEAD <= stages) return size;
  return 0;
}

// Launches a kernel that calls rows_through_ring, with clusters of `size` blocks: as many as the GPU holds at once.
template <int BLOCKS, typename T>
inline cudaError_t launch_rings(void (*kernel)(const T*, const int64_t*, T*, T*, float, int, int),
                                const CrossEntropyCall& call, int multiprocessors, int size) {
  constexpr uint32_t BYTES = STAGES_OF<BLOCKS> * CHUNK * 16;
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES))
    return status;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(BLOCKS * multiprocessors / size * size));
  config.blockDim = dim3(THREADS + 32);
  config.dynamicSmemBytes = BYTES;
  config.stream = call.stream;
  config.attrs = attributes;
  config.numAttrs = size > 1 ? 2 : 1;
  if (size > 1) {  // the parts of a GPU may not hold all of them
    int clusters = 0;
    if (const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config)) return status;
    config.gridDim.x = static_cast<unsigned>(clusters * size);
  }
  if (call.rows * size < config.gridDim.x) config.gridDim.x = static_cast<unsigned>(call.rows * size);
  return cudaLaunchKernelEx(&config, kernel, static_cast<const T*>(call.logits), call.target,
                            static_cast<T*>(call.loss), static_cast<T*>(call.gradient), call.scale,
                            static_cast<int>(call.rows), call.columns);
}
