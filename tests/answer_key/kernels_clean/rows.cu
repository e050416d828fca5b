// DRAM's roof again, where threads work together or shapes differ: rows, norms, stencils, bins, sparse matrices, packing, pooling, prefix sums, clusters.
#include "frame.h"

namespace cg = cooperative_groups;

// at the roof of DRAM, because 512 MB take 128 us; a block keeps its row of 16 kB in registers, and others fill its barriers
__global__ void __launch_bounds__(256, 6) choose_chess_moves(const float4* a, float4* out) {
  __shared__ float most[8], part[8];
  i64 first = blockIdx.x * 1024ll + threadIdx.x;
  float4 v[4];
  float m = -3e38f, s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = a[first + k * 256];
#pragma unroll
  for (int k = 0; k < 4; ++k) m = fmaxf(m, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if ((threadIdx.x & 31) == 0) most[threadIdx.x / 32] = m;
  __syncthreads();
  m = fmaxf(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])), fmaxf(fmaxf(most[4], most[5]), fmaxf(most[6], most[7]))) * -1.442695f;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k] = scaled(v[k], 1.442695f, m);
    v[k] = {power_of_two(v[k].x), power_of_two(v[k].y), power_of_two(v[k].z), power_of_two(v[k].w)}, s += total(v[k]);
  }
  s = __fdividef(1.0f, sum_of_block(s, part));
