// attention v06_small: blocks of 64 queries, several per SM. If there are few blocks, two warpgroups split a tile's
// keys.
// Shapes   q, k, v, out (batch_heads, tokens, 64) bf16, sums in fp32; any number of tokens, no window.
// Needs    sm_90a, 16-byte aligned operands
// Moves    q, k, v and out once through DRAM; k and v through L2 once for each tile of 64 queries.
// Versus   v05: with up to 1024 tokens, a block of 192 queries has few tiles of keys behind which to hide its start and
//          its end. With few blocks, the one with the most keys sets the time. Here a block has a third of the queries,
//          and while one block starts or ends, the other blocks of the SM work on. Blocks start and prefetch their
//          operands into L2 while the previous kernel drains. Up to 4 blocks per SM, two warpgroups take the tiles of
//          keys in turn, and their sums are merged in shared memory, always in the same order. v05 runs above 12 blocks
//          per SM, and with more than 1024 tokens above 4 per SM: of many blocks, each of v05's costs less.
// Source   Dao et al., "Flash-Decoding for long-context inference", 2023; PTX ISA, griddepcontrol
#ifndef ATTENTION_V06_STAGES
#define ATTENTION_V06_STAGES 2
#endif
#ifndef ATTENTION_V06_CARVEOUT
#define ATTENTION_V06_CARVEOUT -1
#endif
#define SMALL_STAGES ATTENTION_V06_STAGES
#include "small.cuh"

cudaError_t attention_v05_wgmma(const AttentionCall& call);  // runs what this rung does not take

namespace {
constexpr int CARVEOUT = ATTENTION_V06_CARVEOUT;  // percentage of L1 used as shared memory; -1: the driver chooses
// This rung runs with up to SOME blocks per SM if there are at most SHORT tokens. small.cuh has VERY_FEW and FEW.
constexpr int SOME = 12, SHORT = 1024;
}  // namespace

template <typename T, int GROUPS>
__global__ void __launch_bounds__(128 * GROUPS)
    attention_v06_small(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                        const __grid_constant__ CUtensorMap v_map, const T* q, const T* k, const T* v, T* out,
                        int heads, int tokens, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  attend_small<T, GROUPS, false>(q_map, k_map, v_map, q, k, v, out, heads, tokens, scale, 0);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

namespace {

template <int GROUPS>
cudaError_t launch(const AttentionCall& call, int blocks, uint32_t bytes) {
  using T = __nv_bfloat16;
  CUtensorMap q, k, v;
  if (!map_operands(q, k, v, call)) return cudaErrorInvalidValue;
  if constexpr (CARVEOUT >= 0) {
    if (const cudaError_t status = cudaFuncSetAttribute(attention_v06_small<T, GROUPS>,
                                                        cudaFuncAttributePreferredSharedMemoryCarveout, CARVEOUT))
      return status;
  }
  const cudaError_t status =
      launch_overlapped(attention_v06_small<T, GROUPS>, {blocks, 128 * GROUPS}, bytes, call.stream, q, k, v,
                        static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
                        static_cast<T*>(call.out), call.batch_heads, call.tokens, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

}  // namespace

cudaError_t attention_v06_small(const AttentionCall& call) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  const int64_t blocks = small_blocks(call);
  const SmallShape shape = small_shape(blocks, sm_count);
  const bool some = blocks <= SOME * sm_count && call.tokens <= SHORT;
  const bool takes = call.dtype == DType::bfloat16 && sizes_fit(call) && aligned(call) && sm_count > 0 &&
                     visible_window(call) == call.tokens;
  if (!takes || !(shape.groups == 2 || some)) return attention_v05_wgmma(call);  // its error for what it does not take
  return (shape.groups == 2 ? launch<2> : launch<1>)(call, static_cast<int>(blocks), shape.bytes);
}
