// attention_decode v04_cluster: the blocks that share a head form a cluster and merge through distributed shared memory.
// Shapes   q (B, nh, 1, 64), k, v (B, nh, Tk, 64) with any strides of batch, head and token, out (B, nh, 1, 64).
// Needs    sm_90; elsewhere v03 runs
// Moves    2 * B*nh * (Tk + 1) * 64 * sizeof(T) bytes: every key and value once, nothing else.
// Versus   v03: one launch, no workspace. The first keys and values are prefetched into L2 before the wait for the
//          kernel before: a hint, no value is read before that kernel has ended.
// Expect   at B 1, Tk 1024 at most 0.6 of v03's time; at B 8, Tk 8192 within 3 % of it.
// Refuted if   above either.
// Source   CUDA C++ Programming Guide, "Distributed Shared Memory"
#include <cooperative_groups.h>

#include <utility>

#include "check.cuh"
#include "decode.cuh"
#include "overlap.cuh"
#include "splits.cuh"

namespace {
constexpr int WARPS = 8, UNROLL = 4;
constexpr int BLOCKS = 3;              // that a multiprocessor shall hold: two launches side by side
constexpr int MOST = 16;               // blocks of a cluster
constexpr int LEAST_KEYS = 128;        // of a block, before a head is split once more
constexpr int EARLY_BYTES = 64 << 10;  // of the keys, and of the values, that a block asks L2 for before it waits
}  // namespace

template <typename T, Layout LAYOUT>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    attention_decode_v04_cluster(Operands<T> in, T* out, int splits, int keys_of_split) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ Result found[MOST];
  let_next_start();
  const int row = blockIdx.x / splits, begin = blockIdx.x % splits * keys_of_split;
  const int end = min(in.keys, begin + keys_of_split);
  auto cluster = cooperative_groups::this_cluster();
  auto started = cluster.barrier_arrive();
  const Head<T, LAYOUT> head(in, row);
  prefetch_first(head, begin, end, EARLY_BYTES);
  wait_for_previous();
  const Partial<1> part = walk_by_block<WARPS, UNROLL>(head, begin, end);
  cluster.barrier_wait(std::move(started));  // all blocks of the cluster are there, so is the first one's memory
  if (threadIdx.x < HEAD_SIZE) {
    Result& to = cluster.map_shared_rank(found, 0)[cluster.block_rank()];
    to.value[threadIdx.x] = part.value[0];
    if (threadIdx.x == 0) {
      to.largest = part.largest;
      to.sum = part.sum;
    }
  }
  cluster.sync();
  if (cluster.block_rank() != 0 || threadIdx.x >= HEAD_SIZE) return;
  const Partial<1> merged = merge_column<MOST>(found, splits, threadIdx.x);
  out[static_cast<int64_t>(row) * HEAD_SIZE + threadIdx.x] = from_float<T>(merged.value[0] / merged.sum);
#endif
}

cudaError_t attention_decode_v04_cluster(const AttentionDecodeCall& call) {
  int multiprocessors = 0;
  if (const cudaError_t failed = count_multiprocessors(multiprocessors)) return failed;
  const int rows = call.batch * call.heads;
  int splits = 1;
  while (splits < MOST && splits * rows < multiprocessors && splits * LEAST_KEYS < call.keys) splits *= 2;
  return with_kind(call, [&](auto kind) {
    using K = decltype(kind);
    using T = typename K::Type;
    const auto kernel = attention_decode_v04_cluster<T, K::layout>;
    static const bool waits = compiled_to_wait(kernel);
    if (!waits) return attention_decode_v03_split(call);
    static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (allowed != cudaSuccess) return allowed;
    const cudaError_t status =
        launch_overlapped(kernel, waits, Grid{rows * splits, 32 * WARPS, splits}, call.stream, operands<T>(call),
                          static_cast<T*>(call.out), splits, (call.keys - 1) / splits + 1);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  });
}
