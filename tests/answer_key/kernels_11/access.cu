// Loads and stores: episodes, waves, voxels, plans of doses, matrices, pictures, motifs, plates, video, ballots, exposures, order books.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// Names tell the domain, not the defect. operands.csv has the sizes of operands, as a caller knows them from shapes and types.
// Decided before any run: a pair whose forms differ by more than 1e-3, or a defect whose fix is slower, leaves the set; so does a pair whose slow form takes
// less than 20 us, unless its cause is launch_latency; a pair whose fix wins less than 6 % of the time is a trap, whatever it was declared to be; one that
// fails to run leaves the set.
#include "set.h"

// ---- advantage_of_episodes: rewards and values of an episode side by side, an episode a thread; or those of a step side by side; expected 3 times
constexpr int EPISODES = 1 << 17, STEPS = 256;
__global__ void __launch_bounds__(256) advantage_of_episodes(const float* reward, const float* value, float* out, int by_episode, int by_step) {
  const float *r = reward + T * by_episode, *v = value + T * by_episode;
  float gain = 0, after = 0, s = 0;
#pragma unroll 8
  for (int k = STEPS - 1; k >= 0; --k) {
    float now = v[k * by_step], delta = fmaf(0.99f, after, r[k * by_step]) - now;
    gain = fmaf(0.95f, gain, delta), after = now, s = fmaf(gain, gain, s);
  }
  out[T] = s;
}
__global__ void turn_episodes(const float* a, float* out) {
  for (int i = (int)T; i < EPISODES * STEPS; i += (int)STRIDE) out[i % STEPS * EPISODES + i / STEPS] = a[i];
}
// ---- crests_of_waves: each thread counts the crossings of 64 samples in a row; or of every 256th of its block; expected 3 times
template <int V> __global__ void __launch_bounds__(256) crests_of_waves(const float* a, int* out) {
  const float* own = a + blockIdx.x * 16384ll + (V == 0 ? threadIdx.x * 64 : threadIdx.x);
  int found = 0;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    const float* p = own + k * (V == 0 ? 1 : 256);
    found += p[-1] < 0.5f && p[0] >= 0.5f;
  }
  found = __reduce_add_sync(~0u, found);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[blockIdx.x], found);
}
// ---- gather_voxels: 27 neighbours of 32 channels, a voxel a thread, so lanes read rows of 128 bytes; or eight lanes a voxel; expected 3 times
constexpr int VOXELS = 1 << 18;
template <int V> __global__ void __launch_bounds__(256) gather_voxels(const float4* feature, const int* near, float4* out) {
  auto add = [](float4& s, float4 v, float by) { s.x = fmaf(by, v.x, s.x), s.y = fmaf(by, v.y, s.y), s.z = fmaf(by, v.z, s.z), s.w = fmaf(by, v.w, s.w); };
  if (V == 0) {
    float4 s[8] = {};
#pragma unroll 1
    for (int k = 0; k < 27; ++k) {
      const float4* row = feature + (i64)near[k * VOXELS + T] * 8;
#pragma unroll
      for (int c = 0; c < 8; ++c) add(s[c], row[c], 0.1f * (k + 1));
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) out[T * 8 + c] = s[c];
  } else {
    float4 s = {0, 0, 0, 0};
#pragma unroll 3
    for (int k = 0; k < 27; ++k) add(s, feature[(i64)near[k * VOXELS + T / 8] * 8 + (threadIdx.x & 7)], 0.1f * (k + 1));
    out[T] = s;
  }
}
__global__ void make_neighbours(int* near) {
  for (int i = (int)T; i < 27 * VOXELS; i += (int)STRIDE) {
    int k = i / VOXELS, v = i % VOXELS, z = k / 9 - 1, y = k / 3 % 3 - 1, x = k % 3 - 1;
    near[i] = (v + z * 4096 + y * 64 + x * 2 + (int)(mix((unsigned)i) & 1)) & (VOXELS - 1);
  }
}
// ---- doses_of_plans: two words, 36 bytes apart, of each record of 64 bytes; or both side by side in an array of their own; expected 5 times
template <int ROW, int P, int Q> __global__ void __launch_bounds__(256) doses_of_plans(const float* plan, float* out, int n) {
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) s = fmaf(plan[(i64)i * ROW + P], plan[(i64)i * ROW + Q], s);
  out[T] = s;
}
__global__ void take_doses(const float* plan, float* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i * 2] = plan[(i64)i * 16 + 2], out[i * 2 + 1] = plan[(i64)i * 16 + 11];
}
// ---- deal_matrix: words dealt in turn to 64 ranks, so neighbours are stored 4 MB apart; or through a tile of 64 x 32; expected 4 times
template <int V> __global__ void __launch_bounds__(256) deal_matrix(const int* a, int* out, int each) {  // words of a rank
  __shared__ int tile[V == 0 ? 1 : 64][33];
  i64 first = blockIdx.x * 2048ll;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    int i = k * 256 + threadIdx.x, v = a[first + i];
    if (V == 0) out[(i64)(i & 63) * each + blockIdx.x * 32 + i / 64] = v;
    else tile[i & 63][i / 64] = v;
  }
  if (V == 0) return;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    int row = k * 8 + threadIdx.x / 32, column = threadIdx.x & 31;
    out[(i64)row * each + blockIdx.x * 32 + column] = tile[row][column];
  }
}
// ---- tint_pictures: the green word of each pixel of three is written; or a plane of its own; expected 4 times
template <int STEP> __global__ void __launch_bounds__(256) tint_pictures(float* green, int n) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) green[(i64)i * STEP] = (float)(i & 255) * 0.00390625f;
}
// ---- align_motifs: rows of eight floats and a name, 36 bytes, nearly each in two sectors of a table that stays in L2; or names apart; expected 1.4 times
template <int PITCH> __global__ void __launch_bounds__(256) align_motifs(const float* motif, float* out, int rows) {  // eight lanes a row
  float s = 0;
#pragma unroll 8
  for (int k = 0; k < 256; ++k) s = fmaf(s, 0.9f, motif[(mix((unsigned)(T / 8) * 256 + k) & (unsigned)(rows - 1)) * PITCH + (threadIdx.x & 7)]);
  out[T] = s;
}
__global__ void take_motifs(const float* a, float* out, int rows) {
  for (int i = (int)T; i < rows * 8; i += (int)STRIDE) out[i] = a[i / 8 * 9 + (i & 7)];
}
// ---- screen_plates: a pixel of one byte a thread against a screen of 8 x 8; or 16 pixels; expected 3 times
template <int V> __global__ void __launch_bounds__(256) screen_plates(const unsigned char* in, unsigned char* out) {
  auto least = [](unsigned x, unsigned y) { return ((x * 5 + y * 3) & 7) * 32 + 15; };
  if (V == 0) {
    out[T] = in[T] > least((unsigned)T & 7, (unsigned)(T >> 13)) ? 255 : 0;
  } else {
    uint4 v = ((const uint4*)in)[T];
    unsigned y = (unsigned)(T >> 9), low = 0, high = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) low |= least(k, y) << 8 * k, high |= least(k + 4, y) << 8 * k;
    ((uint4*)out)[T] = {__vcmpgtu4(v.x, low), __vcmpgtu4(v.y, high), __vcmpgtu4(v.z, low), __vcmpgtu4(v.w, high)};
  }
}
// ---- difference_of_video: two bytes in and one out a thread; or 16 of each; expected 3 times
template <int V> __global__ void __launch_bounds__(256) difference_of_video(const unsigned char* before, const unsigned char* after, unsigned char* out) {
  if (V == 0) {
    out[T] = (unsigned char)abs((int)before[T] - (int)after[T]);
  } else {
    uint4 v = ((const uint4*)before)[T], w = ((const uint4*)after)[T];
    ((uint4*)out)[T] = {__vabsdiffu4(v.x, w.x), __vabsdiffu4(v.y, w.y), __vabsdiffu4(v.z, w.z), __vabsdiffu4(v.w, w.w)};
  }
}
// ---- count_ballots: choices below 200 in 64 bits each; or in a byte; expected 5 times
template <class X> __global__ void __launch_bounds__(256) count_ballots(const uint4* ballot, int* out, int n, X wanted) {
  int s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint4 v = ballot[i];
    X own[16 / sizeof(X)];
    memcpy(own, &v, 16);
#pragma unroll
    for (int k = 0; k < (int)(16 / sizeof(X)); ++k) s += own[k] == wanted;
  }
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}
__global__ void make_ballots(u64* wide, unsigned char* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = (unsigned char)(mix((unsigned)i) % 200);
}
// ---- flatten_exposures: eight exposures and a flat field of 64 MB; an exposure after the other, or the eight of a place together; expected 2.5 times
__global__ void __launch_bounds__(256) flatten_exposures(const uchar4* exposure, const float4* flat, float* out, int by_place) {
  __shared__ float part[8];
  int e = by_place ? blockIdx.x & 7 : blockIdx.x >> 12, place = by_place ? blockIdx.x >> 3 : blockIdx.x & 4095;
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int i = place * 1024 + k * 256 + threadIdx.x;
    uchar4 v = exposure[e * (1 << 22) + i];
    float4 w = flat[i];
    s += (v.x * w.x + v.y * w.y) + (v.z * w.z + v.w * w.w);
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) out[e * 4096 + place] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
// ---- depth_of_books: a list of 64 orders a price level, linked through 17 MB, in eight warps an SM; or an array of them; expected 5 times
constexpr int LEVELS = 132 * 256, ORDERS = 64;
template <int V> __global__ void __launch_bounds__(128) depth_of_books(const int2* order, const int* amount, int* out) {
  int s = 0;
  if (V == 0) {
    for (int at = (int)T; at >= 0;) {
      int2 own = order[at];
      s += own.y, at = own.x;
    }
  } else {
#pragma unroll 8
    for (int k = 0; k < ORDERS; ++k) s += amount[k * LEVELS + T];
  }
  out[T] = s;
}

