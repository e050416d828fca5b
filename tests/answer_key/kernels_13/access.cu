// Loads and stores: borrowers, tokens, weights, gases, sales, routes, visits, songs, layers, postcodes, magnets, ranks, keys, requests, files, beams.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// Names tell the domain, not the defect. operands.csv has the sizes of operands, as a caller knows them from shapes and types.
// Decided before any run: a pair whose forms differ by more than 1e-3, or a defect whose fix is slower, leaves the set; so does a pair whose slow form takes
// less than 20 us, unless its cause is launch_latency; a pair whose fix wins less than 6 % of the time is a trap, whatever it was declared to be; one that
// fails to run leaves the set.
#include "frame.h"

// ---- score_borrowers: eight oblivious trees ask for 64 traits in turn, and a borrower's traits lie together, so lanes are 256 bytes apart; or each trait is a column; expected 4 times
constexpr int BORROWERS = 1 << 20;
template <int V> __global__ void __launch_bounds__(256) score_borrowers(const float* trait, const float* leaf, const float* bound, float* out) {
  __shared__ float leaves[2048], limit[64];
  int t = threadIdx.x;
  for (int i = t; i < 2048; i += 256) leaves[i] = leaf[i];
  if (t < 64) limit[t] = bound[t];
  __syncthreads();
  float s = 0;
#pragma unroll 1
  for (int tree = 0; tree < 8; ++tree) {
    unsigned at = 0;
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      int f = (tree * 8 + d) * 37 & 63;
      float x = V == 0 ? trait[T * 64 + f] : trait[(i64)f * BORROWERS + T];
      at = at * 2 + (x > limit[f]);
    }
    s += leaves[tree * 256 + at];
  }
  out[T] = s;
}
__global__ void turn_table(const float* a, float* out, int rows, int columns) {
  for (i64 i = T; i < (i64)rows * columns; i += STRIDE) out[i % columns * rows + i / columns] = a[i];
}
// ---- judge_tokens: a thread reads the two rows of 128 halves that a token's experts wrote, so lanes are in different rows; or 16 lanes a token; expected 4 times
constexpr int TOKENS = 1 << 18;
template <int V> __global__ void __launch_bounds__(256) judge_tokens(const __half* row, const int2* pick, const float* head, float* out) {
  __shared__ __align__(16) float by[128];
  if (threadIdx.x < 128) by[threadIdx.x] = head[threadIdx.x];
  __syncthreads();
  float s = 0;
  if (V == 0) {
    int2 own = pick[T];
    const __half2 *p = (const __half2*)row + own.x * 64ll, *q = (const __half2*)row + own.y * 64ll;
#pragma unroll 8
    for (int k = 0; k < 64; ++k) {
      float2 u = __half22float2(p[k]), v = __half22float2(q[k]), w = *(const float2*)&by[k * 2];
      s = fmaf(w.x, fmaf(0.75f, u.x, 0.25f * v.x), s), s = fmaf(w.y, fmaf(0.75f, u.y, 0.25f * v.y), s);
    }
    out[T] = s;
  } else {
    int lane = threadIdx.x & 15;
    int2 own = pick[T / 16];
    uint4 p = ((const uint4*)row)[own.x * 16ll + lane], q = ((const uint4*)row)[own.y * 16ll + lane];
    unsigned m[4] = {p.x, p.y, p.z, p.w}, n[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float2 u = __half22float2(*(__half2*)&m[k]), v = __half22float2(*(__half2*)&n[k]), w = *(const float2*)&by[lane * 8 + k * 2];
      s = fmaf(w.x, fmaf(0.75f, u.x, 0.25f * v.x), s), s = fmaf(w.y, fmaf(0.75f, u.y, 0.25f * v.y), s);
    }
    for (int o = 8; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (lane == 0) out[T / 16] = s;
  }
}
// ---- repack_weights: words of packed weights go into tiles whose 16 rows lie side by side, so the lanes of a store are 64 bytes apart; or through shared memory; expected 2.5 times
constexpr int PACKED = 4096;  // words of a row
template <int V> __global__ void __launch_bounds__(256) repack_weights(const unsigned* a, unsigned* out) {
  __shared__ unsigned room[V == 0 ? 1 : 256][17];
  int t = threadIdx.x;
  const unsigned* own = a + blockIdx.y * 16ll * PACKED + blockIdx.x * 256 + t;
  out += ((i64)blockIdx.y * (PACKED / 256) + blockIdx.x) * 4096;
#pragma unroll
  for (int r = 0; r < 16; ++r) {
    unsigned v = own[r * PACKED];
    v = (v & 0x0f0f0f0fu) << 4 | (v >> 4 & 0x0f0f0f0fu);
    if (V == 0) out[t * 16 + r] = v;
    else room[t][r] = v;
  }
  if (V == 0) return;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 16; ++k) out[k * 256 + t] = room[k * 16 + t / 16][t & 15];
}
// ---- stream_gases: eight populations of a cell lie together, and each goes to another cell, so a store touches a sector a lane; or a plane for each direction; expected 3 times
constexpr int SIDE = 2048;
template <int V> __global__ void __launch_bounds__(256) stream_gases(const float* density, const float* east, const float* north, float* to, float* out) {
  const int dx[8] = {1, 0, -1, 0, 1, -1, -1, 1}, dy[8] = {0, 1, 0, -1, 1, 1, -1, -1};
  int x = (int)(T & (SIDE - 1)), y = (int)(T / SIDE);
  float d = density[T], u = 0.1f * east[T], v = 0.1f * north[T], all = 0;
#pragma unroll
  for (int q = 0; q < 8; ++q) {
    float along = dx[q] * u + dy[q] * v, f = d * (q < 4 ? 0.2f : 0.05f) * fmaf(along, fmaf(along, 4.5f, 3.0f), 1.0f);
    int cell = (y + dy[q] & (SIDE - 1)) * SIDE + (x + dx[q] & (SIDE - 1));
    to[V == 0 ? (i64)cell * 8 + q : (i64)q * SIDE * SIDE + cell] = f;
    all += f;
  }
  out[T] = all;
}
// ---- discount_sales: two words of rows of 64 bytes, in two sectors; or two columns; expected 6 times
template <int STEP> __global__ void __launch_bounds__(256) discount_sales(const float* price, const float* rate, float* out, int n) {
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) s = fmaf(price[(i64)i * STEP], 1 - rate[(i64)i * STEP], s);
  out[T] = s;
}
// ---- price_routes: asynchronous copies of one word of each edge of 32 bytes; or of a column; expected 4 times
template <int STEP> __global__ void __launch_bounds__(256) price_routes(const float* toll, float* out, int each) {
  __shared__ float room[8][256];
  int t = threadIdx.x;
  const float* own = toll + ((i64)blockIdx.x * each * 256 + t) * STEP;
  auto ask = [&](int n) {
    if (n < each) __pipeline_memcpy_async(&room[n & 7][t], own + (i64)n * 256 * STEP, 4);
    __pipeline_commit();
  };
#pragma unroll
  for (int n = 0; n < 7; ++n) ask(n);
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    ask(n + 7);
    __pipeline_wait_prior(7);
    float x = room[n & 7][t];
    s = fmaf(x, fmaf(x, -0.5f, 1.0f), s);
  }
  out[T] = s;
}
// ---- embed_visits: each visit takes rows of 64 bytes that begin 16 bytes into a sector, so three sectors and two pairs of them; or two in one pair; expected 1.5 times
constexpr int VISITS = 1 << 19;
__global__ void __launch_bounds__(256) embed_visits(const float4* place, float4* out) {
  unsigned visit = (unsigned)(T / 4), lane = threadIdx.x & 3;
  float4 s = {0, 0, 0, 0};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float4 v = place[(mix(visit * 8 + k) & (1u << 22) - 1) * 4 + lane];
    s = {s.x + v.x, s.y + v.y, s.z + v.z, s.w + v.w};
  }
  out[T] = s;
}
// ---- match_songs: prints of 64 bytes, each behind a header of 16, so half of them lie in three sectors; or without headers; expected 1.4 times
constexpr unsigned SONGS = 1 << 21;
__global__ void __launch_bounds__(256) match_songs(const int4* print, int* out, int pitch, int4 heard) {  // in units of 16 bytes
  unsigned group = (unsigned)(T / 4), lane = threadIdx.x & 3;
  int best = -1 << 30;
  heard.x ^= lane * 0x01020304;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    int4 v = print[(i64)(mix(group * 8 + k) & SONGS - 1) * pitch + lane];
    int s = __dp4a(v.x, heard.x, __dp4a(v.y, heard.y, __dp4a(v.z, heard.z, __dp4a(v.w, heard.w, 0))));
    s += __shfl_xor_sync(~0u, s, 1), s += __shfl_xor_sync(~0u, s, 2);
    best = max(best, s);
  }
  if (lane == 0) out[group] = best;
}
__global__ void make_prints(const int4* a, int4* headed, int4* bare, int n) {
  for (int i = (int)T; i < n * 4; i += (int)STRIDE) headed[i / 4 * 5 + 1 + (i & 3)] = bare[i] = a[i];
}
// ---- requantise_layers: one activation of eight bits a thread; or 16; expected 4 times
template <int V> __global__ void __launch_bounds__(256) requantise_layers(const signed char* a, signed char* out, int scale) {
  auto one = [&](int x) { return min(max(x * scale + 64 >> 7, 0), 127); };
  if (V == 0) {
    out[T] = (signed char)one(a[T]);
  } else {
    int4 v = ((const int4*)a)[T];
    auto four = [&](int w) { return one(w << 24 >> 24) | one(w << 16 >> 24) << 8 | one(w << 8 >> 24) << 16 | one(w >> 24) << 24; };
    ((int4*)out)[T] = {four(v.x), four(v.y), four(v.z), four(v.w)};
  }
}
// ---- match_postcodes: keys of 16 characters, compared byte by byte; or 16 bytes a load; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) match_postcodes(const unsigned char* key, int* out, int n, uint4 wanted) {
  unsigned want[4] = {wanted.x, wanted.y, wanted.z, wanted.w};
  int s = 0;
