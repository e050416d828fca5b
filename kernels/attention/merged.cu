// attention merged: v06 whose output has its heads merged, as the projection behind it reads it.
// Shapes   q, k, v (B, nh, T, 64) bf16 -> out (B, T, nh, 64), sums in fp32; any T, no window.
// Needs    sm_90a, 16-byte aligned operands
// Moves    q, k, v and out once through DRAM; k and v through L2 once for each tile of 64 queries.
// Versus   v06: a row of a head goes to its place among the rows of all heads, so no launch has to permute the output.
//          It takes any number of blocks, also where v05 would be faster.
// Source   v06_small
#define SMALL_STAGES 2
#include "merged.h"
#include "small.cuh"

template <typename T, int GROUPS>
__global__ void __launch_bounds__(128 * GROUPS)
    attention_merged(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                     const __grid_constant__ CUtensorMap v_map, const T* q, const T* k, const T* v, T* out,
                     int batch_heads, int tokens, float scale, int heads) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  attend_small<T, GROUPS, true>(q_map, k_map, v_map, q, k, v, out, batch_heads, tokens, scale, heads);
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t attention_merged(const MergedCall& call) {
  if (call.dtype != DType::bfloat16 || !sizes_fit(call) || call.window) return cudaErrorInvalidValue;
  if (call.heads < 1 || call.batch_heads % call.heads) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  if (sm_count == 0) return cudaErrorNotSupported;
  using T = __nv_bfloat16;
  CUtensorMap q, k, v;
  const int64_t blocks = small_blocks(call);
  if (blocks > 0x7fffffff || !map_operands(q, k, v, call)) return cudaErrorInvalidValue;
  const SmallShape shape = small_shape(blocks, sm_count);
  const cudaError_t status =
      launch_overlapped(shape.groups == 2 ? attention_merged<T, 2> : attention_merged<T, 1>,
                        {static_cast<int>(blocks), 128 * shape.groups}, shape.bytes, call.stream, q, k, v,
                        static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
                        static_cast<T*>(call.out), call.batch_heads, call.tokens, call.scale, call.heads);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
