// Products, tiles and pipelines: charts, dishes, gravity, recurrences, policies, spectra, reverberation, patches, images, pages, voices.
#include <cuda.h>

#include "frame.h"

// ---- smooth_charts: tiles of 32 columns by tensor copies that leave rows 128 bytes apart, so that the rows of lanes lie in the same banks; or swizzled; expected 3 times
template <int V> __global__ void __launch_bounds__(128) smooth_charts(const __grid_constant__ CUtensorMap chart, float* out) {
  __shared__ __align__(1024) float4 tile[128 * 8];
  __shared__ u64 full;
  int t = threadIdx.x;
  if (t == 0) {
    expect(&full, 1), show_barriers();
    announce(&full, 16384);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(place(tile)), "l"(&chart), "r"((int)blockIdx.x * 32), "r"((int)blockIdx.y * 128), "r"(place(&full)) : "memory");
  }
  __syncthreads();
  wait(&full, 0);
  auto part = [&](int k) -> float4& { return tile[t * 8 + (V == 0 ? k : k ^ (t & 7))]; };
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float4 v = part(k);
    v.x = s = fmaf(0.6f, s, v.x), v.y = s = fmaf(0.6f, s, v.y), v.z = s = fmaf(0.6f, s, v.z), v.w = s = fmaf(0.6f, s, v.w);
    part(k) = v;
  }
  __syncwarp();  // a row is its thread's alone; this keeps both passes apart
  s = 0;
  float all = 0;
#pragma unroll
  for (int k = 7; k >= 0; --k) {
    float4 v = part(k);
    s = fmaf(0.6f, s, v.w), all = fmaxf(all, s), s = fmaf(0.6f, s, v.z), all = fmaxf(all, s), s = fmaf(0.6f, s, v.y), all = fmaxf(all, s), s = fmaf(0.6f, s, v.x), all = fmaxf(all, s);
  }
  out[((i64)blockIdx.x * gridDim.y + blockIdx.y) * 128 + t] = all;
}
static CUtensorMap map_of(float* a, int side, CUtensorMapSwizzle swizzle) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  CUtensorMap map;
  cuuint64_t sizes[2] = {(cuuint64_t)side, (cuuint64_t)side}, pitch[1] = {(cuuint64_t)side * 4};
  cuuint32_t box[2] = {32, 128}, steps[2] = {1, 1};
  auto encode = (decltype(&cuTensorMapEncodeTiled))entry;
  if (!encode || encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, a, sizes, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
    std::fprintf(stderr, "no tensor map\n");
    std::exit(1);
  }
  return map;
}
// ---- correlate_dishes: the product of two dishes' complex signals a thread, with two loads from global memory for each time; or tiles of 64 x 64 pairs; expected 2.5 times
constexpr int DISHES = 256, TIMES = 512, BANDS = 16;
__device__ inline void add_product(float2& s, float2 p, float2 q) { s = {fmaf(p.x, q.x, fmaf(p.y, q.y, s.x)), fmaf(p.y, q.x, fmaf(-p.x, q.y, s.y))}; }
template <int V> __global__ void __launch_bounds__(256) correlate_dishes(const float2* a, float2* out) {
  __shared__ __align__(16) float2 left[V == 0 ? 1 : 16][64], right[V == 0 ? 1 : 16][64];
  const float2* own = a + (i64)blockIdx.z * TIMES * DISHES;
  out += (i64)blockIdx.z * DISHES * DISHES;
  int t = threadIdx.x;
  if (V == 0) {
    int i = blockIdx.y, j = t;
    float2 s = {0, 0};
#pragma unroll 4
    for (int k = 0; k < TIMES; ++k) add_product(s, own[k * DISHES + i], own[k * DISHES + j]);
    out[i * DISHES + j] = s;
    return;
  }
  int y = t / 16 * 4, x = t % 16 * 4;
  float2 s[4][4] = {};
#pragma unroll 1
  for (int k = 0; k < TIMES; k += 16) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = t + h * 256, row = i / 32, column = (i & 31) * 2;
      *(float4*)&left[row][column] = *(const float4*)&own[(k + row) * DISHES + blockIdx.y * 64 + column];
      *(float4*)&right[row][column] = *(const float4*)&own[(k + row) * DISHES + blockIdx.x * 64 + column];
    }
    __syncthreads();
