// Loads and stores: power grids, glaciers, trajectories, interferograms, fog, hydrophones, parcels, stations, adapters, raw pictures, prompts, forecasts, views, buckets, aquifers, versions.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// Names tell the domain, not the defect. operands.csv has the sizes of operands, as a caller knows them from shapes and types.
// Decided before any run: a pair whose forms differ by more than 1e-3, or a defect whose fix is slower, leaves the set; so does a pair whose slow form takes
// less than 20 us, unless its cause is launch_latency; a pair whose fix wins less than 6 % of the time is a trap, whatever it was declared to be; one that
// fails to run leaves the set.
#include "frame.h"

// ---- admittance_of_grids: a sparse matrix with 64 entries a row, a row a thread; or eight lanes a row with vectors; expected 3 times
constexpr int BUSES = 1 << 19;
template <int V> __global__ void __launch_bounds__(256) admittance_of_grids(const float* value, const int* column, const float* voltage, float* out) {
  float s = 0;
  if (V == 0) {
    const float* v = value + T * 64;
    const int* c = column + T * 64;
#pragma unroll 4
    for (int k = 0; k < 64; ++k) s = fmaf(v[k], voltage[c[k]], s);
    out[T] = s;
  } else {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      i64 at = T / 8 * 16 + k * 8 + (threadIdx.x & 7);
      float4 v = ((const float4*)value)[at];
      int4 c = ((const int4*)column)[at];
      s = fmaf(v.x, voltage[c.x], fmaf(v.y, voltage[c.y], fmaf(v.z, voltage[c.z], fmaf(v.w, voltage[c.w], s))));
    }
    for (int o = 4; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if ((threadIdx.x & 7) == 0) out[T / 8] = s;
  }
}
__global__ void make_columns(int* column, int n, unsigned below) {
  for (int i = (int)T; i < n; i += (int)STRIDE) column[i] = (int)(mix((unsigned)i) & (below - 1));
}
// ---- melt_glaciers: tiles of 32 x 32 of two maps whose rows are the lanes, so that lanes are 32 kB apart; or whose columns are; expected 3 times
template <int V> __global__ void __launch_bounds__(256) melt_glaciers(const float* ice, const float* warmth, float* out) {
  __shared__ float part[8];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  i64 first = (i64)blockIdx.y * 32 * 8192 + blockIdx.x * 32;
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int i = warp + k * 8;
    i64 at = first + (V == 0 ? lane * 8192 + i : i * 8192 + lane);
    s += fminf(ice[at], 0.7f * warmth[at]);
  }
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.y * 256 + blockIdx.x] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
// ---- record_trajectories: 128 places of a drifting buoy a thread, stored as they come, so that lanes are 512 bytes apart; or 32 of each through shared memory; expected 4 times
constexpr int BUOYS = 1 << 18;
template <int V> __global__ void __launch_bounds__(128) record_trajectories(const float* a, float* out) {
  __shared__ float room[V == 0 ? 1 : 4][32][33];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  float x = a[T], v = 0.2f;
#pragma unroll 1
  for (int n = 0; n < 128; n += 32) {
#pragma unroll 8
    for (int k = 0; k < 32; ++k) {
      v = fmaf(v, 0.99f, fmaf(-0.03f, x, 0.01f)), x = fmaf(0.1f, v, x);
      if (V == 0) out[T * 128 + n + k] = x;
      else room[warp][lane][k] = x;
    }
    if (V == 0) continue;
    __syncwarp();
#pragma unroll 8
    for (int k = 0; k < 32; ++k) out[(T - lane + k) * 128 + n + lane] = room[warp][k][lane];
    __syncwarp();
  }
}
// ---- order_interferograms: each sample goes to the place whose bits are its own in reverse; or a tile of 32 x 32 of high and low bits at a time; expected 4 times
template <int V> __global__ void __launch_bounds__(256) order_interferograms(const int* a, int* out) {  // 2^26 samples
  __shared__ int tile[V == 0 ? 1 : 32][33];
  if (V == 0) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned i = blockIdx.x * 1024 + k * 256 + threadIdx.x;
      out[__brev(i) >> 6] = a[i];
    }
    return;
  }
  unsigned lane = threadIdx.x & 31, warp = threadIdx.x / 32, middle = blockIdx.x, reverse = __brev(middle) >> 16;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    unsigned high = warp + k * 8;
    tile[__brev(lane) >> 27][__brev(high) >> 27] = a[high << 21 | middle << 5 | lane];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    unsigned high = warp + k * 8;
    out[high << 21 | reverse << 5 | lane] = tile[high][lane];
  }
}
// ---- thin_fogs: the last of four words of each pixel; or a plane of it; expected 3 times
template <int STEP> __global__ void __launch_bounds__(256) thin_fogs(const float* depth, float* out, int n) {
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float d = depth[(i64)i * STEP];
    s += d * fmaf(d, -0.4f, 1.0f);
  }
  out[T] = s;
}
// ---- hear_one_hydrophone: one of eight hydrophones whose samples are interleaved, and the next sample of it; or its own record; expected 5 times
template <int STEP> __global__ void __launch_bounds__(256) hear_one_hydrophone(const float* sample, float* out, int n) {
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n - 1; i += (int)STRIDE) s += fabsf(sample[(i64)i * STEP] - sample[(i64)(i + 1) * STEP]);
  out[T] = s;
}
__global__ void take_every(const float* a, float* out, int n, int step) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = a[(i64)i * step];
}
// ---- stamp_parcels: eight bytes of each record of 32 are written; or an array of their own; expected 4 times
template <int STEP> __global__ void __launch_bounds__(256) stamp_parcels(int2* seen, int n, int now) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) seen[(i64)i * STEP] = {now + (i & 63), i >> 6};
}
// ---- file_stations: rows of six words, 32 bytes apart, whose last eight bytes nobody writes, so that memory must merge; or writes too; expected 1.6 times
template <int V> __global__ void __launch_bounds__(256) file_stations(const float2* a, float4* out) {
  float2 v = a[T];
  out[T * 2] = {v.x, v.y, v.x + v.y, v.x - v.y};
  if (V == 0) ((float2*)out)[T * 4 + 2] = {v.x * v.y, v.x * v.x};
  else out[T * 2 + 1] = {v.x * v.y, v.x * v.x, 0, 0};
}
// ---- add_adapters: the outputs of a layer and of its adapter, one of 16 bits a thread; or eight; expected 2 times
template <int V> __global__ void __launch_bounds__(256) add_adapters(const __half* layer, const __half* adapter, __half* out, __half by) {
  if (V == 0) {
    out[T] = __hfma(adapter[T], by, layer[T]);
  } else {
    uint4 p = ((const uint4*)layer)[T], q = ((const uint4*)adapter)[T], r;
    __half2 two = __half2half2(by);
    auto sum = [&](unsigned u, unsigned v) {
      __half2 w = __hfma2(*(__half2*)&v, two, *(__half2*)&u);
      return *(unsigned*)&w;
    };
    r = {sum(p.x, q.x), sum(p.y, q.y), sum(p.z, q.z), sum(p.w, q.w)};
    ((uint4*)out)[T] = r;
  }
}
// ---- develop_raws: two values of 12 bits from three single bytes a thread, stored one by one; or eight values from three words; expected 2 times
template <int V> __global__ void __launch_bounds__(256) develop_raws(const unsigned char* raw, unsigned short* out, unsigned black) {
  auto less = [&](unsigned v) { return v > black ? v - black : 0u; };
  if (V == 0) {
    unsigned a = raw[T * 3], b = raw[T * 3 + 1], c = raw[T * 3 + 2];
    out[T * 2] = (unsigned short)less(a | (b & 15) << 8);
    out[T * 2 + 1] = (unsigned short)less(b >> 4 | c << 4);
  } else {
    const unsigned* own = (const unsigned*)raw + T * 3;
    unsigned u = own[0], v = own[1], w = own[2];
    auto two = [&](unsigned low, unsigned high) { return less(low & 4095) | less(high & 4095) << 16; };
    ((uint4*)out)[T] = {two(u, u >> 12), two(u >> 24 | v << 8, v >> 4), two(v >> 16, v >> 28 | w << 4), two(w >> 8, w >> 20)};
  }
}
// ---- mask_prompts: a mask of 0 and 1 in 64 bits beside scores of 16; or in bytes; expected 2.2 times
template <int V> __global__ void __launch_bounds__(256) mask_prompts(const __half* score, const void* mask, __half* out) {
  const unsigned low = 0xfc00;  // minus infinity
  if (V == 0) {
    unsigned v = ((const unsigned*)score)[T];
    ulonglong2 m = ((const ulonglong2*)mask)[T];
    ((unsigned*)out)[T] = (m.x ? v & 0xffff : low) | (m.y ? v & 0xffff0000u : low << 16);
  } else {
    uint4 v = ((const uint4*)score)[T];
    uint2 m = ((const uint2*)mask)[T];
    auto two = [&](unsigned w, unsigned bytes) { return (bytes & 255 ? w & 0xffff : low) | (bytes & 0xff00 ? w & 0xffff0000u : low << 16); };
    ((uint4*)out)[T] = {two(v.x, m.x), two(v.y, m.x >> 16), two(v.z, m.y), two(v.w, m.y >> 16)};
  }
}
__global__ void make_mask(u64* wide, unsigned char* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = (unsigned char)(mix((unsigned)i) % 5 > 0);
}
// ---- blend_forecasts: four members of an ensemble as floats, which hold steps of 1/65536; or in 16 bits; expected 1.8 times
constexpr int CELLS = 1 << 24;
template <class FOUR> __global__ void __launch_bounds__(256) blend_forecasts(const FOUR* member, float* out, float scale) {
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    FOUR v = member[(i64)k * (CELLS / 4) + T];
    s = fmaf(0.1f + 0.1f * k, ((float)v.x + (float)v.y) + ((float)v.z + (float)v.w), s);
  }
  out[T] = s * scale;
}
__global__ void make_members(const float* a, float* wide, unsigned short* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned short v = (unsigned short)(a[i] * 65535);
    wide[i] = (float)v * 0x1p-16f, narrow[i] = v;
  }
}
// ---- clip_views: a view of bytes that begins one byte after a multiple of 16, so that the path of single bytes is taken; or at one; expected 4 times
__global__ void __launch_bounds__(256) clip_views(const unsigned char* in, unsigned char* out, int n, unsigned most) {
  if (((uintptr_t)in | (uintptr_t)out) & 15) {
#pragma unroll 1
    for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = (unsigned char)min((unsigned)in[i], most);
  } else {
    unsigned four = most * 0x01010101u;
#pragma unroll 2
    for (int i = (int)T; i < n / 16; i += (int)STRIDE) {
      uint4 v = ((const uint4*)in)[i];
      ((uint4*)out)[i] = {__vminu4(v.x, four), __vminu4(v.y, four), __vminu4(v.z, four), __vminu4(v.w, four)};
    }
  }
}
// ---- probe_buckets: buckets of 128 bytes behind a header of 16, so that each lies in two lines and five sectors; or in one line; expected 1.3 times
__global__ void __launch_bounds__(256) probe_buckets(const unsigned* table, int* out, unsigned buckets) {
  unsigned lane = threadIdx.x & 31, warp = (unsigned)(T / 32);
  int found = 0;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) found += table[(i64)(mix(warp * 64 + k) % (buckets - 1)) * 32 + lane] % 4 < 2;
  found = __reduce_add_sync(~0u, found);
  if (lane == 0) out[warp] = found;
}
// ---- seep_aquifers: each layer from itself and the two beside it, 32 MB each; layer after layer, or the six layers of a place together; expected 1.6 times
constexpr int LAYER = 1 << 21;  // of four floats
__global__ void __launch_bounds__(256) seep_aquifers(const float4* a, float4* out, int by_layer) {
  int z = by_layer ? blockIdx.x / (LAYER / 256) : blockIdx.x % 6, i = (by_layer ? blockIdx.x % (LAYER / 256) : blockIdx.x / 6) * 256 + threadIdx.x;
  float4 p = a[z * LAYER + i], q = a[(z + 1) * LAYER + i], r = a[(z + 2) * LAYER + i];
  auto one = [](float u, float v, float w) { return fmaf(0.2f, u + w, 0.6f * v); };
  out[z * LAYER + i] = {one(p.x, q.x, r.x), one(p.y, q.y, r.y), one(p.z, q.z, r.z), one(p.w, q.w, r.w)};
}
// ---- undo_versions: 48 older versions of a row, each of which tells where the one before it lies, in eight warps an SM; or side by side; expected 5 times
constexpr int TUPLES = 132 * 256, VERSIONS = 48;
template <int V> __global__ void __launch_bounds__(256) undo_versions(const int4* version, const int* change, int* out) {
  int s = 0;
  if (V == 0) {
    unsigned at = (unsigned)T;
    do {
      int4 own = version[at];
      s += own.y ^ own.z, at = (unsigned)own.x;
    } while (at != ~0u);
  } else {
#pragma unroll 8
    for (int k = 0; k < VERSIONS; ++k) s += change[k * TUPLES + T];
  }
  out[T] = s;
}

