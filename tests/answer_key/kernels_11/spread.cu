// Grids, blocks and occupancy: isotherms, alleles, phases, channels, keys, books of options, causal rows, reports.
#include "set.h"

void spread_cases();

// ---- average_isotherms: 176 coefficients that wait in registers for the end of the loop, so 8 warps fit an SM; or read after it; expected 3 times
template <int V> __global__ void __launch_bounds__(128) average_isotherms(const float* a, const float* coefficient, float* out, int each) {
  float c[176], s = 0, all[4] = {};
  auto read = [&] {
#pragma unroll
    for (int k = 0; k < 176; ++k) {
      c[k] = coefficient[k * 128 + threadIdx.x];
      if (V == 0) asm volatile("" : "+f"(c[k]));  // here, not later
    }
  };
  if (V == 0) read();
#pragma unroll 1
  for (int n = 0; n < each; ++n) s = fmaf(s, 0.9f, a[n * STRIDE + T]);
  if (V == 1) read();
#pragma unroll
  for (int k = 0; k < 176; ++k) all[k & 3] = fmaf(all[k & 3], s * 0.05f, c[k]);
  out[T] = (all[0] + all[1]) + (all[2] + all[3]);
}
// ---- tally_alleles: 96 counters a thread in shared memory, of 32 bits, so two blocks fit an SM; or of 8; expected 2.5 times
template <class X> __global__ void __launch_bounds__(256) tally_alleles(const float* a, int* out, int each) {
  extern __shared__ __align__(16) unsigned char room[];
  X* count = (X*)room + threadIdx.x;
  for (int k = 0; k < 96; ++k) count[k * 256] = 0;
  int s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) ++count[(int)(a[n * STRIDE + T] * 96) * 256];
#pragma unroll 8
  for (int k = 0; k < 96; ++k) s += (int)count[k * 256] * (int)count[k * 256];
  out[T] = s;
}
// ---- unwrap_phases: a warp a trace, which adds up 32 turns before it asks for the next 32; 32 blocks of a warp fit an SM, or eight of eight; expected 1.6 times
__global__ void unwrap_phases(const float* phase, float* out, int length) {
  int lane = threadIdx.x & 31, turns = 0;
  const float* own = phase + T / 32 * length;
  float last = own[0], s = 0;
#pragma unroll 1
  for (int i = 0; i < length; i += 32) {
    float v = own[i + lane], before = __shfl_up_sync(~0u, v, 1);
    if (lane == 0) before = last;
    unsigned up = __ballot_sync(~0u, v - before > 0.5f), down = __ballot_sync(~0u, v - before < -0.5f), upto = ~0u >> (31 - lane);
    s = fmaf(s, 0.5f, v + (float)(turns + __popc(down & upto) - __popc(up & upto)));
    turns += __popc(down) - __popc(up), last = __shfl_sync(~0u, v, 31);
  }
  out[T] = s;
}
// ---- moments_of_channels: a block each for 48 channels of 1,048,576 samples; or 32 blocks a channel; expected 5 times
__global__ void __launch_bounds__(512) moments_of_channels(const float* a, float* out, int part) {
  const float* own = a + blockIdx.y * (1ll << 20) + blockIdx.x * (i64)part;
  float s = 0, q = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < part; i += 512) s += own[i], q = fmaf(own[i], own[i], q);
  s = warp_sum(s), q = warp_sum(q);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[blockIdx.y * 2], s), atomicAdd(&out[blockIdx.y * 2 + 1], q);
}
// ---- brew_keys: a persistent grid of 40 blocks, as many as a GPU of another year had SMs; or of 1056; expected 8 times
__global__ void __launch_bounds__(256) brew_keys(const unsigned* salt, unsigned* out, int keys, int rounds) {
  for (int i = (int)T; i < keys; i += (int)STRIDE) {
    unsigned x[4] = {salt[i], salt[i] ^ 0x61707865u, (unsigned)i, 0x6b206574u};
#pragma unroll 4
    for (int r = 0; r < rounds; ++r) {
      x[0] += x[1], x[3] = __funnelshift_l(x[3] ^ x[0], x[3] ^ x[0], 16), x[2] += x[3], x[1] = __funnelshift_l(x[1] ^ x[2], x[1] ^ x[2], 12);
      x[0] += x[1], x[3] = __funnelshift_l(x[3] ^ x[0], x[3] ^ x[0], 8), x[2] += x[3], x[1] = __funnelshift_l(x[1] ^ x[2], x[1] ^ x[2], 7);
    }
    out[i] = (x[0] ^ x[1]) + (x[2] ^ x[3]);
  }
}
// ---- hedge_books: 140 blocks of 1024 threads, one an SM, so that eight run in a second wave; or blocks of 256 threads and a sixteenth of the work; expected 1.7 times
__global__ void __launch_bounds__(1024) hedge_books(const float* a, float* out, int each, int steps) {
  for (int r = 0; r < each; ++r) {
    i64 i = ((i64)blockIdx.x * each + r) * blockDim.x + threadIdx.x;
    float x[26], s = 0;
    unsigned h = (unsigned)i * 2654435761u + 1;
#pragma unroll
    for (int k = 0; k < 26; ++k) x[k] = 1 + a[i & 0xffffff] * (0.03f * k);
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
      h = h * 1664525u + 1013904223u;
      float z = (float)(h >> 8) * 0x1p-24f - 0.5f, most = x[0];
#pragma unroll
      for (int k = 0; k < 26; ++k) x[k] = fmaf(x[k], 0.02f * z, x[k]), x[k] = fmaf(0.01f, x[(k + 7) % 26] - x[k], x[k]);
#pragma unroll
      for (int k = 1; k < 26; ++k) most = fmaxf(most, x[k]);
      s += fmaxf(most - 1.5f, 0.0f);
    }
#pragma unroll
    for (int k = 0; k < 26; ++k) s = fmaf(s, 0.9f, x[k]);
    out[i] = s;
  }
}
// ---- smooth_causally: row r needs r + 1 tiles, a block a row; or half of a row from each end; expected 1.5 times
constexpr int ROWS = 264;
template <int V> __global__ void __launch_bounds__(256) smooth_causally(const float* a, float* out) {
  __shared__ __align__(16) float tile[256];
  float by = 0.8f + 0.0007f * threadIdx.x;
#pragma unroll 1
  for (int side = 0; side < (V == 0 ? 1 : 2); ++side) {
    int row = side ? ROWS - 1 - blockIdx.x : blockIdx.x, middle = (row + 1) / 2, from = V == 1 && side ? middle : 0, to = V == 0 || side ? row + 1 : middle;
    float all = 0;
#pragma unroll 1
    for (int k = from; k < to; ++k) {
      tile[threadIdx.x] = a[k * 256 + threadIdx.x];
      __syncthreads();
      float s[4] = {};
#pragma unroll 8
      for (int j = 0; j < 256; j += 4) {
        float4 v = *(const float4*)&tile[j];
        s[0] = fmaf(s[0], by, v.x), s[1] = fmaf(s[1], by, v.y), s[2] = fmaf(s[2], by, v.z), s[3] = fmaf(s[3], by, v.w);
      }
      all += (s[0] + s[1]) + (s[2] + s[3]);
      __syncthreads();
    }
    atomicAdd(&out[row * 256 + threadIdx.x], all);
  }
}
// ---- parse_reports: a block a report, 6,144 of 2,048 words and then 48 of 160,000; or a block for each 2,048 words; expected 2.5 times
struct Piece {
  int begin, end, report;
};
__global__ void __launch_bounds__(256) parse_reports(const unsigned* word, const Piece* piece, unsigned* out) {
  Piece own = piece[blockIdx.x];
  unsigned s = 0;
#pragma unroll 1
  for (int i = own.begin + threadIdx.x; i < own.end; i += 256) {
    unsigned h = word[i];
#pragma unroll
    for (int r = 0; r < 24; ++r) h = mix(h + r);
    s += h;
  }
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[own.report], s);
}

