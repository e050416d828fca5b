// Traps, whose tempting fix should win less than 6 %, and kernels near a roof or well built: colours, songs, relays, stacks, pages, films, stations, planes, stripes, volumes, comets.
#include <cooperative_groups/reduce.h>

#include "set.h"

namespace cg = cooperative_groups;
__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- traps, most beside a full DRAM: exponentials; rows of 1 to 3 lengths in thousands of blocks; a ring of bulk copies that leaves one block an SM;
// a meeting of a cluster for each 64 kB; one word written a warp, 32 bytes apart; a byte a thread beside 16; a gather from 1 kB; four loads from shared
// memory where one would do
template <int V> __global__ void __launch_bounds__(256) warm_colours(const float4* a, float4* out) {
  auto warmed = [](float x) {
    if (V == 0) return 1 - __expf(-2 * x);
    float y = fmaf(x, fmaf(x, fmaf(x, fmaf(x, fmaf(x, 0.00833333f * -32, 0.0416667f * 16), 0.166667f * -8), 0.5f * 4), -2.0f), 0.0f);
    return -y;
  };
  float4 v = a[T];
  v = {v.x * 0.25f, v.y * 0.25f, v.z * 0.25f, v.w * 0.25f};
  out[T] = {warmed(v.x), warmed(v.y), warmed(v.z), warmed(v.w)};
}
__global__ void __launch_bounds__(256) peaks_of_songs(const float4* a, const int2* song, float* out) {  // first and end, in 16 bytes
  int2 own = song[blockIdx.x];
  float most = 0;
#pragma unroll 4
  for (int i = own.x + threadIdx.x; i < own.y; i += 256) {
    float4 v = a[i];
    most = fmaxf(most, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
  }
  for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
  if ((threadIdx.x & 31) == 0) atomicMax((int*)&out[own.x / 768], __float_as_int(most));
}
template <int STAGES> __global__ void __launch_bounds__(256) sum_relays(const float4* a, float* out, int pieces) {  // bulk copies of 16 kB
  extern __shared__ __align__(128) float4 room[];
  __shared__ u64 full[STAGES];
  int t = threadIdx.x;
  if (t == 0) {
    for (int d = 0; d < STAGES; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[d])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto request = [&](int n) {
    if (t || n >= pieces) return;
    int d = n % STAGES;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&full[d])), "r"(16384) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(room + d * 1024)), "l"(a + ((i64)blockIdx.x * pieces + n) * 1024), "r"(16384), "r"(place(&full[d])) : "memory");
  };
  float s[4] = {};
  for (int n = 0; n < STAGES; ++n) request(n);
  for (int n = 0; n < pieces; ++n) {
    int d = n % STAGES, seen = 0;
    while (!seen)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(&full[d])), "r"(n / STAGES & 1) : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float4 v = room[d * 1024 + i * 256 + t];
      s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
    }
    __syncthreads();
    request(n + STAGES);
  }
  s[0] = warp_sum((s[0] + s[1]) + (s[2] + s[3]));
  if ((t & 31) == 0) atomicAdd(out, s[0]);
}
template <int V> __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256) stack_exposures(const float4* a, float4* out, int each) {
  cg::cluster_group cluster = cg::this_cluster();
  for (int n = 0; n < each; ++n) {
    i64 first = ((i64)blockIdx.x * each + n) * 2048 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float4 v = a[first + k * 256];
      out[first + k * 256] = {fmaf(v.x, 0.9f, 0.05f), fmaf(v.y, 0.9f, 0.05f), fmaf(v.z, 0.9f, 0.05f), fmaf(v.w, 0.9f, 0.05f)};
    }
    if (V == 0) cluster.sync();
  }
}
template <int STEP> __global__ void __launch_bounds__(256) darkest_of_pages(const float4* a, float* out) {  // a warp 8 kB
  const float4* own = a + T / 32 * 512 + (threadIdx.x & 31);
  float least = 1;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = own[k * 32];
    least = fminf(least, fminf(fminf(v.x, v.y), fminf(v.z, v.w)));
  }
  for (int o = 16; o; o >>= 1) least = fminf(least, __shfl_xor_sync(~0u, least, o));
  if ((threadIdx.x & 31) == 0) out[T / 32 * STEP] = least;
}
template <int V> __global__ void __launch_bounds__(256) develop_films(const float4* a, const unsigned char* grain, float4* out) {
  unsigned four = V == 0 ? 0 : ((const unsigned*)grain)[blockIdx.x * 256ll + threadIdx.x];
  __shared__ float by[V == 0 ? 1 : 1024];
  if (V == 1) {
#pragma unroll
    for (int k = 0; k < 4; ++k) by[threadIdx.x * 4 + k] = 1 + (float)(four >> 8 * k & 255) * 0.001f;
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 i = blockIdx.x * 1024ll + k * 256 + threadIdx.x;
    float4 v = a[i];
    float g = V == 0 ? 1 + (float)grain[i] * 0.001f : by[k * 256 + threadIdx.x];
    out[i] = {v.x * g, v.y * g, v.z * g, v.w * g};
  }
}
__global__ void __launch_bounds__(256) scale_stations(const float4* a, const float* __restrict__ gain, float4* out, int step) {
  float by = __ldg(&gain[(threadIdx.x & 31) * step]);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 i = blockIdx.x * 1024ll + k * 256 + threadIdx.x;
    float4 v = a[i];
    float other = __ldg(&gain[((threadIdx.x + k + 1) & 31) * step]);
    out[i] = {v.x * by, v.y * by, v.z * other, v.w * other};
  }
}
template <int V> __global__ void __launch_bounds__(256) mirror_planes(const float4* a, float4* out) {
  __shared__ __align__(16) float plane[1024];
  int t = threadIdx.x;
  ((float4*)plane)[t] = a[blockIdx.x * 256ll + t];
  __syncthreads();
  float4 v;
  if (V == 0) {
    const volatile float* own = plane + (255 - t) * 4;
    v = {own[3], own[2], own[1], own[0]};
  } else {
    float4 w = ((const float4*)plane)[255 - t];
    v = {w.w, w.z, w.y, w.x};
  }
  out[blockIdx.x * 256ll + t] = v;
}

