// Banks, atomics, barriers and tables: genes, polygons, robots, swaps, scans, Jacobians, torques, chunks, pictures, obstacles, coupons, zigzags.
#include "frame.h"

namespace cg = cooperative_groups;

// ---- project_genes: weights for tensor cores in shared memory as rows of 256 bytes, whose eight rows of a fragment share banks; or of 272; expected 3 times
template <int PITCH> __global__ void __launch_bounds__(256) project_genes(const bf16* cell, const bf16* weight, float* out, int tiles) {
  __shared__ __align__(16) bf16 w[64][PITCH];
  int lane = threadIdx.x & 31, g = lane / 4, c = (lane & 3) * 2;
  for (int i = threadIdx.x; i < 64 * 16; i += 256) *(uint4*)&w[i / 16][(i & 15) * 8] = ((const uint4*)weight)[i];
  __syncthreads();
#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    i64 row = (n * (i64)gridDim.x * 8 + T / 32) * 16;
    unsigned a[8][4];
#pragma unroll
    for (int k = 0; k < 8; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[k][i] = *(const unsigned*)&cell[(row + g + (i & 1) * 8) * 128 + k * 16 + c + i / 2 * 8];
    float high = -9e9f, low = -9e9f;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float s[4] = {};
#pragma unroll
      for (int k = 0; k < 8; ++k) tensor_step(s, a[k], *(const unsigned*)&w[j * 8 + g][k * 16 + c], *(const unsigned*)&w[j * 8 + g][k * 16 + c + 8]);
      high = fmaxf(high, fmaxf(s[0], s[1])), low = fmaxf(low, fmaxf(s[2], s[3]));
    }
    for (int o = 1; o < 4; o *= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, o)), low = fmaxf(low, __shfl_xor_sync(~0u, low, o));
    if ((lane & 3) == 0) out[row + g] = high, out[row + g + 8] = low;
  }
}
// ---- clip_polygons: two lists of 16 corners a thread side by side in shared memory, so that lanes are 128 bytes apart; or corner by corner; expected 4 times
template <int V> __global__ void __launch_bounds__(128) clip_polygons(const float* a, float* out) {
  __shared__ float2 room[2][16 * 128];
  int t = threadIdx.x, many = 8, from = 0;
  auto corner = [&](int list, int k) -> float2& { return room[list][V == 0 ? t * 16 + k : k * 128 + t]; };
  float x = a[T], y = a[T + STRIDE], r = 0.2f + 0.4f * a[T + 2 * STRIDE];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float side[8] = {1, 0.7071f, 0, -0.7071f, -1, -0.7071f, 0, 0.7071f};
    corner(0, k) = {fmaf(r, side[k], x), fmaf(r, side[k + 6 & 7], y)};
  }
