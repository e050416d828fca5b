// Loads and stores: spectra, portraits, keys, barcodes, halos, splats, flows, fields, dreams, X-rays, clocks, shots, pebbles.
// Each comment says what the slow form does; or what the fixed one does instead; and the factor its author expects from arithmetic, as nothing has been run.
// Names are of domains. operands.csv has the bytes that shapes and types tell a caller.
// Decided before any run: the set loses a kernel that fails, a pair whose forms differ by more than 1e-3, a defect whose fix costs time, and a slow form that
// takes less than 20 us without being declared as launch_latency; a declared defect whose fix wins less than 6 % counts as a trap.
#include "frame.h"

// ---- split_hyperspectra: a pixel a thread, whose 64 bands lie together, so lanes are 256 bytes apart; or 64 pixels through shared memory; expected 3 times
constexpr int PIXELS = 1 << 19;
template <int V> __global__ void __launch_bounds__(256) split_hyperspectra(const float* __restrict__ cube, float* __restrict__ band) {
  int t = threadIdx.x;
  if (V == 0) {
    i64 p = T;
#pragma unroll 8
    for (int k = 0; k < 64; ++k) band[(i64)k * PIXELS + p] = fmaf(cube[p * 64 + k], 0.5f, 0.25f);
    return;
  }
  __shared__ float room[V == 0 ? 1 : 64][65];
  i64 first = blockIdx.x * 64ll;
#pragma unroll
  for (int k = 0; k < 16; ++k) room[k * 4 + t / 64][t & 63] = cube[first * 64 + k * 256 + t];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 16; ++k) band[(i64)(k * 4 + t / 64) * PIXELS + first + (t & 63)] = fmaf(room[t & 63][k * 4 + t / 64], 0.5f, 0.25f);
}
// ---- rotate_portraits: a quarter turn of pixels of four bytes, whose reads go down a column, 16 kB from lane to lane; or tiles of 32 x 32; expected 3 times
constexpr int WIDE = 4096, HIGH = 8192;
template <int V> __global__ void __launch_bounds__(256) rotate_portraits(const unsigned* picture, unsigned* out) {
  int t = threadIdx.x;
  if (V == 0) {
    int c = blockIdx.x * 256 + t, r = blockIdx.y;
    out[(i64)r * HIGH + c] = picture[(i64)(HIGH - 1 - c) * WIDE + r];
    return;
  }
  __shared__ unsigned tile[32][33];
  int lane = t & 31, row = t / 32, y = blockIdx.x * 32, x = blockIdx.y * 32;
#pragma unroll
  for (int k = 0; k < 32; k += 8) tile[row + k][lane] = picture[(i64)(y + row + k) * WIDE + x + lane];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 32; k += 8) out[(i64)(x + row + k) * HIGH + HIGH - 1 - (y + lane)] = tile[lane][row + k];
}
// ---- lay_out_keys: keys of 32 pairs of halves become columns of a cache, so each lane of a store writes to another column; or 32 tokens through shared memory; expected 3 times
constexpr int CACHED = 8192;  // tokens of a head
template <int V> __global__ void __launch_bounds__(256) lay_out_keys(const unsigned* key, unsigned* cache) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  if (V == 0) {
    i64 row = T / 32, head = row / CACHED, token = row % CACHED;
    cache[(head * 32 + lane) * CACHED + token] = key[row * 32 + lane];
    return;
  }
  __shared__ unsigned tile[32][33];
  i64 row = blockIdx.x * 32ll, head = row / CACHED, token = row % CACHED;
