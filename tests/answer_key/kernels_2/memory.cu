// Defects of access to global memory.
#include "set.h"

template <int V> __global__ void batched_gemv(const float* m, const float* x, float* y) {
  // a block a matrix of 128 x 128, row-major; the slow one gives each thread a row
  const float* own = m + (i64)blockIdx.x * 16384;
  const float* v = x + blockIdx.x * 128;
  if (V == 0) {
    float s = 0;
    for (int c = 0; c < 128; ++c) s += own[threadIdx.x * 128 + c] * v[c];
    y[blockIdx.x * 128 + threadIdx.x] = s;
  } else {
    int lane = threadIdx.x & 31;
    float4 u = ((const float4*)v)[lane];
    for (int r = threadIdx.x / 32; r < 128; r += 4) {
      float4 a = ((const float4*)(own + r * 128))[lane];
      float s = warp_sum(a.x * u.x + a.y * u.y + a.z * u.z + a.w * u.w);
      if (lane == 0) y[blockIdx.x * 128 + r] = s;
    }
  }
}
__global__ void lookup_prices(const float* prices, const int* products, float* out, int n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = prices[products[i]] * 1.19f;
}
template <int V> __global__ void radix_scatter(const float* in, const int* dest, const uint16_t* local, float* out) {
  // one pass of a radix sort with 64 buckets; the fixed one sorts the 4096 elements of a block in shared memory first
  __shared__ float values[4096];
  __shared__ int places[4096];
  i64 base = (i64)blockIdx.x * 4096;
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) {
    if (V == 0) out[dest[base + i]] = in[base + i];
    else values[local[base + i]] = in[base + i], places[local[base + i]] = dest[base + i];
  }
  if (V == 1) {
    __syncthreads();
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) out[places[i]] = values[i];
  }
}
struct Particle { float x, y, z, mass, vx, vy, vz, charge, more[8]; };
template <int V> __global__ void advance_particles(Particle* p, float* soa, int n, float dt) {
  for (i64 i = T; i < n; i += STRIDE) {
    if (V == 0) p[i].x += p[i].vx * dt, p[i].y += p[i].vy * dt, p[i].z += p[i].vz * dt;
    else for (int k = 0; k < 3; ++k) soa[(i64)k * n + i] += soa[(i64)(k + 3) * n + i] * dt;
  }
}
template <int V> __global__ void hash_probe(const char* table, float* out, int n) {
  // four lanes read a bucket of 64 bytes; a header of 16 bytes comes before the buckets, or one of 64
  i64 q = T / 4;
  if (q >= n) return;
  const uint4* bucket = (const uint4*)(table + (V == 0 ? 16 : 64) + (i64)(mix((uint32_t)q) & ((1 << 21) - 1)) * 64);
  uint4 v = bucket[threadIdx.x & 3];
  unsigned s = (v.x >> 8) + (v.y >> 8) + (v.z >> 8) + (v.w >> 8);
  s += __shfl_xor_sync(~0u, s, 1), s += __shfl_xor_sync(~0u, s, 2);
  if ((threadIdx.x & 3) == 0) out[q] = s;
}
template <int V> __global__ void box_filter8(const uint8_t* in, uint8_t* out, int w, int h) {
  if (V == 0) {
    int x = blockIdx.x * 256 + threadIdx.x, y = blockIdx.y + 1;
    if (x < 4 || x >= w - 4 || y >= h - 1) return;
    int s = 0;
    for (int dy = -1; dy <= 1; ++dy) for (int dx = -1; dx <= 1; ++dx) s += in[(i64)(y + dy) * w + x + dx];
    out[(i64)y * w + x] = s / 9;
  } else {
    int word = blockIdx.x * 256 + threadIdx.x, y = blockIdx.y + 1;
    if (word < 1 || word >= w / 4 - 1 || y >= h - 1) return;
    int column[6] = {};
    for (int dy = -1; dy <= 1; ++dy) {
      const uint32_t* row = (const uint32_t*)(in + (i64)(y + dy) * w) + word;
      uint32_t l = row[-1], c = row[0], r = row[1];
      column[0] += l >> 24, column[1] += c & 255, column[2] += c >> 8 & 255, column[3] += c >> 16 & 255, column[4] += c >> 24, column[5] += r & 255;
    }
    uint32_t packed = 0;
    for (int k = 0; k < 4; ++k) packed |= (uint32_t)((column[k] + column[k + 1] + column[k + 2]) / 9) << (8 * k);
    ((uint32_t*)(out + (i64)y * w))[word] = packed;
  }
}
template <int V> __global__ void half_affine(const __half* a, __half* out, i64 n, __half scale, __half shift) {
  if (V == 0) {
    for (i64 i = T; i < n; i += STRIDE) out[i] = __hfma(a[i], scale, shift);
  } else {
    __half2 m = __half2half2(scale), b = __half2half2(shift);
    for (i64 i = T; i < n / 8; i += STRIDE) {
      union { uint4 v; __half2 h[4]; } u;
      u.v = ((const uint4*)a)[i];
      for (auto& h : u.h) h = __hfma2(h, m, b);
      ((uint4*)out)[i] = u.v;
    }
  }
}
__global__ void fill_palette(i64* wide, uint16_t* slim, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) wide[i] = slim[i] = mix((uint32_t)i) & 1023;
}
template <class X> __global__ void palette_lookup(const X* pixels, const float* palette, float* out, i64 n) {
  __shared__ float own[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) own[i] = palette[i];
  __syncthreads();
  for (i64 i = T * 2; i < n; i += STRIDE * 2) {
    float2 v = make_float2(own[pixels[i]], own[pixels[i + 1]]);
    *(float2*)(out + i) = v;
  }
}
template <int V> __global__ void vertical_filter(const float* a, float* out, int plane, int planes) {
  // nine planes of 16 MB make one output plane; blocks go through a plane first, or through the planes first
  int z = V == 0 ? blockIdx.x / (plane / 256) : blockIdx.x % planes;
  i64 i = (i64)(V == 0 ? blockIdx.x % (plane / 256) : blockIdx.x / planes) * 256 + threadIdx.x;
  float s = 0;
#pragma unroll
  for (int k = -4; k <= 4; ++k) s += a[(i64)min(max(z + k, 0), planes - 1) * plane + i] * (0.2f - 0.04f * (k < 0 ? -k : k));
  out[(i64)z * plane + i] = s;
}
struct Node { int key, next; float value; int unused; };
__device__ inline int scattered(int x) { return (int)((uint32_t)x * 0x9e3779b1u & ((1 << 24) - 1)); }
__global__ void fill_chains(Node* chained, Node* packed) {
  for (i64 x = T; x < 1 << 24; x += STRIDE) {
    Node n = {(int)x, (x & 15) == 15 ? -1 : scattered((int)x + 1), (mix((uint32_t)x) >> 8) * 0x1p-24f, 0};
    chained[scattered((int)x)] = n, packed[x] = n;
  }
}
template <int V> __global__ void hash_chain(const Node* nodes, float* out, int lookups) {
  float s = 0;
  for (int q = 0; q < lookups; ++q) {
    int chain = mix((uint32_t)T * 8 + q) & ((1 << 20) - 1);
    if (V == 0) {
      for (int at = scattered(chain * 16); at >= 0;) { Node n = nodes[at]; s += n.value; at = n.next; }
    } else {
#pragma unroll
      for (int k = 0; k < 16; ++k) s += nodes[chain * 16 + k].value;
    }
  }
  out[T] = s;
}
__global__ void btree_descend(const float* nodes, const float* queries, int* out) {
  // a warp a query: each node has 32 keys of one line
  i64 q = T / 32;
  int lane = threadIdx.x & 31;
  unsigned node = mix((uint32_t)q) & 31;
  float key = queries[q];
#pragma unroll 1
  for (int level = 0; level < 12; ++level) {
    int below = __popc(__ballot_sync(~0u, nodes[(i64)node * 32 + lane] < key));
    node = mix(node * 33 + below + level) & ((1 << 21) - 1);
  }
  if (lane == 0) out[q] = (int)node;
}
template <int V> __global__ void interleave_channel(const float* a, float* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[V == 0 ? 4 * i + 2 : i] = sqrtf(a[i]);
}

