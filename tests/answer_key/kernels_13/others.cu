// Traps, whose tempting fix should win less than 6 %, and kernels near a roof or well built: drones, harvests, lenses, seas, accounts, songs, layers of soil, grapes, spectra, words, attractors, bells, tides, dice, crickets, logs, lattices, permits, orchestras.
#include "frame.h"

// ---- traps. fly_drones: four loads at lanes 64 bytes apart, before 8,192 steps of arithmetic. collect_harvests: an addition to one word of shared memory
// for each 8 kB. pick_lenses: four numbers in local memory beside a full DRAM. calm_seas: a sine for each word beside a full DRAM. settle_accounts: a barrier
// that nobody needs between load and store, with eight blocks an SM. fade_songs: eight bytes an access instead of 16, four of them at once. layer_soils:
// layers one after the other, but three of them take 3 MB of L2. press_grapes: 10,600 blocks, ten waves and 40 blocks.
template <int V> __global__ void __launch_bounds__(256) fly_drones(const float* a, float* out, int steps) {
  float x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = V == 0 ? a[T * 16 + k * 4] : a[k * STRIDE + T];
#pragma unroll 8
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fmaf(x[k], -0.7f, 0.9f + 0.01f * k);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
__global__ void line_up(const float* a, float* out, int n) {
  for (int i = (int)T; i < n * 4; i += (int)STRIDE) out[i] = a[i % n * 16ll + i / n * 4];
}
template <int V> __global__ void __launch_bounds__(256) collect_harvests(const float4* a, float* out) {
  __shared__ float all, part[8];
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  float s[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  s[0] = warp_sum((s[0] + s[1]) + (s[2] + s[3]));
  if ((threadIdx.x & 31) == 0) {
    if (V == 0) atomicAdd(&all, s[0]);
    else part[threadIdx.x / 32] = s[0];
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = V == 0 ? all : ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
template <int V> __global__ void __launch_bounds__(256) pick_lenses(const float4* a, float4* out, int turn) {
  float4 v = a[T];
  int k = (int)(T >> turn) & 3;
  float chosen;
  if (V == 0) {
    float of[4] = {v.x, v.y, v.z, v.w};
    chosen = of[k];
  } else {
    chosen = k & 2 ? (k & 1 ? v.w : v.z) : (k & 1 ? v.y : v.x);
  }
  out[T] = {fmaf(0.2f, chosen, v.x), fmaf(0.3f, chosen, v.y), fmaf(0.4f, chosen, v.z), fmaf(0.5f, chosen, v.w)};
}
template <int V> __global__ void __launch_bounds__(256) calm_seas(const float4* a, float4* out) {
  auto height = [](float x) {
    if (V == 0) return sine(x);
    float y = x * x;
    return x * fmaf(y, fmaf(y, fmaf(y, -1 / 5040.0f, 1 / 120.0f), -1 / 6.0f), 1.0f);
  };
  float4 v = a[T];
  out[T] = {height(v.x), height(v.y), height(v.z), height(v.w)};
}
template <int V> __global__ void __launch_bounds__(256) settle_accounts(const float4* a, const float4* b, float4* out) {
  float4 v = a[T], w = b[T];
  v = {fmaf(v.x, w.x, 0.1f), fmaf(v.y, w.y, 0.1f), fmaf(v.z, w.z, 0.1f), fmaf(v.w, w.w, 0.1f)};
  if (V == 0) __syncthreads();
  out[T] = v;
}
template <class FEW, int K> __global__ void __launch_bounds__(256) fade_songs(const FEW* a, FEW* out) {
  FEW v[K];
#pragma unroll
  for (int k = 0; k < K; ++k) v[k] = a[(i64)blockIdx.x * K * 256 + k * 256 + threadIdx.x];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float* x = (float*)&v[k];
#pragma unroll
    for (int j = 0; j < (int)(sizeof(FEW) / 4); ++j) x[j] *= 0.7f;
    out[(i64)blockIdx.x * K * 256 + k * 256 + threadIdx.x] = v[k];
  }
}
constexpr int SOIL = 1 << 16, DEPTH = 48;
__global__ void __launch_bounds__(256) layer_soils(const float4* a, float4* out, int by_layer) {
  int z = by_layer ? blockIdx.x / (SOIL / 256) : blockIdx.x % DEPTH, i = (by_layer ? blockIdx.x % (SOIL / 256) : blockIdx.x / DEPTH) * 256 + threadIdx.x;
  float4 u = a[z * SOIL + i], v = a[(z + 1) * SOIL + i], w = a[(z + 2) * SOIL + i];
  auto seep = [](float p, float q, float r) { return fmaf(0.3f, p, fmaf(0.5f, q, 0.2f * r)); };
  out[z * SOIL + i] = {seep(u.x, v.x, w.x), seep(u.y, v.y, w.y), seep(u.z, v.z, w.z), seep(u.w, v.w, w.w)};
}
template <int EACH> __global__ void __launch_bounds__(256) press_grapes(const float4* a, float4* out) {
#pragma unroll 2
  for (int k = 0; k < EACH; ++k) {
    i64 i = (blockIdx.x * (i64)EACH + k) * 256 + threadIdx.x;
    float4 v = a[i];
    out[i] = {1 - v.x, 1 - v.y, 1 - v.z, 1 - v.w};
  }
}

// ---- clean kernels
__global__ void __launch_bounds__(256) multiply_spectra(const float4* a, const float4* b, float4* out) {  // two complex numbers a thread
  float4 u = a[T], v = b[T];
  out[T] = {fmaf(u.x, v.x, -u.y * v.y), fmaf(u.x, v.y, u.y * v.x), fmaf(u.z, v.z, -u.w * v.w), fmaf(u.z, v.w, u.w * v.z)};
}
__global__ void __launch_bounds__(256) swap_words(const uint4* a, uint4* out) {  // four vectors a thread
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 i = blockIdx.x * 1024ll + k * 256 + threadIdx.x;
    uint4 v = a[i];
    out[i] = {__byte_perm(v.x, 0, 0x0123), __byte_perm(v.y, 0, 0x0123), __byte_perm(v.z, 0, 0x0123), __byte_perm(v.w, 0, 0x0123)};
  }
}
__global__ void __launch_bounds__(256) trace_attractors(const float* a, float* out, int steps) {
  float x[4], y[4], z[4], by = 0.5f * a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1f * k, y[k] = 0.2f, z[k] = 0.3f;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fmaf(by, y[k], x[k] * -0.5f), y[k] = fmaf(x[k], z[k], y[k] * 0.3f), z[k] = fmaf(-x[k], y[k], z[k] * 0.4f);
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) s += x[k] + y[k] + z[k];
  out[T] = s;
}
__global__ void __launch_bounds__(256) ring_bells(const float* a, float* out, int steps) {  // eight bells in doubles
  double x[8], v[8], by = 0.01 + 0.01 * a[T];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = 1 + 0.1 * k, v[k] = 0;
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = fma(-by, x[k], v[k]), x[k] = fma(by, v[k], x[k]);
  double s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) s += x[k];
  out[T] = (float)s;
}
__global__ void __launch_bounds__(256) lap_tides(const float* a, float* out, int steps) {  // a sine of a sine, eight at once
  float x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[T] + 0.1f * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = sine(x[k] + 0.7f);
  out[T] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
__global__ void __launch_bounds__(256) tumble_dice(const unsigned* a, unsigned* out, int rolls) {
  unsigned x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[T] + k * 77777u + 1;
#pragma unroll 2
  for (int n = 0; n < rolls; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] ^= x[k] << 13, x[k] ^= x[k] >> 17, x[k] ^= x[k] << 5;
  out[T] = (x[0] ^ x[1]) + (x[2] ^ x[3]) + (x[4] ^ x[5]) + (x[6] ^ x[7]);
}
__global__ void __launch_bounds__(256) breed_crickets(const float* a, float* out, int years) {  // eight pairs of halves
  __half2 x[8], by = __float2half2_rn(-0.9f - 0.5f * a[T]), one = __float2half2_rn(1.0f);
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = __float2half2_rn(0.1f * (k + 1));
#pragma unroll 4
  for (int n = 0; n < years; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __hfma2(__hmul2(x[k], by), x[k], one);
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) s += __low2float(x[k]) + __high2float(x[k]);
  out[T] = s;
}
constexpr int LOG = 16384;  // bytes of a piece
__global__ void __launch_bounds__(256) drain_logs(const uint4* a, unsigned* out, int pieces) {  // four pieces on their way by the copy engine, two blocks an SM
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ u64 gate[4];
  uint4* room = (uint4*)memory;
  int t = threadIdx.x;
  const uint4* own = a + (i64)blockIdx.x * pieces * (LOG / 16);
  if (t == 0) {
    for (int k = 0; k < 4; ++k) open_gate(&gate[k], 1);
    publish_gates();
    for (int k = 0; k < 4 && k < pieces; ++k) pull(room + k * (LOG / 16), own + k * (LOG / 16), LOG, &gate[k]);
  }
  __syncthreads();
  unsigned s = 0;
#pragma unroll 1
  for (int n = 0; n < pieces; ++n) {
    int slot = n & 3;
    await_gate(&gate[slot], n / 4 & 1);
#pragma unroll
    for (int k = 0; k < LOG / 16 / 256; ++k) {
      uint4 v = room[slot * (LOG / 16) + k * 256 + t];
      s += (v.x ^ v.y) + (v.z ^ v.w);
    }
    __syncthreads();
    if (t == 0 && n + 4 < pieces) pull(room + slot * (LOG / 16), own + (n + 4) * (LOG / 16), LOG, &gate[slot]);
  }
  out[T] = s;
}
__global__ void __launch_bounds__(256) sow_lattices(uint4* out, unsigned seed) {  // writes alone
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    unsigned i = blockIdx.x * 1024 + k * 256 + threadIdx.x;
    out[i] = {mix(i ^ seed), i, ~i, i * 3};
  }
}
__global__ void __launch_bounds__(256) count_permits(const uint4* a, unsigned* out) {
  unsigned s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint4 v = a[blockIdx.x * 2048ll + k * 256 + threadIdx.x];
    s += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
  }
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) out[T / 32] = s;
}
// A row of 64 kB for each cluster of two blocks, whose sums meet through distributed shared memory
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512) scale_orchestras(const float4* a, float4* out) {
  __shared__ float part[16], mine;
  cg::cluster_group cluster = cg::this_cluster();
  int t = threadIdx.x;
  const float4* own = a + blockIdx.x * 2048ll;
  float4 v[4];
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = own[k * 512 + t];
#pragma unroll
  for (int k = 0; k < 4; ++k) s = fmaf(v[k].x, v[k].x, fmaf(v[k].y, v[k].y, fmaf(v[k].z, v[k].z, fmaf(v[k].w, v[k].w, s))));
  s = warp_sum(s);
  if ((t & 31) == 0) part[t / 32] = s;
  __syncthreads();
  if (t < 32) {
    s = warp_sum(t < 16 ? part[t] : 0);
    if (t == 0) mine = s;
  }
  cluster.sync();
  float by = inverse_root(mine + *cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1));
  cluster.sync();  // the other block may not leave while its sum is being read
