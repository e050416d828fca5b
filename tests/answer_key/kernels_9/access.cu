// Loads and stores: heartbeats, terrain, scanned pages, agents, molecules, gradients, masks, fluxes, particles, layers, clusters.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// Names tell the domain, not the defect. operands.csv has the sizes of operands, as a caller knows them from shapes and types.
// Decided before any run: a pair whose forms differ by more than 1e-3, or a defect whose fix is slower, leaves the set; a pair whose fix wins less
// than 6 % of the time is a trap, whatever it was declared to be; one that fails to run leaves the set.
#include "set.h"

// ---- mean_of_heartbeats: a thread a record of 256 samples, so lanes are 1 kB apart; or a warp a record; expected 3 times
template <int V> __global__ void __launch_bounds__(256) mean_of_heartbeats(const float* a, float* out) {
  if (V == 0) {
    const float* own = a + T * 256;
    float s = 0, q = 0;
#pragma unroll 4
    for (int k = 0; k < 256; ++k) s += own[k], q = fmaf(own[k], own[k], q);
    s *= 1 / 256.0f, out[T] = q * (1 / 256.0f) - s * s;
  } else {
    int lane = threadIdx.x & 31;
    i64 first = blockIdx.x * 256ll + threadIdx.x / 32 * 32;
#pragma unroll 4
    for (int r = 0; r < 32; ++r) {
      const float4* row = (const float4*)a + (first + r) * 64;
      float4 v = row[lane], w = row[lane + 32];
      float s = warp_sum(((v.x + v.y) + (v.z + v.w)) + ((w.x + w.y) + (w.z + w.w))) * (1 / 256.0f);
      float q = warp_sum(((v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w)) + ((w.x * w.x + w.y * w.y) + (w.z * w.z + w.w * w.w)));
      if (lane == 0) out[first + r] = q * (1 / 256.0f) - s * s;
    }
  }
}
// ---- shade_terrain: threadIdx.x walks down the rows; or along them; expected 4 times
constexpr int MAP = 8192;
template <int V> __global__ void __launch_bounds__(256) shade_terrain(const float* height, float* out) {
  int row = V == 0 ? blockIdx.y * 32 + threadIdx.x : blockIdx.y * 8 + threadIdx.y, column = V == 0 ? blockIdx.x * 8 + threadIdx.y : blockIdx.x * 32 + threadIdx.x;
  int up = max(row - 1, 0), down = min(row + 1, MAP - 1), left = max(column - 1, 0), right = min(column + 1, MAP - 1);
  float x = height[row * MAP + right] - height[row * MAP + left], y = height[down * MAP + column] - height[up * MAP + column];
  out[row * MAP + column] = fmaf(x, 0.5f, fmaf(y, 0.3f, 1.0f)) * rsqrtf(fmaf(x, x, fmaf(y, y, 1.0f)));
}
// ---- rotate_pages: a quarter turn of 8192 x 8192 pixels, whose stores are 32 kB apart; or through a tile; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) rotate_pages(const unsigned* in, unsigned* out) {
  __shared__ unsigned tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
  for (int k = 0; k < 32; k += 8) {
    unsigned v = in[(y + k) * MAP + x];
    if (V == 0) out[x * MAP + MAP - 1 - y - k] = v;
    else tile[threadIdx.y + k][threadIdx.x] = v;
  }
  if (V == 0) return;
  __syncthreads();
  int row = blockIdx.x * 32 + threadIdx.y, column = MAP - 32 - blockIdx.y * 32 + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 32; k += 8) out[(row + k) * MAP + column] = tile[31 - threadIdx.x][threadIdx.y + k];
}
// ---- infected_agents: one word of each record of 48 bytes; or a plane of its own; expected 6 times
template <int STEP> __global__ void __launch_bounds__(256) infected_agents(const float* state, int* out, int n) {
  int found = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) found += state[(i64)i * STEP] > 0.7f;
  out[T] = found;
}
__global__ void take_states(const float* record, float* state, int n) {
  for (i64 i = T; i < n; i += STRIDE) state[i] = record[i * 12];
}
// ---- look_up_fingerprints: rows of 32 bytes behind a header of 16, so that each lies in two sectors; expected 1.5 times
__global__ void __launch_bounds__(256) look_up_fingerprints(const uint2* table, const uint2* query, int* out) {  // four lanes a row
  uint2 q = query[threadIdx.x & 3];
  int s = 0;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    unsigned row = mix((unsigned)(T / 4) * 64 + k) & ((1 << 23) - 1);
    uint2 v = table[(i64)row * 4 + (threadIdx.x & 3)];
    s += __popc(v.x & q.x) + __popc(v.y & q.y);
  }
  out[T] = s;
}
// ---- unscale_gradients: a value of two bytes a thread; or eight; expected 2 times
template <int V> __global__ void __launch_bounds__(256) unscale_gradients(const __half* in, __half* out, float by, int* overflow) {
  if (V == 0) {
    float v = __half2float(in[T]) * by;
    if (!isfinite(v)) *overflow = 1;
    out[T] = __float2half(v);
  } else {
    uint4 v = ((const uint4*)in)[T];
    __half2* p = (__half2*)&v;
    bool good = true;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float2 w = __half22float2(p[k]);
      w.x *= by, w.y *= by, good &= isfinite(w.x) && isfinite(w.y), p[k] = __floats2half2_rn(w.x, w.y);
    }
    if (!good) *overflow = 1;
    ((uint4*)out)[T] = v;
  }
}
__global__ void make_gradients(const float* a, __half* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2half(a[i] - 0.5f);
}
// ---- dilate_masks: a pixel of one byte a thread, and three loads of a byte; or 16 pixels; expected 4 times
template <int V> __global__ void __launch_bounds__(256) dilate_masks(const unsigned char* in, unsigned char* out) {
  if (V == 0) {
    out[T] = max(in[T], max(in[T - 1], in[T + 1]));
  } else {
    uint4 v = ((const uint4*)in)[T];
    unsigned w[6] = {(unsigned)in[T * 16 - 1] << 24, v.x, v.y, v.z, v.w, in[T * 16 + 16]};
#pragma unroll
    for (int k = 0; k < 4; ++k) (&v.x)[k] = __vmaxu4(w[k + 1], __vmaxu4(__funnelshift_l(w[k], w[k + 1], 8), __funnelshift_r(w[k + 1], w[k + 2], 8)));
    ((uint4*)out)[T] = v;
  }
}
// ---- flux_of_cells: values stored as doubles, of which 24 bits count; expected 1.9 times
template <class X> __global__ void __launch_bounds__(256) flux_of_cells(const X* cell, float* out, int n) {
  decltype(X::x) s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    X v = cell[i];
    s += v.x * (1 - v.x) + v.y * (1 - v.y);
  }
  out[T] = (float)s;
}
__global__ void make_cells(const float* a, double* wide, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) wide[i] = a[i];
}
// ---- reset_ages: the last word of each particle of 16 bytes is written; or a plane of its own; expected 4 times
template <int STEP> __global__ void __launch_bounds__(256) reset_ages(float* age, int n) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) age[(i64)i * STEP] = (i & 31) * 0.25f;
}
// ---- diffuse_layers: four layers of 64 MB, and a block of a layer needs those above and below; all of a layer first, or the four of a place; expected 1.6 times
template <int V> __global__ void __launch_bounds__(256) diffuse_layers(const float4* a, float4* out) {
  const int layer = 1 << 22;  // of four floats
  int z = V == 0 ? blockIdx.x >> 14 : blockIdx.x & 3, i = (V == 0 ? blockIdx.x & 16383 : blockIdx.x >> 2) * 256 + threadIdx.x;
  float4 v = a[z * layer + i], p = a[max(z - 1, 0) * layer + i], q = a[min(z + 1, 3) * layer + i];
  out[z * layer + i] = {fmaf(0.1f, p.x + q.x - 2 * v.x, v.x), fmaf(0.1f, p.y + q.y - 2 * v.y, v.y), fmaf(0.1f, p.z + q.z - 2 * v.z, v.z), fmaf(0.1f, p.w + q.w - 2 * v.w, v.w)};
}
// ---- roots_of_clusters: parents of 96 hops anywhere in 13 MB, in eight warps an SM; or a forest whose paths were compressed; expected 8 times
constexpr int TREES = 264 * 128, HOPS = 96;
__global__ void __launch_bounds__(128) roots_of_clusters(const int* parent, const int* leaf, int* out) {
  int at = leaf[T];
  for (int up = parent[at]; up != at; up = parent[at]) at = up;
  out[T] = at;
}
static std::vector<int> shuffled(int n) {
  std::vector<int> v(n);
  for (int i = 0; i < n; ++i) v[i] = i;
  for (int i = n - 1; i > 0; --i) std::swap(v[i], v[mix((unsigned)i) % (unsigned)(i + 1)]);
  return v;
}

