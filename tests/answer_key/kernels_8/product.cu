// Products, filters and pipelines: clusters, layers, prototypes, patches, attention, covariances, frames, tracks, strips.
#include "set.h"

using namespace nvcuda;
using bf16 = __nv_bfloat16;
__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- assign_clusters: coordinates of a point and of 64 centres come from global memory for each distance; or registers and shared memory; expected 4 times
constexpr int AXES = 32, CENTRES = 64, SAMPLES = 1 << 19;
template <int V> __global__ void __launch_bounds__(256) assign_clusters(const float* x, const float* centre, int* out, int axes) {
  __shared__ float4 c[V == 0 ? 1 : CENTRES * AXES / 4];
  float best = 1e30f, own[V == 0 ? 1 : AXES];
  int of = 0;
  if constexpr (V == 0) {
    for (int k = 0; k < CENTRES; ++k) {
      float s = 0;
#pragma unroll 4
      for (int d = 0; d < axes; ++d) {
        float apart = x[(i64)d * SAMPLES + T] - centre[k * axes + d];
        s = fmaf(apart, apart, s);
      }
      if (s < best) best = s, of = k;
    }
  } else {
    for (int i = threadIdx.x; i < CENTRES * AXES / 4; i += 256) c[i] = ((const float4*)centre)[i];
#pragma unroll
    for (int d = 0; d < AXES; ++d) own[d] = x[(i64)d * SAMPLES + T];
    __syncthreads();
    for (int k = 0; k < CENTRES; ++k) {
      float s = 0;
#pragma unroll
      for (int d = 0; d < AXES; d += 4) {
        float4 v = c[k * AXES / 4 + d / 4];
        float p = own[d] - v.x, q = own[d + 1] - v.y, r = own[d + 2] - v.z, t = own[d + 3] - v.w;
        s = fmaf(p, p, s), s = fmaf(q, q, s), s = fmaf(r, r, s), s = fmaf(t, t, s);
      }
      if (s < best) best = s, of = k;
    }
  }
  out[T] = of;
}
// ---- wave_layer: each output loads 160 samples and 160 weights from global memory; or four outputs by four channels a thread from tiles; expected 4 times
constexpr int IN = 32, TAPS = 5, OUT = 64, LONG = 1 << 16, PITCH = LONG + 256;
__global__ void __launch_bounds__(256) wave_layer(const float* x, const float* w, float* out) {
  int t = blockIdx.x * 256 + threadIdx.x, o = blockIdx.y;
  float s = 0;
  for (int c = 0; c < IN; ++c)
#pragma unroll
    for (int k = 0; k < TAPS; ++k) s = fmaf(x[c * PITCH + t + k], w[(o * IN + c) * TAPS + k], s);
  out[o * LONG + t] = s;
}
__global__ void __launch_bounds__(256) wave_layer_in_tiles(const float* x, const float* w, float* out) {  // a block 128 samples by 32 channels
  __shared__ __align__(16) float tile[IN][136], by[IN * TAPS][32];
  int first = blockIdx.x * 128, o = blockIdx.y * 32, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < IN * 132; i += 256) tile[i / 132][i % 132] = x[i / 132 * PITCH + first + i % 132];
  for (int i = threadIdx.x; i < IN * TAPS * 32; i += 256) by[i / 32][i & 31] = w[(o + (i & 31)) * IN * TAPS + i / 32];
  __syncthreads();
  float s[4][4] = {};
  for (int c = 0; c < IN; ++c)
#pragma unroll
    for (int k = 0; k < TAPS; ++k) {
      float4 v = *(const float4*)&by[c * TAPS + k][warp * 4];
      float ws[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float u = tile[c][j * 32 + lane + k];
#pragma unroll
        for (int i = 0; i < 4; ++i) s[i][j] = fmaf(u, ws[i], s[i][j]);
      }
    }