#pragma unroll 1
  for (int edge = 0; edge < 4; ++edge, from ^= 1) {
    float nx = edge == 0 ? 1.0f : edge == 1 ? -1.0f : 0.0f, ny = edge == 2 ? 1.0f : edge == 3 ? -1.0f : 0.0f, d = edge & 1 ? 0.9f : -0.1f;
    auto inside = [&](float2 p) { return fmaf(nx, p.x, fmaf(ny, p.y, d)); };
    int kept = 0;
    if (many) {
      float2 p = corner(from, many - 1);
      float u = inside(p);
#pragma unroll 1
      for (int k = 0; k < many; ++k) {
        float2 q = corner(from, k);
        float v = inside(q);
        if ((u < 0) != (v < 0) && kept < 16) {
          float at = __fdividef(u, u - v);
          corner(from ^ 1, kept++) = {fmaf(at, q.x - p.x, p.x), fmaf(at, q.y - p.y, p.y)};
        }
        if (v >= 0 && kept < 16) corner(from ^ 1, kept++) = q;
        p = q, u = v;
      }
    }
    many = kept;
  }
  float area = 0;
  if (many) {
    float2 p = corner(from, many - 1);
#pragma unroll 1
    for (int k = 0; k < many; ++k) {
      float2 q = corner(from, k);
      area += p.x * q.y - q.x * p.y, p = q;
    }
  }
  out[T] = 0.5f * area;
}
// ---- balance_robots: all four blocks of a cluster meet after each step, though each has its own ring of robots; or each block meets itself; expected 2.5 times
template <int V> __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256) balance_robots(const float* a, float* out, int steps) {
  __shared__ float lean[2][256];
  int t = threadIdx.x;
  float x = a[T], v = 0;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    lean[n & 1][t] = x;
    if (V == 0) cg::this_cluster().sync();
    else __syncthreads();
    float left = lean[n & 1][t - 1 & 255], right = lean[n & 1][t + 1 & 255];
    v = fmaf(0.97f, v, fmaf(0.05f, left + right, -0.11f * x)), x = fmaf(0.1f, v, x);
  }
  out[T] = x;
}
// ---- roll_swaps: the whole grid meets after each date, though each path stands alone; or nobody waits; expected 4 times
template <int V> __global__ void __launch_bounds__(256) roll_swaps(const float* rate, float* out, int dates) {
  float notional = 1, paid = 0;
#pragma unroll 1
  for (int n = 0; n < dates; ++n) {
    float r = 0.1f * rate[n * STRIDE + T];
    paid = fmaf(notional, r - 0.04f, paid), notional *= fmaf(-0.2f, r, 1.0f);
    if (V == 0) cg::this_grid().sync();
  }
  out[T] = paid;
}
template <int V> void launch_swaps(const float* rate, float* out, int dates) {
  void* arguments[] = {&rate, &out, &dates};
  CHECK(cudaLaunchCooperativeKernel((const void*)roll_swaps<V>, dim3(264), dim3(256), arguments, 0, nullptr));
}
// ---- align_scans: 16 sums over 512 points a round, all by the first of 16 warps while 15 wait; or a sum a warp; expected 3 times
template <int V> __global__ void __launch_bounds__(512) align_scans(const float* a, float* out, int rounds) {
  __shared__ float term[16][512], total[16];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  float x = a[T], y = a[T + STRIDE], z = a[T + 2 * STRIDE];
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
    float p[4] = {x, y, z, 1};
#pragma unroll
    for (int k = 0; k < 16; ++k) term[k][t] = p[k / 4] * p[k & 3];
    __syncthreads();
#pragma unroll 1
    for (int k = warp; k < 16; k += V == 0 ? 1 : 16) {
      if (V == 0 && warp) break;
      float s = 0;
#pragma unroll
      for (int i = 0; i < 512; i += 32) s += term[k][i + lane];
      s = warp_sum(s);
      if (lane == 0) total[k] = s * (1 / 512.0f);
    }
    __syncthreads();
    float u = fmaf(0.02f, total[1], -0.01f * total[3]), v = fmaf(0.02f, total[6], -0.01f * total[7]), w = fmaf(0.01f, total[0] + total[5] + total[10], -0.01f * total[11]);
    x = fmaf(0.99f, x, u), y = fmaf(0.99f, y, v), z = fmaf(0.99f, z, w);
  }
  out[T] = x + y + z;
}
// ---- factor_jacobians: one thread looks for the pivot among up to 64 rows while 511 wait; or a warp; expected 2.5 times
template <int V> __global__ void __launch_bounds__(512) factor_jacobians(const float* a, float* out, int each) {
  __shared__ float m[64][65];
  __shared__ int pivot;
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
#pragma unroll 1
  for (int r = 0; r < each; ++r) {
    i64 own = (i64)blockIdx.x * each + r;
    float size = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) m[i * 8 + t / 64][t & 63] = a[own * 4096 + i * 512 + t] - 0.5f;
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < 64; ++k) {
      if (V == 0) {
        if (t == 0) {
          int best = k;
          float most = -1;
#pragma unroll 1
          for (int i = k; i < 64; ++i) {
            float v = fabsf(m[i][k]);
            if (v > most) most = v, best = i;
          }
          pivot = best;
        }
      } else if (warp == 0) {
        float u = lane >= k ? fabsf(m[lane][k]) : -1.0f, v = lane + 32 >= k ? fabsf(m[lane + 32][k]) : -1.0f, most = fmaxf(u, v);
        for (int o = 16; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
        unsigned low = __ballot_sync(~0u, u == most), high = __ballot_sync(~0u, v == most);
        if (lane == 0) pivot = low ? __ffs((int)low) - 1 : __ffs((int)high) + 31;
      }
      __syncthreads();
      int p = pivot;
      if (t < 64 && p != k) {
        float u = m[k][t], v = m[p][t];
        m[k][t] = v, m[p][t] = u;
      }
      __syncthreads();
      float d = m[k][k], by = __fdividef(1.0f, d);
      size += __logf(fabsf(d) + 1e-6f);
      for (int i = k + 1 + warp; i < 64; i += 16) {
        float f = m[i][k] * by;
        for (int j = k + 1 + lane; j < 64; j += 32) m[i][j] = fmaf(-f, m[k][j], m[i][j]);
      }
      __syncthreads();
    }
    if (t == 0) out[own] = size;
  }
}
// ---- torque_of_robots: each of 67,584 threads adds six numbers to the same six words of global memory; or each block; expected 6 times
template <int V> __global__ void __launch_bounds__(128) torque_of_robots(const float* force, float* out, int n) {
  __shared__ float part[4][6];
  float s[6] = {};
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float f = force[i], arm = (float)(i & 255) * (1 / 256.0f);
    s[0] += f, s[1] = fmaf(f, f, s[1]), s[2] = fmaf(arm, f, s[2]), s[3] += fabsf(f - arm), s[4] = fmaf(arm * f, f, s[4]), s[5] = fmaf(arm, arm, s[5]);
  }
