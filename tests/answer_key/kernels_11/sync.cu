// Banks, atomics, barriers and tables: wavelets, nearest stars, fields, channels, photons, accounts, orbits, forests, beams, segments, octaves.
#include "set.h"

namespace cg = cooperative_groups;

// ---- lift_wavelets: a block of 8 x 8 a thread, 64 words apart in shared memory, so that all lanes meet in a bank; or 65 words apart; expected 5 times
template <int PITCH> __global__ void __launch_bounds__(128) lift_wavelets(const float* a, float* out) {
  __shared__ float room[128 * PITCH];
  i64 first = blockIdx.x * 8192ll;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    int i = k * 128 + threadIdx.x;
    room[i / 64 * PITCH + (i & 63)] = a[first + i];
  }
  __syncthreads();
  float* own = room + threadIdx.x * PITCH;
#pragma unroll
  for (int way = 0; way < 2; ++way)
#pragma unroll 2
    for (int r = 0; r < 8; ++r) {
      int from = way ? r : r * 8, by = way ? 8 : 1;
      float v[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] = own[from + k * by];
#pragma unroll
      for (int k = 0; k < 4; ++k) v[2 * k + 1] -= 0.5f * (v[2 * k] + v[k < 3 ? 2 * k + 2 : 6]);
#pragma unroll
      for (int k = 0; k < 4; ++k) v[2 * k] += 0.25f * (v[2 * k + 1] + v[k ? 2 * k - 1 : 1]);
#pragma unroll
      for (int k = 0; k < 8; ++k) own[from + (k & 1 ? 4 + k / 2 : k / 2) * by] = v[k];
    }
  __syncthreads();
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    int i = k * 128 + threadIdx.x;
    out[first + i] = room[i / 64 * PITCH + (i & 63)];
  }
}
// ---- keep_nearest_stars: a sorted list of 16 distances a thread, 16 words apart, so that lanes meet in two banks; or a column a thread; expected 3 times
template <int V> __global__ void __launch_bounds__(128) keep_nearest_stars(const float* distance, float* out, int each) {
  __shared__ float room[128 * 16];
  auto kept = [&](int k) -> float& { return room[V == 0 ? threadIdx.x * 16 + k : k * 128 + threadIdx.x]; };
  for (int k = 0; k < 16; ++k) kept(k) = 2;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    float d = distance[n * STRIDE + T];
    int k = 15;
    if (d >= kept(15)) continue;
#pragma unroll 1
    for (; k > 0 && kept(k - 1) > d; --k) kept(k) = kept(k - 1);
    kept(k) = d;
  }
  float s = 0;
