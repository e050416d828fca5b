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
constexpr int WARPS = 4, UNROLL = 4;
constexpr int MOST = 16;  // blocks of a cluster
constexpr int EARLY_BYTES = 16 << 10;
}  // namespace

template <typename T, bool ALIGNED>
__global__ void __launch_bounds__(32 * WARPS)
    attention_decode_v04_cluster(Operands<T> in, T* out, int splits, int keys_of_split) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ Result found[MOST];
  let_next_start();
  const int row = blockIdx.x / splits, begin = blockIdx.x % splits * keys_of_split;
  const int end = min(in.keys, begin + keys_of_split);
  auto cluster = cooperative_groups::this_cluster();
  auto started = cluster.barrier_arrive();
  if constexpr (ALIGNED) prefetch_first<EARLY_BYTES>(in, row, begin, end);
  wait_for_previous();
  const Head<T, ALIGNED> head(in, row);
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
  const Partial<1> merged = merge_column(found, splits, threadIdx.x);
  out[static_cast<int64_t>(row) * HEAD_SIZE + threadIdx.x] = from_float<T>(merged.value[0] / merged.sum);
#endif
}

template <typename T, bool ALIGNED>
static cudaError_t launch_clusters(const AttentionDecodeCall& call) {
  const auto kernel = attention_decode_v04_cluster<T, ALIGNED>;
  static const bool waits = compiled_to_wait(kernel);
  if (!waits) return attention_decode_v03_split(call);
  static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (allowed != cudaSuccess) return allowed;
  int multiprocessors = 0;
  if (const cudaError_t failed = count_multiprocessors(multiprocessors)) return failed;
  const int rows = call.batch * call.heads;
  int splits = 1;
  while (splits < MOST && splits * rows < multiprocessors && splits * 64 < call.keys) splits *= 2;
  const int each = (call.keys - 1) / splits + 1;
  const cudaError_t status = launch_overlapped(kernel, waits, Grid{rows * splits, 32 * WARPS, splits}, call.stream,
                                               operands<T>(call), static_cast<T*>(call.out), splits, each);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const AttentionDecodeCall& call) {
  return all_aligned(call) ? launch_clusters<T, true>(call) : launch_clusters<T, false>(call);
}

cudaError_t attention_decode_v04_cluster(const AttentionDecodeCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
