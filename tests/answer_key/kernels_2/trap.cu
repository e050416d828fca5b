// Kernels whose tempting cause costs next to nothing: the fix is meant to win less than 6 %.
#include "set.h"

template <int V> __global__ void five_point(const float* a, float* out, int w, int h) {
  // neighbours come from L1, or from a tile in shared memory
  int lx = threadIdx.x & 31, ly = threadIdx.x / 32, x = blockIdx.x * 32 + lx, y = blockIdx.y * 16 + ly;
  auto in = [&](int px, int py) { return a[(i64)min(max(py, 0), h - 1) * w + min(max(px, 0), w - 1)]; };
  if (V == 0) {
    out[(i64)y * w + x] = 0.5f * in(x, y) + 0.125f * (in(x - 1, y) + in(x + 1, y) + in(x, y - 1) + in(x, y + 1));
  } else {
    __shared__ float tile[18][34];
    tile[ly + 1][lx + 1] = in(x, y);
    if (ly == 0) tile[0][lx + 1] = in(x, y - 1);
    if (ly == 15) tile[17][lx + 1] = in(x, y + 1);
    if (lx == 0) tile[ly + 1][0] = in(x - 1, y);
    if (lx == 31) tile[ly + 1][33] = in(x + 1, y);
    __syncthreads();
    out[(i64)y * w + x] = 0.5f * tile[ly + 1][lx + 1] + 0.125f * (tile[ly + 1][lx] + tile[ly + 1][lx + 2] + tile[ly][lx + 1] + tile[ly + 2][lx + 1]);
  }
}
__global__ void __launch_bounds__(256) stream_few_warps(const float4* a, float4* out, i64 n) {
  // the launch leaves room for two blocks or eight an SM; each thread has eight loads in flight
  extern __shared__ float unused[];
  for (i64 i = T; i + 7 * STRIDE < n; i += 8 * STRIDE) {
    float4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = a[i + k * STRIDE];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k].x *= 1.5f, out[i + k * STRIDE] = v[k];
  }
  if (n < 0) out[0].x = unused[threadIdx.x];
}
template <int V> __global__ void settle_tile(const float* a, float* out, int width, int steps) {
  // long arithmetic, then a store through a tile whose columns share a bank
  __shared__ float tile[32][V == 0 ? 32 : 33];
  int x = threadIdx.x & 31, y = threadIdx.x / 32, bx = blockIdx.x * 32, by = blockIdx.y * 32;
  for (int k = y; k < 32; k += 8) {
    float v = a[(i64)(by + k) * width + bx + x], u = v + 1;
    for (int s = 0; s < steps; ++s) v = fmaf(v, 0.7f, 0.2f), u = fmaf(u, 0.6f, 0.3f);
    tile[k][x] = v + u;
  }
  __syncthreads();
  for (int k = y; k < 32; k += 8) out[(i64)(bx + k) * width + by + x] = tile[x][k];
}
template <int V> __global__ void strided_parameters(const float* a, const float* parameters, float* out, i64 n, int steps) {
  // each lane reads its parameter 128 bytes from its neighbour's, once, before long arithmetic
  float p = parameters[(V == 0 ? threadIdx.x * 32 : threadIdx.x)];
  for (i64 i = T; i < n; i += STRIDE) {
    float x = a[i], y = x + 0.5f;
    for (int k = 0; k < steps; ++k) x = fmaf(x, p, 0.1f), y = fmaf(y, p, 0.2f);
    out[i] = x + y;
  }
}
template <int V> __global__ void mean_value(const float4* a, float* partial, float* out, i64 n) {
  // the blocks add to one address at their end, or write apart
  __shared__ float part[8];
  float s = 0;
  for (i64 i = T; i < n; i += STRIDE) { float4 v = a[i]; s += (v.x + v.y) + (v.z + v.w); }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x) return;
  for (int k = 1; k < 8; ++k) s += part[k];
  if (V == 0) atomicAdd(out, s); else partial[blockIdx.x] = s;
}
template <int V> __global__ void leaky_gate(const float* a, const float* gate, float* out, i64 n) {
  // lanes take both sides of a branch, but memory is the limit
  for (i64 i = T; i < n; i += STRIDE) {
    float x = a[i], g = gate[i];
    if (V == 0) {
      if (g > 0.5f) { for (int k = 0; k < 4; ++k) x = fmaf(x, g, 0.1f); out[i] = x; }
      else { for (int k = 0; k < 4; ++k) x = fmaf(x, x, -g); out[i] = -x; }
    } else {
      float u = x, v = x;
      for (int k = 0; k < 4; ++k) u = fmaf(u, g, 0.1f), v = fmaf(v, v, -g);
      out[i] = g > 0.5f ? u : -v;
    }
  }
}
__global__ void crop_rows(const float* a, float* out, int pitch, int width, int rows) {
  // a warp a row: with a pitch of 4093 or 4096 floats
  for (i64 r = T / 32; r < rows; r += STRIDE / 32)
    for (int c = threadIdx.x & 31; c < width; c += 32) out[r * 4096 + c] = a[r * pitch + c] * 0.5f;
}

void trap_cases() {
  cases.push_back({"five_point", "no_tile", "", [] { five_point<0><<<dim3(256, 512), 512>>>(A, C, 8192, 8192); }, [] { five_point<1><<<dim3(256, 512), 512>>>(A, C, 8192, 8192); }, C, 1 << 26});
  cases.push_back({"stream_few_warps", "occupancy_shared", "", [] { stream_few_warps<<<264, 256, 100000>>>((float4*)A, (float4*)C, N / 4); }, [] { stream_few_warps<<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, nullptr, 0, false, [] { dynamic_shared(stream_few_warps, 100000); }});
  cases.push_back({"settle_tile", "shared_bank_conflicts", "", [] { settle_tile<0><<<dim3(64, 64), 256>>>(A, C, 2048, 400); }, [] { settle_tile<1><<<dim3(64, 64), 256>>>(A, C, 2048, 400); }, C, 1 << 22});
  cases.push_back({"strided_parameters", "uncoalesced_loads", "", [] { strided_parameters<0><<<2112, 256>>>(A, B, C, 1 << 22, 128); }, [] { strided_parameters<1><<<2112, 256>>>(A, B, C, 1 << 22, 128); }});
  cases.push_back({"mean_value", "global_atomics_one_address", "", [] { mean_value<0><<<1056, 256>>>((float4*)A, D, C, N / 4); }, [] { mean_value<1><<<1056, 256>>>((float4*)A, D, C, N / 4); }});
  cases.push_back({"leaky_gate", "divergence", "", [] { leaky_gate<0><<<2112, 256>>>(A, B, C, 1 << 25); }, [] { leaky_gate<1><<<2112, 256>>>(A, B, C, 1 << 25); }, C, 1 << 25});
  cases.push_back({"crop_rows", "misaligned_base", "", [] { crop_rows<<<1056, 256>>>(A, C, 4093, 4080, 16384); }, [] { crop_rows<<<1056, 256>>>(A, C, 4096, 4080, 16384); }});
}