#pragma unroll 4
    for (int j = 0; j < 16; ++j) {
      float4 p[2] = {*(float4*)&left[j][y], *(float4*)&left[j][y + 2]}, q[2] = {*(float4*)&right[j][x], *(float4*)&right[j][x + 2]};
      const float2 *u = (const float2*)p, *v = (const float2*)q;
#pragma unroll
      for (int n = 0; n < 16; ++n) add_product(s[n / 4][n & 3], u[n / 4], v[n & 3]);
    }
  }
#pragma unroll
  for (int n = 0; n < 16; ++n) out[(blockIdx.y * 64 + y + n / 4) * DISHES + blockIdx.x * 64 + x + (n & 3)] = s[n / 4][n & 3];
}
// ---- sum_harmonics: doubles of two matrices, with two loads from global memory for each product; or tiles of 64 x 64; expected 3 times
template <int V> __global__ void __launch_bounds__(256) sum_harmonics(const double* p, const double* q, float* out, int side) {
  __shared__ __align__(16) double left[V == 0 ? 1 : 16][66], right[V == 0 ? 1 : 16][64];
  int t = threadIdx.x;
  if (V == 0) {
    int i = blockIdx.y, j = blockIdx.x * 256 + t;
    double s = 0;
#pragma unroll 4
    for (int k = 0; k < side; ++k) s = fma(p[i * side + k], q[k * side + j], s);
    out[i * side + j] = (float)s;
    return;
  }
  int y = t / 16 * 4, x = t % 16 * 2, row = blockIdx.y * 64, column = blockIdx.x * 64;
  double s[4][4] = {};
#pragma unroll 1
  for (int k = 0; k < side; k += 16) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      int i = t + h * 256;
      left[i & 15][i / 16] = p[(row + i / 16) * side + k + (i & 15)], right[i / 64][i & 63] = q[(k + i / 64) * side + column + (i & 63)];
    }
    __syncthreads();
#pragma unroll 4
    for (int j = 0; j < 16; ++j) {
      double2 u[2] = {*(double2*)&left[j][y], *(double2*)&left[j][y + 2]}, v[2] = {*(double2*)&right[j][x], *(double2*)&right[j][x + 32]};
      const double *m = (const double*)u, *n = (const double*)v;
#pragma unroll
      for (int r = 0; r < 16; ++r) s[r / 4][r & 3] = fma(m[r / 4], n[r & 3], s[r / 4][r & 3]);
    }
  }