#pragma unroll
  for (int k = 0; k < 4; ++k) out[blockIdx.x * 2048ll + k * 512 + t] = {v[k].x * by, v[k].y * by, v[k].z * by, v[k].w * by};
}
__global__ void tick_metronome(int* beat) {
  if (threadIdx.x == 0) *beat = (*beat + 1) & 3;
}
__global__ void arm_triggers(float* level) { level[threadIdx.x] = fmaxf(level[threadIdx.x] * 0.5f, 0.01f); }

void trap_cases() {
  static float* lined;
  cases.push_back({"fly_drones", "uncoalesced_loads", "strided_sectors", [] { fly_drones<0><<<1056, 256>>>(A, C, 2048); }, [] { fly_drones<1><<<1056, 256>>>(lined, C, 2048); }, C, 1056 * 256, false, [] {
    lined = device<float>(1056 * 256 * 4);
    line_up<<<1056, 256>>>(A, lined, 1056 * 256);
  }});
  cases.push_back({"collect_harvests", "shared_atomics_one_address", "", [] { collect_harvests<0><<<4096, 256>>>((float4*)A, C); }, [] { collect_harvests<1><<<4096, 256>>>((float4*)A, C); }, C, 4096});
  cases.push_back({"pick_lenses", "local_array", "", [] { pick_lenses<0><<<65536, 256>>>((float4*)A, (float4*)C, 7); }, [] { pick_lenses<1><<<65536, 256>>>((float4*)A, (float4*)C, 7); }, C, N});
  cases.push_back({"calm_seas", "special_functions", "", [] { calm_seas<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { calm_seas<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"settle_accounts", "needless_barriers", "", [] { settle_accounts<0><<<65536, 256>>>((float4*)A, (float4*)B, (float4*)C); }, [] { settle_accounts<1><<<65536, 256>>>((float4*)A, (float4*)B, (float4*)C); }, C, N});
  cases.push_back({"fade_songs", "narrow_accesses", "", [] { fade_songs<float2, 4><<<32768, 256>>>((float2*)A, (float2*)C); }, [] { fade_songs<float4, 2><<<32768, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"layer_soils", "block_order_l2", "", [] { layer_soils<<<DEPTH * (SOIL / 256), 256>>>((float4*)A, (float4*)C, 1); }, [] { layer_soils<<<DEPTH * (SOIL / 256), 256>>>((float4*)A, (float4*)C, 0); }, C, (i64)DEPTH * SOIL * 4});
  cases.push_back({"press_grapes", "tail_effect", "", [] { press_grapes<4><<<10600, 256>>>((float4*)A, (float4*)C); }, [] { press_grapes<2><<<21200, 256>>>((float4*)A, (float4*)C); }, C, 10600 * 4096});
}
void clean_cases() {
  cases.push_back({"multiply_spectra", "none_at_roof", "", [] { multiply_spectra<<<65536, 256>>>((float4*)A, (float4*)B, (float4*)C); }, nullptr});
  cases.push_back({"swap_words", "none_at_roof", "", [] { swap_words<<<16384, 256>>>((uint4*)A, (uint4*)C); }, nullptr});
  cases.push_back({"trace_attractors", "none_at_roof", "", [] { trace_attractors<<<1056, 256>>>(A, C, 384); }, nullptr});
  cases.push_back({"ring_bells", "none_at_roof", "", [] { ring_bells<<<1056, 256>>>(A, C, 256); }, nullptr});
  cases.push_back({"lap_tides", "none_at_roof", "", [] { lap_tides<<<1056, 256>>>(A, C, 128); }, nullptr});
  cases.push_back({"tumble_dice", "none_at_roof", "", [] { tumble_dice<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 192); }, nullptr});
  cases.push_back({"breed_crickets", "none_at_roof", "", [] { breed_crickets<<<1056, 256>>>(A, C, 512); }, nullptr});
  cases.push_back({"drain_logs", "none_at_roof", "", [] {
    dynamic_shared(drain_logs, 4 * LOG);
    drain_logs<<<264, 256, 4 * LOG>>>((uint4*)A, (unsigned*)C, 62);
  }, nullptr});
  cases.push_back({"sow_lattices", "none_at_roof", "", [] { sow_lattices<<<16384, 256>>>((uint4*)C, 99); }, nullptr});
  cases.push_back({"count_permits", "none_at_roof", "", [] { count_permits<<<8192, 256>>>((uint4*)A, (unsigned*)C); }, nullptr});
  cases.push_back({"scale_orchestras", "none_at_roof", "", [] { scale_orchestras<<<8192, 512>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"tick_metronome", "launch_latency", "", [] { tick_metronome<<<1, 32>>>((int*)C); }, nullptr});
  cases.push_back({"arm_triggers", "launch_latency", "", [] { arm_triggers<<<1, 128>>>(C); }, nullptr});
}
