// Products, filters and pipelines: drugs, cells, cracks, profiles, blobs, clouds, orbitals, pulses, hydrophones.
#include "set.h"

__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Tiles of 64 x 64 by four warps on tensor cores, copied ahead: x row by row, w column by column
template <int PITCH> __global__ void __launch_bounds__(128) score_drugs(const __half* x, const __half* w, float* out, int depth, int columns) {
  __shared__ __align__(128) __half left[2][64][PITCH], right[2][64][PITCH];
  int t = threadIdx.x, lane = t & 31, warp = t / 32, row = blockIdx.y * 64, column = blockIdx.x * 64, y = warp / 2 * 32, c = (warp & 1) * 32;
  float s[2][4][4] = {};
  auto request = [&](int k, int to) {
#pragma unroll
    for (int i = t; i < 512; i += 128) {
      __pipeline_memcpy_async(&left[to][i / 8][(i & 7) * 8], &x[(row + i / 8) * depth + k + (i & 7) * 8], 16);
      __pipeline_memcpy_async(&right[to][i / 8][(i & 7) * 8], &w[(column + i / 8) * depth + k + (i & 7) * 8], 16);
    }
    __pipeline_commit();
  };
  auto four = [](unsigned (&v)[4], const __half* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(place(from)) : "memory");
  };
  request(0, 0);
  for (int k = 0; k < depth; k += 64) {
    int now = k / 64 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 64 < depth) request(k + 64, now ^ 1);
