// Traps, whose tempting fix should win less than 6 %, and kernels near a roof or well built: fluids, weights, densities, pages, digests, paths.
#include <cuda_fp8.h>

#include "set.h"

// ---- traps, most beside a full DRAM: a division a vector; conflicts of four lanes; blocks of one warp with four chains each;
// two short branches; an atomic a warp; a barrier a step; a little FP64; one chain of sums; a base that is off by four bytes
template <int V> __global__ void __launch_bounds__(256) shade_stripes(const float4* a, float4* out, unsigned n, unsigned period, unsigned factor, unsigned shift) {
#pragma unroll 2
  for (unsigned i = (unsigned)T; i < n; i += (unsigned)STRIDE) {
    float4 v = a[i];
    unsigned stripe = V == 0 ? i / period : __umulhi(i, factor) >> shift;
    float by = 0.5f + 0.25f * (stripe & 3);
    out[i] = {v.x * by, v.y * by, v.z * by, v.w * by};
  }
}
template <int PITCH> __global__ void __launch_bounds__(256) fold_quarters(const float4* a, float4* out, int each) {
  __shared__ float part[4][4 * PITCH];
  int t = threadIdx.x, next = (t + 64) & 255;
  auto place = [](int k) { return (k & 3) * PITCH + (k >> 2); };
  for (int k = 0; k < each; ++k) {
    i64 i = ((i64)blockIdx.x * each + k) * 256 + t;
    float4 v = a[i];
    part[0][place(t)] = v.x, part[1][place(t)] = v.y, part[2][place(t)] = v.z, part[3][place(t)] = v.w;
    __syncthreads();
    out[i] = {v.x + part[0][place(next)], v.y + part[1][place(next)], v.z + part[2][place(next)], v.w + part[3][place(next)]};
    __syncthreads();
  }
}
__global__ void grow_crystals(const float* a, float* out, int steps) {
  float x[4], r = a[T];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = r + 0.1f * k;
#pragma unroll 8
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fmaf(x[k], r, 0.3f);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
template <int V> __global__ void __launch_bounds__(256) clip_heights(const float* a, float* out, i64 n, int rounds) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    float v = a[i], low = v, high = v;
    if (V == 0) {
      if (v > 0.5f)
        for (int k = 0; k < rounds; ++k) v = fmaf(v, 0.5f, 0.25f);
      else
        for (int k = 0; k < rounds; ++k) v = v * v + 0.125f;
    } else {
      for (int k = 0; k < rounds; ++k) high = fmaf(high, 0.5f, 0.25f), low = low * low + 0.125f;
      v = v > 0.5f ? high : low;
    }
    out[i] = v;
  }
}
template <int V> __global__ void __launch_bounds__(256) mass_of_cloud(const float4* a, float* out, int n) {
  __shared__ float part[8];
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float4 v = a[i];
    s += (v.x + v.y) + (v.z + v.w);
  }
  s = warp_sum(s);
  if (V == 0) {
    if ((threadIdx.x & 31) == 0) atomicAdd(out, s);
    return;
  }
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])));
}
template <int V> __global__ void __launch_bounds__(256) carry_frames(const float4* a, float4* out, int each) {
  for (int k = 0; k < each; ++k) {
    i64 i = ((i64)blockIdx.x * each + k) * 1024 + threadIdx.x;
    float4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = a[i + j * 256];
    if (V == 0) __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) out[i + j * 256] = {v[j].x * 0.5f, v[j].y * 0.5f, v[j].z * 0.5f, v[j].w * 0.5f};
  }
}
template <class R> __global__ void __launch_bounds__(256) damp_waves(const float4* a, float4* out, i64 n) {
  auto damped = [](float x) { return (float)(x * (R)0.98 + (R)0.001); };
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i];
    out[i] = {damped(v.x), damped(v.y), damped(v.z), damped(v.w)};
  }
}
template <int CHAINS> __global__ void __launch_bounds__(256) total_columns(const float* a, float* out, int rows, int columns) {
  int column = blockIdx.x * 256 + threadIdx.x;
  float s[CHAINS] = {}, all = 0;
#pragma unroll 2
  for (int r = 0; r < rows; r += 4)
#pragma unroll
    for (int k = 0; k < 4; ++k) s[k % CHAINS] += a[(i64)(r + k) * columns + column];
#pragma unroll
  for (int k = 0; k < CHAINS; ++k) all += s[k];
  out[column] = all;
}
__global__ void __launch_bounds__(256) shift_series(const float* a, float* out) {
  i64 i = blockIdx.x * 1024ll + threadIdx.x;
  float v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = a[i + k * 256];
#pragma unroll
  for (int k = 0; k < 4; ++k) out[i + k * 256] = v[k] + 1;
}