#pragma unroll
  for (int i = 0; i < 16; ++i) out[(o + warp * 4 + i / 4) * LONG + first + (i & 3) * 32 + lane] = s[i / 4][i & 3];
}
// ---- score_prototypes: a load from shared memory for each multiply-add; or for each four; expected 3 times
template <int EACH> __global__ void __launch_bounds__(256) score_prototypes(const float* x, const float* prototype, float* out, int n) {
  __shared__ float p[16][512];
  for (int i = threadIdx.x; i < 8192; i += 256) p[i / 512][i & 511] = prototype[i];
  __syncthreads();
  for (int i = (int)T; i * EACH < n; i += (int)STRIDE) {
    float v[EACH][16], best[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      best[e] = 0;
#pragma unroll
      for (int d = 0; d < 16; ++d) v[e][d] = x[d * n + e * (n / EACH) + i];
    }
#pragma unroll 1
    for (int k = 0; k < 512; ++k) {
      float s[EACH] = {};
#pragma unroll
      for (int d = 0; d < 16; ++d) {
        float by = p[d][k];
#pragma unroll
        for (int e = 0; e < EACH; ++e) s[e] = fmaf(v[e][d], by, s[e]);
      }
#pragma unroll
      for (int e = 0; e < EACH; ++e) best[e] = fmaxf(best[e], s[e]);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) out[e * (n / EACH) + i] = best[e];
  }
}
// ---- project_patches: FP16 operands multiplied by FP32 units in tiles of 64 x 64; or by tensor cores; expected 4 times
constexpr int M = 4096, K = 1024, COLUMNS = 2048;
__global__ void __launch_bounds__(256) project_patches(const __half* x, const __half* w, float* out) {
  __shared__ __align__(16) float left[16][68], right[16][68];
  int row = blockIdx.y * 64, column = blockIdx.x * 64, r = threadIdx.x / 16, c = threadIdx.x & 15;
  float s[4][4] = {};
  for (int k = 0; k < K; k += 16) {
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 256) {
      left[i & 15][i / 16] = __half2float(x[(row + i / 16) * K + k + (i & 15)]);
      right[i / 64][i & 63] = __half2float(w[(k + i / 64) * COLUMNS + column + (i & 63)]);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 p = *(const float4*)&left[j][r * 4], q = *(const float4*)&right[j][c * 4];
      float a[4] = {p.x, p.y, p.z, p.w}, b[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(a[i / 4], b[i & 3], s[i / 4][i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + r * 4 + i) * COLUMNS + column + c * 4] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
__global__ void __launch_bounds__(256) project_patches_in_tiles(const __half* x, const __half* w, float* out) {
  __shared__ __align__(32) __half left[2][128][48], right[2][32][144];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = warp / 2 * 32, c = (warp & 1) * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> s[2][4];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> p[2];
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> q;
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::fill_fragment(s[i / 4][i & 3], 0.0f);
  auto request = [&](int k, int to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int i = threadIdx.x + h * 256;
      __pipeline_memcpy_async(&left[to][i / 4][(i & 3) * 8], &x[(row + i / 4) * K + k + (i & 3) * 8], 16);
      __pipeline_memcpy_async(&right[to][i / 16][(i & 15) * 8], &w[(k + i / 16) * COLUMNS + column + (i & 15) * 8], 16);
    }
    __pipeline_commit();
  };
  request(0, 0);
  for (int k = 0; k < K; k += 32) {
    int now = k / 32 & 1;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (k + 32 < K) request(k + 32, now ^ 1);
#pragma unroll
    for (int j = 0; j < 32; j += 16) {
      wmma::load_matrix_sync(p[0], &left[now][y][j], 48), wmma::load_matrix_sync(p[1], &left[now][y + 16][j], 48);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wmma::load_matrix_sync(q, &right[now][j][c + i * 16], 144);
        wmma::mma_sync(s[0][i], p[0], q, s[0][i]), wmma::mma_sync(s[1][i], p[1], q, s[1][i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) wmma::store_matrix_sync(out + (row + y + i / 4 * 16) * COLUMNS + column + c + (i & 3) * 16, s[i / 4][i & 3], COLUMNS, wmma::mem_row_major);
}
__global__ void fill_half(const float* a, __half* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2half(a[i] - 0.25f);
}
__global__ void fill_queries(const float* a, bf16* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2bfloat16(a[i] - 0.25f);
}
// ---- attention_logits: rows of tiles are 128 bytes apart, so the eight rows of a fragment share banks; or 144 bytes; expected 2.5 times
constexpr int QUERIES = 4096, KEYS = 4096, DEPTH = 512;
template <int ROW> __global__ void __launch_bounds__(256, 2) attention_logits(const bf16* query, const bf16* key, float* out) {
  __shared__ __align__(16) bf16 left[128 * ROW], right[128 * ROW];
  int row = blockIdx.y * 128, column = blockIdx.x * 128, warp = threadIdx.x / 32, y = warp / 2 * 32, x = (warp & 1) * 64, g = threadIdx.x >> 2 & 7, t = (threadIdx.x & 3) * 2;
  float s[2][8][4] = {};
  for (int k = 0; k < DEPTH; k += 64) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      int i = threadIdx.x + h * 256, r = i / 8, c = (i & 7) * 8;
      __pipeline_memcpy_async(&left[r * ROW + c], &query[(row + r) * DEPTH + k + c], 16);
      __pipeline_memcpy_async(&right[r * ROW + c], &key[(column + r) * DEPTH + k + c], 16);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 64; j += 16) {
      unsigned a[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i / 4][i & 3] = *(const unsigned*)&left[(y + i / 4 * 16 + (i & 1) * 8 + g) * ROW + j + (i & 2) * 4 + t];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const bf16* from = &right[(x + n * 8 + g) * ROW + j + t];
        unsigned b0 = *(const unsigned*)from, b1 = *(const unsigned*)(from + 8);
#pragma unroll
        for (int m = 0; m < 2; ++m)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                       : "+f"(s[m][n][0]), "+f"(s[m][n][1]), "+f"(s[m][n][2]), "+f"(s[m][n][3])
                       : "r"(a[m][0]), "r"(a[m][1]), "r"(a[m][2]), "r"(a[m][3]), "r"(b0), "r"(b1));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float* to = &out[(row + y + i / 8 * 16 + g) * KEYS + column + x + (i & 7) * 8 + t];
    *(float2*)to = {s[i / 8][i & 7][0], s[i / 8][i & 7][1]}, *(float2*)(to + 8 * KEYS) = {s[i / 8][i & 7][2], s[i / 8][i & 7][3]};
  }
}
// ---- covariances_bf16: tensor cores whose fragments come from global memory for each product; or from tiles; expected 2.5 times
__global__ void __launch_bounds__(256) covariances_bf16(const bf16* query, const bf16* key, float* out) {  // a warp 16 x 32
  int tile = (int)(T / 32), row = tile / (KEYS / 32) * 16, column = tile % (KEYS / 32) * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> s[2];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> p;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::col_major> q[2];
  wmma::fill_fragment(s[0], 0.0f), wmma::fill_fragment(s[1], 0.0f);
  for (int k = 0; k < DEPTH; k += 16) {
    wmma::load_matrix_sync(p, query + row * DEPTH + k, DEPTH);
#pragma unroll
    for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(q[i], key + (column + i * 16) * DEPTH + k, DEPTH), wmma::mma_sync(s[i], p, q[i], s[i]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) wmma::store_matrix_sync(out + row * KEYS + column + i * 16, s[i], KEYS, wmma::mem_row_major);
}
// ---- spectra_of_frames: a block copies a tile of 96 kB, waits, computes, and only then copies the next; or one ahead; expected 1.6 times
constexpr int PART = 6144;  // of four floats
template <int AHEAD> __global__ void __launch_bounds__(512) spectra_of_frames(const float4* a, float4* out, int tiles) {
  extern __shared__ float4 stage[];
  auto request = [&](int t) {
    if (t < tiles)
#pragma unroll 4
      for (int i = threadIdx.x; i < PART; i += 512) __pipeline_memcpy_async(&stage[(t & 1) * PART + i], &a[((i64)t * gridDim.x + blockIdx.x) * PART + i], 16);
    __pipeline_commit();
  };
  float4 s = {0, 0, 0, 0};
  if (AHEAD) request(0);
  for (int t = 0; t < tiles; ++t) {
    request(t + AHEAD);
    __pipeline_wait_prior(AHEAD);
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < PART; i += 512) {
      float4 v = stage[(t & 1) * PART + i], p = v;
#pragma unroll
      for (int k = 0; k < 24; ++k) p.x = fmaf(p.x, v.y, 0.1f), p.y = fmaf(p.y, v.z, 0.1f), p.z = fmaf(p.z, v.w, 0.1f), p.w = fmaf(p.w, v.x, 0.1f);
      s.x += p.x, s.y += p.y, s.z += p.z, s.w += p.w;
    }
    __syncthreads();
  }
  out[T] = s;
}
// ---- resample_tracks: a warp that only loads fills one stage by bulk copies, so that it and the warps that compute take turns; or three stages; expected 1.6 times
constexpr int CHUNK = 16384;  // floats, 64 kB
template <int STAGES> __global__ void __launch_bounds__(288) resample_tracks(const float* a, float* out, int chunks) {
  extern __shared__ __align__(128) float room[];
  __shared__ u64 full[3], spent[3];
  int t = threadIdx.x;
  if (t == 0) {
    for (int d = 0; d < STAGES; ++d) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[d])) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 256;" ::"r"(place(&spent[d])) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto wait = [](u64* bar, int parity) {
    int seen = 0;
    while (!seen)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(seen) : "r"(place(bar)), "r"(parity) : "memory");
  };
  if (t >= 256) {
    if (t > 256) return;
    for (int n = 0; n < chunks; ++n) {
      int d = n % STAGES, turn = n / STAGES;
      if (turn) wait(&spent[d], (turn - 1) & 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&full[d])), "r"(CHUNK * 4) : "memory");
      for (int part = 0; part < 4; ++part)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(room + d * CHUNK + part * CHUNK / 4)), "l"(a + ((i64)n * gridDim.x + blockIdx.x) * CHUNK + part * CHUNK / 4), "r"(CHUNK), "r"(place(&full[d])) : "memory");
    }
    return;
  }
  float s = 0;
  for (int n = 0; n < chunks; ++n) {
    int d = n % STAGES;
    wait(&full[d], n / STAGES & 1);
    const float* own = room + d * CHUNK;
#pragma unroll 4
    for (int i = t; i < CHUNK; i += 256) {
      float v = own[i], p = v, q = 1 - v;
#pragma unroll
      for (int k = 0; k < 10; ++k) p = fmaf(p, v, 0.1f), q = fmaf(q, v, 0.2f);
      s += p * q;
    }
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place(&spent[d])) : "memory");
  }
  out[blockIdx.x * 256 + t] = s;
}

