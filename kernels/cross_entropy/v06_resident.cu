// cross_entropy v06_resident: every block holds its part of a row in shared memory; three or more blocks share an SM.
// Shapes   logits, gradient (N, V) row-major; target (N,) int64; loss (N,).
// Needs    sm_90 (v03 runs on other GPUs, for a gradient at another place within 16 bytes than its logits, and for rows
//          longer than the shared memory of a cluster)
// Moves    2 * N * V * sizeof(T) bytes: every logit once in, every gradient once out; without a gradient half of it.
// Versus   v05: while the warps of one block wait for the exchange, two other blocks of the SM load and store. Every warp
//          copies its own packets, so no warp waits for another one's. L2 evicts gradients first.
// Source   PTX ISA, "cp.async.bulk", "st.async"; QuACK's cross_entropy.py, whose blocks hold parts of rows as well
#include "bulk_rows.cuh"
#include "overlap.cuh"

cudaError_t cross_entropy_v03_online(const CrossEntropyCall& call);

#ifndef CROSS_ENTROPY_V06_THREADS
#define CROSS_ENTROPY_V06_THREADS 256
#endif

namespace {
constexpr int THREADS = CROSS_ENTROPY_V06_THREADS, WARPS = THREADS / 32;
constexpr int PACKETS = 4;                            // that a thread has in registers at a time
constexpr int STEP = PACKETS * 32, CHUNK = 2 * STEP;  // packets of a warp: at a time, in one copy
constexpr int MOST = 8;                               // blocks of a cluster
constexpr int64_t PART_BYTES = 75 << 10;              // of a row that a block takes at most
[[maybe_unused]] constexpr int CHUNKS = (PART_BYTES / 16 - 1) / (CHUNK * WARPS) + 1;  // of a warp
}  // namespace

