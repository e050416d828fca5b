// Traps, whose tempting fix should win less than 3 %, and kernels near a roof or well built: frames, times, prices, epochs, layers, optimisers, volumes, rings.
#include <cuda_fp8.h>

#include "set.h"

namespace cg = cooperative_groups;

// ---- traps, all beside a full DRAM: a table in constant memory; a long chain; shared memory that halves the warps; one thread that adds at the end;
// a warp with more work; atomics of a block at one word; a copy before the work on it; loads of every second word, twice
__constant__ float TINT[4];
template <int V> __global__ void __launch_bounds__(256) tint_frames(const float4* a, float4* out) {
  __shared__ float tint[4];
  if (threadIdx.x < 4) tint[threadIdx.x] = TINT[threadIdx.x];
  __syncthreads();
  float4 v = a[T];
  int k = (int)(v.x * 4);
  float by = V == 0 ? TINT[k] : tint[k];
  out[T] = {v.x * by, v.y * by, v.z * by, v.w * by};
}
template <int V> __global__ void __launch_bounds__(256) bend_times(const float4* a, float4* out) {
  auto bent = [](float x) {
    float square = x * x, even = 0.05f, odd = 0.3f;
    if constexpr (V == 0) {
#pragma unroll
      for (int k = 14; k >= 0; --k) odd = fmaf(odd, x, 0.05f * (15 - k));
      return odd;
    } else {
#pragma unroll
      for (int k = 12; k >= 0; k -= 2) odd = fmaf(odd, square, 0.05f * (14 - k)), even = fmaf(even, square, 0.05f * (15 - k));
      return fmaf(odd, x, even);
    }
  };
  float4 v = a[T];
  out[T] = {bent(v.x), bent(v.y), bent(v.z), bent(v.w)};
}
__global__ void __launch_bounds__(256) smooth_prices(const float4* a, float4* out) {
  extern __shared__ float room[];
  if (threadIdx.x < 4) room[threadIdx.x] = 0.25f * threadIdx.x;
  __syncthreads();
  float4 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = a[blockIdx.x * 1024ll + k * 256 + threadIdx.x];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float by = room[k];
    out[blockIdx.x * 1024ll + k * 256 + threadIdx.x] = {fmaf(v[k].x, 0.5f, by), fmaf(v[k].y, 0.5f, by), fmaf(v[k].z, 0.5f, by), fmaf(v[k].w, 0.5f, by)};
  }
}
template <int V> __global__ void __launch_bounds__(256) mean_of_epochs(const float4* a, float* out) {  // a block 64 kB
  __shared__ float part[256];
  float s[4] = {}, all;
#pragma unroll 8
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  all = (s[0] + s[1]) + (s[2] + s[3]);
  if (V == 1) all = warp_sum(all);
  if (V == 0) part[threadIdx.x] = all;
  else if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = all;
  __syncthreads();
  if (threadIdx.x) return;
  all = 0;
#pragma unroll 8
  for (int k = 0; k < (V == 0 ? 256 : 8); ++k) all += part[k];
  out[blockIdx.x] = all * (1 / 16384.0f);
}
template <int V> __global__ void __launch_bounds__(256) check_frames(const float4* a, float4* out, float* sum, int each) {
  __shared__ float first[2][32], part[8];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  float check = 0;
  for (int n = 0; n < each; ++n) {
    i64 from = ((i64)blockIdx.x * each + n) * 1024;
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = a[from + k * 256 + t];
    if (warp == 0) first[n & 1][lane] = v[0].x;
    __syncthreads();
    if (warp == (V == 0 ? 0 : n & 7)) {
      float x = first[n & 1][lane];
#pragma unroll 16
      for (int k = 0; k < 64; ++k) x = fmaf(x, 0.8f, 0.1f);
      check += x;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) out[from + k * 256 + t] = {v[k].x * 0.5f, v[k].y * 0.5f, v[k].z * 0.5f, v[k].w * 0.5f};
  }
  check = warp_sum(check);
  if (lane == 0) part[warp] = check;
  __syncthreads();
  if (t == 0) sum[blockIdx.x] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
template <int V> __global__ void __launch_bounds__(256) bright_regions(const float4* a, int* out, int n) {  // the end of the list that they take places in
  __shared__ int all, last;
  if (threadIdx.x == 0) all = last = 0;
  __syncthreads();
  int most = 0;
  for (int from = blockIdx.x * 4096; from < n; from += gridDim.x * 4096) {
    int s = 0;
#pragma unroll 8
    for (int k = 0; k < 16; ++k) {
      float4 v = a[from + k * 256 + threadIdx.x];
      s += (v.x > 0.7f) + (v.y > 0.7f) + (v.z > 0.7f) + (v.w > 0.7f);
    }
    s = s > 20 ? s : 0;
    if (V == 0) {
      if (s) most = max(most, atomicAdd(&all, s) + s);
    } else {
      s = __reduce_add_sync(~0u, s);
      if ((threadIdx.x & 31) == 0) most = max(most, atomicAdd(&all, s) + s);
    }
  }
  most = __reduce_max_sync(~0u, most);
  if ((threadIdx.x & 31) == 0) atomicMax(&last, most);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = last;
}
template <int STAGES> __global__ void __launch_bounds__(256) blend_strips(const float4* a, float4* out, int each) {
  __shared__ __align__(16) float4 strip[STAGES][512];
  int t = threadIdx.x;
  auto request = [&](int n) {
    if (n < each) {
      const float4* from = a + ((i64)blockIdx.x * each + n) * 512;
      __pipeline_memcpy_async(&strip[n % STAGES][t], from + t, 16), __pipeline_memcpy_async(&strip[n % STAGES][t + 256], from + t + 256, 16);
    }
    __pipeline_commit();
  };
  request(0);
  for (int n = 0; n < each; ++n) {
    if (STAGES == 2) {
      request(n + 1);
      __pipeline_wait_prior(1);
    } else {
      __pipeline_wait_prior(0);
    }
    __syncthreads();
    const float4* own = strip[n % STAGES];
    float4 p = own[t], q = own[t + 256], u = own[511 - t], w = own[255 - t], *to = out + ((i64)blockIdx.x * each + n) * 512;
    __syncthreads();
    if (STAGES == 1) request(n + 1);
    to[t] = {p.x + 0.5f * u.x, p.y + 0.5f * u.y, p.z + 0.5f * u.z, p.w + 0.5f * u.w};
    to[t + 256] = {q.x + 0.5f * w.x, q.y + 0.5f * w.y, q.z + 0.5f * w.z, q.w + 0.5f * w.w};
  }
}
template <int V> __global__ void __launch_bounds__(256) power_of_pairs(const float* a, float* out, int n) {
  float s = 0, q = 0;
#pragma unroll 8
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float x, y;
    if (V == 0) x = a[i * 2], y = a[i * 2 + 1];
    else x = ((const float2*)a)[i].x, y = ((const float2*)a)[i].y;
    s = fmaf(x, x, s), q = fmaf(y, y, q);
  }
  out[T] = s + q;
}