#pragma unroll 1
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    if (V == 0) {
      const unsigned char* own = key + i * 16ll;
#pragma unroll
      for (int k = 0; k < 16; ++k) s += own[k] == (want[k / 4] >> k % 4 * 8 & 255);
    } else {
      uint4 v = ((const uint4*)key)[i];
      s += __popc(__vcmpeq4(v.x, want[0]) & 0x01010101) + __popc(__vcmpeq4(v.y, want[1]) & 0x01010101) + __popc(__vcmpeq4(v.z, want[2]) & 0x01010101) + __popc(__vcmpeq4(v.w, want[3]) & 0x01010101);
    }
  }
  out[T] = s;
}
// ---- energy_of_magnets: spins of plus or minus one in 32 bits; or in eight; expected 3 times
constexpr int SPINS = 8192;
template <class X> __global__ void __launch_bounds__(256) energy_of_magnets(const X* spin, int* out) {
  constexpr int K = 16 / sizeof(X);
  __shared__ int part[8];
  const X *own = spin + (i64)blockIdx.x * SPINS, *below = spin + (i64)(blockIdx.x + 1 & SPINS - 1) * SPINS;
  int s = 0;
#pragma unroll 2
  for (int i = threadIdx.x; i < SPINS / K; i += 256) {
    int4 p = ((const int4*)own)[i], q = ((const int4*)below)[i];
    int u[4] = {p.x, p.y, p.z, p.w}, v[4] = {q.x, q.y, q.z, q.w}, right = own[(i + 1) * K & SPINS - 1];
    if constexpr (sizeof(X) == 4) {
      s -= u[0] * (u[1] + v[0]) + u[1] * (u[2] + v[1]) + u[2] * (u[3] + v[2]) + u[3] * (right + v[3]);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        int next = (unsigned)u[k] >> 8 | (k < 3 ? u[k < 3 ? k + 1 : 3] : right) << 24;
        s -= __dp4a(u[k], next, __dp4a(u[k], v[k], 0));
      }
    }
  }
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = part[0] + part[1] + part[2] + part[3] + part[4] + part[5] + part[6] + part[7];
}
__global__ void make_spins(int* wide, signed char* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = mix((unsigned)i) & 1 ? 1 : -1;
}
// ---- push_ranks: one word of each page's record of 32 bytes is written; or an array of ranks; expected 4 times
template <int STEP> __global__ void __launch_bounds__(256) push_ranks(const float* inflow, float* rank, int n) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) rank[(i64)i * STEP] = fmaf(0.85f, inflow[i], 0.15f);
}
// ---- append_keys: 16 bytes of key beside 16 of value, which this step leaves alone, so half of each sector is written; or keys of their own; expected 2 times
template <int STEP> __global__ void __launch_bounds__(256) append_keys(const float4* fresh, float4* cache, float by) {
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    i64 i = blockIdx.x * 512ll + k * 256 + threadIdx.x;
    float4 v = fresh[i];
    cache[i * STEP] = {v.x * by - v.y, fmaf(v.y, by, v.x), v.z * by - v.w, fmaf(v.w, by, v.z)};
  }
}
// ---- serve_requests: six requests use the same weights of 134 MB; one request after another, or the six of a tile together; expected 1.4 times
constexpr int WIDE = 8192, REQUESTS = 6;
__global__ void __launch_bounds__(256) serve_requests(const uint4* weight, const uint4* request, float* out, int by_request) {
  int tile = by_request ? blockIdx.x % (WIDE / 8) : blockIdx.x / REQUESTS, own = by_request ? blockIdx.x / (WIDE / 8) : blockIdx.x % REQUESTS;
  int lane = threadIdx.x & 31, row = tile * 8 + threadIdx.x / 32;
  const uint4 *w = weight + (i64)row * (WIDE / 8) + lane, *x = request + own * (WIDE / 8) + lane;
  float s[2] = {};
#pragma unroll 8
  for (int k = 0; k < WIDE / 256; ++k) {
    uint4 p = w[k * 32], q = x[k * 32];
    unsigned m[4] = {p.x, p.y, p.z, p.w}, n[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 u = __half22float2(*(__half2*)&m[j]), v = __half22float2(*(__half2*)&n[j]);
      s[0] = fmaf(u.x, v.x, s[0]), s[1] = fmaf(u.y, v.y, s[1]);
    }
  }
  float all = warp_sum(s[0] + s[1]);
  if (lane == 0) out[own * WIDE + row] = all;
}
// ---- restore_files: each cluster of a file tells the number of the next, 96 times, in eight warps an SM; or clusters in order; expected 5 times
constexpr int FILES = 132 * 256, CLUSTERS = 96;
template <int V> __global__ void __launch_bounds__(256) restore_files(const int2* cluster, const int* content, int* out) {
  int s = 0;
  if (V == 0) {
    int at = (int)T;
#pragma unroll 1
    while (at >= 0) {
      int2 own = cluster[at];
      s = s * 31 + own.y, at = own.x;
    }
  } else {
#pragma unroll 8
    for (int k = 0; k < CLUSTERS; ++k) s = s * 31 + content[k * FILES + T];
  }
  out[T] = s;
}
// ---- recite_beams: each token of a beam names the beam it came from, 256 steps back; or each sequence as it is in the end; expected 8 times
constexpr int BEAMS = 1 << 15, SPOKEN = 256;
template <int V> __global__ void __launch_bounds__(128) recite_beams(const int* token, const int* parent, int* out) {
  int s = 0;
  if (V == 0) {
    int own = (int)T & 7, first = (int)T & ~7;
#pragma unroll 1
    for (int k = SPOKEN - 1; k >= 0; --k) {
      int at = k * BEAMS + first + own;
      s = s * 31 + token[at], own = parent[at];
    }
  } else {
#pragma unroll 8
    for (int k = SPOKEN - 1; k >= 0; --k) s = s * 31 + token[k * BEAMS + T];
  }
  out[T] = s;
}