void spread_cases() {
  static Piece *reports, *pieces;
  static int many;
  cases.push_back({"average_isotherms", "occupancy_registers", "", [] { average_isotherms<0><<<1584, 128>>>(A, B, C, 64); }, [] { average_isotherms<1><<<1584, 128>>>(A, B, C, 64); }, C, 1584 * 128});
  cases.push_back({"tally_alleles", "occupancy_shared", "", [] {
    dynamic_shared(tally_alleles<int>, 96 << 10);
    tally_alleles<int><<<1056, 256, 96 << 10>>>(A, (int*)C, 96);
  }, [] {
    dynamic_shared(tally_alleles<unsigned char>, 24 << 10);
    tally_alleles<unsigned char><<<1056, 256, 24 << 10>>>(A, (int*)C, 96);
  }, C, 1056 * 256, true});
  cases.push_back({"unwrap_phases", "occupancy_block_size", "", [] { unwrap_phases<<<16896, 32>>>(A, C, 2048); }, [] { unwrap_phases<<<2112, 256>>>(A, C, 2048); }, C, 16896 * 32});
  cases.push_back({"moments_of_channels", "grid_too_small", "", [] { moments_of_channels<<<dim3(1, 48), 512>>>(A, C, 1 << 20); }, [] { moments_of_channels<<<dim3(32, 48), 512>>>(A, C, 1 << 15); }, C, 96});
  cases.push_back({"brew_keys", "grid_too_small", "", [] { brew_keys<<<40, 256>>>((unsigned*)A, (unsigned*)C, 1056 * 256, 128); }, [] { brew_keys<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1056 * 256, 128); }, C, 1056 * 256, true});
  cases.push_back({"hedge_books", "tail_effect", "uneven_blocks", [] { hedge_books<<<140, 1024>>>(A, C, 4, 64); }, [] { hedge_books<<<2240, 256>>>(A, C, 1, 64); }, C, 140 * 4096});
  cases.push_back({"smooth_causally", "uneven_blocks", "tail_effect", [] { smooth_causally<0><<<ROWS, 256>>>(A, C); }, [] { smooth_causally<1><<<ROWS, 256>>>(A, C); }, C, ROWS * 256, false, nullptr, [] { CHECK(cudaMemset(C, 0, ROWS * 1024)); }});
  cases.push_back({"parse_reports", "uneven_blocks", "tail_effect", [] { parse_reports<<<6192, 256>>>((unsigned*)A, reports, (unsigned*)C); }, [] { parse_reports<<<many, 256>>>((unsigned*)A, pieces, (unsigned*)C); }, C, 6192, true, [] {
    std::vector<Piece> all, some;
    for (int k = 0, at = 0; k < 6192; ++k) {
      int end = at + (k < 6144 ? 2048 : 160000);
      all.push_back({at, end, k});
      for (; at < end; at += 2048) some.push_back({at, std::min(at + 2048, end), k});
      at = end;
    }
    reports = upload(all), pieces = upload(some), many = (int)some.size();
  }});
}