#pragma unroll
  for (int r = 0; r < 16; ++r) out[(row + y + r / 4) * side + column + x + (r & 1) + (r & 2) * 16] = (float)s[r / 4][r & 3];
}
// ---- drive_recurrences: operands of 16 bits on FP32 units, in tiles of 64 x 64; or on tensor cores; expected 6 times
__global__ void __launch_bounds__(256) drive_recurrences(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  __shared__ __align__(16) float left[16][68], right[16][68];
  int t = threadIdx.x, y = t / 16 * 4, c = t % 16 * 4;
  i64 row = blockIdx.y * 64, column = blockIdx.x * 64;
  float s[4][4] = {};
#pragma unroll 1
  for (int k = 0; k < depth; k += 16) {
    __syncthreads();
    uint2 p = *(const uint2*)&x[(row + t / 4) * depth + k + (t & 3) * 4], q = *(const uint2*)&w[(column + t / 4) * depth + k + (t & 3) * 4];
    unsigned u[4] = {p.x << 16, p.x & 0xffff0000u, p.y << 16, p.y & 0xffff0000u}, v[4] = {q.x << 16, q.x & 0xffff0000u, q.y << 16, q.y & 0xffff0000u};
#pragma unroll
    for (int h = 0; h < 4; ++h) left[(t & 3) * 4 + h][t / 4] = __uint_as_float(u[h]), right[(t & 3) * 4 + h][t / 4] = __uint_as_float(v[h]);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 a = *(float4*)&left[j][y], b = *(float4*)&right[j][c];
      float m[4] = {a.x, a.y, a.z, a.w}, n[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int r = 0; r < 16; ++r) s[r / 4][r & 3] = fmaf(m[r / 4], n[r & 3], s[r / 4][r & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + y + i) * columns + column + c] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- age_policies: 16 distributions a warp, times a matrix of 16 x 16 halves each year, by FP32 units; or by tensor cores; expected 6 times
template <int V> __global__ void __launch_bounds__(256) age_policies(const float* start, const __half* matrix, float* out, int years) {
  __shared__ __align__(16) float by[V == 0 ? 8 : 1][16][16];  // column, then row, of each warp's matrix
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const __half* m = matrix + (T / 32 & 1023) * 256;
  const float* from = start + T / 32 * 256;
  float* to = out + T / 32 * 256;
  if (V == 0) {
    for (int i = lane; i < 256; i += 32) by[warp][i & 15][i / 16] = __half2float(m[i]);
    __syncwarp();
    int row = lane / 2, column = (lane & 1) * 8;
    float x[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __half2float(__float2half(from[row * 16 + column + k]));
#pragma unroll 1
    for (int n = 0; n < years; ++n) {
      float s[8] = {};
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        float v = __shfl_sync(~0u, x[k & 7], lane & 30 | k / 8);
        float4 p = *(const float4*)&by[warp][k][column], q = *(const float4*)&by[warp][k][column + 4];
        s[0] = fmaf(v, p.x, s[0]), s[1] = fmaf(v, p.y, s[1]), s[2] = fmaf(v, p.z, s[2]), s[3] = fmaf(v, p.w, s[3]);
        s[4] = fmaf(v, q.x, s[4]), s[5] = fmaf(v, q.y, s[5]), s[6] = fmaf(v, q.z, s[6]), s[7] = fmaf(v, q.w, s[7]);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) x[k] = __half2float(__float2half(s[k]));
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) to[row * 16 + column + k] = x[k];
  } else {
    int g = lane / 4, c = (lane & 3) * 2;
    unsigned a[4], b[2][2];
    auto two = [](float x, float y) {
      __half2 h = __floats2half2_rn(x, y);
      return *(unsigned*)&h;
    };
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* p = from + (g + (k & 1) * 8) * 16 + c + k / 2 * 8;
      a[k] = two(p[0], p[1]), b[k / 2][k & 1] = *(const unsigned*)&m[(g + k / 2 * 8) * 16 + c + (k & 1) * 8];
    }
#pragma unroll 1
    for (int n = 0; n < years; ++n) {
      float s[2][4] = {};
#pragma unroll
      for (int h = 0; h < 2; ++h)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(s[h][0]), "+f"(s[h][1]), "+f"(s[h][2]), "+f"(s[h][3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[h][0]), "r"(b[h][1]));
      a[0] = two(s[0][0], s[0][1]), a[1] = two(s[0][2], s[0][3]), a[2] = two(s[1][0], s[1][1]), a[3] = two(s[1][2], s[1][3]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) *(float2*)&to[(g + (k & 1) * 8) * 16 + c + k / 2 * 8] = __half22float2(*(__half2*)&a[k]);
  }
}
// ---- embed_spectra: tensor cores whose warps read each fragment of 32 x 32 from global memory; or from tiles in shared memory; expected 5 times
__global__ void __launch_bounds__(256) embed_spectra(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = (lane & 3) * 2;
  i64 row = blockIdx.y * 128 + warp % 4 * 32, column = blockIdx.x * 64 + warp / 4 * 32;
  float s[2][4][4] = {};
#pragma unroll 2
  for (int k = 0; k < depth; k += 16) {
    unsigned a[2][4], b[4][2];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      a[i / 4][i & 3] = *(const unsigned*)&x[(row + i / 4 * 16 + g + (i & 1) * 8) * depth + k + c + (i & 2) * 4];
      b[i / 2][i & 1] = *(const unsigned*)&w[(column + i / 2 * 8 + g) * depth + k + c + (i & 1) * 8];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) multiply(s[i / 4][i & 3], a[i / 4], b[i & 3][0], b[i & 3][1]);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) *(float2*)&out[(row + i / 4 * 16 + g + h * 8) * columns + column + (i & 3) * 8 + c] = {s[i / 4][i & 3][h * 2], s[i / 4][i & 3][h * 2 + 1]};
}
// ---- mix_reverbs: a matrix of 32 x 32 that all threads read word by word, with a padded pitch; or four words at a time; expected 2 times
template <int V> __global__ void __launch_bounds__(128) mix_reverbs(const float* matrix, const float* a, float* out, int steps, int pitch) {
  __shared__ __align__(16) float by[32 * 33];
  for (int i = threadIdx.x; i < 1024; i += 128) by[i / 32 * pitch + (i & 31)] = matrix[i];
  __syncthreads();
  float x[32], all = 0;
#pragma unroll
  for (int k = 0; k < 32; ++k) x[k] = a[k * STRIDE + T];
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    asm volatile("" ::: "memory");  // the matrix does not fit in registers
    float y[32];
#pragma unroll
    for (int r = 0; r < 32; ++r) {
      std::conditional_t<V == 0, const volatile float*, const float*> own = by + r * pitch;
      float s = 0.1f;
#pragma unroll
      for (int k = 0; k < 32; k += 4) {
        float4 v;
        if constexpr (V == 0) v = {own[k], own[k + 1], own[k + 2], own[k + 3]};
        else v = *(const float4*)&own[k];
        s = fmaf(v.x, x[k], s), s = fmaf(v.y, x[k + 1], s), s = fmaf(v.z, x[k + 2], s), s = fmaf(v.w, x[k + 3], s);
      }
      y[r] = s;
    }
#pragma unroll
    for (int r = 0; r < 32; ++r) x[r] = y[r];
  }
#pragma unroll
  for (int k = 0; k < 32; ++k) all = fmaf(all, 0.9f, x[k]);
  out[T] = all;
}
// ---- score_patches: tensor cores that read both fragments from shared memory again for each product of 16 x 8; or once for 64 x 32 of them; expected 3 times: product_in_tiles in frame.h
// ---- fuse_images: a tile of 64 kB into shared memory, a barrier, then work on it; or the next tile on its way in registers during the work; expected 1.6 times
template <int V> __global__ void __launch_bounds__(256) fuse_images(const float4* a, float* out, int tiles) {
  extern __shared__ __align__(128) float4 room[];
  float4 *tile = room, *weight = room + 4096;
  int t = threadIdx.x;
  for (int i = t; i < 4096; i += 256) weight[i] = a[i];
  const float4* own = a + (i64)blockIdx.x * tiles * 4096 + t;
  float4 next[16];
  float all = 0;
  auto ask = [&](int n) {
#pragma unroll
    for (int k = 0; k < 16; ++k) next[k] = own[n * 4096 + k * 256];
  };
  ask(0);
#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    if (V == 0 && n) ask(n);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) tile[k * 256 + t] = next[k];
    __syncthreads();
    if (V == 1 && n + 1 < tiles) ask(n + 1);
#pragma unroll 1
    for (int k = 0; k < 16; ++k) {
      float4 v = tile[k * 256 + (t ^ 33)], w = weight[k * 256 + t];
#pragma unroll
      for (int r = 0; r < 24; ++r) v.x = fmaf(v.x, w.x, w.y), v.y = fmaf(v.y, w.y, w.z), v.z = fmaf(v.z, w.z, w.w), v.w = fmaf(v.w, w.w, w.x);
      all += __fdividef((v.x + v.y) + (v.z + v.w), 1 + fabsf(v.x) + fabsf(v.y) + fabsf(v.z) + fabsf(v.w));
    }
  }
  out[T] = all;
}
// ---- print_pages: 116 kB are made in shared memory, stored in bulk and awaited before the next are made; or halves in turn, one made while the other is stored; expected 1.6 times
constexpr int PAGE = 7424;  // of four floats
template <int PARTS> __global__ void __launch_bounds__(512) print_pages(float4* out, int pages, float ink) {
  extern __shared__ __align__(128) float4 room[];
  constexpr int PART = PAGE / PARTS;
  int t = threadIdx.x;
  out += (i64)blockIdx.x * pages * PAGE;
#pragma unroll 1
  for (int n = 0; n < pages * PARTS; ++n) {
    float4* page = room + n % PARTS * PART;
    if (t == 0) {
      if (PARTS == 1) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
      else asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    }
    __syncthreads();
#pragma unroll 2
    for (int i = t; i < PART; i += 512) {
      float x = ink * (float)(n * PART + i), s[4] = {0.1f, 0.2f, 0.3f, 0.4f};
      x -= floorf(x);
#pragma unroll
      for (int r = 0; r < 40; ++r)
#pragma unroll
        for (int k = 0; k < 4; ++k) s[k] = fmaf(s[k], x, 0.01f * r);
      page[i] = {s[0], s[1], s[2], s[3]};
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t == 0) store_bulk(out + (i64)n * PART, page, PART * 16);
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// ---- dub_voices: one warp copies packed tiles in bulk for eight that drive tensor cores, and all share one pair of tiles; or four pairs; expected 2.5 times
constexpr int PACK = 128 * 40;  // 32 of the depth of 128 rows, 80 bytes apart
template <int STAGES> __global__ void __launch_bounds__(288) dub_voices(const bf16* x, const bf16* w, float* out, int steps, int columns) {
  extern __shared__ __align__(128) unsigned char tiles[];
  __shared__ u64 full[STAGES], empty[STAGES];
  bf16 (*left)[128][40] = (bf16(*)[128][40])tiles, (*right)[128][40] = left + STAGES;
  int t = threadIdx.x, lane = t & 31, warp = t / 32, y = (warp & 1) * 64, c = warp / 2 * 32;
  if (t == 0) {
    for (int d = 0; d < STAGES; ++d) expect(&full[d], 1), expect(&empty[d], 8);
    show_barriers();
  }
  __syncthreads();
  if (warp == 8) {
    if (lane == 0)
      for (int n = 0; n < steps; ++n) {
        int d = n % STAGES;
        if (n >= STAGES) wait(&empty[d], n / STAGES - 1 & 1);
        announce(&full[d], PACK * 4);
        load_bulk(left[d], x + ((i64)blockIdx.y * steps + n) * PACK, PACK * 2, &full[d]), load_bulk(right[d], w + ((i64)blockIdx.x * steps + n) * PACK, PACK * 2, &full[d]);
      }
    return;
  }
  float s[4][4][4] = {};
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    int d = n % STAGES;
    wait(&full[d], n / STAGES & 1);
#pragma unroll
    for (int j = 0; j < 32; j += 16) {
      unsigned a[4][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) fetch_four(a[i], &left[d][y + i * 16 + (lane & 15)][j + lane / 16 * 8]);
#pragma unroll
      for (int i = 0; i < 2; ++i) fetch_four(b[i], &right[d][c + i * 16 + (lane & 7) + lane / 16 * 8][j + (lane >> 3 & 1) * 8]);
#pragma unroll
      for (int i = 0; i < 16; ++i) multiply(s[i / 4][i & 3], a[i / 4], b[(i & 3) / 2][i % 2 * 2], b[(i & 3) / 2][i % 2 * 2 + 1]);
    }
    __syncwarp();
    if (lane == 0) arrive(&empty[d]);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) *(float2*)&out[(blockIdx.y * 128ll + y + i / 4 * 16 + lane / 4 + h * 8) * columns + blockIdx.x * 128 + c + (i & 3) * 8 + (lane & 3) * 2] = {s[i / 4][i & 3][h * 2], s[i / 4][i & 3][h * 2 + 1]};
}
__global__ void pack_voices(const bf16* x, bf16* out, int rows, int depth) {
  for (int i = (int)T; i < rows * depth; i += (int)STRIDE) {
    int row = i / depth, k = i % depth;
    out[((i64)(row / 128) * (depth / 32) + k / 32) * PACK + row % 128 * 40 + k % 32] = x[i];
  }
}

void product_cases() {
  static CUtensorMap plain, swizzled;
  static double* doubles;
  static bf16* few;
  static __half* matrices;
  static float* reverb;
  static bf16* packed;
  auto make_few = [] {
    if (!few) few = converted<bf16>(A, 1 << 24, 0.25f);
  };
  cases.push_back({"smooth_charts", "shared_bank_conflicts", "", [] { smooth_charts<0><<<dim3(256, 64), 128>>>(plain, C); }, [] { smooth_charts<1><<<dim3(256, 64), 128>>>(swizzled, C); }, C, 1 << 21, false, [] { plain = map_of(A, 8192, CU_TENSOR_MAP_SWIZZLE_NONE), swizzled = map_of(A, 8192, CU_TENSOR_MAP_SWIZZLE_128B); }});
  cases.push_back({"correlate_dishes", "no_tile", "", [] { correlate_dishes<0><<<dim3(1, DISHES, BANDS), 256>>>((float2*)A, (float2*)C); }, [] { correlate_dishes<1><<<dim3(4, 4, BANDS), 256>>>((float2*)A, (float2*)C); }, C, 1 << 21});
  cases.push_back({"sum_harmonics", "no_tile", "", [] { sum_harmonics<0><<<dim3(4, 1024), 256>>>(doubles, doubles + (1 << 20), C, 1024); }, [] { sum_harmonics<1><<<dim3(16, 16), 256>>>(doubles, doubles + (1 << 20), C, 1024); }, C, 1 << 20, false, [] { doubles = converted<double>(A, 1 << 21, 0.25f); }});
  cases.push_back({"drive_recurrences", "fp32_for_matrix", "", [] { drive_recurrences<<<dim3(48, 32), 256>>>(few, few + (1 << 22), C, 1024, 3072); }, [] { launch_product_in_tiles(few, few + (1 << 22), C, 2048, 3072, 1024); }, C, 2048 * 3072, false, make_few});
  cases.push_back({"age_policies", "fp32_for_matrix", "shared_instruction_bound", [] { age_policies<0><<<1056, 256>>>(A, matrices, C, 128); }, [] { age_policies<1><<<1056, 256>>>(A, matrices, C, 128); }, C, 8448 * 256, false, [] {
    std::vector<__half> v(1024 * 256);
    for (unsigned r = 0; r < 1024 * 16; ++r) {
      float s = 0;
      for (unsigned k = 0; k < 16; ++k) s += uniform(r * 16 + k);
      for (unsigned k = 0; k < 16; ++k) v[r * 16 + k] = __float2half(uniform(r * 16 + k) / s);
    }
    matrices = upload(v);
  }});
  cases.push_back({"embed_spectra", "tensor_starved", "uncoalesced_loads|no_tile", [] { embed_spectra<<<dim3(32, 16), 256>>>(few, few + (1 << 22), C, 2048, 2048); }, [] { launch_product_in_tiles(few, few + (1 << 22), C, 2048, 2048, 2048); }, C, 1 << 22, false, make_few});
  cases.push_back({"mix_reverbs", "shared_instruction_bound", "", [] { mix_reverbs<0><<<1056, 128>>>(reverb, A, C, 32, 33); }, [] { mix_reverbs<1><<<1056, 128>>>(reverb, A, C, 32, 32); }, C, 1056 * 128, false, [] {
    std::vector<float> v(1024);
    for (unsigned k = 0; k < 1024; ++k) v[k] = 0.03f * uniform(k);
    reverb = upload(v);
  }});
  cases.push_back({"score_patches", "shared_instruction_bound", "tensor_starved", [] { launch_product_in_tiles<0>(few, few + (1 << 23), C, 4096, 4096, 2048); }, [] { launch_product_in_tiles<1>(few, few + (1 << 23), C, 4096, 4096, 2048); }, C, 1 << 24, false, make_few});
  cases.push_back({"fuse_images", "no_overlap", "", [] {
    dynamic_shared(fuse_images<0>, 128 << 10);
    fuse_images<0><<<132, 256, 128 << 10>>>((float4*)A, C, 31);
  }, [] {
    dynamic_shared(fuse_images<1>, 128 << 10);
    fuse_images<1><<<132, 256, 128 << 10>>>((float4*)A, C, 31);
  }, C, 132 * 256});
  cases.push_back({"print_pages", "no_overlap", "", [] {
    dynamic_shared(print_pages<1>, PAGE * 16);
    print_pages<1><<<132, 512, PAGE * 16>>>((float4*)C, 16, 0.37f);
  }, [] {
    dynamic_shared(print_pages<2>, PAGE * 16);
    print_pages<2><<<132, 512, PAGE * 16>>>((float4*)C, 16, 0.37f);
  }, C, 132ll * 16 * PAGE * 4});
  cases.push_back({"dub_voices", "no_overlap", "tensor_starved", [] {
    dynamic_shared(dub_voices<1>, PACK * 4);
    dub_voices<1><<<dim3(16, 16), 288, PACK * 4>>>(packed, packed + 1024 * PACK, C, 64, 2048);
  }, [] {
    dynamic_shared(dub_voices<4>, PACK * 16);
    dub_voices<4><<<dim3(16, 16), 288, PACK * 16>>>(packed, packed + 1024 * PACK, C, 64, 2048);
  }, C, 1 << 22, false, [] {
    bf16* plain = converted<bf16>(A, 1 << 23, 0.25f);
    packed = device<bf16>(2048 * PACK);
    pack_voices<<<1056, 256>>>(plain, packed, 4096, 2048);
  }});
}