// ---- clean kernels
__global__ void __launch_bounds__(256) merge_layers(const uint4* over, const uint4* under, uint4* out) {
  uint4 v = over[T], w = under[T];
  out[T] = {__vavgu4(v.x, w.x), __vavgu4(v.y, w.y), __vavgu4(v.z, w.z), __vavgu4(v.w, w.w)};
}
__global__ void __launch_bounds__(256) narrow_to_fp8(const float4* a, unsigned* out, i64 n) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i];
    unsigned low = __nv_cvt_float2_to_fp8x2({v.x, v.y}, __NV_SATFINITE, __NV_E4M3), high = __nv_cvt_float2_to_fp8x2({v.z, v.w}, __NV_SATFINITE, __NV_E4M3);
    out[i] = low | high << 16;
  }
}
__global__ void __launch_bounds__(256) step_of_optimiser(const float4* weight, const float4* mean, const float4* spread, const float4* gradient, float4* w2, float4* m2, float4* s2) {
  float4 w = weight[T], m = mean[T], s = spread[T], g = gradient[T];
  auto step = [](float& w, float& m, float& s, float g) {
    m = fmaf(0.1f, g - m, m), s = fmaf(0.01f, g * g - s, s);
    w = fmaf(-0.001f, __fdividef(m, sqrtf(s) + 1e-8f), w);
  };
  step(w.x, m.x, s.x, g.x), step(w.y, m.y, s.y, g.y), step(w.z, m.z, s.z, g.z), step(w.w, m.w, s.w, g.w);
  w2[T] = w, m2[T] = m, s2[T] = s;
}
__global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256) sums_of_volumes(const float4* a, float* out) {  // a block 64 kB, a cluster a volume
  __shared__ float part[8], sum;
  cg::cluster_group cluster = cg::this_cluster();
  float s[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  s[0] = warp_sum((s[0] + s[1]) + (s[2] + s[3]));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s[0];
  __syncthreads();
  if (threadIdx.x == 0) sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    float all = 0;
    for (int k = 0; k < 4; ++k) all += *cluster.map_shared_rank(&sum, k);
    out[blockIdx.x / 4] = all;
  }
  cluster.sync();
}
__global__ void __launch_bounds__(256) halve_frames(const float4* a, float2* out) {  // 8192 x 8192 to half of both
  i64 row = T / 2048, column = T % 2048;
  float4 v = a[row * 2 * 2048 + column], w = a[(row * 2 + 1) * 2048 + column];
  out[T] = {((v.x + v.y) + (w.x + w.y)) * 0.25f, ((v.z + v.w) + (w.z + w.w)) * 0.25f};
}
__global__ void __launch_bounds__(256) fold_rings(const uint4* a, unsigned* out, int steps) {
  __shared__ __align__(16) uint4 ring[2048];
  for (int k = threadIdx.x; k < 2048; k += 256) ring[k] = a[k];
  __syncthreads();
  uint4 s = {0, 0, 0, 0};
#pragma unroll 2
  for (int n = 0; n < steps; ++n) {
    const uint4* own = ring + (n * 32 & 1023) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint4 v = own[k * 256];
      s.x ^= v.x, s.y ^= v.y, s.z ^= v.z, s.w ^= v.w;
    }
  }
  out[T] = s.x ^ s.y ^ s.z ^ s.w;
}
__global__ void __launch_bounds__(256) swing_pendulums(const float* a, float* out, int steps) {
  float x[8], v[8], by = a[T] * 0.01f;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = 0.1f * k, v[k] = 0.3f;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = fmaf(v[k], by, x[k]), v[k] = fmaf(x[k], -by, v[k]);
  out[T] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__global__ void __launch_bounds__(256) weigh_sectors(const float* a, float* out, int pieces) {  // bulk copies of 32 kB, three on their way
  extern __shared__ __align__(128) float room[];
  __shared__ u64 full[3];
  int t = threadIdx.x;
  if (t == 0) {
    for (int d = 0; d < 3; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[d])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto request = [&](int n) {
    if (t || n >= pieces) return;
    int d = n % 3;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&full[d])), "r"(32768) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(room + d * 8192)), "l"(a + ((i64)n * gridDim.x + blockIdx.x) * 8192), "r"(32768), "r"(place(&full[d])) : "memory");
  };
  float s[4] = {};
  for (int n = 0; n < 3; ++n) request(n);
  for (int n = 0; n < pieces; ++n) {
    int d = n % 3, seen = 0;
    while (!seen)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(&full[d])), "r"(n / 3 & 1) : "memory");
    const float4* own = (const float4*)(room + d * 8192);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float4 v = own[i * 256 + t];
      s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
    }
    __syncthreads();
    request(n + 3);
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
__global__ void __cluster_dims__(2, 1, 1) elect_leader(int* leader) {
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) *leader = 1;
}
__global__ void stamp_round(int* round) { round[threadIdx.x] = (int)threadIdx.x + 1; }