void memory_cases() {
  static float *fog, *heard, *wide;
  static int *columns, *changes;
  static __half *layer, *adapter, *scores;
  static u64* wide_mask;
  static unsigned char *mask, *view;
  static unsigned short* narrow;
  static unsigned* table;
  static int4* versions;
  cases.push_back({"admittance_of_grids", "uncoalesced_loads", "", [] { admittance_of_grids<0><<<BUSES / 256, 256>>>(A, columns, B, C); }, [] { admittance_of_grids<1><<<BUSES / 32, 256>>>(A, columns, B, C); }, C, BUSES, false, [] {
    columns = device<int>(BUSES * 64);
    make_columns<<<1056, 256>>>(columns, BUSES * 64, 1 << 12);
  }});
  cases.push_back({"melt_glaciers", "uncoalesced_loads", "", [] { melt_glaciers<0><<<dim3(256, 256), 256>>>(A, B, C); }, [] { melt_glaciers<1><<<dim3(256, 256), 256>>>(A, B, C); }, C, 1 << 16});
  cases.push_back({"record_trajectories", "uncoalesced_stores", "partial_sector_writes", [] { record_trajectories<0><<<BUOYS / 128, 128>>>(A, C); }, [] { record_trajectories<1><<<BUOYS / 128, 128>>>(A, C); }, C, BUOYS * 128});
  cases.push_back({"order_interferograms", "uncoalesced_stores", "partial_sector_writes", [] { order_interferograms<0><<<1 << 16, 256>>>((int*)A, (int*)C); }, [] { order_interferograms<1><<<1 << 16, 256>>>((int*)A, (int*)C); }, C, N, true});
  cases.push_back({"thin_fogs", "strided_sectors", "uncoalesced_loads", [] { thin_fogs<4><<<1056, 256>>>(A + 3, C, 1 << 24); }, [] { thin_fogs<1><<<1056, 256>>>(fog, C, 1 << 24); }, C, 1056 * 256, false, [] {
    fog = device<float>(1 << 24);
    take_every<<<1056, 256>>>(A + 3, fog, 1 << 24, 4);
  }});
  cases.push_back({"hear_one_hydrophone", "strided_sectors", "uncoalesced_loads", [] { hear_one_hydrophone<8><<<1056, 256>>>(A + 5, C, 1 << 23); }, [] { hear_one_hydrophone<1><<<1056, 256>>>(heard, C, 1 << 23); }, C, 1056 * 256, false, [] {
    heard = device<float>(1 << 23);
    take_every<<<1056, 256>>>(A + 5, heard, 1 << 23, 8);
  }});
  cases.push_back({"stamp_parcels", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { stamp_parcels<4><<<1056, 256>>>((int2*)C + 1, 1 << 23, 77); }, [] { stamp_parcels<1><<<1056, 256>>>((int2*)D, 1 << 23, 77); }});
  cases.push_back({"file_stations", "partial_sector_writes", "", [] { file_stations<0><<<1 << 15, 256>>>((float2*)A, (float4*)C); }, [] { file_stations<1><<<1 << 15, 256>>>((float2*)A, (float4*)C); }, C, N, false, nullptr, [] { CHECK(cudaMemset(C, 0, N * 4)); }});
  cases.push_back({"add_adapters", "narrow_accesses", "", [] { add_adapters<0><<<N / 256, 256>>>(layer, adapter, (__half*)C, __float2half(0.75f)); }, [] { add_adapters<1><<<N / 2048, 256>>>(layer, adapter, (__half*)C, __float2half(0.75f)); }, C, N / 2, true, [] { layer = converted<__half>(A, N, 0.25f), adapter = converted<__half>(B, N, 0.25f); }});
  cases.push_back({"develop_raws", "narrow_accesses", "", [] { develop_raws<0><<<N / 256, 256>>>((unsigned char*)A, (unsigned short*)C, 64); }, [] { develop_raws<1><<<N / 1024, 256>>>((unsigned char*)A, (unsigned short*)C, 64); }, C, N, true});
  cases.push_back({"mask_prompts", "wide_data", "precision", [] { mask_prompts<0><<<(1 << 24) / 256, 256>>>(scores, wide_mask, (__half*)C); }, [] { mask_prompts<1><<<(1 << 22) / 256, 256>>>(scores, mask, (__half*)C); }, C, 1 << 24, true, [] {
    scores = converted<__half>(A, 1 << 25, 0.5f), wide_mask = device<u64>(1 << 25), mask = device<unsigned char>(1 << 25);
    make_mask<<<1056, 256>>>(wide_mask, mask, 1 << 25);
  }});
  cases.push_back({"blend_forecasts", "wide_data", "precision", [] { blend_forecasts<float4><<<CELLS / 1024, 256>>>((float4*)wide, C, 1); }, [] { blend_forecasts<ushort4><<<CELLS / 1024, 256>>>((ushort4*)narrow, C, 0x1p-16f); }, C, CELLS / 4, false, [] {
    wide = device<float>(N), narrow = device<unsigned short>(N);
    make_members<<<1056, 256>>>(A, wide, narrow, N);
  }});
  cases.push_back({"clip_views", "misaligned_base", "narrow_accesses|alignment", [] { clip_views<<<1056, 256>>>(view + 1, (unsigned char*)C, 1 << 27, 200); }, [] { clip_views<<<1056, 256>>>((unsigned char*)A, (unsigned char*)C, 1 << 27, 200); }, C, 1 << 25, true, [] {
    view = device<unsigned char>((1 << 27) + 16);
    CHECK(cudaMemcpy(view + 1, A, 1 << 27, cudaMemcpyDefault));
  }});
  cases.push_back({"probe_buckets", "misaligned_base", "alignment", [] { probe_buckets<<<2112, 256>>>(table + 4, (int*)C, 1 << 21); }, [] { probe_buckets<<<2112, 256>>>((unsigned*)A, (int*)C, 1 << 21); }, C, 2112 * 8, true, [] {
    table = device<unsigned>(N + 4);
    CHECK(cudaMemcpy(table + 4, A, (i64)N * 4, cudaMemcpyDefault));
  }});
  cases.push_back({"seep_aquifers", "block_order_l2", "", [] { seep_aquifers<<<6 * (LAYER / 256), 256>>>((float4*)A, (float4*)C, 1); }, [] { seep_aquifers<<<6 * (LAYER / 256), 256>>>((float4*)A, (float4*)C, 0); }, C, 6ll * LAYER * 4});
  cases.push_back({"undo_versions", "pointer_chasing", "", [] { undo_versions<0><<<TUPLES / 256, 256>>>(versions, nullptr, (int*)C); }, [] { undo_versions<1><<<TUPLES / 256, 256>>>(nullptr, changes, (int*)C); }, C, TUPLES, true, [] {
    const int all = TUPLES * VERSIONS;
    std::vector<int> where(all), change(all);
    std::vector<int4> list(all);
    for (int i = 0; i < all; ++i) where[i] = i;
    for (int i = all - 1; i > TUPLES; --i) std::swap(where[i], where[TUPLES + mix((unsigned)i) % (unsigned)(i - TUPLES + 1)]);  // the newest of each row stays
    for (int i = 0; i < all; ++i) {
      int y = (int)(mix((unsigned)i) & 1023), z = (int)(mix((unsigned)i + 7) & 1023);
      list[where[i]] = {i + TUPLES < all ? where[i + TUPLES] : -1, y, z, i}, change[i] = y ^ z;
    }
    versions = upload(list), changes = upload(change);
  }});
}