void memory_cases() {
  static float *turned, *doses, *pictures, *motifs;
  static int *neighbours, *amounts;
  static int2* orders;
  static u64* wide;
  static unsigned char* narrow;
  cases.push_back({"advantage_of_episodes", "uncoalesced_loads", "", [] { advantage_of_episodes<<<EPISODES / 256, 256>>>(A, A + (1 << 25), C, STEPS, 1); }, [] { advantage_of_episodes<<<EPISODES / 256, 256>>>(turned, turned + (1 << 25), C, 1, EPISODES); }, C, EPISODES, false, [] {
    turned = device<float>(N);
    turn_episodes<<<2112, 256>>>(A, turned), turn_episodes<<<2112, 256>>>(A + (1 << 25), turned + (1 << 25));
  }});
  cases.push_back({"crests_of_waves", "uncoalesced_loads", "", [] { crests_of_waves<0><<<4096, 256>>>(A + 64, (int*)C); }, [] { crests_of_waves<1><<<4096, 256>>>(A + 64, (int*)C); }, C, 4096, true});
  cases.push_back({"gather_voxels", "uncoalesced_loads", "", [] { gather_voxels<0><<<VOXELS / 256, 256>>>((float4*)A, neighbours, (float4*)C); }, [] { gather_voxels<1><<<VOXELS / 32, 256>>>((float4*)A, neighbours, (float4*)C); }, C, VOXELS * 32, false, [] {
    neighbours = device<int>(27 * VOXELS);
    make_neighbours<<<1056, 256>>>(neighbours);
  }});
  cases.push_back({"doses_of_plans", "strided_sectors", "uncoalesced_loads", [] { doses_of_plans<16, 2, 11><<<1056, 256>>>(A, C, 1 << 22); }, [] { doses_of_plans<2, 0, 1><<<1056, 256>>>(doses, C, 1 << 22); }, C, 1056 * 256, false, [] {
    doses = device<float>(1 << 23);
    take_doses<<<1056, 256>>>(A, doses, 1 << 22);
  }});
  cases.push_back({"deal_matrix", "uncoalesced_stores", "partial_sector_writes", [] { deal_matrix<0><<<1 << 15, 256>>>((int*)A, (int*)C, 1 << 20); }, [] { deal_matrix<1><<<1 << 15, 256>>>((int*)A, (int*)C, 1 << 20); }, C, N, true});
  cases.push_back({"tint_pictures", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { tint_pictures<3><<<1056, 256>>>(pictures + 1, 22000000); }, [] { tint_pictures<1><<<1056, 256>>>(C, 22000000); }, nullptr, 0, false, [] { pictures = device<float>(N); }});
  cases.push_back({"align_motifs", "misaligned_base", "uncoalesced_loads", [] { align_motifs<9><<<1056, 256>>>(A, C, 1 << 19); }, [] { align_motifs<8><<<1056, 256>>>(motifs, C, 1 << 19); }, C, 1056 * 256, false, [] {
    motifs = device<float>(1 << 22);
    take_motifs<<<1056, 256>>>(A, motifs, 1 << 19);
  }});
  cases.push_back({"screen_plates", "narrow_accesses", "", [] { screen_plates<0><<<(1 << 26) / 256, 256>>>((unsigned char*)A, (unsigned char*)C); }, [] { screen_plates<1><<<(1 << 26) / 4096, 256>>>((unsigned char*)A, (unsigned char*)C); }, C, 1 << 24, true});
  cases.push_back({"difference_of_video", "narrow_accesses", "", [] { difference_of_video<0><<<(1 << 26) / 256, 256>>>((unsigned char*)A, (unsigned char*)B, (unsigned char*)C); }, [] { difference_of_video<1><<<(1 << 26) / 4096, 256>>>((unsigned char*)A, (unsigned char*)B, (unsigned char*)C); }, C, 1 << 24, true});
  cases.push_back({"count_ballots", "wide_data", "precision", [] { count_ballots<u64><<<1056, 256>>>((uint4*)wide, (int*)C, 1 << 24, 117); }, [] { count_ballots<unsigned char><<<1056, 256>>>((uint4*)narrow, (int*)C, 1 << 21, 117); }, C, 1, true, [] {
    wide = device<u64>(1 << 25), narrow = device<unsigned char>(1 << 25);
    make_ballots<<<1056, 256>>>(wide, narrow, 1 << 25);
  }});
  cases.push_back({"flatten_exposures", "block_order_l2", "", [] { flatten_exposures<<<32768, 256>>>((uchar4*)A, (float4*)B, C, 0); }, [] { flatten_exposures<<<32768, 256>>>((uchar4*)A, (float4*)B, C, 1); }, C, 32768});
  cases.push_back({"depth_of_books", "pointer_chasing", "", [] { depth_of_books<0><<<LEVELS / 128, 128>>>(orders, nullptr, (int*)C); }, [] { depth_of_books<1><<<LEVELS / 128, 128>>>(nullptr, amounts, (int*)C); }, C, LEVELS, true, [] {
    std::vector<int> place(LEVELS * ORDERS), many(LEVELS * ORDERS);
    std::vector<int2> list(LEVELS * ORDERS);
    for (int i = 0; i < LEVELS * ORDERS; ++i) place[i] = i, many[i] = (int)(mix((unsigned)i) & 1023);
    for (int i = LEVELS * ORDERS - 1; i > LEVELS; --i) std::swap(place[i], place[LEVELS + mix((unsigned)i) % (unsigned)(i - LEVELS + 1)]);  // the first of each level stays
    for (int i = 0; i < LEVELS * ORDERS; ++i) list[place[i]] = {i + LEVELS < LEVELS * ORDERS ? place[i + LEVELS] : -1, many[i]};
    orders = upload(list), amounts = upload(many);
  }});
}
