// Loads and stores of weights, neighbour lists, tables, sound, caches, meshes, particles, scans, graphs and order books.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// Names tell the domain, not the defect. operands.csv has the sizes of operands, as a caller knows them from shapes and types.
// Decided before any run: a pair whose forms differ by more than 1e-3, or a defect whose fix is slower, leaves the set; a pair whose fix wins less
// than 6 % of the time is a trap, whatever it was declared to be; one that fails to run leaves the set.
#include "set.h"

// ---- quantised_rows: a thread a row of 1024 bytes, so lanes are 1 kB apart; or a warp a row and 16 bytes a lane; expected 3 times
template <int V> __global__ void __launch_bounds__(256) quantised_rows(const unsigned* w, const unsigned* x, int* out) {
  __shared__ uint4 v[64];
  if (threadIdx.x < 64) v[threadIdx.x] = ((const uint4*)x)[threadIdx.x];
  __syncthreads();
  if (V == 0) {
    const unsigned *own = w + T * 256, *by = (const unsigned*)v;
    int s = 0;
#pragma unroll 4
    for (int k = 0; k < 256; ++k) s = __dp4a((int)own[k], (int)by[k], s);
    out[T] = s;
  } else {
    int lane = threadIdx.x & 31;
    i64 first = blockIdx.x * 256ll + threadIdx.x / 32 * 32;
#pragma unroll 4
    for (int r = 0; r < 32; ++r) {
      const uint4* row = (const uint4*)w + (first + r) * 64;
      int s = 0;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        uint4 p = row[lane + k * 32], q = v[lane + k * 32];
        s = __dp4a((int)p.x, (int)q.x, s), s = __dp4a((int)p.y, (int)q.y, s), s = __dp4a((int)p.z, (int)q.z, s), s = __dp4a((int)p.w, (int)q.w, s);
      }
      s = __reduce_add_sync(~0u, s);
      if (lane == 0) out[first + r] = s;
    }
  }
}
// ---- neighbour_energies: lists of 64 neighbours a row for each atom, and a thread an atom; or a plane for each neighbour; expected 2.5 times
constexpr int ATOMS = 1 << 19, NEAR = 64;
__global__ void make_lists(int* rows, int* planes) {
  for (i64 i = T; i < (i64)ATOMS * NEAR; i += STRIDE) {
    int atom = (int)(i / NEAR), k = (int)(i % NEAR), other = (atom + k - 32 + (int)(mix((unsigned)i) & 3)) & (ATOMS - 1);
    rows[i] = other, planes[(i64)k * ATOMS + atom] = other;
  }
}
template <int V> __global__ void __launch_bounds__(256) neighbour_energies(const int* list, const float* at, float* out) {
  int atom = (int)T;
  float x = at[atom], e = 1;
#pragma unroll 4
  for (int k = 0; k < NEAR; ++k) {
    float d = at[list[V == 0 ? (i64)atom * NEAR + k : (i64)k * ATOMS + atom]] - x, q = d * d;
    e = fmaf(q, fmaf(q, 0.1f, 0.3f), e);
  }
  out[atom] = e;
}
// ---- filter_orders: one column of 8 bytes of a table of rows of 64; expected 6 times
template <int STEP> __global__ void __launch_bounds__(256) filter_orders(const float2* price, int* out, int n) {
  int found = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float2 v = price[(i64)i * STEP];
    found += v.x > 0.3f && v.y < 0.7f;
  }
  out[T] = found;
}
__global__ void take_column(const float2* row, float2* column, int n) {
  for (i64 i = T; i < n; i += STRIDE) column[i] = row[i * 8];
}
// ---- channel_peak: one of eight interleaved channels; expected 7 times
template <int STEP> __global__ void __launch_bounds__(256) channel_peak(const float* sound, float* out, int n) {
  float most = 0;
#pragma unroll 8
  for (int i = (int)T; i < n; i += (int)STRIDE) most = fmaxf(most, fabsf(sound[(i64)i * STEP] - 0.5f));
  out[T] = most;
}
__global__ void take_channel(const float* sound, float* channel, int n) {
  for (i64 i = T; i < n; i += STRIDE) channel[i] = sound[i * 8];
}
// ---- cache_keys: keys of a token lie side by side, and the cache has a row for each dimension, so lanes store 128 kB apart; expected 4 times
constexpr int TOKENS = 32768, WIDE = 1024;
template <int V> __global__ void __launch_bounds__(256) cache_keys(const float* key, float* cache) {
  if constexpr (V == 0) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int d = threadIdx.x + k * 256;
      cache[(i64)d * TOKENS + blockIdx.x] = key[(i64)blockIdx.x * WIDE + d];
    }
  } else {
    __shared__ float tile[32][33];
    int x = threadIdx.x & 31, y = threadIdx.x / 32, token = blockIdx.x / 32 * 32, d = (blockIdx.x & 31) * 32;
#pragma unroll
    for (int r = y; r < 32; r += 8) tile[r][x] = key[(i64)(token + r) * WIDE + d + x];
    __syncthreads();
#pragma unroll
    for (int r = y; r < 32; r += 8) cache[(i64)(d + r) * TOKENS + token + x] = tile[x][r];
  }
}
// ---- element_matrices: a thread stores the 16 entries of its element one by one, so lanes are 64 bytes apart; or through shared memory; expected 3 times
template <int V> __global__ void __launch_bounds__(256) element_matrices(const float4* shape, float* out) {
  __shared__ float stage[V == 0 ? 1 : 256 * 17];
  float4 p = shape[T];
  float v[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float e = fmaf(v[k / 4], v[k & 3], k % 5 == 0 ? 1.0f : 0.25f);
    if (V == 0) out[T * 16 + k] = e;
    else stage[threadIdx.x * 17 + k] = e;
  }
  if (V == 0) return;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    int i = threadIdx.x + k * 256;
    out[blockIdx.x * 4096ll + i] = stage[i / 16 * 17 + (i & 15)];
  }
}
// ---- stamp_particles: four bytes of each record of 32 are written; expected 5 times
template <int STEP> __global__ void __launch_bounds__(256) stamp_particles(float* age, float now, int n) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) age[(i64)i * STEP] = now + (i & 63) * 0.125f;
}
// ---- collect_features: rows of 64 bytes, each behind its header of 16, so that most lie in three sectors; expected 1.4 times
constexpr unsigned ROWS = 1 << 21;
template <int PITCH, int HEAD> __global__ void __launch_bounds__(256) collect_features(const float4* row, float* out) {  // four lanes a row
  float s = 0;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    unsigned i = mix((unsigned)(T / 4) * 64 + k) & (ROWS - 1);
    float4 v = row[(i64)i * PITCH + HEAD + (threadIdx.x & 3)];
    s = fmaf(s, 0.9f, (v.x + v.y) + (v.z + v.w));
  }
  out[T] = s;
}
__global__ void make_rows(const float4* a, float4* headed, float4* aligned) {
  for (i64 i = T; i < (i64)ROWS * 4; i += STRIDE) {
    aligned[i] = a[i], headed[i / 4 * 5 + 1 + (i & 3)] = a[i];
    if ((i & 3) == 0) headed[i / 4 * 5] = {1, 2, 3, 4};
  }
}
// ---- binarise_scan: a pixel of one byte a thread; expected 3 times
template <int V> __global__ void __launch_bounds__(256) binarise_scan(const unsigned char* in, unsigned char* out, unsigned char level) {
  if (V == 0) {
    out[T] = in[T] > level ? 255 : 0;
  } else {
    uint4 v = ((const uint4*)in)[T];
    unsigned all = level * 0x01010101u;
    ((uint4*)out)[T] = {__vcmpgtu4(v.x, all), __vcmpgtu4(v.y, all), __vcmpgtu4(v.z, all), __vcmpgtu4(v.w, all)};
  }
}
// ---- quantise_pcm: a sample of two bytes becomes one byte, a sample a thread; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) quantise_pcm(const unsigned short* in, unsigned char* out) {
  if (V == 0) {
    out[T] = (unsigned char)((in[T] >> 8) ^ 128);
  } else {
    uint4 v = ((const uint4*)in)[T];
    ((uint2*)out)[T] = {__byte_perm(v.x, v.y, 0x7531) ^ 0x80808080u, __byte_perm(v.z, v.w, 0x7531) ^ 0x80808080u};
  }
}
// ---- residual_bf16: a value of two bytes a thread; expected 1.5 times
template <int V> __global__ void __launch_bounds__(256) residual_bf16(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* out) {
  if (V == 0) {
    out[T] = __hadd(x[T], y[T]);
  } else {
    uint4 a = ((const uint4*)x)[T], b = ((const uint4*)y)[T];
    __nv_bfloat162 *p = (__nv_bfloat162*)&a, *q = (__nv_bfloat162*)&b;
#pragma unroll
    for (int k = 0; k < 4; ++k) p[k] = __hadd2(p[k], q[k]);
    ((uint4*)out)[T] = a;
  }
}
__global__ void fill_bf16(const float* a, __nv_bfloat16* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2bfloat16(a[i]);
}
// ---- longest_adjacency: offsets below 2^31 in 64 bits; expected 1.9 times
template <class I> __global__ void __launch_bounds__(256) longest_adjacency(const I* offset, int* out, int n) {
  int most = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) most = max(most, (int)(offset[i + 1] - offset[i]));
  out[T] = most;
}
template <class I> __global__ void make_offsets(I* offset, int n) {
  for (int i = (int)T; i <= n; i += (int)STRIDE) offset[i] = (I)i * 16 + (I)(mix((unsigned)i) & 15);
}
// ---- masked_loss: a mask of ones and zeros in 32 bits; expected 1.9 times
template <class M> __global__ void __launch_bounds__(256) masked_loss(const uint2* loss, const M* mask, float* out, int n) {
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint2 v = loss[i];
    M m = mask[i];
    s += (m.x ? __uint_as_float(v.x << 16) : 0) + (m.y ? __uint_as_float(v.x & 0xffff0000u) : 0);
    s += (m.z ? __uint_as_float(v.y << 16) : 0) + (m.w ? __uint_as_float(v.y & 0xffff0000u) : 0);
  }
  out[T] = s;
}
__global__ void make_masks(int* wide, unsigned char* narrow, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) wide[i] = narrow[i] = mix((unsigned)i) & 1;
}
// ---- search_channels: eight templates, each of which reads all 128 MB before the next begins; or the eight of a piece in turn; expected 1.4 times
template <int V> __global__ void __launch_bounds__(256) search_channels(const float4* sound, float* out) {
  int piece = V == 0 ? blockIdx.x & 8191 : blockIdx.x >> 3, form = V == 0 ? blockIdx.x >> 13 : blockIdx.x & 7;
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float4 v = sound[piece * 1024 + k * 256 + threadIdx.x];
    float by = (float)((k * form + (int)threadIdx.x) & 7) - 3.5f;
    s = fmaf(by, (v.x - v.y) + (v.z - v.w), s);
  }
  out[(form * 8192 + piece) * 256ll + threadIdx.x] = s;
}
// ---- replay_orders: lists of 128 linked nodes anywhere in 17 MB; or values in planes; expected 6 times
constexpr int LISTS = 132 * 128, LENGTH = 128;
template <int V> __global__ void __launch_bounds__(128) replay_orders(const uint2* node, const unsigned* head, const unsigned* value, unsigned* out) {
  unsigned s = 1, at = head[T];
#pragma unroll 4
  for (int k = 0; k < LENGTH; ++k) {
    if (V == 0) {
      uint2 v = node[at];
      at = v.x, s = s * 31 + v.y;
    } else {
      s = s * 31 + value[k * LISTS + T];
    }
  }
  out[T] = s;
}