#pragma unroll
  for (int k = 0; k < 32; k += 8) tile[warp + k][lane] = key[(row + warp + k) * 32 + lane];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 32; k += 8) cache[(head * 32 + warp + k) * CACHED + token + lane] = tile[lane][warp + k];
}
// ---- expand_barcodes: 16 bars as bits become 16 pixels of four bytes, which a thread stores one by one, so lanes are 64 bytes apart; or pixels are dealt to lanes; expected 3 times
template <int V> __global__ void __launch_bounds__(256) expand_barcodes(const unsigned short* code, unsigned* pixel) {
  unsigned lane = threadIdx.x & 31, bars = code[T];
  if (V == 0) {
    unsigned* own = pixel + T * 16;
#pragma unroll
    for (int k = 0; k < 16; ++k) own[k] = bars >> k & 1 ? 0xff202020u : 0xfff8f8f8u;
  } else {
    unsigned* own = pixel + T / 32 * 512 + lane;
#pragma unroll
    for (int k = 0; k < 16; ++k) own[k * 32] = __shfl_sync(~0u, bars, k * 2 + lane / 16) >> (lane & 15) & 1 ? 0xff202020u : 0xfff8f8f8u;
  }
}
// ---- mass_of_halos: the mass alone of records of eight doubles, a sector each; or an array of masses; expected 4 times
constexpr int HALOS = 1 << 23;
template <int STEP> __global__ void __launch_bounds__(256) mass_of_halos(const double* mass, float* out) {
  double s = 0;
#pragma unroll 4
  for (int i = (int)T; i < HALOS; i += (int)STRIDE) s += mass[(i64)i * STEP];
  out[T] = (float)s;
}
__global__ void make_halos(double* record, double* mass) {
  for (int i = (int)T; i < HALOS; i += (int)STRIDE)
    for (int k = 0; k < 8; ++k) {
      double v = (mix((unsigned)i * 8 + k) >> 8) * 0x1p-24;
      record[i * 8ll + k] = v;
      if (k == 6) mass[i] = v;
    }
}
// ---- cull_splats: the fourth of four words of each splat; or an array of opacities; expected 3.3 times
constexpr int SPLATS = 1 << 24;
template <int STEP> __global__ void __launch_bounds__(256) cull_splats(const float* opacity, float* out) {
  float clear = 0, most = 0;
#pragma unroll 8
  for (int i = (int)T; i < SPLATS; i += (int)STRIDE) {
    float o = opacity[(i64)i * STEP];
    clear += o < 0.05f ? 1.0f : 0.0f, most = fmaxf(most, o);
  }
  out[T] = clear + most;
}
// ---- look_up_flows: buckets of 32 bytes of a table of 16 MB, which begins 16 bytes into a sector, so each look-up takes two sectors of L2; or one; expected 1.8 times
__global__ void __launch_bounds__(256) look_up_flows(const uint4* bucket, unsigned* out, unsigned buckets) {  // two lanes a packet
  unsigned part = threadIdx.x & 1, packet = (unsigned)(T / 2), s = 0;
#pragma unroll 8
  for (int k = 0; k < 16; ++k) {
    uint4 v = bucket[(mix(packet * 16 + k) & (buckets - 1)) * 2 + part];
    s += (v.x ^ v.z) + (v.y ^ v.w ^ packet);
  }
  s += __shfl_xor_sync(~0u, s, 1);
  if (part == 0) out[packet] = s;
}
// ---- flood_fields: the level is one of two interleaved words, so half of each sector is written and memory must merge; or an array of levels; expected 2.3 times
constexpr int PLOTS = 1 << 25;
template <int STEP> __global__ void __launch_bounds__(256) flood_fields(const float* __restrict__ rain, float* __restrict__ level, float* sum) {
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < PLOTS; i += (int)STRIDE) {
    float v = fmaf(0.7f, rain[i], 0.1f);
    level[(i64)i * STEP] = v, s += v;
  }
  sum[T] = s;
}
// ---- denoise_dreams: a step of a sampler over halves, one a thread; or eight; expected 2.2 times
template <int V> __global__ void __launch_bounds__(256) denoise_dreams(const half* x, const half* noise, half* out, float keep, float less) {
  auto one = [&](half p, half q) { return __float2half_rn(fmaf(keep, __half2float(p), -less * __half2float(q))); };
  if (V == 0) {
    out[T] = one(x[T], noise[T]);
    return;
  }
  uint4 p = ((const uint4*)x)[T], q = ((const uint4*)noise)[T];
  auto two = [&](unsigned u, unsigned v) {
    half2 a = *(half2*)&u, b = *(half2*)&v, c = __halves2half2(one(__low2half(a), __low2half(b)), one(__high2half(a), __high2half(b)));
    return *(unsigned*)&c;
  };
  ((uint4*)out)[T] = {two(p.x, q.x), two(p.y, q.y), two(p.z, q.z), two(p.w, q.w)};
}
// ---- compare_xrays: the sum of differences of two scans, byte by byte; or 16 bytes at a time; expected 2.7 times
template <int V> __global__ void __launch_bounds__(256) compare_xrays(const unsigned char* a, const unsigned char* b, int* out, int each) {  // bytes of a block
  __shared__ int part[8];
  int t = threadIdx.x, s = 0;
  const unsigned char *p = a + (i64)blockIdx.x * each, *q = b + (i64)blockIdx.x * each;
  if (V == 0) {
#pragma unroll 2
    for (int i = t; i < each; i += 256) s += abs((int)p[i] - (int)q[i]);
  } else {
#pragma unroll 2
    for (int i = t; i < each / 16; i += 256) {
      uint4 u = ((const uint4*)p)[i], v = ((const uint4*)q)[i];
      s += (int)(__vsadu4(u.x, v.x) + __vsadu4(u.y, v.y) + __vsadu4(u.z, v.z) + __vsadu4(u.w, v.w));
    }
  }
  s = __reduce_add_sync(~0u, s);
  if ((t & 31) == 0) part[t / 32] = s;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
// ---- drift_of_clocks: readings of two clocks with the precision of floats, held in doubles; or in floats; expected 1.9 times
constexpr int READINGS = 1 << 25;
template <class R> __global__ void __launch_bounds__(256) drift_of_clocks(const R* clock, const R* reference, float* out) {
  float s = 0;
#pragma unroll 8
  for (int i = (int)T; i < READINGS; i += (int)STRIDE) {
    float d = (float)clock[i] - (float)reference[i];
    s = fmaf(d, d, s);
  }
  out[T] = s;
}
// ---- migrate_shots: five planes of 16 MB for each of ten outputs, by persistent blocks that finish a plane before the next, so each plane comes from DRAM five times;
// or that go down the planes at one place, so four of five come from L1; expected 2 times
constexpr int PLANE = 1 << 20, COLUMNS = PLANE / 512, OUTPUTS = 10;  // in vectors of four
template <int V> __global__ void __launch_bounds__(512) migrate_shots(const float4* wave, float4* image) {
  auto one = [&](int z, int column) {
    int i = column * 512 + threadIdx.x;
    const float by[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
    float4 v[5], s = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < 5; ++k) v[k] = wave[(z + k) * PLANE + i];
#pragma unroll
    for (int k = 0; k < 5; ++k) s = {fmaf(by[k], v[k].x, s.x), fmaf(by[k], v[k].y, s.y), fmaf(by[k], v[k].z, s.z), fmaf(by[k], v[k].w, s.w)};
    image[z * PLANE + i] = s;
  };
  if (V == 0) {
#pragma unroll 1
    for (int z = 0; z < OUTPUTS; ++z)
#pragma unroll 1
      for (int c = blockIdx.x; c < COLUMNS; c += gridDim.x) one(z, c);
  } else {
#pragma unroll 1
    for (int c = blockIdx.x; c < COLUMNS; c += gridDim.x)
#pragma unroll 1
      for (int z = 0; z < OUTPUTS; ++z) one(z, c);
  }
}
// ---- cool_pebbles: the pebbles of a cell form a list, each naming the next, anywhere in 69 MB, and four warps an SM walk 128 of them; or heats are stored cell by cell; expected 6 times
constexpr int CELLS = 132 * 128, PEBBLES = 128;
struct Pebble {
  unsigned next;
  float heat, place[3], speed[3];
};
template <int V> __global__ void __launch_bounds__(128) cool_pebbles(const unsigned* head, const Pebble* pebble, const float* heat, float* out) {
  float s = 0;
  if (V == 0) {
#pragma unroll 1
    for (unsigned at = head[T]; at != ~0u;) {
      const Pebble* own = pebble + at;
      at = own->next, s = fmaf(0.98f, s, own->heat);
    }
  } else {
#pragma unroll 8
    for (int k = 0; k < PEBBLES; ++k) s = fmaf(0.98f, s, heat[k * CELLS + T]);
  }
  out[T] = s;
}

void memory_cases() {
  static double *halos, *masses, *clock64, *reference64;
  static float *opacities, *heats;
  static uint4 *flows, *shifted_flows;
  static half *dream, *noise;
  static unsigned* heads;
  static Pebble* pebbles;
  cases.push_back({"split_hyperspectra", "uncoalesced_loads", "", [] { split_hyperspectra<0><<<PIXELS / 256, 256>>>(A, C); }, [] { split_hyperspectra<1><<<PIXELS / 64, 256>>>(A, C); }, C, PIXELS * 64ll});
  cases.push_back({"rotate_portraits", "uncoalesced_loads", "", [] { rotate_portraits<0><<<dim3(HIGH / 256, WIDE), 256>>>((unsigned*)A, (unsigned*)C); }, [] { rotate_portraits<1><<<dim3(HIGH / 32, WIDE / 32), 256>>>((unsigned*)A, (unsigned*)C); }, C, (i64)WIDE * HIGH, true});
  cases.push_back({"lay_out_keys", "uncoalesced_stores", "partial_sector_writes", [] { lay_out_keys<0><<<128 * CACHED / 8, 256>>>((unsigned*)A, (unsigned*)C); }, [] { lay_out_keys<1><<<128 * CACHED / 32, 256>>>((unsigned*)A, (unsigned*)C); }, C, 128ll * CACHED * 32, true});
  cases.push_back({"expand_barcodes", "uncoalesced_stores", "partial_sector_writes", [] { expand_barcodes<0><<<8192, 256>>>((unsigned short*)A, (unsigned*)C); }, [] { expand_barcodes<1><<<8192, 256>>>((unsigned short*)A, (unsigned*)C); }, C, 8192ll * 256 * 16, true});
  cases.push_back({"mass_of_halos", "strided_sectors", "uncoalesced_loads", [] { mass_of_halos<8><<<1056, 256>>>(halos + 6, C); }, [] { mass_of_halos<1><<<1056, 256>>>(masses, C); }, C, 1056 * 256, false, [] {
    halos = device<double>(HALOS * 8ll), masses = device<double>(HALOS);
    make_halos<<<1056, 256>>>(halos, masses);
  }});
  cases.push_back({"cull_splats", "strided_sectors", "uncoalesced_loads", [] { cull_splats<4><<<1056, 256>>>(A + 3, C); }, [] { cull_splats<1><<<1056, 256>>>(opacities, C); }, C, 1056 * 256, false, [] {
    opacities = device<float>(SPLATS);
    pick_words<<<1056, 256>>>(A, opacities, SPLATS, 4, 3);
  }});
  cases.push_back({"look_up_flows", "misaligned_base", "alignment", [] { look_up_flows<<<8192, 256>>>(shifted_flows + 1, (unsigned*)C, 1u << 19); }, [] { look_up_flows<<<8192, 256>>>(flows, (unsigned*)C, 1u << 19); }, C, 1 << 20, true, [] {
    flows = device<uint4>(1 << 20), shifted_flows = device<uint4>((1 << 20) + 1);
    CHECK(cudaMemcpy(flows, A, 16 << 20, cudaMemcpyDefault));
    CHECK(cudaMemcpy(shifted_flows + 1, A, 16 << 20, cudaMemcpyDefault));
  }});
  cases.push_back({"flood_fields", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { flood_fields<2><<<1056, 256>>>(A, C, D); }, [] { flood_fields<1><<<1056, 256>>>(A, D + (1 << 20), D); }, D, 1056 * 256});
  cases.push_back({"denoise_dreams", "narrow_accesses", "", [] { denoise_dreams<0><<<1 << 18, 256>>>(dream, noise, (half*)C, 0.9f, 0.3f); }, [] { denoise_dreams<1><<<1 << 15, 256>>>(dream, noise, (half*)C, 0.9f, 0.3f); }, C, 1 << 25, true, [] { dream = converted<half>(A, N, 0.5f), noise = converted<half>(B, N, 0.5f); }});
  cases.push_back({"compare_xrays", "narrow_accesses", "", [] { compare_xrays<0><<<1024, 256>>>((unsigned char*)A, (unsigned char*)B, (int*)C, 1 << 17); }, [] { compare_xrays<1><<<1024, 256>>>((unsigned char*)A, (unsigned char*)B, (int*)C, 1 << 17); }, C, 1024, true});
  cases.push_back({"drift_of_clocks", "wide_data", "precision", [] { drift_of_clocks<<<1056, 256>>>(clock64, reference64, C); }, [] { drift_of_clocks<<<1056, 256>>>((const float*)A, (const float*)B, C); }, C, 1056 * 256, false, [] { clock64 = converted<double>(A, READINGS, 0), reference64 = converted<double>(B, READINGS, 0); }});
  cases.push_back({"migrate_shots", "block_order_l2", "no_tile", [] { migrate_shots<0><<<528, 512>>>((float4*)A, (float4*)C); }, [] { migrate_shots<1><<<528, 512>>>((float4*)A, (float4*)C); }, C, OUTPUTS * 4ll * PLANE});
  cases.push_back({"cool_pebbles", "pointer_chasing", "", [] { cool_pebbles<0><<<132, 128>>>(heads, pebbles, nullptr, C); }, [] { cool_pebbles<1><<<132, 128>>>(nullptr, nullptr, heats, C); }, C, CELLS, false, [] {
    const unsigned all = CELLS * PEBBLES;
    std::vector<unsigned> place(all), head(CELLS);
    for (unsigned i = 0; i < all; ++i) place[i] = i;
    for (unsigned i = all - 1; i; --i) std::swap(place[i], place[mix(i + 7) % (i + 1)]);
    std::vector<Pebble> list(all);
    std::vector<float> heat(all);
    for (unsigned c = 0; c < CELLS; ++c) {
      head[c] = place[c * PEBBLES];
      for (unsigned k = 0; k < PEBBLES; ++k) {
        Pebble& own = list[place[c * PEBBLES + k]];
        own = {k + 1 < PEBBLES ? place[c * PEBBLES + k + 1] : ~0u, unit(c * PEBBLES + k), {0, 0, 0}, {0, 0, 0}};
        heat[k * CELLS + c] = own.heat;
      }
    }
    heads = upload(head), pebbles = upload(list), heats = upload(heat);
  }});
}