#pragma unroll 1
  for (int k = 0; k < 16; ++k) s = fmaf(s, 0.7f, kept(k));
  out[T] = s;
}
// ---- brightest_in_fields: each star goes to the maximum of its block in shared memory; or registers, shuffles and eight words; expected 10 times
template <int V> __global__ void __launch_bounds__(256) brightest_in_fields(const float* a, u64* out, int n) {
  __shared__ u64 all, of[8];
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  u64 most = 0;
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    u64 own = (u64)__float_as_uint(a[i]) << 32 | (unsigned)i;
    if (V == 0) atomicMax(&all, own);
    else most = max(most, own);
  }
  if (V == 1) {
    for (int o = 16; o; o >>= 1) most = max(most, __shfl_xor_sync(~0u, most, o));
    if ((threadIdx.x & 31) == 0) of[threadIdx.x / 32] = most;
  }
  __syncthreads();
  if (threadIdx.x) return;
  if (V == 1)
    for (int k = 0; k < 8; ++k) most = max(most, of[k]);
  out[blockIdx.x] = V == 0 ? all : most;
}
// ---- energy_of_channels: samples of four channels in turn, and so eight lanes add to each of four words of shared memory; or registers first; expected 4 times
template <int V> __global__ void __launch_bounds__(256) energy_of_channels(const unsigned* a, int* out, int n) {
  __shared__ int all[4];
  if (threadIdx.x < 4) all[threadIdx.x] = 0;
  __syncthreads();
  int s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    int v = (int)(a[i] >> 8 & 127), square = v * v >> 4;
    if (V == 0) atomicAdd(&all[threadIdx.x & 3], square);
    else s += square;
  }
  if (V == 1) {
    for (int o = 16; o > 2; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if ((threadIdx.x & 31) < 4) atomicAdd(&all[threadIdx.x & 3], s);
  }
  __syncthreads();
  if (threadIdx.x < 4) out[blockIdx.x * 4 + threadIdx.x] = all[threadIdx.x];
}
// ---- sum_photons: each warp of 32 photons adds to one word in global memory; or each of 264 blocks; expected 10 times
template <int V> __global__ void __launch_bounds__(256) sum_photons(const unsigned* a, u64* out, int n) {
  __shared__ u64 of[8];
  u64 s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) s += a[i];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (V == 0) {
    if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
    return;
  }
  if ((threadIdx.x & 31) == 0) of[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x) return;
  s = 0;
  for (int k = 0; k < 8; ++k) s += of[k];
  atomicAdd(out, s);
}
// ---- charge_accounts: calls charged to 4096 accounts in global memory, three of four to the same one; or that one in registers first; expected 5 times
template <int V> __global__ void __launch_bounds__(256) charge_accounts(const unsigned* call, unsigned* out, int n) {
  unsigned s = 0;
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned h = mix(call[i]), account = h & 3 ? 0 : h >> 20, price = 1 + (h >> 8 & 63);
    if (V == 1 && account == 0) s += price;
    else atomicAdd(&out[account], price);
  }
  if (V == 0) return;
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
}
// ---- settle_orbits: after each step, 1024 threads ask each other whether any goes on; or a warp asks itself; expected 1.6 times
template <int V> __global__ void __launch_bounds__(1024) settle_orbits(const float* a, float* out, int steps) {
  float x = a[T], v = 0.3f;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    float d = fmaf(-0.02f, x, 0.003f * v);
    v = fmaf(v, 0.999f, d), x = fmaf(0.05f, v, x);
    bool goes_on = fabsf(d) != 1e30f;
    if (V == 0 ? !__syncthreads_or(goes_on) : !__any_sync(~0u, goes_on)) break;
  }
  out[T] = x;
}
// ---- age_forests: cohorts in shared memory, of which each thread has its own, and all threads meet after each year; or do not; expected 1.6 times
template <int V> __global__ void __launch_bounds__(256) age_forests(const float* a, float* out, int years) {
  __shared__ float cohort[16][256];
  cg::thread_block block = cg::this_thread_block();
  int t = threadIdx.x;
  for (int k = 0; k < 16; ++k) cohort[k][t] = a[k * STRIDE + T];
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < years; ++n) {
    float young = cohort[n & 15][t], old = cohort[(n + 5) & 15][t];
    float next = fmaf(0.6f, young, 0.3f * old) * fmaf(-0.1f, young, 1.1f);
    cohort[n & 15][t] = next, s = fmaf(0.99f, s, next);
    if (V == 0) block.sync();
  }
  out[T] = s;
}
// ---- best_of_beams: a persistent block of 32 warps leaves 1024 scores to its first warp, row by row; or a maximum of each warp; expected 1.5 times
template <int V> __global__ void __launch_bounds__(1024) best_of_beams(const float* score, u64* out, int rows) {
  __shared__ u64 of[V == 0 ? 1024 : 32];
  int t = threadIdx.x, lane = t & 31;
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    u64 most = (u64)__float_as_uint(score[(i64)r * 1024 + t]) << 32 | (unsigned)t;
    if (V == 1)
      for (int o = 16; o; o >>= 1) most = max(most, __shfl_xor_sync(~0u, most, o));
    if (V == 0) of[t] = most;
    else if (lane == 0) of[t / 32] = most;
    __syncthreads();
    if (t < 32) {
      most = 0;
      for (int k = lane; k < (V == 0 ? 1024 : 32); k += 32) most = max(most, of[k]);
      for (int o = 16; o; o >>= 1) most = max(most, __shfl_xor_sync(~0u, most, o));
      if (lane == 0) out[r] = most;
    }
    __syncthreads();
  }
}
// ---- window_segments: 32 lanes read 32 words in a row of a window in constant memory, four times a sample; or of global memory; expected 4 times
__constant__ float WINDOW[1024];
template <int V> __global__ void __launch_bounds__(256) window_segments(const float* a, const float* __restrict__ window, float* out) {
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int i = (int)(T + k * 256) & 1023;
    s = fmaf(a[T + k * 256], V == 0 ? WINDOW[i] : __ldg(&window[i]), s);
  }
  out[T] = s;
}
// ---- energies_of_octaves: eight octaves of 64 to 8192 coefficients, a warp each; or all warps through each octave; expected 2.5 times
constexpr int FRAME = 64 * 255;
template <int V> __global__ void __launch_bounds__(256) energies_of_octaves(const float4* a, float* out, int frames) {
  __shared__ float part[8][8];
  int t = threadIdx.x, warp = t / 32, lane = t & 31;
  auto energy = [](float4 v) { return fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w); };
  for (int f = blockIdx.x; f < frames; f += gridDim.x) {
    const float4* own = a + (i64)f * (FRAME / 4);
    if (V == 0) {
      float s = 0;
      int first = 16 * ((1 << warp) - 1), many = 16 << warp;
#pragma unroll 2
      for (int i = lane; i < many; i += 32) s += energy(own[first + i]);
      s = warp_sum(s);
      if (lane == 0) part[0][warp] = s;
    } else {
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        float s = 0;
#pragma unroll 2
        for (int i = t; i < 16 << o; i += 256) s += energy(own[16 * ((1 << o) - 1) + i]);
        s = warp_sum(s);
        if (lane == 0) part[warp][o] = s;
      }
    }
    __syncthreads();
    if (t < 8) {
      float s = 0;
      for (int w = 0; w < (V == 0 ? 1 : 8); ++w) s += part[w][t];
      out[f * 8 + t] = s;
    }
    __syncthreads();
  }
}

