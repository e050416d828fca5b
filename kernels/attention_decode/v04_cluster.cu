// attention_decode v04_cluster: the blocks of a head form a cluster and send their results to its first block's memory.
// Shapes   q (B, nh, 1, 64), k, v (B, nh, Tk, 64) with any strides of batch, head and token, out (B, nh, 1, 64).
// Needs    sm_90; v03 runs on other GPUs
// Moves    2 * B*nh * (Tk + 1) * 64 * sizeof(T) bytes: every key and value once, nothing else.
// Versus   v03: one launch, no workspace. With few heads, blocks prefetch the first keys and values into L2 before they
//          wait for the previous kernel. A prefetch is a hint: no value is read before that kernel has ended.
// Source   CUDA C++ Programming Guide, "Distributed Shared Memory"; PTX ISA, st.async
#include <cooperative_groups.h>

#include <cstddef>
#include <utility>

#include "check.cuh"
#include "decode.cuh"
#include "overlap.cuh"
#include "splits.cuh"

cudaError_t attention_decode_v03_split(const AttentionDecodeCall& call);  // runs where this rung cannot

#ifndef ATTENTION_DECODE_V04_WARPS
#define ATTENTION_DECODE_V04_WARPS 8
#endif
#ifndef ATTENTION_DECODE_V04_EARLY_MB
#define ATTENTION_DECODE_V04_EARLY_MB 6
#endif

namespace {
constexpr int WARPS = ATTENTION_DECODE_V04_WARPS;
constexpr int MOST = 16;         // blocks of a cluster, at most
constexpr int ALONE_KEYS = 128;  // up to so many keys, a head has one block
constexpr int LEAST_KEYS = 64;   // a block with no more keys is not halved
constexpr int EARLY_BYTES = ATTENTION_DECODE_V04_EARLY_MB
                            << 20;  // what all blocks together prefetch into L2 before they wait

// Heads are FEW if two blocks each do not fill the GPU. With many heads an SM has room for three blocks, so that blocks
// of the next launch start beside this launch's. With few heads it has room for two: the GPU packs a cluster into as
// few SMs as it can, and three blocks per SM would leave other SMs empty.
template <bool FEW>
constexpr int BLOCKS = FEW ? 2 : 3;
template <typename T, bool FEW>
constexpr int UNROLL = FEW && sizeof(T) == 4 ? 8 : 4;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// The same address in the shared memory of the cluster's first block.
__device__ __forceinline__ uint32_t in_first_block(uint32_t address) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(address));
  return there;
}

// A barrier that opens once the expected bytes have arrived.
__device__ __forceinline__ void init_barrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_for_bytes(uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra AGAIN;\n"
      "}\n" ::"r"(barrier)
      : "memory");
}

// Sends a value to another block's shared memory; that block's barrier counts the bytes as they arrive.
__device__ __forceinline__ void send(uint32_t to, float value, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
               "r"(__float_as_uint(value)), "r"(barrier)
               : "memory");
}
#endif
}  // namespace

template <typename T, Layout LAYOUT, bool FEW>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS<FEW>)
    attention_decode_v04_cluster(Operands<T> in, T* out, int splits, int keys_of_split, int early_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ Result found[MOST];
  __shared__ uint64_t arrived;
  let_next_start();
  const int row = blockIdx.x / splits, begin = blockIdx.x % splits * keys_of_split;
  const int end = min(in.keys, begin + keys_of_split);
  auto cluster = cooperative_groups::this_cluster();
  const uint32_t barrier = shared_address(&arrived), place = shared_address(found + cluster.block_rank());
  const bool first = threadIdx.x == 0 && cluster.block_rank() == 0;
  if (first) init_barrier(barrier);
  __syncthreads();  // for racecheck, which reports the next line as a race of the first thread with itself
  if (first) expect_bytes(barrier, splits * sizeof(Result));
  auto started = cluster.barrier_arrive();
  const Head<T, LAYOUT> head(in, row);
  if constexpr (FEW) prefetch_first(head, begin, end, early_bytes);
  wait_for_previous();
  Partial<1> merged = walk_by_block<WARPS, UNROLL<T, FEW>>(head, begin, end);
  cluster.barrier_wait(std::move(started));  // the first block runs, and its barrier is initialised
  if (splits > 1) {
    const uint32_t to = in_first_block(place), to_barrier = in_first_block(barrier);
    if (threadIdx.x < HEAD_SIZE) send(to + threadIdx.x * sizeof(float), merged.value[0], to_barrier);
    if (threadIdx.x == 0) {
      send(to + offsetof(Result, largest), merged.largest, to_barrier);
      send(to + offsetof(Result, sum), merged.sum, to_barrier);
    }
    if (cluster.block_rank() != 0 || threadIdx.x >= HEAD_SIZE) return;
    wait_for_bytes(barrier);
    merged = merge_column<MOST>(found, splits, threadIdx.x);
  }
  if (threadIdx.x < HEAD_SIZE)
    out[static_cast<int64_t>(row) * HEAD_SIZE + threadIdx.x] = from_float<T>(merged.value[0] / merged.sum);
#endif
}

template <typename T, Layout LAYOUT, bool FEW>
static cudaError_t launch(const AttentionDecodeCall& call, int splits) {
  const auto kernel = attention_decode_v04_cluster<T, LAYOUT, FEW>;
  static const bool waits = compiled_to_wait(kernel);
  if (!waits) return attention_decode_v03_split(call);
  static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (allowed != cudaSuccess) return allowed;
  const int blocks = call.batch * call.heads * splits;
  const cudaError_t status = launch_overlapped(kernel, waits, Grid{blocks, 32 * WARPS, splits}, call.stream,
                                               operands<T>(call), static_cast<T*>(call.out), splits,
                                               (call.keys - 1) / splits + 1, EARLY_BYTES / (2 * blocks) / 16 * 16);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

cudaError_t attention_decode_v04_cluster(const AttentionDecodeCall& call) {
  int multiprocessors = 0;
  if (const cudaError_t failed = count_multiprocessors(multiprocessors)) return failed;
  const int rows = call.batch * call.heads;
  int splits = 1;
  if (call.keys > ALONE_KEYS)
    while (splits < MOST && splits * rows < multiprocessors && splits * LEAST_KEYS < call.keys) splits *= 2;
  const bool few = 2 * rows < multiprocessors;
  return with_kind(call, [&](auto kind) {
    using K = decltype(kind);
    return few ? launch<typename K::Type, K::layout, true>(call, splits)
               : launch<typename K::Type, K::layout, false>(call, splits);
  });
}
