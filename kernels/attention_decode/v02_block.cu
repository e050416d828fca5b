// attention_decode v02_block: one block per head, 16-byte loads; each group of lanes has its own online softmax.
// Shapes   q (B, nh, 1, 64), k, v (B, nh, Tk, 64) with any strides of batch, head and token, out (B, nh, 1, 64).
// Needs    nothing (operands that are not 16-byte aligned are read element by element)
// Moves    2 * B*nh * (Tk + 1) * 64 * sizeof(T) bytes: every key and value once.
// Versus   v01: 16 bytes per lane, 4 keys (bf16) per load, 8 packets per lane in flight. Maxima and sums of groups and
//          warps are merged once, at the end.
// Why      B*nh blocks on 132 SMs: at B 8, 96 SMs have one block each.
// Source   Little's law, as for gemv v02_warp
#include "check.cuh"
#include "decode.cuh"
#include "overlap.cuh"

#ifndef ATTENTION_DECODE_V02_WARPS
#define ATTENTION_DECODE_V02_WARPS 16
#endif
#ifndef ATTENTION_DECODE_V02_UNROLL
#define ATTENTION_DECODE_V02_UNROLL 4
#endif

namespace {
constexpr int WARPS = ATTENTION_DECODE_V02_WARPS, UNROLL = ATTENTION_DECODE_V02_UNROLL;
}

template <typename T, Layout LAYOUT>
__global__ void __launch_bounds__(32 * WARPS) attention_decode_v02_block(Operands<T> in, T* out) {
  let_next_start();
  const int row = blockIdx.x;
  const Head<T, LAYOUT> head(in, row);
  wait_for_previous();
  const Partial<1> found = walk_by_block<WARPS, UNROLL>(head, 0, in.keys);
  if (threadIdx.x < HEAD_SIZE)
    out[static_cast<int64_t>(row) * HEAD_SIZE + threadIdx.x] = from_float<T>(found.value[0] / found.sum);
}

cudaError_t attention_decode_v02_block(const AttentionDecodeCall& call) {
  return with_kind(call, [&](auto kind) {
    using K = decltype(kind);
    using T = typename K::Type;
    const auto kernel = attention_decode_v02_block<T, K::layout>;
    static const bool waits = compiled_to_wait(kernel);
    const cudaError_t status = launch_overlapped(kernel, waits, call.batch * call.heads, 32 * WARPS, call.stream,
                                                 operands<T>(call), static_cast<T*>(call.out));
    RETURN_IF_LAUNCH_FAILED();
    return status;
  });
}