void product_cases() {
  static __half* patches;
  static bf16* tokens;
  auto fill_tokens = [] {
    tokens = device<bf16>((QUERIES + KEYS) * DEPTH);
    fill_queries<<<1056, 256>>>(A, tokens, (QUERIES + KEYS) * DEPTH);
  };
  cases.push_back({"assign_clusters", "no_tile", "", [] { assign_clusters<0><<<SAMPLES / 256, 256>>>(A, B, (int*)C, AXES); }, [] { assign_clusters<1><<<SAMPLES / 256, 256>>>(A, B, (int*)C, AXES); }, C, SAMPLES, true});
  cases.push_back({"wave_layer", "no_tile", "", [] { wave_layer<<<dim3(LONG / 256, OUT), 256>>>(A, B, C); }, [] { wave_layer_in_tiles<<<dim3(LONG / 128, OUT / 32), 256>>>(A, B, C); }, C, LONG * OUT});
  cases.push_back({"score_prototypes", "shared_instruction_bound", "", [] { score_prototypes<1><<<2048, 256>>>(A, B, C, 1 << 19); }, [] { score_prototypes<4><<<512, 256>>>(A, B, C, 1 << 19); }, C, 1 << 19});
  cases.push_back({"project_patches", "fp32_for_matrix", "", [] { project_patches<<<dim3(COLUMNS / 64, M / 64), 256>>>(patches, patches + M * K, C); }, [] { project_patches_in_tiles<<<dim3(COLUMNS / 128, M / 128), 256>>>(patches, patches + M * K, C); }, C, M * COLUMNS, false, [] {
    patches = device<__half>((M + COLUMNS) * K);
    fill_half<<<1056, 256>>>(A, patches, (M + COLUMNS) * K);
  }});
  cases.push_back({"attention_logits", "shared_bank_conflicts", "", [] { attention_logits<64><<<dim3(KEYS / 128, QUERIES / 128), 256>>>(tokens, tokens + QUERIES * DEPTH, C); }, [] { attention_logits<72><<<dim3(KEYS / 128, QUERIES / 128), 256>>>(tokens, tokens + QUERIES * DEPTH, C); }, C, QUERIES * KEYS, false, fill_tokens});
  cases.push_back({"covariances_bf16", "tensor_starved", "no_tile", [] { covariances_bf16<<<QUERIES / 16 * KEYS / 32 / 8, 256>>>(tokens, tokens + QUERIES * DEPTH, C); }, [] { attention_logits<72><<<dim3(KEYS / 128, QUERIES / 128), 256>>>(tokens, tokens + QUERIES * DEPTH, C); }, C, QUERIES * KEYS, false, fill_tokens});
  cases.push_back({"spectra_of_frames", "no_overlap", "", [] { spectra_of_frames<0><<<132, 512, PART * 32>>>((float4*)A, (float4*)C, 20); }, [] { spectra_of_frames<1><<<132, 512, PART * 32>>>((float4*)A, (float4*)C, 20); }, C, 132 * 2048, false, [] { dynamic_shared(spectra_of_frames<0>, PART * 32), dynamic_shared(spectra_of_frames<1>, PART * 32); }});
  cases.push_back({"resample_tracks", "no_overlap", "", [] { resample_tracks<1><<<132, 288, CHUNK * 12>>>(A, C, 30); }, [] { resample_tracks<3><<<132, 288, CHUNK * 12>>>(A, C, 30); }, C, 132 * 256, false, [] { dynamic_shared(resample_tracks<1>, CHUNK * 12), dynamic_shared(resample_tracks<3>, CHUNK * 12); }});
}