void sync_cases() {
  static float* window;
  cases.push_back({"lift_wavelets", "shared_bank_conflicts", "", [] { lift_wavelets<64><<<2048, 128>>>(A, C); }, [] { lift_wavelets<65><<<2048, 128>>>(A, C); }, C, 1 << 24});
  cases.push_back({"keep_nearest_stars", "shared_bank_conflicts", "", [] { keep_nearest_stars<0><<<1056, 128>>>(A, C, 256); }, [] { keep_nearest_stars<1><<<1056, 128>>>(A, C, 256); }, C, 1056 * 128});
  cases.push_back({"brightest_in_fields", "shared_atomics_one_address", "", [] { brightest_in_fields<0><<<1056, 256>>>(A, (u64*)C, 1 << 21); }, [] { brightest_in_fields<1><<<1056, 256>>>(A, (u64*)C, 1 << 21); }, C, 2112, true});
  cases.push_back({"energy_of_channels", "shared_atomics_one_address", "", [] { energy_of_channels<0><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 24); }, [] { energy_of_channels<1><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 24); }, C, 4224, true});
  cases.push_back({"sum_photons", "global_atomics_one_address", "", [] { sum_photons<0><<<(1 << 22) / 256, 256>>>((unsigned*)A, (u64*)C, 1 << 22); }, [] { sum_photons<1><<<264, 256>>>((unsigned*)A, (u64*)C, 1 << 22); }, C, 2, true});
  cases.push_back({"charge_accounts", "global_atomics_one_address", "", [] { charge_accounts<0><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1 << 22); }, [] { charge_accounts<1><<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1 << 22); }, C, 4096, true});
  cases.push_back({"settle_orbits", "needless_barriers", "", [] { settle_orbits<0><<<132, 1024>>>(A, C, 1500); }, [] { settle_orbits<1><<<132, 1024>>>(A, C, 1500); }, C, 132 * 1024});
  cases.push_back({"age_forests", "needless_barriers", "", [] { age_forests<0><<<264, 256>>>(A, C, 1000); }, [] { age_forests<1><<<264, 256>>>(A, C, 1000); }, C, 264 * 256});
  cases.push_back({"best_of_beams", "one_warp_reduction", "", [] { best_of_beams<0><<<264, 1024>>>(A, (u64*)C, 264 * 62); }, [] { best_of_beams<1><<<264, 1024>>>(A, (u64*)C, 264 * 62); }, C, 264 * 124, true});
  cases.push_back({"window_segments", "constant_divergence", "", [] { window_segments<0><<<65536, 256>>>(A, window, C); }, [] { window_segments<1><<<65536, 256>>>(A, window, C); }, C, 1 << 24, false, [] {
    std::vector<float> v(1024);
    for (int k = 0; k < 1024; ++k) v[k] = 0.5f - 0.5f * std::cos(6.2831853f * (k + 0.5f) / 1024);
    window = upload(v);
    CHECK(cudaMemcpyToSymbol(WINDOW, v.data(), 4096));
  }});
  cases.push_back({"energies_of_octaves", "uneven_warps", "", [] { energies_of_octaves<0><<<264, 256>>>((float4*)A, C, 264 * 15); }, [] { energies_of_octaves<1><<<264, 256>>>((float4*)A, C, 264 * 15); }, C, 264 * 120});
}