// ---- clean kernels
constexpr int CELLS = 1 << 22, SIDE = 2048;
__global__ void __launch_bounds__(256) collide_and_stream(const float* f, float* out, float omega) {  // nine directions, a plane each
  int i = (int)T;
  float v[9], density = 0, x = 0, y = 0;
#pragma unroll
  for (int k = 0; k < 9; ++k) {
    int dx = k % 3 - 1, dy = k / 3 - 1;
    v[k] = f[(i64)k * CELLS + ((i - dx - dy * SIDE) & (CELLS - 1))] + 0.1f;
    density += v[k], x += dx * v[k], y += dy * v[k];
  }
  float over = __fdividef(1, density);
  x *= over, y *= over;
  float square = 1 - 1.5f * (x * x + y * y);
#pragma unroll
  for (int k = 0; k < 9; ++k) {
    int dx = k % 3 - 1, dy = k / 3 - 1;
    float weight = dx && dy ? 1 / 36.0f : dx || dy ? 1 / 9.0f : 4 / 9.0f, along = 3 * (dx * x + dy * y);
    out[(i64)k * CELLS + i] = v[k] + omega * (weight * density * (square + along + 0.5f * along * along) - v[k]);
  }
}
__global__ void __launch_bounds__(256) widen_weights(const uint2* in, uint4* out, i64 n) {  // FP8 to FP16
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    uint2 v = in[i];
    uint4 w;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      __half2_raw h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)((k < 2 ? v.x : v.y) >> (k & 1) * 16), __NV_E4M3);
      (&w.x)[k] = (unsigned)h.x | (unsigned)h.y << 16;
    }
    out[i] = w;
  }
}
__global__ void __launch_bounds__(256) mill_of_doubles(const double* a, double* out, int steps) {  // FP64 tensor cores
  double p[8], q[4], s[4][4] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) p[k] = a[T * 8 + k];
#pragma unroll
  for (int k = 0; k < 4; ++k) q[k] = p[k] + p[k + 4];
#pragma unroll 2
  for (int t = 0; t < steps; ++t)