// ---- clean kernels
__global__ void __launch_bounds__(256) mend_stripes(const uint4* p, const uint4* q, const uint4* parity, uint4* out) {
  uint4 u = p[T], v = q[T], w = parity[T];
  out[T] = {u.x ^ v.x ^ w.x, u.y ^ v.y ^ w.y, u.z ^ v.z ^ w.z, u.w ^ v.w ^ w.w};
}
__global__ void __launch_bounds__(256) shrink_embeddings(const uint4* in, uint2* out, float by) {  // eight of BF16 to eight of INT8
  uint4 v = in[T];
  auto byte = [&](unsigned bits) { return (unsigned)__float2int_rn(__uint_as_float(bits) * by) & 255; };
  auto two = [&](unsigned w) { return byte(w << 16) | byte(w & 0xffff0000u) << 8; };
  out[T] = {two(v.x) | two(v.y) << 16, two(v.z) | two(v.w) << 16};
}
__global__ void __launch_bounds__(256) centre_readings(const float4* a, float4* out) {  // a warp a row of 1024
  const float4* own = a + T / 32 * 256 + (threadIdx.x & 31);
  float4 v[8], *to = out + T / 32 * 256 + (threadIdx.x & 31);
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = own[k * 32], s += (v[k].x + v[k].y) + (v[k].z + v[k].w);
  s = warp_sum(s) * (1 / 1024.0f);
#pragma unroll
  for (int k = 0; k < 8; ++k) to[k * 32] = {v[k].x - s, v[k].y - s, v[k].z - s, v[k].w - s};
}
__global__ void __launch_bounds__(256) charge_of_cells(const float4* a, float* out) {  // a block 64 kB
  __shared__ float part[8];
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  float s[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  float all = cg::reduce(warp, (s[0] + s[1]) + (s[2] + s[3]), cg::plus<float>());
  if (warp.thread_rank() == 0) part[warp.meta_group_rank()] = all;
  block.sync();
  if (block.thread_rank() == 0) out[blockIdx.x] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
__global__ void __launch_bounds__(32) forward_packets(const char* in, char* out, int pieces) {  // bulk copies of 16 kB in and out, four places
  extern __shared__ __align__(128) char packets[];
  __shared__ u64 full[4];
  if (threadIdx.x) return;
  for (int d = 0; d < 4; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[d])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  auto request = [&](int n) {
    if (n >= pieces) return;
    int d = n & 3;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&full[d])), "r"(16384) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(packets + d * 16384)), "l"(in + ((i64)n * gridDim.x + blockIdx.x) * 16384), "r"(16384), "r"(place(&full[d])) : "memory");
  };
  request(0), request(1);
  for (int n = 0; n < pieces; ++n) {
    int d = n & 3, seen = 0;
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // what is two places behind has been read
    request(n + 2);
    while (!seen)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(&full[d])), "r"(n / 4 & 1) : "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + ((i64)n * gridDim.x + blockIdx.x) * 16384), "r"(place(packets + d * 16384)), "r"(16384) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__global__ void __launch_bounds__(256) crop_volumes(const float4* a, float4* out) {  // 512 of 1024 columns, 128-byte steps
  i64 row = T / 128, column = T % 128;
  out[T] = a[row * 256 + 64 + column];
}
__global__ void __launch_bounds__(256) advance_comets(const float* a, float* out, int steps) {
  double x[4], v[4], by = a[T] * 1e-3;
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = 0.1 * k, v[k] = 0.3;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fma(v[k], by, x[k]), v[k] = fma(x[k], -by, v[k]);
  out[T] = (float)((x[0] + x[1]) + (x[2] + x[3]));
}
__global__ void __launch_bounds__(256) turn_phasors(const float2* a, float2* out, int steps) {
  float2 by = a[T], z[4];
  by = {1 - by.x * 1e-3f, by.y * 1e-3f};
#pragma unroll
  for (int k = 0; k < 4; ++k) z[k] = {0.1f * k, 0.3f};
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float x = fmaf(z[k].x, by.x, 0.01f), y = fmaf(z[k].x, by.y, 0.02f);
      z[k] = {fmaf(-z[k].y, by.y, x), fmaf(z[k].y, by.x, y)};
    }
  out[T] = {(z[0].x + z[1].x) + (z[2].x + z[3].x), (z[0].y + z[1].y) + (z[2].y + z[3].y)};
}
__global__ void bump_epoch(int* epoch) { epoch[threadIdx.x] += 1; }
__global__ void choose_branch(const float* score, int* branch) {
  unsigned better = __ballot_sync(~0u, score[threadIdx.x] > 0.5f);
  if (threadIdx.x == 0) *branch = __ffs((int)better);
}

