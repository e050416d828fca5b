// Banks, barriers, reductions, atomics and tables: maps, covariances, rings of wool, rainfalls, logits, comets, canteens, zones, checksums, telegrams.
#include "frame.h"

namespace cg = cooperative_groups;

// ---- swap_map_axes: tiles of 32 x 32 words whose columns lie in one bank; or rows of 33 words; expected 2 times
constexpr int EAST = 4096, NORTH = 8192;
template <int PITCH> __global__ void __launch_bounds__(256) swap_map_axes(const float* map, float* out) {
  __shared__ float tile[32][PITCH];
  int lane = threadIdx.x & 31, row = threadIdx.x / 32, x = blockIdx.x * 32, y = blockIdx.y * 32;
#pragma unroll
  for (int k = 0; k < 32; k += 8) tile[row + k][lane] = map[(i64)(y + row + k) * EAST + x + lane];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 32; k += 8) out[(i64)(x + row + k) * NORTH + y + lane] = tile[lane][row + k];
}
// ---- factor_covariances: a factor of 32 x 32 a warp, whose rows, one a lane, are 32 words apart and begin in the same bank; or 33; expected 6 times
template <int PITCH> __global__ void __launch_bounds__(128) factor_covariances(const float* a, float* out) {
  __shared__ float room[4][32][PITCH];
  int lane = threadIdx.x & 31;
  float(*m)[PITCH] = room[threadIdx.x / 32], x = a[T], size = 0;
#pragma unroll 1
  for (int j = 0; j < 32; ++j) m[lane][j] = fmaf(0.3f * x, __shfl_sync(~0u, x, j), lane == j ? 1.0f : 0.0f);
  __syncwarp();
#pragma unroll 1
  for (int k = 0; k < 32; ++k) {
    float v = m[lane][k];
#pragma unroll 4
    for (int j = 0; j < k; ++j) v = fmaf(-m[lane][j], m[k][j], v);
    float d = __shfl_sync(~0u, v, k);
    size += __logf(d);
    __syncwarp();
    m[lane][k] = lane >= k ? v * rsqrtf(d) : 0;
    __syncwarp();
  }
  out[T] = 1 + size + 0.1f * m[31][lane];
}
// ---- knit_rings: each warp has a ring of its own in shared memory, but all 16 warps meet twice in each row; or only lanes of a warp do; expected 1.6 times
template <int V> __global__ void __launch_bounds__(512) knit_rings(const float* a, float* out, int rows) {
  __shared__ float ring[16][32];
  int lane = threadIdx.x & 31;
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  volatile float* own = ring[threadIdx.x / 32];
  float x = a[T];
#pragma unroll 1
  for (int n = 0; n < rows; ++n) {
    own[lane] = x;
    if (V == 0) block.sync();
    else warp.sync();
    float left = own[lane + 31 & 31], right = own[lane + 1 & 31];
    if (V == 0) block.sync();
    else warp.sync();
    x = fmaf(0.5f, x, fmaf(0.26f, left, 0.24f * right));
  }
  out[T] = x;
}
// ---- total_rainfalls: a barrier after each load of a stream that no thread shares, so one load a thread is on its way; or eight; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) total_rainfalls(const float* gauge, float* out, int hours) {
  float s = 0, most = 0;