#pragma unroll
    for (int k = 0; k < 4; ++k)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
                   : "+d"(s[k][0]), "+d"(s[k][1]), "+d"(s[k][2]), "+d"(s[k][3])
                   : "d"(p[0]), "d"(p[1]), "d"(p[2]), "d"(p[3]), "d"(p[4]), "d"(p[5]), "d"(p[6]), "d"(p[7]), "d"(q[0]), "d"(q[1]), "d"(q[2]), "d"(q[3]));
  double all = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) all += s[k / 4][k & 3];
  out[T] = all;
}
__global__ void __launch_bounds__(256) densities(const float4* at, const float4* shape, const float4* centre, float* out, int kernels) {  // two places a thread
  __shared__ float4 c[256], h[256];
  float4 p = at[T], q = at[STRIDE + T];
  float s = 0, r = 0;
  for (int first = 0; first < kernels; first += 256) {
    __syncthreads();
    c[threadIdx.x] = centre[first + threadIdx.x], h[threadIdx.x] = shape[first + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < 256; ++k) {
      float4 o = c[k], w = h[k];
      auto near = [&](float4 v) {
        float x = v.x - o.x, y = v.y - o.y, z = v.z - o.z, cross = fmaf(w.w, y * z, fmaf(w.z, z * z, fmaf(w.y, y * y, fmaf(w.x, x * x, x * y * 0.1f))));
        float e;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-cross));
        return o.w * e;
      };
      s += near(p), r += near(q);
    }
  }
  out[T] = s, out[STRIDE + T] = r;
}
constexpr int PAGE = 16384, AHEAD = 4;
__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__global__ void __launch_bounds__(32) relay_pages(const unsigned char* from, unsigned char* to, int pages) {  // bulk copies in and out
  extern __shared__ __align__(128) unsigned char stage[];
  __shared__ u64 full[AHEAD];
  if (threadIdx.x) return;
  i64 first = (i64)blockIdx.x * pages;
  auto request = [&](int t) {
    int d = t % AHEAD;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&full[d])), "r"(PAGE) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(stage + d * PAGE)), "l"(from + (first + t) * PAGE), "r"(PAGE), "r"(place(&full[d])) : "memory");
  };
  for (int d = 0; d < AHEAD; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[d])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  for (int t = 0; t < AHEAD - 1; ++t) request(t);
  for (int t = 0; t < pages; ++t) {
    int d = t % AHEAD, seen = 0;
    while (!seen)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(&full[d])), "r"(t / AHEAD & 1) : "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + (first + t) * PAGE), "r"(place(stage + d * PAGE)), "r"(PAGE) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (t + AHEAD - 1 < pages) {
      asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // the page before this one has left
      request(t + AHEAD - 1);
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__global__ void __launch_bounds__(256) gradient_of_relu(const uint4* x, const uint4* gradient, uint4* out, i64 n) {  // bf16
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    uint4 v = x[i], g = gradient[i];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned w = (&v.x)[k];
      (&g.x)[k] &= ((w & 0x8000) ? 0u : 0xffffu) | ((w >> 31) ? 0u : 0xffff0000u);
    }
    out[i] = g;
  }
}
__global__ void __launch_bounds__(256) pull_pages(const uint4* page, uint4* out, int each) {  // a warp a page of 512 bytes
  int lane = threadIdx.x & 31;
#pragma unroll 4
  for (int k = 0; k < each; ++k) {
    i64 i = k * (STRIDE / 32) + T / 32;
    out[i * 32 + lane] = page[(i64)(mix((unsigned)i + 21) & ((1 << 19) - 1)) * 32 + lane];
  }
}
__global__ void make_doubles(const float* a, const float* b, double2* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = {a[i] + b[i] * 1e-9, b[i] - a[i] * 1e-9};
}
__global__ void __launch_bounds__(256) weight_of_doubles(const double2* a, double* out, int n) {
  double s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    double2 v = a[i];
    s = fma(v.x, v.x, fma(v.y, v.y, s));
  }
  out[T] = s;
}
__global__ void __launch_bounds__(256) digest_blocks(const uint4* a, unsigned* out, int steps) {  // four lanes of xxHash
  uint4 v = a[T];
  unsigned lane[4] = {v.x, v.y, v.z, v.w};
#pragma unroll 4
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned h = lane[k] + (unsigned)(s + k) * 2246822519u;
      lane[k] = __funnelshift_l(h, h, 13) * 2654435761u;
    }
  out[T] = __funnelshift_l(lane[0], lane[0], 1) + __funnelshift_l(lane[1], lane[1], 7) + __funnelshift_l(lane[2], lane[2], 12) + __funnelshift_l(lane[3], lane[3], 18);
}
__global__ void __launch_bounds__(256) replay_pieces(const float4* a, float* out, int rounds) {  // 16 MB that stay in the L2, never twice the same SM's
  float s = 0;
  for (int r = 0; r < rounds; ++r) {
    const float4* piece = a + ((blockIdx.x + r * 37) & 1023) * 1024 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float4 v = __ldcg(piece + k * 256);
      s += (v.x + v.y) + (v.z + v.w);
    }
  }
  out[T] = s;
}
__global__ void __launch_bounds__(256) shorten_paths(const int* a, int* out, int steps) {
  int x[8], by = a[T] & 1023;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = 1 << (20 + k);
#pragma unroll 8
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = min(x[k] - by, max(x[(k + 1) & 7], s));
  int all = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) all ^= x[k];
  out[T] = all;
}
__global__ void __launch_bounds__(256) write_grid(float4* out, i64 n, float step) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) out[i] = {(i & 4095) * step, (i >> 12) * step, 0, 1};
}
__global__ void __launch_bounds__(256) pack_colours(const unsigned* r, const unsigned* g, const unsigned* b, uint4* out, i64 n) {  // four pixels a thread
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned x = r[i], y = g[i], z = b[i], low = __byte_perm(x, y, 0x5140), high = __byte_perm(x, y, 0x7362), blue = z & 0x00ff00ffu, other = z >> 8 & 0x00ff00ffu;
    out[i] = {(low & 0xffff) | (blue & 255) << 16 | 0xff000000u, low >> 16 | (other & 255) << 16 | 0xff000000u, (high & 0xffff) | (blue >> 16) << 16 | 0xff000000u, high >> 16 | (other >> 16) << 16 | 0xff000000u};
  }
}
__global__ void advance_clock(float* clock) {
  if (threadIdx.x < 3) clock[threadIdx.x] = fmaf(clock[threadIdx.x], 0.99f, 0.01f * threadIdx.x);
}
__global__ void __launch_bounds__(1024) pick_token(const float4* score, int* out) {  // of 4096
  __shared__ float most[32];
  __shared__ int place[32];
  float4 v = score[threadIdx.x];
  float best = v.x;
  int at = threadIdx.x * 4;
  if (v.y > best) best = v.y, at = threadIdx.x * 4 + 1;
  if (v.z > best) best = v.z, at = threadIdx.x * 4 + 2;
  if (v.w > best) best = v.w, at = threadIdx.x * 4 + 3;
  for (int round = 0; round < 2; ++round) {
    for (int o = 16; o; o >>= 1) {
      float other = __shfl_xor_sync(~0u, best, o);
      int its = __shfl_xor_sync(~0u, at, o);
      if (other > best) best = other, at = its;
    }
    if (round) break;
    if ((threadIdx.x & 31) == 0) most[threadIdx.x / 32] = best, place[threadIdx.x / 32] = at;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    best = most[threadIdx.x], at = place[threadIdx.x];
  }
  if (threadIdx.x == 0) *out = at;
}
__global__ void __launch_bounds__(256) reset_counters(int4* counter) { counter[T] = {0, 0, 0, 0}; }