// Block `rank` of a cluster has the packets from rank * share on; a warp of it every WARPSth chunk; block 0 the edges too.
template <typename T, bool GRADIENT>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    cross_entropy_v06_resident(const T* logits, const int64_t* target, T* loss, T* gradient, float scale, int columns,
                               int size) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int WIDTH = 16 / sizeof(T);
  using Part = Packet<T, WIDTH>;
  extern __shared__ __align__(128) uint4 row_data[];
  __shared__ float2 parts[MOST * WARPS];
  __shared__ __align__(8) uint64_t full[WARPS][CHUNKS], gathered;
  let_next_start();
  const int rank = blockIdx.x % size, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const uint32_t fulls = shared_address(full) + 8 * CHUNKS * warp, gathers = shared_address(&gathered);
  if (lane == 0)
    for (int chunk = 0; chunk < CHUNKS; ++chunk) init_barrier(fulls + 8 * chunk, 1);
  if (thread == 0) init_barrier(gathers, size > 1 ? 1 : WARPS);
  if (lane == 0) publish_barriers();
  wait_for_previous();
  const int64_t place = blockIdx.x / size;
  const T* row = logits + place * columns;
  const Edges<T> edges(row, columns);
  const int share = (edges.packets - 1) / size + 1, begin = rank * share, count = min(share, edges.packets - begin);
  if (lane == 0)
    for (int chunk = 0; (chunk * WARPS + warp) * CHUNK < count; ++chunk) {
      const int at = (chunk * WARPS + warp) * CHUNK, bytes = min(CHUNK, count - at) * 16;
      expect_bytes(fulls + 8 * chunk, bytes);
      load_bulk(shared_address(row_data + at), row + edges.head + static_cast<int64_t>(begin + at) * WIDTH, bytes,
                fulls + 8 * chunk);
    }
  const int64_t column = target[place];
  __syncwarp();
  if (size > 1)
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  else
    __syncthreads();
  const bool inside = column >= 0 && column < columns, has_edge = rank == 0 && thread < edges.count;
  const bool tells = rank == 0 && thread == 0;
  Wanted wanted = {inside ? static_cast<int>(column) : -1, __int_as_float(0x7fffffff), column == CROSS_ENTROPY_IGNORED};
  T of_column, at_edge;  // converted only behind the row, as they come late
  if (inside) of_column = row[column];
  if (has_edge) at_edge = row[edges.column(thread)];
  if (thread == 0 && size > 1) expect_bytes(gathers, size * WARPS * 8);

  Powers powers;
  // calls `use` with each step of the warp's packets: where they are, and how many are left from there on
  const auto each_step = [&](auto begin_chunk, auto use) {
    for (int chunk = 0; (chunk * WARPS + warp) * CHUNK < count; ++chunk) {
      begin_chunk(chunk);
      for (int at = (chunk * WARPS + warp) * CHUNK, end = min(at + CHUNK, count); at < end; at += STEP)
        use(at + lane, end);
    }
  };
  each_step([&](int chunk) { wait_barrier(fulls + 8 * chunk, 0); },
            [&](int at, int end) {
              if (at - lane + STEP <= end) {
                Part part[PACKETS];
#pragma unroll
                for (int k = 0; k < PACKETS; ++k) part[k].raw = row_data[at + k * 32];
                add_packets(powers, part);
              } else {
                for (int k = at; k < end; k += 32) {
                  Part only[1];
                  only[0].raw = row_data[k];
                  add_packets(powers, only);
                }
              }
            });
  const float edge = has_edge ? to_float(at_edge) : -INFINITY, alone[1] = {edge};
  add(powers, alone);
  if (inside) wanted.logit = to_float(of_column);  // before any block may overwrite it
  powers = merged_in_warp(powers);
  if (size > 1) {  // every block of the cluster runs, so that its shared memory may be written
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  }
  const bool needs = GRADIENT || (rank == 0 && warp == 0);
  float2* const part_of_sum = &parts[rank * WARPS + warp];
  if (size > 1) {
    if (lane < (GRADIENT ? size : 1)) send(shared_address(part_of_sum), gathers, lane, powers);
  } else if (lane == 0) {
    *part_of_sum = {powers.largest, powers.sum};
    arrive(gathers);
  }
  if (needs) {
    wait_barrier(gathers, 0);
    powers = Powers{};
    for (int i = lane; i < size * WARPS; i += 32) powers = merge(powers, {parts[i].x, parts[i].y});
    powers = merged_in_warp(powers);
    if (tells) loss[place] = from_float<T>(wanted.loss(powers));
  }

  if constexpr (GRADIENT) {  // each lane's packets are its own: nothing to wait for
    T* to = gradient + place * columns;
    const float factor = wanted.ignored ? 0.0f : wanted.factor(powers, scale);
    const float shift = wanted.ignored ? 0.0f : powers.largest;
    const auto of = [&](float logit) { return wanted.ignored ? 0.0f : exp_fast(logit - shift) * factor; };
    T* out = to + edges.head + static_cast<int64_t>(begin) * WIDTH;
    each_step([](int) {},
              [&](int at, int end) {
                Part part[PACKETS];
#pragma unroll
                for (int k = 0; k < PACKETS; ++k)
                  if (at + k * 32 < end) part[k].raw = row_data[at + k * 32];
#pragma unroll
                for (int k = 0; k < PACKETS; ++k) {
                  if (at + k * 32 >= end) break;
                  float value[WIDTH];
#pragma unroll
                  for (int j = 0; j < WIDTH; ++j) value[j] = of(to_float(part[k].values[j]));
                  Part::scaled(value, 1.0f).store_streaming(out + (at + k * 32) * WIDTH);
                }
              });
    if (has_edge) to[edges.column(thread)] = from_float<T>(of(edge));
    // the thread that wrote the target's element writes it again
    const int at = wanted.column - edges.head, packet = at < 0 ? -1 : at / WIDTH;
    bool owns = wanted.column >= 0 && packet >= begin && packet < begin + count &&
                (packet - begin) / CHUNK % WARPS == warp && (packet - begin) % 32 == lane;
    if (has_edge && edges.column(thread) == wanted.column) owns = true;
    if (owns) to[wanted.column] = from_float<T>(wanted.gradient(powers, scale));
  }
#endif
}

template <typename T, bool GRADIENT>
static cudaError_t launch_rows(const CrossEntropyCall& call, int size) {
  const auto kernel = cross_entropy_v06_resident<T, GRADIENT>;
  const int64_t packets = call.columns * static_cast<int64_t>(sizeof(T)) / 16;
  const int share = static_cast<int>(packets > 0 ? (packets - 1) / size + 1 : 1);
  const int bytes = share * 16;
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return status;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(call.rows * size));
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = call.stream;
  config.attrs = attributes;
  config.numAttrs = size > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<const T*>(call.logits), call.target,
                            static_cast<T*>(call.loss), static_cast<T*>(call.gradient), call.scale, call.columns, size);
}

template <typename T>
static cudaError_t launch(const CrossEntropyCall& call) {
  const auto apart = reinterpret_cast<uintptr_t>(call.logits) ^ reinterpret_cast<uintptr_t>(call.gradient);
  int multiprocessors = 0;
  if (const cudaError_t status = hopper_multiprocessors(multiprocessors)) return status;
  int size = 1;
  while (size <= MOST && call.columns * static_cast<int64_t>(sizeof(T)) > size * PART_BYTES) size *= 2;
  if (multiprocessors == 0 || (call.gradient && apart % 16) || size > MOST || call.rows * size > INT32_MAX)
    return cross_entropy_v03_online(call);
  return call.gradient ? launch_rows<T, true>(call, size) : launch_rows<T, false>(call, size);
}

cudaError_t cross_entropy_v06_resident(const CrossEntropyCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
