// Tables at random, operands that several blocks read, chains of parents and resources that leave few warps.
#include "set.h"

// ---- sample_grid: entries of 32 bytes behind a header of 16, so that each takes two sectors; expected 1.5 times
__device__ inline float sum_of(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__global__ void __launch_bounds__(256) sample_grid(const float4* table, const float* weight, float* out, unsigned entries) {
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {  // the corners of a cell
    i64 e = mix((unsigned)T * 8 + k) & (entries - 1);
    s = fmaf(sum_of(table[2 * e]) + sum_of(table[2 * e + 1]), weight[T], s);
  }
  out[T] = s;
}
// ---- grouped_queries: eight queries share the keys of a group, but each block reads them all for one query; expected 4 times
constexpr int TOKENS = 1024, PAIRS = 512, SHARED = 8;  // keys of 128 halves
__global__ void narrow_keys(const float* a, __half* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2half(a[i]);
}
__device__ inline float dot(uint4 a, uint4 b) {
  float2 s = {0, 0};
  const __half2 *x = (const __half2*)&a, *y = (const __half2*)&b;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float2 u = __half22float2(x[k]), v = __half22float2(y[k]);
    s.x = fmaf(u.x, v.x, s.x), s.y = fmaf(u.y, v.y, s.y);
  }
  return s.x + s.y;
}
template <int V> __global__ void __launch_bounds__(256) grouped_queries(const uint4* key, const uint4* query, float* out) {
  constexpr int OWN = V == 0 ? 1 : SHARED;
  int pair = V == 0 ? blockIdx.x % PAIRS : blockIdx.x, first = V == 0 ? blockIdx.x / PAIRS : 0, l = threadIdx.x & 7;  // eight lanes a key
  uint4 q[OWN][2];
#pragma unroll
  for (int k = 0; k < OWN; ++k) q[k][0] = query[(pair * SHARED + first + k) * 16 + l], q[k][1] = query[(pair * SHARED + first + k) * 16 + 8 + l];
#pragma unroll 2
  for (int t = threadIdx.x / 8; t < TOKENS; t += 32) {
    const uint4* row = key + ((i64)pair * TOKENS + t) * 16;
    uint4 u = row[l], v = row[8 + l];
#pragma unroll
    for (int k = 0; k < OWN; ++k) {
      float s = dot(u, q[k][0]) + dot(v, q[k][1]);
      for (int o = 4; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
      if (l == 0) out[(pair * SHARED + first + k) * TOKENS + t] = s;
    }
  }
}
// ---- find_roots: 31 parents in turn, each from the address that the last one gave, or one look at a flattened forest; expected 15 times
constexpr int LEVEL = 1 << 20, DEPTH = 32;
__global__ void make_forest(int* parent, int* root) {
  for (i64 i = T; i < LEVEL; i += STRIDE) {  // level 0 has the roots
    parent[i] = (int)i;
    for (int d = 1; d < DEPTH; ++d) parent[(i64)d * LEVEL + i] = (d - 1) * LEVEL + (int)(mix((unsigned)(d * LEVEL + i)) & (LEVEL - 1));
  }
}
__global__ void flatten_forest(const int* parent, int* root) {
  for (i64 i = T; i < (i64)LEVEL * DEPTH; i += STRIDE) {
    int at = (int)i;
    while (parent[at] != at) at = parent[at];
    root[i] = at;
  }
}
template <int V> __global__ void __launch_bounds__(256) find_roots(const int* parent, int* out) {
#pragma unroll 1
  for (int q = 0; q < 4; ++q) {
    int at = (DEPTH - 1) * LEVEL + (int)(mix((unsigned)T * 4 + q) & (LEVEL - 1));
    if (V == 0)
      for (int next; (next = parent[at]) != at;) at = next;
    else
      at = parent[at];
    out[q * STRIDE + T] = at;
  }
}
// ---- resolve_links: a block asks for 200 kB of shared memory and uses 1 kB, so an SM holds eight warps of random reads; expected 1.7 times
__global__ void make_links(int* link, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) link[i] = (int)(mix((unsigned)i + 5) & (unsigned)(N - 1));
}
__global__ void __launch_bounds__(256) resolve_links(const int* link, const float* page, float* out, int n) {
  extern __shared__ float damping[];
  damping[threadIdx.x] = 1 - 0.001f * threadIdx.x;
  __syncthreads();
  float s = 0;
#pragma unroll 1
  for (int i = (int)T; i < n; i += (int)STRIDE) s = fmaf(s, 0.5f, page[link[i]] * damping[i & 255]);
  out[T] = s;
}

void access_cases() {
  static float4 *behind, *aligned;
  static __half *keys, *queries;
  static int *parent, *root, *link;
  const i64 ENTRIES = 1 << 19;
  cases.push_back({"sample_grid", "misaligned_base", "", [=] { sample_grid<<<4096, 256>>>(behind, B, C, (unsigned)ENTRIES); }, [=] { sample_grid<<<4096, 256>>>(aligned, B, C, (unsigned)ENTRIES); }, C, 1 << 20, false, [=] {
    behind = (float4*)A + 1, aligned = device<float4>(ENTRIES * 2);
    CHECK(cudaMemcpy(aligned, behind, ENTRIES * 32, cudaMemcpyDefault));
  }});
  cases.push_back({"grouped_queries", "no_tile", "block_order_l2", [] { grouped_queries<0><<<PAIRS * SHARED, 256>>>((uint4*)keys, (uint4*)queries, C); }, [] { grouped_queries<1><<<PAIRS, 256>>>((uint4*)keys, (uint4*)queries, C); }, C, PAIRS * SHARED * TOKENS, false, [] {
    keys = device<__half>((i64)PAIRS * TOKENS * 128), queries = device<__half>(PAIRS * SHARED * 128);
    narrow_keys<<<1056, 256>>>(A, keys, (i64)PAIRS * TOKENS * 128), narrow_keys<<<1056, 256>>>(B, queries, PAIRS * SHARED * 128);
  }});
  cases.push_back({"find_roots", "pointer_chasing", "", [] { find_roots<0><<<132, 256>>>(parent, (int*)C); }, [] { find_roots<1><<<132, 256>>>(root, (int*)C); }, C, 4 * 132 * 256, true, [] {
    parent = device<int>((i64)LEVEL * DEPTH), root = device<int>((i64)LEVEL * DEPTH);
    make_forest<<<1056, 256>>>(parent, root), flatten_forest<<<1056, 256>>>(parent, root);
  }});
  cases.push_back({"resolve_links", "occupancy_shared", "", [] { resolve_links<<<1056, 256, 200000>>>(link, A, C, 1 << 23); }, [] { resolve_links<<<1056, 256, 1024>>>(link, A, C, 1 << 23); }, C, 1056 * 256, false, [] {
    dynamic_shared(resolve_links, 200000), link = device<int>(1 << 23);
    make_links<<<1056, 256>>>(link, 1 << 23);
  }});
}