void trap_cases() {
  const unsigned PERIOD = 1000;  // 2^(31 + 10) / 1000, for dividends below 2^31
  const unsigned FACTOR = (unsigned)(((1ull << 41) + PERIOD - 1) / PERIOD);
  cases.push_back({"shade_stripes", "integer_division", "", [=] { shade_stripes<0><<<1056, 256>>>((float4*)A, (float4*)C, (unsigned)(N / 4), PERIOD, FACTOR, 9); }, [=] { shade_stripes<1><<<1056, 256>>>((float4*)A, (float4*)C, (unsigned)(N / 4), PERIOD, FACTOR, 9); }, C, N});
  cases.push_back({"fold_quarters", "shared_bank_conflicts", "", [] { fold_quarters<64><<<4096, 256>>>((float4*)A, (float4*)C, 16); }, [] { fold_quarters<72><<<4096, 256>>>((float4*)A, (float4*)C, 16); }, C, N});
  cases.push_back({"grow_crystals", "occupancy_block_size", "", [] { grow_crystals<<<132 * 64, 32>>>(A, C, 4096); }, [] { grow_crystals<<<132 * 8, 256>>>(A, C, 4096); }, C, 132 * 64 * 32});
  cases.push_back({"clip_heights", "divergence", "", [] { clip_heights<0><<<1056, 256>>>(A, C, N, 3); }, [] { clip_heights<1><<<1056, 256>>>(A, C, N, 3); }, C, N});
  cases.push_back({"mass_of_cloud", "global_atomics_one_address", "", [] { mass_of_cloud<0><<<1056, 256>>>((float4*)A, C, (int)(N / 4)); }, [] { mass_of_cloud<1><<<1056, 256>>>((float4*)A, C, (int)(N / 4)); }, C, 1});
  cases.push_back({"carry_frames", "needless_barriers", "", [] { carry_frames<0><<<1024, 256>>>((float4*)A, (float4*)C, 16); }, [] { carry_frames<1><<<1024, 256>>>((float4*)A, (float4*)C, 16); }, C, N});
  cases.push_back({"damp_waves", "fp64_by_accident", "", [] { damp_waves<double><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, [] { damp_waves<float><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, C, N});
  cases.push_back({"total_columns", "dependent_chain", "", [] { total_columns<1><<<1024, 256>>>(A, C, 256, 1 << 18); }, [] { total_columns<4><<<1024, 256>>>(A, C, 256, 1 << 18); }, C, 1 << 18});
  cases.push_back({"shift_series", "misaligned_base", "", [] { shift_series<<<65535, 256>>>(A + 1, C); }, [] { shift_series<<<65535, 256>>>(D, C); }, C, 65535 * 1024, false, [] { CHECK(cudaMemcpy(D, A + 1, (N - 1) * 4, cudaMemcpyDefault)); }});
}
void clean_cases() {
  static double2* doubles;
  cases.push_back({"collide_and_stream", "none_at_roof", "", [] { collide_and_stream<<<CELLS / 256, 256>>>(A, C, 0.8f); }, nullptr});
  cases.push_back({"widen_weights", "none_at_roof", "", [] { widen_weights<<<1056, 256>>>((uint2*)A, (uint4*)C, N / 4); }, nullptr});
  cases.push_back({"mill_of_doubles", "none_at_roof", "", [] { mill_of_doubles<<<264, 256>>>((double*)A, (double*)C, 512); }, nullptr});
  cases.push_back({"densities", "none_at_roof", "", [] { densities<<<528, 256>>>((float4*)A, (float4*)B, (float4*)D, C, 4096); }, nullptr});
  cases.push_back({"relay_pages", "none_at_roof", "", [] { relay_pages<<<396, 32, PAGE * AHEAD>>>((unsigned char*)A, (unsigned char*)C, 40); }, nullptr, nullptr, 0, false, [] { dynamic_shared(relay_pages, PAGE * AHEAD); }});
  cases.push_back({"gradient_of_relu", "none_at_roof", "", [] { gradient_of_relu<<<1056, 256>>>((uint4*)A, (uint4*)B, (uint4*)C, N / 4); }, nullptr});
  cases.push_back({"pull_pages", "none_at_roof", "", [] { pull_pages<<<1056, 256>>>((uint4*)A, (uint4*)C, 48); }, nullptr});
  cases.push_back({"weight_of_doubles", "none_at_roof", "", [] { weight_of_doubles<<<1056, 256>>>(doubles, (double*)C, 1 << 24); }, nullptr, nullptr, 0, false, [] {
    doubles = device<double2>(1 << 24);
    make_doubles<<<1056, 256>>>(A, B, doubles, 1 << 24);
  }});
  cases.push_back({"digest_blocks", "none_at_roof", "", [] { digest_blocks<<<1056, 256>>>((uint4*)A, (unsigned*)C, 1024); }, nullptr});
  cases.push_back({"replay_pieces", "none_at_roof", "", [] { replay_pieces<<<1056, 256>>>((float4*)A, C, 64); }, nullptr});
  cases.push_back({"shorten_paths", "none_at_roof", "", [] { shorten_paths<<<1056, 256>>>((int*)A, (int*)C, 1024); }, nullptr});
  cases.push_back({"write_grid", "none_at_roof", "", [] { write_grid<<<1056, 256>>>((float4*)C, N / 4, 0.01f); }, nullptr});
  cases.push_back({"pack_colours", "none_at_roof", "", [] { pack_colours<<<1056, 256>>>((unsigned*)A, (unsigned*)B, (unsigned*)D, (uint4*)C, N / 4); }, nullptr});
  cases.push_back({"advance_clock", "launch_latency", "", [] { advance_clock<<<1, 32>>>(C); }, nullptr});
  cases.push_back({"pick_token", "launch_latency", "", [] { pick_token<<<1, 1024>>>((float4*)A, (int*)C); }, nullptr});
  cases.push_back({"reset_counters", "launch_latency", "", [] { reset_counters<<<16, 256>>>((int4*)C); }, nullptr});
}