#pragma unroll
    for (int j = 0; j < 64; j += 16) {
      unsigned p[2][4], q[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        four(p[i], &left[now][y + i * 16 + (lane & 15)][j + lane / 16 * 8]);
        four(q[i], &right[now][c + i * 16 + lane / 16 * 8 + (lane & 7)][j + (lane / 8 & 1) * 8]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int n = 0; n < 4; ++n)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                       : "+f"(s[i][n][0]), "+f"(s[i][n][1]), "+f"(s[i][n][2]), "+f"(s[i][n][3])
                       : "r"(p[i][0]), "r"(p[i][1]), "r"(p[i][2]), "r"(p[i][3]), "r"(q[n / 2][(n & 1) * 2]), "r"(q[n / 2][(n & 1) * 2 + 1]));
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float* to = out + (row + y + i * 16 + lane / 4) * columns + column + c + n * 8 + (lane & 3) * 2;
      *(float2*)to = {s[i][n][0], s[i][n][1]}, *(float2*)(to + 8 * columns) = {s[i][n][2], s[i][n][3]};
    }
}
// ---- score_drugs: rows of 128 bytes in shared memory, so the eight rows that tensor cores read at once lie in the same banks; or of 144; expected 3 times
// ---- project_clouds: operands of 16 bits on FP32 units, in tiles of 64 x 64; or on tensor cores, as above; expected 3.5 times
__global__ void __launch_bounds__(256) project_clouds(const __half* x, const __half* w, float* out, int depth, int columns) {
  __shared__ __align__(16) float left[16][68], right[16][68];
  int row = blockIdx.y * 64, column = blockIdx.x * 64, r = threadIdx.x / 16, c = threadIdx.x & 15, at = threadIdx.x / 4, to = (threadIdx.x & 3) * 4;
  float s[4][4] = {};
  for (int k = 0; k < depth; k += 16) {
    uint2 p = *(const uint2*)&x[(row + at) * depth + k + to], q = *(const uint2*)&w[(column + at) * depth + k + to];
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 4; ++h) left[to + h][at] = __half2float(((const __half*)&p)[h]), right[to + h][at] = __half2float(((const __half*)&q)[h]);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 u = *(const float4*)&left[j][r * 4], v = *(const float4*)&right[j][c * 4];
      float a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(a[i / 4], b[i & 3], s[i / 4][i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + r * 4 + i) * columns + column + c * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- distances_of_cells: the greatest difference of two cells' genes, with two loads from global memory a gene; or tiles in shared memory and 16 outputs a thread; expected 3 times
template <int V> __global__ void __launch_bounds__(256) distances_of_cells(const float* x, const float* w, float* out, int depth, int columns) {
  if constexpr (V == 0) {
    int column = blockIdx.x * 32 + (threadIdx.x & 31), row = blockIdx.y * 8 + threadIdx.x / 32;
    float s = 0;
#pragma unroll 8
    for (int k = 0; k < depth; ++k) s = fmaxf(s, fabsf(x[row * depth + k] - w[k * columns + column]));
    out[row * columns + column] = s;
  } else {
    __shared__ __align__(16) float left[16][68], right[16][68];
    int row = blockIdx.y * 64, column = blockIdx.x * 64, r = threadIdx.x / 16, c = threadIdx.x & 15, at = threadIdx.x / 4, to = (threadIdx.x & 3) * 4;
    float s[4][4] = {};
    for (int k = 0; k < depth; k += 16) {
      float4 p = *(const float4*)&x[(row + at) * depth + k + to], q = *(const float4*)&w[(k + r) * columns + column + c * 4];
      __syncthreads();
      left[to][at] = p.x, left[to + 1][at] = p.y, left[to + 2][at] = p.z, left[to + 3][at] = p.w, *(float4*)&right[r][c * 4] = q;
      __syncthreads();
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        float4 u = *(const float4*)&left[j][r * 4], v = *(const float4*)&right[j][c * 4];
        float a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaxf(s[i / 4][i & 3], fabsf(a[i / 4] - b[i & 3]));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) *(float4*)&out[(row + r * 4 + i) * columns + column + c * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
  }
}
// ---- detect_cracks: 3 x 3 pixels of 16 channels, loaded again for each of 16 filters; or once for all 16, and two pixels a thread; expected 3 times
constexpr int SIDE = 1024, PITCHED = 1056, LAYER = PITCHED * 1026;
template <int V> __global__ void __launch_bounds__(256) detect_cracks(const float* image, const float* weight, float* out) {
  __shared__ __align__(16) float all[V == 0 ? 144 : 2304];  // channel, tap, filter
  const int filters = V == 0 ? 1 : 16, pixels = V == 0 ? 1 : 2;
  for (int i = threadIdx.x; i < 144 * filters; i += 256) all[i] = V == 0 ? weight[i * 16 + blockIdx.z] : weight[i];
  __syncthreads();
  int x = blockIdx.x * 32 * pixels + (threadIdx.x & 31), y = blockIdx.y * 8 + threadIdx.x / 32;
  float s[pixels][filters] = {};
#pragma unroll 1
  for (int c = 0; c < 16; ++c)
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      const float *from = image + c * LAYER + (y + tap / 3) * PITCHED + x + tap % 3, *by = all + (c * 9 + tap) * filters;
      float v[pixels];
#pragma unroll
      for (int p = 0; p < pixels; ++p) v[p] = from[p * 32];
#pragma unroll
      for (int f = 0; f < filters; ++f) {
        float w = by[f];
#pragma unroll
        for (int p = 0; p < pixels; ++p) s[p][f] = fmaf(w, v[p], s[p][f]);
      }
    }
#pragma unroll
  for (int p = 0; p < pixels; ++p)
#pragma unroll
    for (int f = 0; f < filters; ++f) out[((V == 0 ? blockIdx.z : f) * SIDE + y) * SIDE + x + p * 32] = s[p][f];
}
// ---- erode_profiles: the least of 33 samples, each read from shared memory for each output; or nine vectors for four outputs; expected 2 times
template <int V> __global__ void __launch_bounds__(256) erode_profiles(const float4* a, float* out) {
  __shared__ __align__(16) float room[1024 + 32];
  int t = threadIdx.x;
  ((float4*)room)[t] = a[blockIdx.x * 256ll + t];
  if (t < 8) ((float4*)room)[256 + t] = a[blockIdx.x * 256ll + 256 + t];
  __syncthreads();
  float* to = out + blockIdx.x * 1024ll;
  if (V == 0) {
#pragma unroll 1
    for (int r = t; r < 1024; r += 256) {
      float least = room[r];
#pragma unroll
      for (int k = 1; k < 33; ++k) least = fminf(least, room[r + k]);
      to[r] = least;
    }
  } else {
    float v[36], inner;
#pragma unroll
    for (int k = 0; k < 9; ++k) *(float4*)&v[k * 4] = ((const float4*)room)[t + k];
    inner = v[3];
#pragma unroll
    for (int k = 4; k < 33; ++k) inner = fminf(inner, v[k]);
    float early = fminf(inner, v[2]), late = fminf(inner, v[33]);
    ((float4*)to)[t] = {fminf(early, fminf(v[0], v[1])), fminf(early, fminf(v[1], v[33])), fminf(early, fminf(v[33], v[34])), fminf(late, fminf(v[34], v[35]))};
  }
}
// ---- render_blobs: six words of shared memory for each blob of a list and each pixel; or for each blob and four pixels; expected 2 times
struct Blob {
  float x, y, wide, high, colour;
};
template <int PIXELS> __global__ void __launch_bounds__(256) render_blobs(const Blob* blob, const int* order, float* out, int blobs) {
  __shared__ Blob all[256];
  __shared__ int which[256];
  if ((int)threadIdx.x < blobs) all[threadIdx.x] = blob[threadIdx.x], which[threadIdx.x] = order[threadIdx.x];
  __syncthreads();
  int first = blockIdx.x * 256 * PIXELS + threadIdx.x;
  float s[PIXELS] = {};
#pragma unroll 4
  for (int b = 0; b < blobs; ++b) {
    Blob own = all[which[b]];
#pragma unroll
    for (int p = 0; p < PIXELS; ++p) {
      int i = first + p * 256;
      float x = (float)(i & 1023) * 0x1p-10f - own.x, y = (float)(i >> 10) * 0x1p-10f - own.y, d = fmaxf(fmaf(-own.wide, x * x, fmaf(-own.high, y * y, 1.0f)), 0.0f);
      s[p] = fmaf(own.colour, d * d, s[p]);
    }
  }
#pragma unroll
  for (int p = 0; p < PIXELS; ++p) out[first + p * 256] = s[p];
}
// FP64 tensor cores: a tile of 8 x 8, four deep
__device__ inline void multiply(double (&s)[2], double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(s[0]), "+d"(s[1]) : "d"(a), "d"(b));
}
// ---- project_orbitals: FP64 tensor cores fed from global memory, one tile of 8 x 8 a warp; or tiles of 64 x 64 in shared memory, eight tiles a warp; expected 2.5 times
__global__ void __launch_bounds__(256) project_orbitals(const double* x, const double* w, float* out, int depth, int columns) {
  int lane = threadIdx.x & 31, warp = (int)(T / 32), row = warp / (columns / 8) * 8, column = warp % (columns / 8) * 8;
  double s[2] = {};
#pragma unroll 4
  for (int k = 0; k < depth; k += 4) multiply(s, x[(row + lane / 4) * depth + k + (lane & 3)], w[(k + (lane & 3)) * columns + column + lane / 4]);
  *(float2*)&out[(row + lane / 4) * columns + column + (lane & 3) * 2] = {(float)s[0], (float)s[1]};
}
__global__ void __launch_bounds__(256) orbitals_in_tiles(const double* x, const double* w, float* out, int depth, int columns) {
  __shared__ double left[64][20], right[16][68];
  int t = threadIdx.x, lane = t & 31, warp = t / 32, row = blockIdx.y * 64, column = blockIdx.x * 64, y = warp / 4 * 32, c = (warp & 3) * 16;
  double s[4][2][2] = {}, p[4], q[4];
  auto fetch = [&](int k) {
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      int i = t + h * 256;
      p[h] = x[(row + i / 16) * depth + k + (i & 15)], q[h] = w[(k + i / 64) * columns + column + (i & 63)];
    }
  };
  fetch(0);
  for (int k = 0; k < depth; k += 16) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      int i = t + h * 256;
      left[i / 16][i & 15] = p[h], right[i / 64][i & 63] = q[h];
    }
    __syncthreads();
    if (k + 16 < depth) fetch(k + 16);