void memory_cases() {
  static float *columns, *leaves, *gas, *price, *rate, *toll, *places;
  static __half *experts, *weights;
  static int2 *picks, *chain;
  static int4 *headed, *bare;
  static int *wide_spins, *contents, *tokens, *parents, *spoken;
  static signed char* spins;
  cases.push_back({"score_borrowers", "uncoalesced_loads", "", [] { score_borrowers<0><<<BORROWERS / 256, 256>>>(A, leaves, B, C); }, [] { score_borrowers<1><<<BORROWERS / 256, 256>>>(columns, leaves, B, C); }, C, BORROWERS, false, [] {
    columns = device<float>(N);
    turn_table<<<1056, 256>>>(A, columns, BORROWERS, 64);
    leaves = upload(filled(2048, [](unsigned k) { return dice(k); }));
  }});
  cases.push_back({"judge_tokens", "uncoalesced_loads", "", [] { judge_tokens<0><<<TOKENS / 256, 256>>>(experts, picks, B, C); }, [] { judge_tokens<1><<<TOKENS / 16, 256>>>(experts, picks, B, C); }, C, TOKENS, false, [] {
    experts = cast<__half>(A, N, 0);
    std::vector<int2> v(TOKENS);
    std::vector<int> order(TOKENS * 2);
    for (int k = 0; k < TOKENS * 2; ++k) order[k] = k;
    for (unsigned k = TOKENS * 2 - 1; k; --k) std::swap(order[k], order[mix(k) % (k + 1)]);
    for (int k = 0; k < TOKENS; ++k) v[k] = {order[k * 2], order[k * 2 + 1]};
    picks = upload(v);
  }});
  cases.push_back({"repack_weights", "uncoalesced_stores", "", [] { repack_weights<0><<<dim3(PACKED / 256, 1024), 256>>>((unsigned*)A, (unsigned*)C); }, [] { repack_weights<1><<<dim3(PACKED / 256, 1024), 256>>>((unsigned*)A, (unsigned*)C); }, C, N, true});
  cases.push_back({"stream_gases", "uncoalesced_stores", "partial_sector_writes|strided_sectors", [] { stream_gases<0><<<SIDE * SIDE / 256, 256>>>(A, B, D, gas, C); }, [] { stream_gases<1><<<SIDE * SIDE / 256, 256>>>(A, B, D, gas, C); }, C, SIDE * SIDE, false, [] { gas = device<float>((i64)SIDE * SIDE * 8); }});
  cases.push_back({"discount_sales", "strided_sectors", "uncoalesced_loads", [] { discount_sales<16><<<1056, 256>>>(A, A + 9, C, 1 << 22); }, [] { discount_sales<1><<<1056, 256>>>(price, rate, C, 1 << 22); }, C, 1056 * 256, false, [] {
    price = device<float>(1 << 22), rate = device<float>(1 << 22);
    keep_every<<<1056, 256>>>(A, price, 1 << 22, 16), keep_every<<<1056, 256>>>(A + 9, rate, 1 << 22, 16);
  }});
  cases.push_back({"price_routes", "strided_sectors", "uncoalesced_loads", [] { price_routes<8><<<1024, 256>>>(A + 3, C, 32); }, [] { price_routes<1><<<1024, 256>>>(toll, C, 32); }, C, 1024 * 256, false, [] {
    toll = device<float>(1 << 23);
    keep_every<<<1056, 256>>>(A + 3, toll, 1 << 23, 8);
  }});
  cases.push_back({"embed_visits", "misaligned_base", "alignment", [] { embed_visits<<<VISITS / 64, 256>>>((float4*)(places + 4), (float4*)C); }, [] { embed_visits<<<VISITS / 64, 256>>>((float4*)A, (float4*)C); }, C, VISITS * 16, false, [] {
    places = device<float>(N + 4);
    CHECK(cudaMemcpy(places + 4, A, (i64)N * 4, cudaMemcpyDefault));
  }});
  cases.push_back({"match_songs", "misaligned_base", "alignment|strided_sectors", [] { match_songs<<<1 << 13, 256>>>(headed + 1, (int*)C, 5, {0x01fe0302, 0x05fb04fd, 0x7f017f02, 0x11223344}); }, [] { match_songs<<<1 << 13, 256>>>(bare, (int*)C, 4, {0x01fe0302, 0x05fb04fd, 0x7f017f02, 0x11223344}); }, C, 1 << 19, true, [] {
    headed = device<int4>((i64)SONGS * 5), bare = device<int4>((i64)SONGS * 4);
    make_prints<<<1056, 256>>>((int4*)A, headed, bare, SONGS);
  }});
  cases.push_back({"requantise_layers", "narrow_accesses", "", [] { requantise_layers<0><<<1 << 19, 256>>>((signed char*)A, (signed char*)C, 101); }, [] { requantise_layers<1><<<1 << 15, 256>>>((signed char*)A, (signed char*)C, 101); }, C, 1 << 25, true});
  cases.push_back({"match_postcodes", "narrow_accesses", "uncoalesced_loads", [] { match_postcodes<0><<<1056, 256>>>((unsigned char*)A, (int*)C, 1 << 24, {0x3e3f3e3f, 0x3f3e3d3f, 0x3f7f3f00, 0x3e00003f}); }, [] { match_postcodes<1><<<1056, 256>>>((unsigned char*)A, (int*)C, 1 << 24, {0x3e3f3e3f, 0x3f3e3d3f, 0x3f7f3f00, 0x3e00003f}); }, C, 1056 * 256, true});
  cases.push_back({"energy_of_magnets", "wide_data", "precision", [] { energy_of_magnets<int><<<SPINS, 256>>>(wide_spins, (int*)C); }, [] { energy_of_magnets<signed char><<<SPINS, 256>>>(spins, (int*)C); }, C, SPINS, true, [] {
    wide_spins = device<int>(N), spins = device<signed char>(N);
    make_spins<<<1056, 256>>>(wide_spins, spins, N);
  }});
  cases.push_back({"push_ranks", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { push_ranks<8><<<1056, 256>>>(A, C + 2, 1 << 23); }, [] { push_ranks<1><<<1056, 256>>>(A, D, 1 << 23); }});
  cases.push_back({"append_keys", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { append_keys<2><<<1 << 13, 256>>>((float4*)A, (float4*)C, 0.8f); }, [] { append_keys<1><<<1 << 13, 256>>>((float4*)A, (float4*)D, 0.8f); }});
  cases.push_back({"serve_requests", "block_order_l2", "no_tile", [] { serve_requests<<<REQUESTS * WIDE / 8, 256>>>((uint4*)weights, (uint4*)weights + 777, C, 1); }, [] { serve_requests<<<REQUESTS * WIDE / 8, 256>>>((uint4*)weights, (uint4*)weights + 777, C, 0); }, C, REQUESTS * WIDE, false, [] { weights = cast<__half>(A, N, 0); }});
  cases.push_back({"restore_files", "pointer_chasing", "", [] { restore_files<0><<<FILES / 256, 256>>>(chain, nullptr, (int*)C); }, [] { restore_files<1><<<FILES / 256, 256>>>(nullptr, contents, (int*)C); }, C, FILES, true, [] {
    const int all = FILES * CLUSTERS;
    std::vector<int> place(all), content(all);
    std::vector<int2> list(all);
    for (int i = 0; i < all; ++i) place[i] = i;
    for (int i = all - 1; i > FILES; --i) std::swap(place[i], place[FILES + (int)(mix((unsigned)i) % (unsigned)(i - FILES + 1))]);  // first clusters keep the number of the file
    for (int i = 0; i < all; ++i) {
      content[i] = (int)(mix((unsigned)i + 5) & 4095);
      list[place[i]] = {i + FILES < all ? place[i + FILES] : -1, content[i]};
    }
    chain = upload(list), contents = upload(content);
  }});
  cases.push_back({"recite_beams", "pointer_chasing", "", [] { recite_beams<0><<<BEAMS / 128, 128>>>(tokens, parents, (int*)C); }, [] { recite_beams<1><<<BEAMS / 128, 128>>>(spoken, nullptr, (int*)C); }, C, BEAMS, true, [] {
    std::vector<int> token((i64)BEAMS * SPOKEN), parent(token.size()), said(token.size());
    for (unsigned i = 0; i < token.size(); ++i) token[i] = (int)(mix(i) & 32767), parent[i] = (int)(mix(i + 77) >> 5 & 7);
    for (int b = 0; b < BEAMS; ++b)
      for (int k = SPOKEN - 1, own = b & 7; k >= 0; --k) {
        int at = k * BEAMS + (b & ~7) + own;
        said[k * BEAMS + b] = token[at], own = parent[at];
      }
    tokens = upload(token), parents = upload(parent), spoken = upload(said);
  }});
}
