// attention_decode v03_split: several blocks share the keys of a head, and a second kernel merges their results.
// Shapes   q (B, nh, 1, 64), k, v (B, nh, Tk, 64) with any strides of batch, head and token, out (B, nh, 1, 64).
// Needs    a workspace of 66 floats for each head and split
// Moves    2 * B*nh * (Tk + 1) * 64 * sizeof(T) bytes, and the workspace, which is written and read.
// Versus   v02: as many blocks as the GPU holds at once, for every B*nh.
// Source   Dao et al. 2023, "Flash-Decoding for long-context inference"
#include "check.cuh"
#include "decode.cuh"
#include "overlap.cuh"
#include "splits.cuh"

#ifndef ATTENTION_DECODE_V03_WARPS
#define ATTENTION_DECODE_V03_WARPS 8
#endif
#ifndef ATTENTION_DECODE_V03_UNROLL
#define ATTENTION_DECODE_V03_UNROLL 4
#endif

namespace {
constexpr int WARPS = ATTENTION_DECODE_V03_WARPS, UNROLL = ATTENTION_DECODE_V03_UNROLL;
constexpr int BLOCKS = SPLIT_BLOCKS;  // blocks per SM, to which __launch_bounds__ limits the registers
}  // namespace

template <typename T, Layout LAYOUT>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    attention_decode_v03_split(Operands<T> in, Result* results, int splits, int keys_of_split) {
  let_next_start();
  const int row = blockIdx.x / splits, begin = blockIdx.x % splits * keys_of_split;
  const Head<T, LAYOUT> head(in, row);
  wait_for_previous();
  const Partial<1> found = walk_by_block<WARPS, UNROLL>(head, begin, min(in.keys, begin + keys_of_split));
  if (threadIdx.x >= HEAD_SIZE) return;
  Result& to = results[blockIdx.x];
  to.value[threadIdx.x] = found.value[0];
  if (threadIdx.x == 0) {
    to.largest = found.largest;
    to.sum = found.sum;
  }
}

template <typename T>
__global__ void __launch_bounds__(HEAD_SIZE) attention_decode_v03_merge(const Result* results, T* out, int splits) {
  let_next_start();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const Partial<1> merged = merge_column<16>(results + row * splits, splits, threadIdx.x);
  out[row * HEAD_SIZE + threadIdx.x] = from_float<T>(merged.value[0] / merged.sum);
}

cudaError_t attention_decode_v03_split(const AttentionDecodeCall& call) {
  int multiprocessors = 0;
  if (const cudaError_t failed = count_multiprocessors(multiprocessors)) return failed;
  const int rows = call.batch * call.heads;
  const Splits plan = split_keys(rows, call.keys, multiprocessors);
  Result* results = reinterpret_cast<Result*>(call.workspace);
  return with_kind(call, [&](auto kind) {
    using K = decltype(kind);
    using T = typename K::Type;
    const auto split = attention_decode_v03_split<T, K::layout>;
    static const bool waits = compiled_to_wait(split);
    cudaError_t status = launch_overlapped(split, waits, rows * plan.count, 32 * WARPS, call.stream, operands<T>(call),
                                           results, plan.count, plan.keys);
    RETURN_IF_LAUNCH_FAILED();
    if (status != cudaSuccess) return status;
    status = launch_overlapped(attention_decode_v03_merge<T>, waits, rows, HEAD_SIZE, call.stream,
                               static_cast<const Result*>(results), static_cast<T*>(call.out), plan.count);
    RETURN_IF_LAUNCH_FAILED();
    return status;
  });
}

int64_t attention_decode_workspace(const AttentionDecodeCall& call) {
  int multiprocessors = 1;  // if the count fails, the launch reports the error
  count_multiprocessors(multiprocessors);
  const int rows = call.batch * call.heads;
  return static_cast<int64_t>(rows) * split_keys(rows, call.keys, multiprocessors).count *
         static_cast<int64_t>(sizeof(Result) / sizeof(float));
}