#pragma unroll 8
  for (int n = 0; n < hours; ++n) {
    float rain = gauge[n * STRIDE + T];
    s += rain, most = fmaxf(most, rain);
    if (V == 0) __syncthreads();
  }
  out[T] = s + most;
}
// ---- temper_logits: one thread adds the 256 parts of a row while 255 wait; or shuffles, and then eight; expected 2.3 times
template <int V> __global__ void __launch_bounds__(256) temper_logits(const float4* logit, float4* chance, float heat) {
  __shared__ float part[V == 0 ? 256 : 8], total;
  int t = threadIdx.x;
  float4 v = logit[T];
  v = {exp2_fast(v.x * heat), exp2_fast(v.y * heat), exp2_fast(v.z * heat), exp2_fast(v.w * heat)};
  float s = (v.x + v.y) + (v.z + v.w);
  if (V == 0) {
    part[t] = s;
    __syncthreads();
    if (t == 0) {
      s = 0;
#pragma unroll 1
      for (int k = 0; k < 256; ++k) s += part[k];
      total = s;
    }
    __syncthreads();
    s = total;
  } else {
    s = warp_sum(s);
    if ((t & 31) == 0) part[t / 32] = s;
    __syncthreads();
    s = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
  s = __fdividef(1000.0f, s);
  chance[T] = {v.x * s, v.y * s, v.z * s, v.w * s};
}
// ---- closest_comet: each of 262,144 threads offers the best of its 16 to one word of 64 bits; or each block does; expected 8 times
template <int V> __global__ void __launch_bounds__(256) closest_comet(const float* distance, u64* best) {
  __shared__ u64 part[8];
  u64 own = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    unsigned i = (unsigned)(k * STRIDE + T);
    own = max(own, (u64)~__float_as_uint(distance[i]) << 32 | i);
  }
  if (V == 1) {
    for (int o = 16; o; o >>= 1) own = max(own, __shfl_xor_sync(~0u, own, o));
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = own;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; ++k) own = max(own, part[k]);
  }
  if (V == 0 || threadIdx.x == 0) atomicMax(best, own);
}
// ---- serve_canteens: persistent warps ask one counter in global memory for each of 262,144 trays of 512 bytes; or for eight trays at a time; expected 3 times
template <int TRAYS> __global__ void __launch_bounds__(256) serve_canteens(const float4* tray, float* out, unsigned* next, unsigned trays) {
  int lane = threadIdx.x & 31;
  while (true) {
    unsigned first = 0;
    if (lane == 0) first = atomicAdd(next, TRAYS);
    first = __shfl_sync(~0u, first, 0);
    if (first >= trays) return;
    float s[TRAYS];
#pragma unroll
    for (int k = 0; k < TRAYS; ++k) {
      float4 v = tray[(first + k) * 32ll + lane];
      s[k] = fmaf(v.x, 0.4f, v.y * 0.3f) + fmaf(v.z, 0.2f, v.w * 0.1f);
    }
#pragma unroll
    for (int k = 0; k < TRAYS; ++k) {
      s[k] = warp_sum(s[k]);
      if (lane == 0) out[first + k] = s[k];
    }
  }
}
// ---- heat_of_zones: each reading is added to one of two floats in shared memory, nearly always to the first, by compare and swap; or to one of two registers; expected 6 times
template <int V> __global__ void __launch_bounds__(256) heat_of_zones(const float* reading, float* out, int each) {
  __shared__ float zone[2];
  if (threadIdx.x < 2) zone[threadIdx.x] = 0;
  __syncthreads();
  float inside = 0, outside = 0;
#pragma unroll 4
  for (int n = 0; n < each; ++n) {
    float heat = reading[n * STRIDE + T];
    bool far = heat > 0.96f;
    if (V == 0) atomicAdd(&zone[far], heat);
    else inside += far ? 0 : heat, outside += far ? heat : 0;
  }
  if (V == 1) {
    inside = warp_sum(inside), outside = warp_sum(outside);
    if ((threadIdx.x & 31) == 0) atomicAdd(&zone[0], inside), atomicAdd(&zone[1], outside);
  }
  __syncthreads();
  if (threadIdx.x < 2) out[blockIdx.x * 2 + threadIdx.x] = zone[threadIdx.x];
}
// ---- fold_checksums: every thread folds each of its words of 64 bits into the one checksum of its block; or into a register first; expected 6 times
template <int V> __global__ void __launch_bounds__(256) fold_checksums(const u64* word, u64* out, int each) {
  __shared__ u64 sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  u64 own = 0;
#pragma unroll 4
  for (int n = 0; n < each; ++n) {
    u64 w = word[n * STRIDE + T] * 0x9e3779b97f4a7c15ull;
    w ^= w >> 29;
    if (V == 0) atomicXor(&sum, w);
    else own ^= w;
  }
  if (V == 1) {
    for (int o = 16; o; o >>= 1) own ^= __shfl_xor_sync(~0u, own, o);
    if ((threadIdx.x & 31) == 0) atomicXor(&sum, own);
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
// ---- check_telegrams: the table of a cyclic check in constant memory, where lanes read different words; or in shared memory; expected 5 times
__constant__ unsigned CHECKS[256];
template <int V> __global__ void __launch_bounds__(256) check_telegrams(const uint4* telegram, const unsigned* table, unsigned* out) {
  __shared__ unsigned of[256];
  of[threadIdx.x] = table[threadIdx.x];
  __syncthreads();
  unsigned check = ~0u;
#pragma unroll 1
  for (int n = 0; n < 4; ++n) {
    uint4 v = telegram[n * STRIDE + T];
    unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      unsigned i = (check ^ w[k / 4] >> k % 4 * 8) & 255;
      check = check >> 8 ^ (V == 0 ? CHECKS[i] : of[i]);
    }
  }
  out[T] = ~check;
}

void sync_cases() {
  static unsigned* checks;
  cases.push_back({"swap_map_axes", "shared_bank_conflicts", "", [] { swap_map_axes<32><<<dim3(EAST / 32, NORTH / 32), 256>>>(A, C); }, [] { swap_map_axes<33><<<dim3(EAST / 32, NORTH / 32), 256>>>(A, C); }, C, (i64)EAST * NORTH});
  cases.push_back({"factor_covariances", "shared_bank_conflicts", "", [] { factor_covariances<32><<<1056, 128>>>(A, C); }, [] { factor_covariances<33><<<1056, 128>>>(A, C); }, C, 1056 * 128});
  cases.push_back({"knit_rings", "needless_barriers", "", [] { knit_rings<0><<<132, 512>>>(A, C, 1536); }, [] { knit_rings<1><<<132, 512>>>(A, C, 1536); }, C, 132 * 512});
  cases.push_back({"total_rainfalls", "needless_barriers", "", [] { total_rainfalls<0><<<1056, 256>>>(A, C, 128); }, [] { total_rainfalls<1><<<1056, 256>>>(A, C, 128); }, C, 1056 * 256});
  cases.push_back({"temper_logits", "one_warp_reduction", "uneven_warps", [] { temper_logits<0><<<1 << 14, 256>>>((float4*)A, (float4*)C, 2.5f); }, [] { temper_logits<1><<<1 << 14, 256>>>((float4*)A, (float4*)C, 2.5f); }, C, 1 << 24});
  cases.push_back({"closest_comet", "global_atomics_one_address", "", [] { closest_comet<0><<<1024, 256>>>(A, (u64*)C); }, [] { closest_comet<1><<<1024, 256>>>(A, (u64*)C); }, C, 2, true});
  cases.push_back({"serve_canteens", "global_atomics_one_address", "", [] { serve_canteens<1><<<1056, 256>>>((float4*)A, D, (unsigned*)C, 1u << 18); }, [] { serve_canteens<8><<<1056, 256>>>((float4*)A, D, (unsigned*)C, 1u << 18); }, D, 1 << 18});
  cases.push_back({"heat_of_zones", "shared_atomics_one_address", "", [] { heat_of_zones<0><<<528, 256>>>(A, C, 8); }, [] { heat_of_zones<1><<<528, 256>>>(A, C, 8); }, C, 1056});
  cases.push_back({"fold_checksums", "shared_atomics_one_address", "", [] { fold_checksums<0><<<528, 256>>>((u64*)A, (u64*)C, 8); }, [] { fold_checksums<1><<<528, 256>>>((u64*)A, (u64*)C, 8); }, C, 1056, true});
  cases.push_back({"check_telegrams", "constant_divergence", "", [] { check_telegrams<0><<<1024, 256>>>((uint4*)A, checks, (unsigned*)C); }, [] { check_telegrams<1><<<1024, 256>>>((uint4*)A, checks, (unsigned*)C); }, C, 1 << 18, true, [] {
    std::vector<unsigned> v(256);
    for (unsigned k = 0; k < 256; ++k) {
      v[k] = k;
      for (int bit = 0; bit < 8; ++bit) v[k] = v[k] & 1 ? v[k] >> 1 ^ 0xedb88320u : v[k] >> 1;
    }
    checks = upload(v);
    CHECK(cudaMemcpyToSymbol(CHECKS, v.data(), 1024));
  }});
}