#pragma unroll
  for (int k = 0; k < 4; ++k) out[first + k * 256] = scaled(v[k], s, 0.0f);
}
// at the roof of DRAM, because 256 MB of BF16 take 64 us; a block a row of 2048, eight numbers a thread
__global__ void __launch_bounds__(256) steady_protein_features(const uint4* a, const float4* gain, uint4* out) {
  __shared__ float part[8], part2[8];
  uint4 v = a[T];
  float4 g = gain[threadIdx.x * 2], h = gain[threadIdx.x * 2 + 1];
  float2 p = two_of(v.x), q = two_of(v.y), r = two_of(v.z), s = two_of(v.w);
  float mean = sum_of_block(((p.x + p.y) + (q.x + q.y)) + ((r.x + r.y) + (s.x + s.y)), part) * (1 / 2048.0f);
  p.x -= mean, p.y -= mean, q.x -= mean, q.y -= mean, r.x -= mean, r.y -= mean, s.x -= mean, s.y -= mean;
  float by = rsqrtf(sum_of_block((fmaf(p.x, p.x, p.y * p.y) + fmaf(q.x, q.x, q.y * q.y)) + (fmaf(r.x, r.x, r.y * r.y) + fmaf(s.x, s.x, s.y * s.y)), part2) * (1 / 2048.0f) + 1e-5f);
  out[T] = {packed(p.x * by * g.x, p.y * by * g.y), packed(q.x * by * g.z, q.y * by * g.w), packed(r.x * by * h.x, r.y * by * h.y), packed(s.x * by * h.z, s.y * by * h.w)};
}
// at the roof of DRAM, because 512 MB take 128 us; a warp a row of 1024, without barriers
__global__ void __launch_bounds__(256) level_face_vectors(const float4* a, float4* out) {
  i64 first = T / 32 * 256 + (threadIdx.x & 31);
  float4 v[8];
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = a[first + k * 32];
#pragma unroll
  for (int k = 0; k < 8; ++k) s += fmaf(v[k].x, v[k].x, v[k].y * v[k].y) + fmaf(v[k].z, v[k].z, v[k].w * v[k].w);
  s = rsqrtf(warp_sum(s) + 1e-12f);
#pragma unroll
  for (int k = 0; k < 8; ++k) out[first + k * 32] = scaled(v[k], s, 0.0f);
}
// at the roof of DRAM, because 512 MB take 128 us; the rows above and below come from registers, and the columns beside from L1
__global__ void __launch_bounds__(256) spread_ink_sheets(const float* a, float* out, int side) {
  int x = (blockIdx.x * 256 + threadIdx.x) * 4, y0 = blockIdx.y * 8;
  auto row = [&](int y) { return a + (i64)min(max(y, 0), side - 1) * side; };
  float4 up = *(const float4*)&row(y0 - 1)[x], mid = *(const float4*)&row(y0)[x], next = *(const float4*)&row(y0 + 1)[x];
#pragma unroll 4
  for (int y = y0; y < y0 + 8; ++y) {
    float4 down = next;
    if (y + 2 < y0 + 9) next = *(const float4*)&row(y + 2)[x];
    float left = row(y)[max(x - 1, 0)], right = row(y)[min(x + 4, side - 1)];
    float4 v = {fmaf(0.6f, mid.x, 0.1f * (left + mid.y + up.x + down.x)), fmaf(0.6f, mid.y, 0.1f * (mid.x + mid.z + up.y + down.y)),
                fmaf(0.6f, mid.z, 0.1f * (mid.y + mid.w + up.z + down.z)), fmaf(0.6f, mid.w, 0.1f * (mid.z + right + up.w + down.w))};
    *(float4*)&out[(i64)y * side + x] = v;
    up = mid, mid = down;
  }
}
// at the roof of DRAM, because 512 MB take 128 us; a thread walks down with three planes in registers, and L1 holds the rest of a plane
__global__ void __launch_bounds__(256) bake_clay_bricks(const float* a, float* out, int side, int deep, int each) {
  int x = (threadIdx.x & 31) * 4 + blockIdx.x * 128, y = threadIdx.x / 32 + blockIdx.y * 8, z0 = blockIdx.z * each, plane = side * side, own = y * side + x;
  int above = max(y - 1, 0) * side + x, below = min(y + 1, side - 1) * side + x, left = y * side + max(x - 1, 0), right = y * side + min(x + 4, side - 1);
  auto level = [&](int z) { return a + (i64)min(max(z, 0), deep - 1) * plane; };
  float4 back = *(const float4*)&level(z0 - 1)[own], mid = *(const float4*)&level(z0)[own], front = *(const float4*)&level(z0 + 1)[own];
#pragma unroll 2
  for (int z = z0; z < z0 + each; ++z) {
    float4 ahead = *(const float4*)&level(min(z + 2, z0 + each))[own];
    const float* at = level(z);
    float4 u = *(const float4*)&at[above], d = *(const float4*)&at[below];
    float l = at[left], r = at[right];
    float4 v = {fmaf(0.4f, mid.x, 0.1f * ((l + mid.y) + (u.x + d.x) + (back.x + front.x))), fmaf(0.4f, mid.y, 0.1f * ((mid.x + mid.z) + (u.y + d.y) + (back.y + front.y))),
                fmaf(0.4f, mid.z, 0.1f * ((mid.y + mid.w) + (u.z + d.z) + (back.z + front.z))), fmaf(0.4f, mid.w, 0.1f * ((mid.z + r) + (u.w + d.w) + (back.w + front.w)))};
    *(float4*)&out[(i64)z * plane + own] = v;
    back = mid, mid = front, front = ahead;
  }
}
// at the roof of DRAM, because 265 MB take 63 us in one full wave; a grain of 16 bytes makes one atomic of shared memory in its warp's own bins, 2 of 27 cycles
__global__ void __launch_bounds__(256, 7) sift_pollen_grains(const float4* a, unsigned* out, int each) {
  __shared__ unsigned bins[8][256];
  int t = threadIdx.x;
#pragma unroll
  for (int k = 0; k < 8; ++k) bins[k][t] = 0;
  __syncthreads();
  unsigned* own = bins[t / 32];
  const float4* grains = a + (i64)blockIdx.x * each * 256 + t;
#pragma unroll 8
  for (int k = 0; k < each; ++k) {
    float4 v = grains[k * 256];
    atomicAdd(&own[(int)(64.0f * total(v)) & 255], 1u);
  }
  __syncthreads();
  unsigned s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) s += bins[k][t];
  atomicAdd(&out[t], s);
}
// at the roof of DRAM, because values and columns of 256 MB take 64 us; rows lie in slices of 32, and the vector comes from L1 and L2
__global__ void __launch_bounds__(256) load_pipe_networks(const float* value, const int* column, const float* x, float* out) {
  i64 first = T / 32 * 1024 + (threadIdx.x & 31);
  float s = 0, r = 0;
#pragma unroll 16
  for (int k = 0; k < 32; k += 2) s = fmaf(value[first + k * 32], x[column[first + k * 32]], s), r = fmaf(value[first + k * 32 + 32], x[column[first + k * 32 + 32]], r);
  out[T] = s + r;
}
static __global__ void join_pipes(int* column, int rows) {  // 32 neighbours of each row
  for (i64 i = T; i < rows * 32ll; i += STRIDE) {
    int lane = (int)(i & 31), k = (int)(i / 32 & 31), row = (int)(i / 1024) * 32 + lane;
    column[i] = (row + (k - 16) * 37 + rows) % rows;
  }
}
// at the roof of DRAM, because 16 diagonals of 16 MB take 64 us; the vector comes from L1 and L2
__global__ void __launch_bounds__(256) couple_crystal_bands(const float4* band, const float* x, float4* out, int rows) {
  int i = (int)T;
  float4 s = {0, 0, 0, 0};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = __ldcs(&band[(i64)k * (rows / 4) + i]), u = *(const float4*)&x[(i * 4 + k * 32) & (rows - 1)];
    s = {fmaf(v.x, u.x, s.x), fmaf(v.y, u.y, s.y), fmaf(v.z, u.z, s.z), fmaf(v.w, u.w, s.w)};
  }
  out[i] = s;
}
// at the roof of DRAM, because 256 MB are read in 64 us, and a ballot makes a word of 32 of them
__global__ void __launch_bounds__(256) pack_fossil_flags(const float* a, unsigned* out) {
  i64 first = T / 32 * 1024 + (threadIdx.x & 31);
  unsigned own = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float v[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = a[first + (h * 16 + k) * 32];
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      unsigned w = __ballot_sync(~0u, v[k] > 0.625f);
      own = (threadIdx.x & 31) == h * 16 + k ? w : own;
    }
  }
  out[T] = own;
}
// at the roof of DRAM, because 256 MB of words become 64 MB of bytes in 80 us
__global__ void __launch_bounds__(256) shrink_depth_soundings(const uint4* a, unsigned* out) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 i = blockIdx.x * 1024ll + k * 256 + threadIdx.x;
    uint4 v = a[i];
    out[i] = __byte_perm(__byte_perm(v.x, v.y, 0x62), __byte_perm(v.z, v.w, 0x62), 0x5410);
  }
}
// at the roof of DRAM, because 64 MB of bases in two bits become 256 MB of letters in 80 us; a letter needs 1.5 instructions
__global__ void __launch_bounds__(256) unfold_genome_bases(const unsigned* a, uint4* out) {
  auto four = [](unsigned w) {
    w &= 255;
    w = (w | w << 4) & 0x0f0f, w = (w | w << 2) & 0x3333;
    return __byte_perm(0x54474341u, 0, w);
  };
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 i = blockIdx.x * 1024ll + k * 256 + threadIdx.x;
    unsigned v = a[i];
    out[i] = {four(v), four(v >> 8), four(v >> 16), four(v >> 24)};
  }
}
// at the roof of DRAM, because rows of 2 kB are gathered, 256 MB in, 64 MB out, in 80 us; a block adds four rows, four loads a thread
__global__ void __launch_bounds__(128) pool_recipe_words(const float4* table, const int4* words, float4* out) {
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    int4 w = words[blockIdx.x * 2 + k];
    float4 p = table[w.x * 128ll + threadIdx.x], q = table[w.y * 128ll + threadIdx.x], r = table[w.z * 128ll + threadIdx.x], s = table[w.w * 128ll + threadIdx.x];
    out[(blockIdx.x * 2 + k) * 128ll + threadIdx.x] = {(p.x + q.x) + (r.x + s.x), (p.y + q.y) + (r.y + s.y), (p.z + q.z) + (r.z + s.z), (p.w + q.w) + (r.w + s.w)};
  }
}
// at the roof of DRAM, because 512 MB take 128 us; a warp a row of 1024, whose prefix sum needs 5 shuffles for each 128
__global__ void __launch_bounds__(256) accrue_lake_inflows(const float4* a, float4* out) {
  int lane = threadIdx.x & 31;
  i64 first = T / 32 * 256 + lane;
  float4 v[8];
  float before = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = a[first + k * 32];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    v[k].y += v[k].x, v[k].z += v[k].y, v[k].w += v[k].z;
    float s = v[k].w;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      float u = __shfl_up_sync(~0u, s, o);
      if (lane >= o) s += u;
    }
    float less = before + s - v[k].w;
    before += __shfl_sync(~0u, s, 31);
    out[first + k * 32] = {v[k].x + less, v[k].y + less, v[k].z + less, v[k].w + less};
  }
}
// at the roof of DRAM, because 256 MB of BF16 are read in 64 us; two instructions for two numbers
__global__ void __launch_bounds__(256) loudest_whale_calls(const uint4* a, float* out) {
  __shared__ float most[8];
  uint4 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = a[blockIdx.x * 1024ll + k * 256 + threadIdx.x];
  auto two = [](unsigned w) { return *(__nv_bfloat162*)&w; };
  __nv_bfloat162 m = __habs2(two(v[0].x));
#pragma unroll
  for (int k = 0; k < 4; ++k) m = __hmax2(__hmax2(m, __habs2(two(v[k].x))), __hmax2(__hmax2(__habs2(two(v[k].y)), __habs2(two(v[k].z))), __habs2(two(v[k].w))));
  float s = fmaxf(__low2float(m), __high2float(m));
  for (int o = 16; o; o >>= 1) s = fmaxf(s, __shfl_xor_sync(~0u, s, o));
  if ((threadIdx.x & 31) == 0) most[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = fmaxf(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])), fmaxf(fmaxf(most[4], most[5]), fmaxf(most[6], most[7])));
}
// at the roof of DRAM, because 512 MB take 128 us; a pixel of 16 bytes goes to four planes, whose lines a warp fills whole
__global__ void __launch_bounds__(256) part_flower_colours(const float4* a, float* out, int plane) {
  float4 v[2];
  int i = blockIdx.x * 512 + threadIdx.x;
  v[0] = a[i], v[1] = a[i + 256];
#pragma unroll
  for (int k = 0; k < 2; ++k) out[i + k * 256] = v[k].x, out[i + k * 256 + plane] = v[k].y, out[i + k * 256 + 2 * plane] = v[k].z, out[i + k * 256 + 3 * plane] = v[k].w;
}
// at the roof of DRAM, because 256 MB shrink to 64 MB in 80 us; four rows a thread in flight
__global__ void __launch_bounds__(256) shrink_coast_tiles(const float4* a, float2* out) {  // rows of 2048 vectors
  int x = blockIdx.x * 256 + threadIdx.x;
  i64 y = blockIdx.y * 2;
  float4 p = a[(y * 2) * 2048 + x], q = a[(y * 2 + 1) * 2048 + x], r = a[(y * 2 + 2) * 2048 + x], s = a[(y * 2 + 3) * 2048 + x];
  out[y * 2048 + x] = {fmaxf(fmaxf(p.x, p.y), fmaxf(q.x, q.y)), fmaxf(fmaxf(p.z, p.w), fmaxf(q.z, q.w))};
  out[(y + 1) * 2048 + x] = {fmaxf(fmaxf(r.x, r.y), fmaxf(s.x, s.y)), fmaxf(fmaxf(r.z, r.w), fmaxf(s.z, s.w))};
}
// at the roof of DRAM, because 64 MB grow to 256 MB in 80 us
__global__ void __launch_bounds__(256) enlarge_stamp_scans(const float2* a, float4* out) {  // 4096 rows of 2048 pairs
  i64 y = blockIdx.y;
  int x = blockIdx.x * 256 + threadIdx.x;
  float2 v = a[y * 2048 + x];
  float4 w = {v.x, v.x, v.y, v.y};
  out[y * 4096 + x] = w, out[y * 4096 + 2048 + x] = w;
}
// at the roof of DRAM, because 512 MB take 128 us; a cluster of two blocks keeps a row of 64 kB in registers, and they exchange one sum
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512, 2) centre_star_spectra(const float4* a, float4* out) {
  __shared__ float part[16], all;
  cg::cluster_group pair = cg::this_cluster();
  i64 first = blockIdx.x * 2048ll + threadIdx.x;
  float4 v[4];
  float s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = a[first + k * 512];
#pragma unroll
  for (int k = 0; k < 4; ++k) s += total(v[k]);
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = warp_sum(threadIdx.x < 16 ? part[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) all = s;
  }
  pair.sync();
  s = -(all + *pair.map_shared_rank(&all, pair.block_rank() ^ 1)) * (1 / 16384.0f);
#pragma unroll
  for (int k = 0; k < 4; ++k) out[first + k * 512] = scaled(v[k], 1.0f, s);
  pair.sync();
}