#pragma unroll
  for (int k = 0; k < 6; ++k) {
    if (V == 0) {
      atomicAdd(&out[k], s[k]);
    } else {
      s[k] = warp_sum(s[k]);
      if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32][k] = s[k];
    }
  }
  if (V == 0) return;
  __syncthreads();
  if (threadIdx.x < 6) atomicAdd(&out[threadIdx.x], (part[0][threadIdx.x] + part[1][threadIdx.x]) + (part[2][threadIdx.x] + part[3][threadIdx.x]));
}
// ---- place_chunks: each of 262,144 threads takes room for its code of 1 to 4 words from one counter in global memory; or each block for all its own; expected 8 times
template <int V> __global__ void __launch_bounds__(256) place_chunks(const unsigned* a, u64* next, unsigned* out) {
  __shared__ unsigned sums[8], base;
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  unsigned code = mix(a[T]), words = 1 + (code & 3), at;
  if (V == 0) {
    at = (unsigned)atomicAdd(next, (u64)words);
  } else {
    unsigned upto = words;
    for (int o = 1; o < 32; o *= 2) {
      unsigned before = __shfl_up_sync(~0u, upto, o);
      upto += lane >= o ? before : 0;
    }
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned s = 0;
#pragma unroll
      for (int w = 0; w < 8; ++w) {
        unsigned own = sums[w];
        sums[w] = s, s += own;
      }
      base = (unsigned)atomicAdd(next, (u64)s);
    }
    __syncthreads();
    at = base + sums[warp] + upto - words;
  }
#pragma unroll
  for (unsigned k = 0; k < 4; ++k)
    if (k < words) out[at + k] = code + k;
}
// ---- sum_pixel_errors: every thread adds each row's error to one float of shared memory, by compare and swap; or to a register; expected 5 times
template <int V> __global__ void __launch_bounds__(256) sum_pixel_errors(const float4* a, const float4* b, float* out, int rows) {
  __shared__ float all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  float mine = 0;
#pragma unroll 1
  for (int r = 0; r < rows; ++r) {
    float s = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      i64 at = (r * 4 + k) * STRIDE + T;
      float4 u = a[at], v = b[at];
      s += (fabsf(u.x - v.x) + fabsf(u.y - v.y)) + (fabsf(u.z - v.z) + fabsf(u.w - v.w));
    }
    if (V == 0) atomicAdd(&all, s);
    else mine += s;
  }
  if (V == 1) {
    mine = warp_sum(mine);
    if ((threadIdx.x & 31) == 0) atomicAdd(&all, mine);
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = all;
}
// ---- nearest_obstacles: each return takes the minimum with one of two words of its block's shared memory, nearly always that of what lies ahead; or with one of two registers; expected 5 times
template <int V> __global__ void __launch_bounds__(256) nearest_obstacles(const float* range, unsigned* out, int each) {
  __shared__ unsigned nearest[2];
  if (threadIdx.x < 2) nearest[threadIdx.x] = ~0u;
  __syncthreads();
  unsigned ahead = ~0u, behind = ~0u;
#pragma unroll 4
  for (int n = 0; n < each; ++n) {
    float r = range[n * STRIDE + T];
    unsigned key = (__float_as_uint(fabsf(r - 0.4f)) & ~255u) | threadIdx.x;
    bool rare = r > 0.97f;
    if (V == 0) atomicMin(&nearest[rare], key);
    else ahead = min(ahead, rare ? ~0u : key), behind = min(behind, rare ? key : ~0u);
  }
  if (V == 1) {
    ahead = __reduce_min_sync(~0u, ahead), behind = __reduce_min_sync(~0u, behind);
    if ((threadIdx.x & 31) == 0) atomicMin(&nearest[0], ahead), atomicMin(&nearest[1], behind);
  }
  __syncthreads();
  if (threadIdx.x < 2) out[blockIdx.x * 2 + threadIdx.x] = nearest[threadIdx.x];
}
// ---- accrue_coupons: a curve of 1,024 days in constant memory, where lanes read different days; or in shared memory; expected 5 times
__constant__ float CURVE[1024];
template <int V> __global__ void __launch_bounds__(256) accrue_coupons(const unsigned* a, const float* curve, float* out, int coupons) {
  __shared__ float of[V == 0 ? 1 : 1024];
  if (V == 1) {
#pragma unroll
    for (int k = 0; k < 4; ++k) of[k * 256 + threadIdx.x] = curve[k * 256 + threadIdx.x];
    __syncthreads();
  }
  unsigned day = a[T];
  float s = 0;
#pragma unroll 4
  for (int k = 0; k < coupons; ++k) {
    day = day * 1664525u + 1013904223u;
    unsigned at = day >> 22;
    s = fmaf(0.01f * (float)(k & 7), V == 0 ? CURVE[at] : of[at], s);
  }
  out[T] = s;
}

