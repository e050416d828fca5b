// attention v07_split_keys: v03 where the blocks of a cluster share the keys of 128 queries.
// Shapes   q, k, v, out (batch_heads, tokens, 64), fp32; any number of tokens, any window.
// Needs    sm_90 and as v03; v03 runs if there are enough blocks without splitting, and where there are no clusters
// Moves    as v03. The other blocks of a cluster also read the partial sums of each, 32 KB.
// Versus   v03: a batch of one has few blocks, and the last of them has all keys to itself. Here each block of a
//          cluster takes every second or fourth tile of keys. Then each block adds up the results of a part of
//          the queries, which it reads from the shared memory of the others.
// Source   Dao et al. 2023, "Flash-Decoding", which splits the keys of one query
#include <cooperative_groups.h>

#ifndef ATTENTION_V07_UNROLL
#define ATTENTION_V07_UNROLL 2
#endif
#ifndef ATTENTION_V07_MOST
#define ATTENTION_V07_MOST 4
#endif
#define TILED_ROWS 128
#define TILED_UNROLL ATTENTION_V07_UNROLL
#include "tiled_block.cuh"

cudaError_t attention_v03_tiled(const AttentionCall& call);  // runs what this rung does not split

namespace {
constexpr int MOST_SPLITS = ATTENTION_V07_MOST;  // blocks that share the keys of a block's queries, at most

// What a block leaves in its shared memory for the others of its cluster, where the tiles were.
struct Partial {
  float sums[ROWS][D];                 // relative to the largest score
  float largest[ROWS], weights[ROWS];  // of each query
};
static_assert(sizeof(Partial) <= SHARED_BYTES);
}  // namespace

// Blocks with the most keys start first.
template <typename T, int SPLITS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_v07_split_keys(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                             T* __restrict__ out, int heads, int tokens, int window, float scale) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float memory[];
  auto cluster = cooperative_groups::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int my_row = threadIdx.x / SIDE, my_column = threadIdx.x % SIDE;
  attend_tiles(q, k, v, heads, blockIdx.x / SPLITS, gridDim.x / SPLITS, tokens, window, scale, rank, SPLITS,
               [&](int64_t base, int query, int, const auto& sums, const auto& largest, const auto& weight_sums) {
                 Partial& mine = *reinterpret_cast<Partial*>(memory);
                 __syncthreads();  // all warps have read the tiles
#pragma unroll
                 for (int i = 0; i < MY_ROWS; ++i) {
                   float weight = weight_sums[i];
#pragma unroll
                   for (int lane = 1; lane < SIDE; lane *= 2) weight += __shfl_xor_sync(0xffffffffu, weight, lane);
                   const int row = my_row * MY_ROWS + i;
                   *reinterpret_cast<float4*>(mine.sums[row] + my_column * 4) =
                       make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
                   if (my_column == 0) mine.largest[row] = largest[i], mine.weights[row] = weight;
                 }
                 cluster.sync();

                 // This block adds up these queries, 16 threads each.
                 constexpr int PART = ROWS / SPLITS, TURNS = (PART + TOGETHER - 1) / TOGETHER;
                 const float to_log2 = scale * LOG2_E;
                 const int first_query = query - my_row * MY_ROWS;
                 unsigned bad = 0;  // a bit for each of the warp's rows
#pragma unroll
                 for (int turn = 0; turn < TURNS; ++turn) {
                   const int row = rank * PART + turn * TOGETHER + my_row;
                   float most = -FLT_MAX, other[SPLITS], weight = 0.0f;
#pragma unroll
                   for (int split = 0; split < SPLITS; ++split) {
                     other[split] = cluster.map_shared_rank(&mine, split)->largest[row];
                     most = fmaxf(most, other[split]);
                   }
                   float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                   for (int split = 0; split < SPLITS; ++split) {
                     const Partial* const there = cluster.map_shared_rank(&mine, split);
                     const float factor = exp2_fast((other[split] - most) * to_log2);
                     const float4 part = read4(there->sums[row] + my_column * 4);
                     weight += there->weights[row] * factor;
                     total.x += part.x * factor, total.y += part.y * factor;
                     total.z += part.z * factor, total.w += part.w * factor;
                   }
                   const float inverse = __fdividef(1.0f, weight);
                   const float found[] = {total.x * inverse, total.y * inverse, total.z * inverse, total.w * inverse};
                   float test = weight * 0.0f;
                   Packet<T, 4> packet;
#pragma unroll
                   for (int j = 0; j < 4; ++j) {
                     test += found[j] * 0.0f;
                     packet.values[j] = from_float<T>(found[j]);
                   }
                   if (first_query + row < tokens) packet.store(out + base + (first_query + row) * D + my_column * 4);
                   const unsigned lanes = __ballot_sync(0xffffffffu, test != test);
                   bad |= (lanes & 0xffffu ? 1u << 2 * turn : 0u) | (lanes >> SIDE ? 2u << 2 * turn : 0u);
                 }
                 cluster.sync();  // the others have read what lies here
                 for (; bad; bad &= bad - 1) {
                   const int bit = __ffs(bad) - 1;
                   const int row = first_query + rank * PART + bit / 2 * TOGETHER +
                                   static_cast<int>(threadIdx.x) / 32 * 2 + bit % 2;
                   if (row < tokens)
                     attention_exact_row(q + base + row * D, k + base, v + base, out + base + row * D,
                                         max(0, row - window + 1), row, scale);
                 }
               });
#else
  __trap();  // compiled without clusters
#endif
}

namespace {
template <typename T, int SPLITS>
cudaError_t launch(const AttentionCall& call, int64_t blocks) {
  const auto kernel = attention_v07_split_keys<T, SPLITS>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeClusterDimension;
  together.val.clusterDim = {SPLITS, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks * SPLITS));
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = SHARED_BYTES;
  config.stream = call.stream;
  config.attrs = &together;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<const T*>(call.q), static_cast<const T*>(call.k),
                            static_cast<const T*>(call.v), static_cast<T*>(call.out), call.batch_heads, call.tokens,
                            visible_window(call), call.scale);
}

template <typename T>
cudaError_t launch_split(const AttentionCall& call) {
  int device = 0, major = 0, multiprocessors = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device))
    return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return status;
  const int64_t blocks = static_cast<int64_t>((call.tokens + ROWS - 1) / ROWS) * call.batch_heads;
  // Doubles the blocks of a cluster until there are blocks for the whole GPU, or a block has a tile only.
  const int tiles =
      ((call.tokens < visible_window(call) + ROWS ? call.tokens : visible_window(call) + ROWS) + KEYS - 1) / KEYS;
  int splits = 1;
  while (splits < MOST_SPLITS && splits < tiles && blocks * splits < static_cast<int64_t>(BLOCKS) * multiprocessors)
    splits *= 2;
  if (major != 9 || splits == 1) return attention_v03_tiled(call);
  return splits == 2   ? launch<T, 2>(call, blocks)
         : splits == 4 ? launch<T, 4>(call, blocks)
                       : launch<T, 8>(call, blocks);
}
}  // namespace

cudaError_t attention_v07_split_keys(const AttentionCall& call) {
  if (!sizes_fit(call) || call.dtype != DType::float32) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  return launch_split<float>(call);
}