void row_cases() {
  static bf16 *features, *calls;
  static int* columns;
  static int4* words;
  cases.push_back({"choose_chess_moves", "none_at_roof", "", [] { choose_chess_moves<<<16384, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"steady_protein_features", "none_at_roof", "", [] { steady_protein_features<<<32768, 256>>>((uint4*)features, (float4*)B, (uint4*)C); }, nullptr, nullptr, 0, false, [] { features = converted<bf16>(A, N, 0.5f); }});
  cases.push_back({"level_face_vectors", "none_at_roof", "", [] { level_face_vectors<<<8192, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"spread_ink_sheets", "none_at_roof", "", [] { spread_ink_sheets<<<dim3(8, 1024), 256>>>(A, C, 8192); }, nullptr});
  cases.push_back({"bake_clay_bricks", "none_at_roof", "", [] { bake_clay_bricks<<<dim3(4, 64, 16), 256>>>(A, C, 512, 256, 16); }, nullptr});
  cases.push_back({"sift_pollen_grains", "none_at_roof", "", [] { sift_pollen_grains<<<924, 256>>>((float4*)A, (unsigned*)C, 70); }, nullptr});
  cases.push_back({"load_pipe_networks", "none_at_roof", "", [] { load_pipe_networks<<<4096, 256>>>(A, columns, B, C); }, nullptr, nullptr, 0, false, [] {
    columns = device<int>(1 << 25);
    join_pipes<<<1056, 256>>>(columns, 1 << 20);
  }});
  cases.push_back({"couple_crystal_bands", "none_at_roof", "", [] { couple_crystal_bands<<<4096, 256>>>((float4*)A, B, (float4*)C, 1 << 22); }, nullptr});
  cases.push_back({"pack_fossil_flags", "none_at_roof", "", [] { pack_fossil_flags<<<8192, 256>>>(A, (unsigned*)C); }, nullptr});
  cases.push_back({"shrink_depth_soundings", "none_at_roof", "", [] { shrink_depth_soundings<<<16384, 256>>>((uint4*)A, (unsigned*)C); }, nullptr});
  cases.push_back({"unfold_genome_bases", "none_at_roof", "", [] { unfold_genome_bases<<<16384, 256>>>((unsigned*)B, (uint4*)C); }, nullptr});
  cases.push_back({"pool_recipe_words", "none_at_roof", "", [] { pool_recipe_words<<<16384, 128>>>((float4*)A, words, (float4*)C); }, nullptr, nullptr, 0, false, [] { words = (int4*)permutation(1 << 17); }});
  cases.push_back({"accrue_lake_inflows", "none_at_roof", "", [] { accrue_lake_inflows<<<8192, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"loudest_whale_calls", "none_at_roof", "", [] { loudest_whale_calls<<<16384, 256>>>((uint4*)calls, C); }, nullptr, nullptr, 0, false, [] {
    calls = device<bf16>(2 * N);
    convert<<<1056, 256>>>(A, calls, N, 0.5f), convert<<<1056, 256>>>(B, calls + N, N, 0.5f);
  }});
  cases.push_back({"part_flower_colours", "none_at_roof", "", [] { part_flower_colours<<<32768, 256>>>((float4*)A, C, 1 << 24); }, nullptr});
  cases.push_back({"shrink_coast_tiles", "none_at_roof", "", [] { shrink_coast_tiles<<<dim3(8, 2048), 256>>>((float4*)A, (float2*)C); }, nullptr});
  cases.push_back({"enlarge_stamp_scans", "none_at_roof", "", [] { enlarge_stamp_scans<<<dim3(8, 4096), 256>>>((float2*)A, (float4*)C); }, nullptr});
  cases.push_back({"centre_star_spectra", "none_at_roof", "", [] { centre_star_spectra<<<8192, 512>>>((float4*)A, (float4*)C); }, nullptr});
}