void memory_cases() {
  static float *states, *headed, *particles;
  static __half* gradients;
  static double* cells;
  static int *forest, *compressed, *leaves;
  cases.push_back({"mean_of_heartbeats", "uncoalesced_loads", "", [] { mean_of_heartbeats<0><<<1024, 256>>>(A, C); }, [] { mean_of_heartbeats<1><<<1024, 256>>>(A, C); }, C, 1 << 18});
  cases.push_back({"shade_terrain", "uncoalesced_loads", "uncoalesced_stores", [] { shade_terrain<0><<<dim3(MAP / 8, MAP / 32), dim3(32, 8)>>>(A, C); }, [] { shade_terrain<1><<<dim3(MAP / 32, MAP / 8), dim3(32, 8)>>>(A, C); }, C, N});
  cases.push_back({"rotate_pages", "uncoalesced_stores", "partial_sector_writes", [] { rotate_pages<0><<<dim3(MAP / 32, MAP / 32), dim3(32, 8)>>>((unsigned*)A, (unsigned*)C); }, [] { rotate_pages<1><<<dim3(MAP / 32, MAP / 32), dim3(32, 8)>>>((unsigned*)A, (unsigned*)C); }, C, N, true});
  cases.push_back({"infected_agents", "strided_sectors", "uncoalesced_loads", [] { infected_agents<12><<<1056, 256>>>(A + 5, (int*)C, 5500000); }, [] { infected_agents<1><<<1056, 256>>>(states, (int*)C, 5500000); }, C, 1056 * 256, true, [] {
    states = device<float>(5500000);
    take_states<<<1056, 256>>>(A + 5, states, 5500000);
  }});
  cases.push_back({"look_up_fingerprints", "misaligned_base", "uncoalesced_loads", [] { look_up_fingerprints<<<1056, 256>>>((uint2*)(headed + 4), (uint2*)B, (int*)C); }, [] { look_up_fingerprints<<<1056, 256>>>((uint2*)A, (uint2*)B, (int*)C); }, C, 1056 * 256, true, [] {
    headed = device<float>(N + 8);
    CHECK(cudaMemcpy(headed + 4, A, N * 4, cudaMemcpyDefault));
  }});
  cases.push_back({"unscale_gradients", "narrow_accesses", "", [] { unscale_gradients<0><<<(1 << 26) / 256, 256>>>(gradients, (__half*)C, 0.5f, (int*)D); }, [] { unscale_gradients<1><<<(1 << 26) / 2048, 256>>>(gradients, (__half*)C, 0.5f, (int*)D); }, C, 1 << 25, true, [] {
    gradients = device<__half>(N);
    make_gradients<<<1056, 256>>>(A, gradients, N);
  }});
  cases.push_back({"dilate_masks", "narrow_accesses", "", [] { dilate_masks<0><<<(1 << 26) / 256, 256>>>((unsigned char*)A + 64, (unsigned char*)C); }, [] { dilate_masks<1><<<(1 << 26) / 4096, 256>>>((unsigned char*)A + 64, (unsigned char*)C); }, C, 1 << 24, true});
  cases.push_back({"flux_of_cells", "wide_data", "fp64_by_accident|precision", [] { flux_of_cells<<<1056, 256>>>((double2*)cells, C, 1 << 24); }, [] { flux_of_cells<<<1056, 256>>>((float2*)A, C, 1 << 24); }, C, 1056 * 256, false, [] {
    cells = device<double>(1 << 25);
    make_cells<<<1056, 256>>>(A, cells, 1 << 25);
  }});
  cases.push_back({"reset_ages", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { reset_ages<4><<<1056, 256>>>(particles + 3, 1 << 24); }, [] { reset_ages<1><<<1056, 256>>>(C, 1 << 24); }, nullptr, 0, false, [] { particles = device<float>(N + 8); }});
  cases.push_back({"diffuse_layers", "block_order_l2", "no_tile", [] { diffuse_layers<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { diffuse_layers<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"roots_of_clusters", "pointer_chasing", "", [] { roots_of_clusters<<<264, 128>>>(forest, leaves, (int*)C); }, [] { roots_of_clusters<<<264, 128>>>(compressed, leaves, (int*)C); }, C, TREES, true, [] {
    std::vector<int> place = shuffled(TREES * HOPS), up(TREES * HOPS), root(TREES * HOPS), leaf(TREES);
    for (int t = 0; t < TREES; ++t) {
      leaf[t] = place[t * HOPS];
      for (int k = 0; k < HOPS; ++k) up[place[t * HOPS + k]] = place[t * HOPS + std::min(k + 1, HOPS - 1)], root[place[t * HOPS + k]] = place[t * HOPS + HOPS - 1];
    }
    forest = upload(up), compressed = upload(root), leaves = upload(leaf);
  }});
}