void sync_cases() {
  static bf16* genes;
  static float* curve;
  cases.push_back({"project_genes", "shared_bank_conflicts", "", [] { project_genes<128><<<264, 256>>>(genes, genes + (1 << 26), C, 15); }, [] { project_genes<136><<<264, 256>>>(genes, genes + (1 << 26), C, 15); }, C, 264 * 8 * 15 * 16, false, [] {
    genes = device<bf16>((1 << 26) + 8192);
    recode<<<1056, 256>>>(A, genes, N, 0.5f), recode<<<32, 256>>>(B, genes + N, 8192, 0.5f);
  }});
  cases.push_back({"clip_polygons", "shared_bank_conflicts", "", [] { clip_polygons<0><<<4224, 128>>>(A, C); }, [] { clip_polygons<1><<<4224, 128>>>(A, C); }, C, 4224 * 128});
  cases.push_back({"balance_robots", "needless_barriers", "", [] { balance_robots<0><<<132, 256>>>(A, C, 512); }, [] { balance_robots<1><<<132, 256>>>(A, C, 512); }, C, 132 * 256});
  cases.push_back({"roll_swaps", "needless_barriers", "", [] { launch_swaps<0>(A, C, 64); }, [] { launch_swaps<1>(A, C, 64); }, C, 264 * 256});
  cases.push_back({"align_scans", "one_warp_reduction", "uneven_warps", [] { align_scans<0><<<132, 512>>>(A, C, 64); }, [] { align_scans<1><<<132, 512>>>(A, C, 64); }, C, 132 * 512});
  cases.push_back({"factor_jacobians", "one_warp_reduction", "uneven_warps", [] { factor_jacobians<0><<<132, 512>>>(A, C, 3); }, [] { factor_jacobians<1><<<132, 512>>>(A, C, 3); }, C, 132 * 3});
  cases.push_back({"torque_of_robots", "global_atomics_one_address", "", [] { torque_of_robots<0><<<528, 128>>>(A, C, 1 << 24); }, [] { torque_of_robots<1><<<528, 128>>>(A, C, 1 << 24); }, C, 6});
  cases.push_back({"place_chunks", "global_atomics_one_address", "", [] { place_chunks<0><<<1024, 256>>>((unsigned*)A, (u64*)C, (unsigned*)D); }, [] { place_chunks<1><<<1024, 256>>>((unsigned*)A, (u64*)C, (unsigned*)D); }, C, 1, true});
  cases.push_back({"sum_pixel_errors", "shared_atomics_one_address", "", [] { sum_pixel_errors<0><<<512, 256>>>((float4*)A, (float4*)B, C, 8); }, [] { sum_pixel_errors<1><<<512, 256>>>((float4*)A, (float4*)B, C, 8); }, C, 512});
  cases.push_back({"nearest_obstacles", "shared_atomics_one_address", "", [] { nearest_obstacles<0><<<1056, 256>>>(A, (unsigned*)C, 96); }, [] { nearest_obstacles<1><<<1056, 256>>>(A, (unsigned*)C, 96); }, C, 2112, true});
  cases.push_back({"accrue_coupons", "constant_divergence", "", [] { accrue_coupons<0><<<2112, 256>>>((unsigned*)A, curve, C, 64); }, [] { accrue_coupons<1><<<2112, 256>>>((unsigned*)A, curve, C, 64); }, C, 2112 * 256, false, [] {
    std::vector<float> v(1024);
    for (unsigned k = 0; k < 1024; ++k) v[k] = std::exp(-0.001f * (float)k) + 0.01f * share(k);
    curve = upload(v);
    CHECK(cudaMemcpyToSymbol(CURVE, v.data(), 4096));
  }});
}