void trap_cases() {
  static int2 *shuffled, *sorted;
  static float *gains, *close;
  static int songs;
  cases.push_back({"warm_colours", "special_functions", "", [] { warm_colours<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { warm_colours<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"peaks_of_songs", "uneven_blocks", "", [] { peaks_of_songs<<<songs, 256>>>((float4*)A, shuffled, C); }, [] { peaks_of_songs<<<songs, 256>>>((float4*)A, sorted, C); }, C, 1 << 14, false, [] {
    std::vector<int2> v;
    for (int at = 0, k = 0;; ++k) {
      int end = at + 768 * (1 + (int)(mix((unsigned)k) % 3));
      if (end > N / 4) break;
      v.push_back({at, end}), at = end;
    }
    songs = (int)v.size(), shuffled = upload(v);
    std::stable_sort(v.begin(), v.end(), [](int2 p, int2 q) { return p.y - p.x > q.y - q.x; });
    sorted = upload(v);
  }, [] { CHECK(cudaMemset(C, 0, 1 << 17)); }});
  cases.push_back({"sum_relays", "occupancy_shared", "", [] {
    dynamic_shared(sum_relays<12>, 12 << 14);
    sum_relays<12><<<132, 256, 12 << 14>>>((float4*)A, C, 124);
  }, [] {
    dynamic_shared(sum_relays<6>, 6 << 14);
    sum_relays<6><<<264, 256, 6 << 14>>>((float4*)A, C, 62);
  }, C, 1});
  cases.push_back({"stack_exposures", "needless_barriers", "", [] { stack_exposures<0><<<1024, 256>>>((float4*)A, (float4*)C, 8); }, [] { stack_exposures<1><<<1024, 256>>>((float4*)A, (float4*)C, 8); }, C, N});
  cases.push_back({"darkest_of_pages", "partial_sector_writes", "uncoalesced_stores", [] { darkest_of_pages<8><<<4096, 256>>>((float4*)A, D); }, [] { darkest_of_pages<1><<<4096, 256>>>((float4*)A, D); }, nullptr});
  cases.push_back({"develop_films", "narrow_accesses", "", [] { develop_films<0><<<16384, 256>>>((float4*)A, (unsigned char*)B, (float4*)C); }, [] { develop_films<1><<<16384, 256>>>((float4*)A, (unsigned char*)B, (float4*)C); }, C, N});
  cases.push_back({"scale_stations", "uncoalesced_loads", "", [] { scale_stations<<<16384, 256>>>((float4*)A, gains, (float4*)C, 8); }, [] { scale_stations<<<16384, 256>>>((float4*)A, close, (float4*)C, 1); }, C, N, false, [] {
    std::vector<float> apart(256), side(32);
    for (int k = 0; k < 32; ++k) apart[k * 8] = side[k] = 0.5f + 0.01f * k;
    gains = upload(apart), close = upload(side);
  }});
  cases.push_back({"mirror_planes", "shared_instruction_bound", "shared_bank_conflicts", [] { mirror_planes<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { mirror_planes<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
}
void clean_cases() {
  cases.push_back({"mend_stripes", "none_at_roof", "", [] { mend_stripes<<<65536, 256>>>((uint4*)A, (uint4*)B, (uint4*)D, (uint4*)C); }, nullptr});
  cases.push_back({"shrink_embeddings", "none_at_roof", "", [] { shrink_embeddings<<<65536, 256>>>((uint4*)A, (uint2*)C, 100.0f); }, nullptr});
  cases.push_back({"centre_readings", "none_at_roof", "", [] { centre_readings<<<8192, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"charge_of_cells", "none_at_roof", "", [] { charge_of_cells<<<4096, 256>>>((float4*)A, C); }, nullptr});
  cases.push_back({"forward_packets", "none_at_roof", "", [] {
    dynamic_shared(forward_packets, 4 << 14);
    forward_packets<<<396, 32, 4 << 14>>>((char*)A, (char*)C, 41);
  }, nullptr});
  cases.push_back({"crop_volumes", "none_at_roof", "", [] { crop_volumes<<<32768, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"advance_comets", "none_at_roof", "", [] { advance_comets<<<1056, 256>>>(A, C, 512); }, nullptr});
  cases.push_back({"turn_phasors", "none_at_roof", "", [] { turn_phasors<<<1056, 256>>>((float2*)A, (float2*)C, 512); }, nullptr});
  cases.push_back({"bump_epoch", "launch_latency", "", [] { bump_epoch<<<1, 64>>>((int*)C); }, nullptr});
  cases.push_back({"choose_branch", "launch_latency", "", [] { choose_branch<<<1, 32>>>(A, (int*)C); }, nullptr});
}