#pragma unroll
    for (int j = 0; j < 16; j += 4) {
      double a[4], b[2];
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = left[y + i * 8 + lane / 4][j + (lane & 3)];
#pragma unroll
      for (int n = 0; n < 2; ++n) b[n] = right[j + (lane & 3)][c + n * 8 + lane / 4];
#pragma unroll
      for (int i = 0; i < 8; ++i) multiply(s[i / 2][i & 1], a[i / 2], b[i & 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) *(float2*)&out[(row + y + i / 2 * 8 + lane / 4) * columns + column + c + (i & 1) * 8 + (lane & 3) * 2] = {(float)s[i / 2][i & 1][0], (float)s[i / 2][i & 1][1]};
}
__global__ void widen_values(const float* a, double* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = (double)a[i] - 0.25;
}
__global__ void halve_values(const float* a, __half* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = __float2half(a[i] - 0.25f);
}
// Barriers in shared memory and bulk copies
__device__ inline void expect(u64* bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place(bar)), "r"(count) : "memory"); }
__device__ inline void arrive(u64* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place(bar)) : "memory"); }
__device__ inline void wait(u64* bar, int parity) {
  int seen = 0;
  while (!seen)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(bar)), "r"(parity) : "memory");
}
__device__ inline void copy_bulk(void* to, const void* from, int bytes, u64* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(bar)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(to)), "l"(from), "r"(bytes), "r"(place(bar)) : "memory");
}
__device__ inline float filtered(float4 v, int taps) {
  float p[4] = {v.x, v.y, v.z, v.w};
#pragma unroll 8
  for (int k = 0; k < taps; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j) p[j] = fmaf(p[j], 0.6f, v.x);
  return (p[0] + p[1]) + (p[2] + p[3]);
}
// ---- compress_pulses: a bulk copy of 48 kB, a wait, then work on it; or three such buffers; expected 1.8 times
constexpr int PULSE = 3072;  // of four floats
template <int STAGES> __global__ void __launch_bounds__(512) compress_pulses(const float4* a, float* out, int pulses) {
  extern __shared__ __align__(128) float4 room[];
  __shared__ u64 full[STAGES];
  int t = threadIdx.x;
  if (t == 0) {
    for (int d = 0; d < STAGES; ++d) expect(&full[d], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto request = [&](int n) {
    if (t == 0 && n < pulses) copy_bulk(room + n % STAGES * PULSE, a + ((i64)n * gridDim.x + blockIdx.x) * PULSE, PULSE * 16, &full[n % STAGES]);
  };
  float s = 0;
  for (int n = 0; n < STAGES; ++n) request(n);
  for (int n = 0; n < pulses; ++n) {
    wait(&full[n % STAGES], n / STAGES & 1);
    const float4* own = room + n % STAGES * PULSE;
#pragma unroll 2
    for (int i = t; i < PULSE; i += 512) s += filtered(own[i], 32);
    __syncthreads();
    request(n + STAGES);
  }
  out[T] = s;
}
// ---- form_beams: one warp copies 32 kB in bulk for eight that compute, and all share one buffer; or four buffers; expected 2 times
constexpr int PING = 2048;  // of four floats
template <int STAGES> __global__ void __launch_bounds__(288) form_beams(const float4* a, float* out, int pings) {
  extern __shared__ __align__(128) float4 room[];
  __shared__ u64 full[STAGES], empty[STAGES];
  int t = threadIdx.x;
  if (t == 0) {
    for (int d = 0; d < STAGES; ++d) expect(&full[d], 1), expect(&empty[d], 8);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (t >= 256) {
    if (t == 256)
      for (int n = 0; n < pings; ++n) {
        if (n >= STAGES) wait(&empty[n % STAGES], n / STAGES - 1 & 1);
        copy_bulk(room + n % STAGES * PING, a + ((i64)n * gridDim.x + blockIdx.x) * PING, PING * 16, &full[n % STAGES]);
      }
    return;
  }
  float s = 0;
  for (int n = 0; n < pings; ++n) {
    wait(&full[n % STAGES], n / STAGES & 1);
    const float4* own = room + n % STAGES * PING;
#pragma unroll 2
    for (int i = t; i < PING; i += 256) s += filtered(own[i], 32);
    __syncwarp();
    if ((t & 31) == 0) arrive(&empty[n % STAGES]);
  }
  out[blockIdx.x * 256 + t] = s;
}

void product_cases() {
  static __half* halves;
  static double* doubles;
  static float* weights;
  static Blob* blobs;
  static int* order;
  auto make_halves = [] {
    if (halves) return;
    halves = device<__half>(1 << 23);
    halve_values<<<1056, 256>>>(A, halves, 1 << 23);
  };
  cases.push_back({"score_drugs", "shared_bank_conflicts", "", [] { score_drugs<64><<<dim3(32, 32), 128>>>(halves, halves + (1 << 22), C, 1024, 2048); }, [] { score_drugs<72><<<dim3(32, 32), 128>>>(halves, halves + (1 << 22), C, 1024, 2048); }, C, 1 << 22, false, make_halves});
  cases.push_back({"project_clouds", "fp32_for_matrix", "", [] { project_clouds<<<dim3(32, 32), 256>>>(halves, halves + (1 << 22), C, 1024, 2048); }, [] { score_drugs<72><<<dim3(32, 32), 128>>>(halves, halves + (1 << 22), C, 1024, 2048); }, C, 1 << 22, false, make_halves});
  cases.push_back({"distances_of_cells", "no_tile", "", [] { distances_of_cells<0><<<dim3(64, 256), 256>>>(A, B, C, 256, 2048); }, [] { distances_of_cells<1><<<dim3(32, 32), 256>>>(A, B, C, 256, 2048); }, C, 1 << 22});
  cases.push_back({"detect_cracks", "no_tile", "", [] { detect_cracks<0><<<dim3(32, 128, 16), 256>>>(A, weights, C); }, [] { detect_cracks<1><<<dim3(16, 128), 256>>>(A, weights, C); }, C, SIDE * SIDE * 16, false, [] {
    std::vector<float> v(2304);
    for (int k = 0; k < 2304; ++k) v[k] = (float)(mix((unsigned)k) >> 8) * 0x1p-24f - 0.4f;
    weights = upload(v);
  }});
  cases.push_back({"erode_profiles", "shared_instruction_bound", "", [] { erode_profiles<0><<<16384, 256>>>((float4*)A, C); }, [] { erode_profiles<1><<<16384, 256>>>((float4*)A, C); }, C, 1 << 24});
  cases.push_back({"render_blobs", "shared_instruction_bound", "", [] { render_blobs<1><<<4096, 256>>>(blobs, order, C, 256); }, [] { render_blobs<4><<<1024, 256>>>(blobs, order, C, 256); }, C, 1 << 20, false, [] {
    std::vector<Blob> v(256);
    std::vector<int> list(256);
    auto of = [](int k) { return (float)(mix((unsigned)k) >> 8) * 0x1p-24f; };
    for (int k = 0; k < 256; ++k) v[k] = {of(k * 5), of(k * 5 + 1), 20 + 60 * of(k * 5 + 2), 20 + 60 * of(k * 5 + 3), of(k * 5 + 4)}, list[k] = k * 77 & 255;
    blobs = upload(v), order = upload(list);
  }});
  cases.push_back({"project_orbitals", "tensor_starved", "no_tile", [] { project_orbitals<<<2048, 256>>>(doubles, doubles + (1 << 20), C, 1024, 1024); }, [] { orbitals_in_tiles<<<dim3(16, 16), 256>>>(doubles, doubles + (1 << 20), C, 1024, 1024); }, C, 1 << 20, false, [] {
    doubles = device<double>(1 << 21);
    widen_values<<<1056, 256>>>(A, doubles, 1 << 21);
  }});
  cases.push_back({"compress_pulses", "no_overlap", "", [] {
    dynamic_shared(compress_pulses<1>, PULSE * 16);
    compress_pulses<1><<<132, 512, PULSE * 16>>>((float4*)A, C, 40);
  }, [] {
    dynamic_shared(compress_pulses<3>, PULSE * 48);
    compress_pulses<3><<<132, 512, PULSE * 48>>>((float4*)A, C, 40);
  }, C, 132 * 512});
  cases.push_back({"form_beams", "no_overlap", "", [] {
    dynamic_shared(form_beams<1>, PING * 16);
    form_beams<1><<<132, 288, PING * 16>>>((float4*)A, C, 60);
  }, [] {
    dynamic_shared(form_beams<4>, PING * 64);
    form_beams<4><<<132, 288, PING * 64>>>((float4*)A, C, 60);
  }, C, 132 * 256});
}
