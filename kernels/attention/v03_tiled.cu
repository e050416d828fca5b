// attention v03_tiled: 128 queries per block, tiles of 64 keys, an online softmax, 8 x 4 sums per thread.
// Shapes   q, k, v, out (batch_heads, tokens, 64), sums in fp32; any number of tokens, any window.
// Needs    96 KB of shared memory per block (sm_80), 16-byte aligned operands
// Moves    q, k, v and out once through DRAM; k and v through L2 once for each 128 queries.
// Versus   v02: no array of weights. Three float4 from shared memory feed 32 FMA, instead of two words for one FMA.
// Source   Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135
#ifndef ATTENTION_V03_ROWS
#define ATTENTION_V03_ROWS 128
#endif
#ifndef ATTENTION_V03_UNROLL
#define ATTENTION_V03_UNROLL 1
#endif
#define TILED_ROWS ATTENTION_V03_ROWS
#define TILED_UNROLL ATTENTION_V03_UNROLL
#include "check.cuh"
#include "tiled_block.cuh"

// Blocks with the most keys start first.
template <typename T>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_v03_tiled(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                        int heads, int tokens, int window, float scale) {
  const int my_column = threadIdx.x % SIDE;
  attend_tiles(q, k, v, heads, blockIdx.x, gridDim.x, tokens, window, scale, 0, 1,
               [&](int64_t base, int query, int warp_query, const auto& sums, const auto&, const auto& weight_sums) {
                 unsigned bad = 0;  // a bit for each of the warp's rows
#pragma unroll
                 for (int i = 0; i < MY_ROWS; ++i) {
                   float sum = weight_sums[i];
#pragma unroll
                   for (int lane = 1; lane < SIDE; lane *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
                   const float inverse = __fdividef(1.0f, sum);
                   float test = sum * 0.0f;
                   Packet<T, 4> packet;
#pragma unroll
                   for (int j = 0; j < MY_COLUMNS; ++j) {
                     const float value = sums[i][j] * inverse;
                     test += value * 0.0f;
                     packet.values[j] = from_float<T>(value);
                   }
                   if (query + i < tokens) packet.store(out + base + (query + i) * D + my_column * 4);
                   const unsigned lanes = __ballot_sync(0xffffffffu, test != test);
                   bad |= (lanes & 0xffffu ? 1u << i : 0u) | (lanes >> SIDE ? 1u << (MY_ROWS + i) : 0u);
                 }
                 __syncwarp();
                 for (; bad; bad &= bad - 1) {
                   const int row = warp_query + __ffs(bad) - 1;
                   if (row < tokens)
                     attention_exact_row(q + base + row * D, k + base, v + base, out + base + row * D,
                                         max(0, row - window + 1), row, scale);
                 }
               });
}

template <typename T>
static cudaError_t launch(const AttentionCall& call) {
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  if (most < SHARED_BYTES) return cudaErrorNotSupported;
  if (const cudaError_t status =
          cudaFuncSetAttribute(attention_v03_tiled<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  const int64_t blocks = static_cast<int64_t>((call.tokens + ROWS - 1) / ROWS) * call.batch_heads;
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  attention_v03_tiled<T><<<static_cast<unsigned>(blocks), THREADS, SHARED_BYTES, call.stream>>>(
      static_cast<const T*>(call.q), static_cast<const T*>(call.k), static_cast<const T*>(call.v),
      static_cast<T*>(call.out), call.batch_heads, call.tokens, visible_window(call), call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t attention_v03_tiled(const AttentionCall& call) {
  if (!sizes_fit(call)) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