void trap_cases() {
  cases.push_back({"tint_frames", "constant_divergence", "", [] { tint_frames<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { tint_frames<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N, false, [] {
    float v[4] = {0.5f, 0.7f, 0.9f, 1.1f};
    CHECK(cudaMemcpyToSymbol(TINT, v, 16));
  }});
  cases.push_back({"bend_times", "dependent_chain", "", [] { bend_times<0><<<65536, 256>>>((float4*)A, (float4*)C); }, [] { bend_times<1><<<65536, 256>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"smooth_prices", "occupancy_shared", "", [] {
    dynamic_shared(smooth_prices, 54 << 10);
    smooth_prices<<<16384, 256, 54 << 10>>>((float4*)A, (float4*)C);
  }, [] { smooth_prices<<<16384, 256, 1 << 10>>>((float4*)A, (float4*)C); }, C, N});
  cases.push_back({"mean_of_epochs", "one_warp_reduction", "", [] { mean_of_epochs<0><<<4096, 256>>>((float4*)A, C); }, [] { mean_of_epochs<1><<<4096, 256>>>((float4*)A, C); }, C, 4096});
  cases.push_back({"check_frames", "uneven_warps", "", [] { check_frames<0><<<2048, 256>>>((float4*)A, (float4*)C, D, 8); }, [] { check_frames<1><<<2048, 256>>>((float4*)A, (float4*)C, D, 8); }, D, 2048});
  cases.push_back({"bright_regions", "shared_atomics_one_address", "", [] { bright_regions<0><<<1056, 256>>>((float4*)A, (int*)C, 1 << 24); }, [] { bright_regions<1><<<1056, 256>>>((float4*)A, (int*)C, 1 << 24); }, C, 1056, true});
  cases.push_back({"blend_strips", "no_overlap", "", [] { blend_strips<1><<<4096, 256>>>((float4*)A, (float4*)C, 8); }, [] { blend_strips<2><<<4096, 256>>>((float4*)A, (float4*)C, 8); }, C, N});
  cases.push_back({"power_of_pairs", "strided_sectors", "", [] { power_of_pairs<0><<<1056, 256>>>(A, C, 1 << 25); }, [] { power_of_pairs<1><<<1056, 256>>>(A, C, 1 << 25); }, C, 1056 * 256});
}
void clean_cases() {
  cases.push_back({"merge_layers", "none_at_roof", "", [] { merge_layers<<<65536, 256>>>((uint4*)A, (uint4*)B, (uint4*)C); }, nullptr});
  cases.push_back({"narrow_to_fp8", "none_at_roof", "", [] { narrow_to_fp8<<<1056, 256>>>((float4*)A, (unsigned*)C, N / 4); }, nullptr});
  cases.push_back({"step_of_optimiser", "none_at_roof", "", [] { step_of_optimiser<<<32768, 256>>>((float4*)A, (float4*)(A + (1 << 25)), (float4*)B, (float4*)(B + (1 << 25)), (float4*)C, (float4*)(C + (1 << 25)), (float4*)D); }, nullptr});
  cases.push_back({"sums_of_volumes", "none_at_roof", "", [] { sums_of_volumes<<<4096, 256>>>((float4*)A, C); }, nullptr});
  cases.push_back({"halve_frames", "none_at_roof", "", [] { halve_frames<<<32768, 256>>>((float4*)A, (float2*)C); }, nullptr});
  cases.push_back({"fold_rings", "none_at_roof", "", [] { fold_rings<<<528, 256>>>((uint4*)A, (unsigned*)C, 1024); }, nullptr});
  cases.push_back({"swing_pendulums", "none_at_roof", "", [] { swing_pendulums<<<1056, 256>>>(A, C, 512); }, nullptr});
  cases.push_back({"weigh_sectors", "none_at_roof", "", [] {
    dynamic_shared(weigh_sectors, 3 * 32768);
    weigh_sectors<<<264, 256, 3 * 32768>>>(A, C, 31);
  }, nullptr});
  cases.push_back({"elect_leader", "launch_latency", "", [] { elect_leader<<<2, 32>>>((int*)C); }, nullptr});
  cases.push_back({"stamp_round", "launch_latency", "", [] { stamp_round<<<1, 64>>>((int*)C); }, nullptr});
}