void memory_cases() {
  static int *random, *sorted, *dest;
  static uint16_t *local, *slim;
  static i64* wide;
  static Node *chained, *packed;
  cases.push_back({"batched_gemv", "uncoalesced_loads", "", [] { batched_gemv<0><<<4096, 128>>>(A, B, C); }, [] { batched_gemv<1><<<4096, 128>>>(A, B, C); }, C, 4096 * 128});
  cases.push_back({"lookup_prices", "uncoalesced_loads", "", [] { lookup_prices<<<2112, 256>>>(A, random, C, 1 << 23); }, [] { lookup_prices<<<2112, 256>>>(A, sorted, C, 1 << 23); }, nullptr, 0, false, [] {
    std::vector<int> v(1 << 23);
    for (size_t i = 0; i < v.size(); ++i) v[i] = mix((uint32_t)i) & (N - 1);
    random = upload(v), std::sort(v.begin(), v.end()), sorted = upload(v);
  }});
  cases.push_back({"radix_scatter", "uncoalesced_stores", "", [] { radix_scatter<0><<<4096, 256>>>(A, dest, local, C); }, [] { radix_scatter<1><<<4096, 256>>>(A, dest, local, C); }, C, 1 << 24, false, [] {
    const int n = 1 << 24;
    std::vector<int> to(n), next(64, 0), counts(64, 0);
    std::vector<uint16_t> in_block(n);
    for (int i = 0; i < n; ++i) ++counts[mix(i) & 63];
    for (int k = 1; k < 64; ++k) next[k] = next[k - 1] + counts[k - 1];
    for (int base = 0; base < n; base += 4096) {
      std::vector<int> own(65, 0);
      for (int i = base; i < base + 4096; ++i) ++own[(mix(i) & 63) + 1];
      for (int k = 1; k < 65; ++k) own[k] += own[k - 1];
      for (int i = base; i < base + 4096; ++i) to[i] = next[mix(i) & 63]++, in_block[i] = (uint16_t)own[mix(i) & 63]++;
    }
    dest = upload(to), local = upload(in_block);
  }});
  cases.push_back({"advance_particles", "strided_sectors", "partial_sector_writes", [] { advance_particles<0><<<2112, 256>>>((Particle*)D, C, 1 << 22, 1e-3f); }, [] { advance_particles<1><<<2112, 256>>>((Particle*)D, C, 1 << 22, 1e-3f); }});
  cases.push_back({"hash_probe", "misaligned_base", "", [] { hash_probe<0><<<1 << 16, 256>>>((char*)A, C, 1 << 22); }, [] { hash_probe<1><<<1 << 16, 256>>>((char*)A, C, 1 << 22); }});
  cases.push_back({"box_filter8", "narrow_accesses", "", [] { box_filter8<0><<<dim3(32, 8190), 256>>>((uint8_t*)A, (uint8_t*)C, 8192, 8192); }, [] { box_filter8<1><<<dim3(8, 8190), 256>>>((uint8_t*)A, (uint8_t*)C, 8192, 8192); }, C, 1 << 24, true});
  cases.push_back({"half_affine", "narrow_accesses", "", [] { half_affine<0><<<1056, 256>>>((__half*)A, (__half*)C, N, 0.5f, 0.25f); }, [] { half_affine<1><<<1056, 256>>>((__half*)A, (__half*)C, N, 0.5f, 0.25f); }});
  cases.push_back({"palette_lookup", "wide_data", "", [] { palette_lookup<<<1056, 256>>>(wide, A, C, 1 << 25); }, [] { palette_lookup<<<1056, 256>>>(slim, A, C, 1 << 25); }, C, 1 << 25, false, [] {
    wide = device<i64>(1 << 25), slim = device<uint16_t>(1 << 25);
    fill_palette<<<2112, 256>>>(wide, slim, 1 << 25);
  }});
  cases.push_back({"vertical_filter", "block_order_l2", "no_tile", [] { vertical_filter<0><<<16 * 16384, 256>>>(A, C, 1 << 22, 16); }, [] { vertical_filter<1><<<16 * 16384, 256>>>(A, C, 1 << 22, 16); }, C, 1 << 26});
  cases.push_back({"hash_chain", "pointer_chasing", "", [] { hash_chain<0><<<264, 64>>>(chained, C, 8); }, [] { hash_chain<1><<<264, 64>>>(packed, C, 8); }, C, 264 * 64, false, [] {
    chained = device<Node>(1 << 24), packed = device<Node>(1 << 24);
    fill_chains<<<2112, 256>>>(chained, packed);
  }});
  cases.push_back({"btree_descend", "occupancy_block_size", "pointer_chasing", [] { btree_descend<<<1 << 17, 32>>>(A, B, (int*)C); }, [] { btree_descend<<<1 << 14, 256>>>(A, B, (int*)C); }, C, 1 << 17, true});
  cases.push_back({"interleave_channel", "partial_sector_writes", "", [] { interleave_channel<0><<<2112, 256>>>(A, C, 1 << 24); }, [] { interleave_channel<1><<<2112, 256>>>(A, C, 1 << 24); }});
}