void memory_cases() {
  static int *rows, *planes, *wide_mask;
  static float2* prices;
  static float *channel, *particles;
  static float4 *headed, *aligned;
  static __nv_bfloat16 *left, *right;
  static i64* long_offsets;
  static int* short_offsets;
  static unsigned char* narrow_mask;
  static uint2* nodes;
  static unsigned *heads, *values;
  cases.push_back({"quantised_rows", "uncoalesced_loads", "", [] { quantised_rows<0><<<512, 256>>>((unsigned*)A, (unsigned*)B, (int*)C); }, [] { quantised_rows<1><<<512, 256>>>((unsigned*)A, (unsigned*)B, (int*)C); }, C, 131072, true});
  cases.push_back({"neighbour_energies", "uncoalesced_loads", "", [] { neighbour_energies<0><<<ATOMS / 256, 256>>>(rows, A, C); }, [] { neighbour_energies<1><<<ATOMS / 256, 256>>>(planes, A, C); }, C, ATOMS, false, [] {
    rows = device<int>((i64)ATOMS * NEAR), planes = device<int>((i64)ATOMS * NEAR);
    make_lists<<<1056, 256>>>(rows, planes);
  }});
  cases.push_back({"filter_orders", "strided_sectors", "uncoalesced_loads", [] { filter_orders<8><<<1056, 256>>>((float2*)A + 3, (int*)C, (1 << 22) - 1); }, [] { filter_orders<1><<<1056, 256>>>(prices, (int*)C, (1 << 22) - 1); }, C, 1056 * 256, true, [] {
    prices = device<float2>(1 << 22);
    take_column<<<1056, 256>>>((float2*)A + 3, prices, (1 << 22) - 1);
  }});
  cases.push_back({"channel_peak", "strided_sectors", "uncoalesced_loads", [] { channel_peak<8><<<1056, 256>>>(A + 5, C, 1 << 23); }, [] { channel_peak<1><<<1056, 256>>>(channel, C, 1 << 23); }, C, 1056 * 256, false, [] {
    channel = device<float>(1 << 23);
    take_channel<<<1056, 256>>>(A + 5, channel, 1 << 23);
  }});
  cases.push_back({"cache_keys", "uncoalesced_stores", "partial_sector_writes", [] { cache_keys<0><<<TOKENS, 256>>>(A, C); }, [] { cache_keys<1><<<TOKENS, 256>>>(A, C); }, C, (i64)TOKENS * WIDE});
  cases.push_back({"element_matrices", "uncoalesced_stores", "", [] { element_matrices<0><<<16384, 256>>>((float4*)A, C); }, [] { element_matrices<1><<<16384, 256>>>((float4*)A, C); }, C, N});
  cases.push_back({"stamp_particles", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { stamp_particles<8><<<1056, 256>>>(particles + 5, 3, 1 << 23); }, [] { stamp_particles<1><<<1056, 256>>>(C, 3, 1 << 23); }, nullptr, 0, false, [] { particles = device<float>(N + 8); }});
  cases.push_back({"collect_features", "misaligned_base", "", [] { collect_features<5, 1><<<1056, 256>>>(headed, C); }, [] { collect_features<4, 0><<<1056, 256>>>(aligned, C); }, C, 1056 * 256, false, [] {
    headed = device<float4>((i64)ROWS * 5), aligned = device<float4>((i64)ROWS * 4);
    make_rows<<<1056, 256>>>((float4*)A, headed, aligned);
  }});
  cases.push_back({"binarise_scan", "narrow_accesses", "", [] { binarise_scan<0><<<(1 << 26) / 256, 256>>>((unsigned char*)A, (unsigned char*)C, 100); }, [] { binarise_scan<1><<<(1 << 26) / 4096, 256>>>((unsigned char*)A, (unsigned char*)C, 100); }, C, 1 << 24, true});
  cases.push_back({"quantise_pcm", "narrow_accesses", "", [] { quantise_pcm<0><<<(1 << 26) / 256, 256>>>((unsigned short*)A, (unsigned char*)C); }, [] { quantise_pcm<1><<<(1 << 26) / 2048, 256>>>((unsigned short*)A, (unsigned char*)C); }, C, 1 << 24, true});
  cases.push_back({"residual_bf16", "narrow_accesses", "", [] { residual_bf16<0><<<(1 << 26) / 256, 256>>>(left, right, (__nv_bfloat16*)C); }, [] { residual_bf16<1><<<(1 << 26) / 2048, 256>>>(left, right, (__nv_bfloat16*)C); }, C, 1 << 25, true, [] {
    left = device<__nv_bfloat16>(N), right = device<__nv_bfloat16>(N);
    fill_bf16<<<1056, 256>>>(A, left, N), fill_bf16<<<1056, 256>>>(B, right, N);
  }});
  cases.push_back({"longest_adjacency", "wide_data", "", [] { longest_adjacency<<<1056, 256>>>(long_offsets, (int*)C, 1 << 25); }, [] { longest_adjacency<<<1056, 256>>>(short_offsets, (int*)C, 1 << 25); }, C, 1056 * 256, true, [] {
    long_offsets = device<i64>((1 << 25) + 1), short_offsets = device<int>((1 << 25) + 1);
    make_offsets<<<1056, 256>>>(long_offsets, 1 << 25), make_offsets<<<1056, 256>>>(short_offsets, 1 << 25);
  }});
  cases.push_back({"masked_loss", "wide_data", "", [] { masked_loss<<<1056, 256>>>((uint2*)left, (int4*)wide_mask, C, 1 << 24); }, [] { masked_loss<<<1056, 256>>>((uint2*)left, (uchar4*)narrow_mask, C, 1 << 24); }, C, 1056 * 256, false, [] {
    left = device<__nv_bfloat16>(N), wide_mask = device<int>(N), narrow_mask = device<unsigned char>(N);
    fill_bf16<<<1056, 256>>>(A, left, N), make_masks<<<1056, 256>>>(wide_mask, narrow_mask, N);
  }});
  cases.push_back({"search_channels", "block_order_l2", "no_tile", [] { search_channels<0><<<65536, 256>>>((float4*)A, C); }, [] { search_channels<1><<<65536, 256>>>((float4*)A, C); }, C, 1 << 24});
  cases.push_back({"replay_orders", "pointer_chasing", "", [] { replay_orders<0><<<132, 128>>>(nodes, heads, values, (unsigned*)C); }, [] { replay_orders<1><<<132, 128>>>(nodes, heads, values, (unsigned*)C); }, C, LISTS, true, [] {
    const int all = LISTS * LENGTH;
    std::vector<unsigned> place(all), head(LISTS), value(all);
    std::vector<uint2> node(all);
    for (int i = 0; i < all; ++i) place[i] = i;
    for (int i = all - 1; i > 0; --i) std::swap(place[i], place[mix((unsigned)i) % (unsigned)(i + 1)]);
    for (int t = 0; t < LISTS; ++t) {
      head[t] = place[t * LENGTH];
      for (int k = 0; k < LENGTH; ++k) node[place[t * LENGTH + k]] = {place[t * LENGTH + std::min(k + 1, LENGTH - 1)], value[k * LISTS + t] = mix((unsigned)(t * LENGTH + k) + 5)};
    }
    nodes = upload(node), heads = upload(head), values = upload(value);
  }});
}
