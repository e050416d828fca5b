// Products, tiles and pipelines: weights, sketches, activations, whitening, motifs, promoters, paths, exposures, books.
#include "frame.h"

// ---- backprop_weights: the gradient of a layer, with two loads from global memory for each product; or tiles of 64 x 64; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) backprop_weights(const float* x, const float* dy, float* out, int samples, int wide, int high) {
  __shared__ __align__(16) float left[V == 0 ? 1 : 16][64], right[V == 0 ? 1 : 16][64];
  int t = threadIdx.x;
  if (V == 0) {
    int i = blockIdx.y, j = blockIdx.x * 256 + t;
    float s = 0;
#pragma unroll 4
    for (int n = 0; n < samples; ++n) s = fmaf(x[n * high + i], dy[n * wide + j], s);
    out[i * wide + j] = s;
    return;
  }
  int row = blockIdx.y * 64, column = blockIdx.x * 64, y = t / 16 * 4, c = t % 16 * 4;
  float s[4][4] = {};
#pragma unroll 1
  for (int n = 0; n < samples; n += 16) {
    float4 p = *(const float4*)&x[(n + t / 16) * high + row + c], q = *(const float4*)&dy[(n + t / 16) * wide + column + c];
    __syncthreads();
    *(float4*)&left[t / 16][c] = p, *(float4*)&right[t / 16][c] = q;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      float4 a = *(const float4*)&left[k][y], b = *(const float4*)&right[k][c];
      float u[4] = {a.x, a.y, a.z, a.w}, v[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] = fmaf(u[i / 4], v[i & 3], s[i / 4][i & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + y + i) * wide + column + c] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- compare_sketches: how many of 256 minima two sketches share, a pair a thread with two loads from global memory for each comparison; or tiles of 64 x 64 pairs; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) compare_sketches(const unsigned* p, const unsigned* q, int* out, int minima, int wide) {  // a row a minimum
  __shared__ __align__(16) unsigned left[V == 0 ? 1 : 16][64], right[V == 0 ? 1 : 16][64];
  int t = threadIdx.x;
  if (V == 0) {
    int i = blockIdx.y, j = blockIdx.x * 256 + t, s = 0;
#pragma unroll 4
    for (int n = 0; n < minima; ++n) s += (p[n * wide + i] ^ q[n * wide + j]) < 1 << 24;
    out[i * wide + j] = s;
    return;
  }
  int row = blockIdx.y * 64, column = blockIdx.x * 64, y = t / 16 * 4, c = t % 16 * 4, s[4][4] = {};
#pragma unroll 1
  for (int n = 0; n < minima; n += 16) {
    uint4 u = *(const uint4*)&p[(n + t / 16) * wide + row + c], v = *(const uint4*)&q[(n + t / 16) * wide + column + c];
    __syncthreads();
    *(uint4*)&left[t / 16][c] = u, *(uint4*)&right[t / 16][c] = v;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      uint4 a = *(const uint4*)&left[k][y], b = *(const uint4*)&right[k][c];
      unsigned m[4] = {a.x, a.y, a.z, a.w}, w[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i / 4][i & 3] += (m[i / 4] ^ w[i & 3]) < 1 << 24;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(int4*)&out[(row + y + i) * wide + column + c] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- compress_activations: tiles of 64 x 64 of BF16 in shared memory, multiplied on FP32 units; or by the fragments of wmma from the same tiles; expected 3 times
template <int V> __global__ void __launch_bounds__(256) compress_activations(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  __shared__ __align__(128) bf16 left[64][40], right[64][40];  // 32 of the depth
  namespace tensor = nvcuda::wmma;
  int t = threadIdx.x, warp = t / 32;
  i64 row = blockIdx.y * 64, column = blockIdx.x * 64;
  auto bring = [&](int k) {
    uint4 p = *(const uint4*)&x[(row + t / 4) * depth + k + (t & 3) * 8], q = *(const uint4*)&w[(column + t / 4) * depth + k + (t & 3) * 8];
    __syncthreads();
    *(uint4*)&left[t / 4][(t & 3) * 8] = p, *(uint4*)&right[t / 4][(t & 3) * 8] = q;
    __syncthreads();
  };
  if constexpr (V == 0) {
    float s[4][4] = {};
    int y = t / 16, c = t & 15;
#pragma unroll 1
    for (int k = 0; k < depth; k += 32) {
      bring(k);
#pragma unroll 1
      for (int j = 0; j < 32; j += 8) {
        uint4 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = *(const uint4*)&left[y + i * 16][j], b[i] = *(const uint4*)&right[c + i * 16][j];
        auto words = [&](unsigned u0, unsigned u1, unsigned u2, unsigned u3, unsigned v0, unsigned v1, unsigned v2, unsigned v3) {  // two of the depth
          unsigned u[4] = {u0, u1, u2, u3}, v[4] = {v0, v1, v2, v3};
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            unsigned p = u[i / 4], q = v[i & 3];
            s[i / 4][i & 3] = fmaf(__uint_as_float(p << 16), __uint_as_float(q << 16), s[i / 4][i & 3]);
            s[i / 4][i & 3] = fmaf(__uint_as_float(p & 0xffff0000u), __uint_as_float(q & 0xffff0000u), s[i / 4][i & 3]);
          }
        };
        words(a[0].x, a[1].x, a[2].x, a[3].x, b[0].x, b[1].x, b[2].x, b[3].x), words(a[0].y, a[1].y, a[2].y, a[3].y, b[0].y, b[1].y, b[2].y, b[3].y);
        words(a[0].z, a[1].z, a[2].z, a[3].z, b[0].z, b[1].z, b[2].z, b[3].z), words(a[0].w, a[1].w, a[2].w, a[3].w, b[0].w, b[1].w, b[2].w, b[3].w);
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) out[(row + y + i / 4 * 16) * columns + column + c + (i & 3) * 16] = s[i / 4][i & 3];
  } else {
    tensor::fragment<tensor::accumulator, 16, 16, 16, float> s[2];
    int y = warp / 2 * 16, c = (warp & 1) * 32;
    tensor::fill_fragment(s[0], 0.0f), tensor::fill_fragment(s[1], 0.0f);
#pragma unroll 1
    for (int k = 0; k < depth; k += 32) {
      bring(k);
#pragma unroll
      for (int j = 0; j < 32; j += 16) {
        tensor::fragment<tensor::matrix_a, 16, 16, 16, bf16, tensor::row_major> a;
        tensor::fragment<tensor::matrix_b, 16, 16, 16, bf16, tensor::col_major> b;
        tensor::load_matrix_sync(a, &left[y][j], 40);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          tensor::load_matrix_sync(b, &right[c + i * 16][j], 40);
          tensor::mma_sync(s[i], a, b, s[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) tensor::store_matrix_sync(&out[(row + y) * columns + column + c + i * 16], s[i], columns, tensor::mem_row_major);
  }
}
// ---- whiten_batches: a 16 x 16 matrix of BF16 for each batch of 128 vectors, applied a vector a lane on FP32 units, 16 times over; or on tensor cores; expected 3 times
template <int V> __global__ void __launch_bounds__(128) whiten_batches(const bf16* matrix, const bf16* vector, float* out, int rounds) {
  __shared__ __align__(16) float by[V == 0 ? 4 : 1][16][16];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = (lane & 3) * 2;
  const bf16 *m = matrix + T / 32 * 256, *from = vector + T / 32 * 512;  // 32 vectors a warp
  float* to = out + T / 32 * 512;
  if (V == 0) {
    for (int i = lane; i < 256; i += 32) by[warp][i / 16][i & 15] = __bfloat162float(m[i]);
    __syncwarp();
    float x[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) x[k] = __bfloat162float(from[lane * 16 + k]);
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
      asm volatile("" ::: "memory");  // 256 weights do not fit in registers
      float y[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float s = 0;
#pragma unroll
        for (int k = 0; k < 16; k += 4) {
          float4 v = *(const float4*)&by[warp][i][k];
          s = fmaf(v.x, x[k], fmaf(v.y, x[k + 1], fmaf(v.z, x[k + 2], fmaf(v.w, x[k + 3], s))));
        }
        y[i] = s;
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = __bfloat162float(__float2bfloat16(y[i]));
    }
#pragma unroll
    for (int k = 0; k < 16; ++k) to[lane * 16 + k] = x[k];
  } else {
    unsigned a[2][4], b[2][2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int k = 0; k < 4; ++k) a[h][k] = *(const unsigned*)&from[(h * 16 + g + (k & 1) * 8) * 16 + c + k / 2 * 8];
#pragma unroll
    for (int k = 0; k < 4; ++k) b[k / 2][k & 1] = *(const unsigned*)&m[(g + k / 2 * 8) * 16 + c + (k & 1) * 8];
    auto two = [](float x, float y) {
      __nv_bfloat162 v = __floats2bfloat162_rn(x, y);
      return *(unsigned*)&v;
    };
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float s[2][4] = {};
        tensor_step(s[0], a[h], b[0][0], b[0][1]), tensor_step(s[1], a[h], b[1][0], b[1][1]);
        a[h][0] = two(s[0][0], s[0][1]), a[h][1] = two(s[0][2], s[0][3]), a[h][2] = two(s[1][0], s[1][1]), a[h][3] = two(s[1][2], s[1][3]);
      }
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int k = 0; k < 4; ++k) *(float2*)&to[(h * 16 + g + (k & 1) * 8) * 16 + c + k / 2 * 8] = {__uint_as_float(a[h][k] << 16), __uint_as_float(a[h][k] & 0xffff0000u)};
  }
}
// ---- score_motifs: warps of 16 x 32 that read every fragment from global memory for two products each; or good_product of frame.h; expected 5 times
__global__ void __launch_bounds__(256) score_motifs(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = (lane & 3) * 2;
  const bf16 *p = x + (blockIdx.y * 64ll + warp / 2 * 16 + g) * depth + c, *q = w + (blockIdx.x * 64ll + (warp & 1) * 32 + g) * depth + c;
  float s[4][4] = {};
#pragma unroll 2
  for (int k = 0; k < depth; k += 16) {
    unsigned a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = *(const unsigned*)&p[(i & 1) * 8 * depth + k + i / 2 * 8];
#pragma unroll
    for (int j = 0; j < 4; ++j) tensor_step(s[j], a, *(const unsigned*)&q[j * 8 * depth + k], *(const unsigned*)&q[j * 8 * depth + k + 8]);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float* to = out + (blockIdx.y * 64ll + warp / 2 * 16 + g) * columns + blockIdx.x * 64 + (warp & 1) * 32 + j * 8 + c;
    *(float2*)to = {s[j][0], s[j][1]}, *(float2*)(to + 8 * columns) = {s[j][2], s[j][3]};
  }
}
// ---- scan_promoters: a place a thread, which reads 32 signals and 32 weights word by word from shared memory; or eight places and 32 weights in vectors; expected 4 times
template <int V> __global__ void __launch_bounds__(128) scan_promoters(const float* signal, const float* weight, float* out, int motifs) {  // 1,024 places a block
  __shared__ __align__(16) float of[1024 + 32], by[32];
  int t = threadIdx.x;
  for (int i = t; i < 1056; i += 128) of[i] = signal[blockIdx.x * 1024ll + i];
  float best[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) best[k] = -9e9f;
#pragma unroll 1
  for (int m = 0; m < motifs; ++m) {
    __syncthreads();
    if (t < 32) by[t] = weight[m * 32 + t];
    __syncthreads();
    if (V == 0) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        float s = 0;
        const volatile float *own = of + k * 128 + t, *w = by;
#pragma unroll
        for (int j = 0; j < 32; ++j) s = fmaf(own[j], w[j], s);
        best[k] = fmaxf(best[k], s);
      }
    } else {
      float s[8] = {}, x[12];
      const float* own = of + t * 8;
#pragma unroll
      for (int j = 0; j < 8; j += 4) *(float4*)&x[j] = *(const float4*)&own[j];
#pragma unroll
      for (int j = 0; j < 32; j += 4) {
        float4 w = *(const float4*)&by[j];
        *(float4*)&x[8] = *(const float4*)&own[j + 8];
#pragma unroll
        for (int k = 0; k < 8; ++k) s[k] = fmaf(x[k + 3], w.w, fmaf(x[k + 2], w.z, fmaf(x[k + 1], w.y, fmaf(x[k], w.x, s[k]))));
#pragma unroll
        for (int k = 0; k < 8; ++k) x[k] = x[k + 4];
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) best[k] = fmaxf(best[k], s[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) out[blockIdx.x * 1024ll + (V == 0 ? k * 128 + t : t * 8 + k)] = best[k];
}
// ---- clear_paths: the distance of each waypoint to 512 obstacles, whose four words a thread reads for one waypoint; or for eight; expected 2 times
template <int WAYS> __global__ void __launch_bounds__(128) clear_paths(const float* obstacle, const float* a, float* out) {
  __shared__ float of[4][512];
  for (int i = threadIdx.x; i < 2048; i += 128) of[i / 512][i & 511] = obstacle[i];
  __syncthreads();
  i64 first = blockIdx.x * (i64)(128 * WAYS) + threadIdx.x;
  float x[WAYS], y[WAYS], z[WAYS], least[WAYS];
#pragma unroll
  for (int k = 0; k < WAYS; ++k) x[k] = a[first + k * 128], y[k] = 1 - x[k] * x[k], z[k] = 0.3f * x[k], least[k] = 9e9f;
  const volatile float (*own)[512] = of;
#pragma unroll 4
  for (int n = 0; n < 512; ++n) {
    float u = own[0][n], v = own[1][n], w = own[2][n], r = own[3][n];
#pragma unroll
    for (int k = 0; k < WAYS; ++k) {
      float dx = x[k] - u, dy = y[k] - v, dz = z[k] - w;
      least[k] = fminf(least[k], fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, -0.01f * r))));
    }
  }
#pragma unroll
  for (int k = 0; k < WAYS; ++k) out[first + k * 128] = least[k];
}
// ---- blend_exposures: a block copies 32 kB asynchronously, waits for all of them, then works; or it copies the next 32 kB meanwhile; expected 1.6 times
template <int STAGES> __global__ void __launch_bounds__(256) blend_exposures(const float4* a, float* out, int tiles, int steps) {
  extern __shared__ __align__(128) float4 room[];
  int t = threadIdx.x;
  const float4* own = a + (i64)blockIdx.x * tiles * 2048;
  auto bring = [&](int n) {
    if (n < tiles)
#pragma unroll
      for (int k = 0; k < 8; ++k) __pipeline_memcpy_async(&room[n % STAGES * 2048 + k * 256 + t], &own[n * 2048 + k * 256 + t], 16);
    __pipeline_commit();
  };
  float all = 0;
  if (STAGES > 1) bring(0);
#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    bring(STAGES > 1 ? n + 1 : n);
    __pipeline_wait_prior(STAGES > 1 ? 1 : 0);
    __syncthreads();
    const float4* tile = room + n % STAGES * 2048;
#pragma unroll 1
    for (int k = 0; k < 8; ++k) {
      float4 v = tile[k * 256 + (t ^ 65)];
#pragma unroll 4
      for (int r = 0; r < steps; ++r) {
        v.x = fmaf(v.x, 0.9f, 0.01f * v.y), v.y = fmaf(v.y, 0.8f, 0.02f * v.z), v.z = fmaf(v.z, 0.7f, 0.03f * v.w), v.w = fmaf(v.w, 0.6f, 0.04f * v.x);
      }
      all += (v.x + v.y) + (v.z + v.w);
    }
    __syncthreads();
  }
  out[T] = all;
}
// ---- replay_books: one thread orders bulk copies of 24 kB for its block, into one place, so each is awaited; or into four places, ahead of use; expected 2 times
template <int STAGES> __global__ void __launch_bounds__(256) replay_books(const float4* a, float* out, int pieces) {
  extern __shared__ __align__(128) float4 room[];
  __shared__ u64 full[STAGES];
  constexpr int PIECE = 1536;  // of four floats
  int t = threadIdx.x;
  const float4* own = a + (i64)blockIdx.x * pieces * PIECE;
  if (t == 0) {
    for (int d = 0; d < STAGES; ++d) gate_open(&full[d], 1);
    gates_ready();
  }
  __syncthreads();
  auto bring = [&](int n) {
    if (t || n >= pieces) return;
    gate_bytes(&full[n % STAGES], PIECE * 16);
    bulk_in(room + n % STAGES * PIECE, own + (i64)n * PIECE, PIECE * 16, &full[n % STAGES]);
  };
  for (int n = 0; n < STAGES; ++n) bring(n);
  float bid = 0, ask = 0;
#pragma unroll 1
  for (int n = 0; n < pieces; ++n) {
    gate_pass(&full[n % STAGES], n / STAGES & 1);
    const float4* piece = room + n % STAGES * PIECE;
#pragma unroll 2
    for (int k = 0; k < 6; ++k) {
      float4 v = piece[k * 256 + t];
#pragma unroll
      for (int r = 0; r < 8; ++r) v.x = fmaf(v.x, 0.9f, 0.1f * v.y), v.z = fmaf(v.z, 0.8f, 0.2f * v.w);
      bid = fmaf(bid, 0.99f, v.x), ask = fmaxf(ask, v.z);
    }
    __syncthreads();
    bring(n + STAGES);
  }
  out[T] = bid + ask;
}

void product_cases() {
  static bf16* few;
  auto make_few = [] {
    if (!few) few = recoded<bf16>(A, 1 << 24, 0.25f);
  };
  static bf16* whitener;
  cases.push_back({"backprop_weights", "no_tile", "", [] { backprop_weights<0><<<dim3(4, 1024), 256>>>(A, B, C, 1024, 1024, 1024); }, [] { backprop_weights<1><<<dim3(16, 16), 256>>>(A, B, C, 1024, 1024, 1024); }, C, 1 << 20});
  cases.push_back({"compare_sketches", "no_tile", "", [] { compare_sketches<0><<<dim3(8, 2048), 256>>>((unsigned*)A, (unsigned*)B, (int*)C, 256, 2048); }, [] { compare_sketches<1><<<dim3(32, 32), 256>>>((unsigned*)A, (unsigned*)B, (int*)C, 256, 2048); }, C, 1 << 22, true});
  cases.push_back({"compress_activations", "fp32_for_matrix", "", [] { compress_activations<0><<<dim3(32, 32), 256>>>(few, few + (1 << 22), C, 1024, 2048); }, [] { compress_activations<1><<<dim3(32, 32), 256>>>(few, few + (1 << 22), C, 1024, 2048); }, C, 1 << 22, false, make_few});
  cases.push_back({"whiten_batches", "fp32_for_matrix", "shared_instruction_bound", [] { whiten_batches<0><<<2112, 128>>>(whitener, few, C, 48); }, [] { whiten_batches<1><<<2112, 128>>>(whitener, few, C, 48); }, C, 8448 * 512, false, [] {
    if (!few) few = recoded<bf16>(A, 1 << 24, 0.25f);
    std::vector<bf16> v(8448 * 256);
    for (unsigned r = 0; r < 8448; ++r)
      for (unsigned k = 0; k < 256; ++k) v[r * 256 + k] = __float2bfloat16(k / 16 == (k & 15) ? 1.0f : (share(r * 256 + k) > 0.5f ? 0.0078125f : -0.0078125f) * (k / 16 == ((k + 3) & 15) ? 1.0f : 0.0f));
    whitener = upload(v);
  }});
  cases.push_back({"score_motifs", "tensor_starved", "uncoalesced_loads|no_tile", [] { score_motifs<<<dim3(32, 64), 256>>>(few, few + (1 << 23), C, 1024, 2048); }, [] { launch_good_product(few, few + (1 << 23), C, 4096, 2048, 1024); }, C, 1 << 23, false, make_few});
  cases.push_back({"scan_promoters", "shared_instruction_bound", "", [] { scan_promoters<0><<<2112, 128>>>(A, B, C, 16); }, [] { scan_promoters<1><<<2112, 128>>>(A, B, C, 16); }, C, 2112 * 1024});
  cases.push_back({"clear_paths", "shared_instruction_bound", "", [] { clear_paths<1><<<8448, 128>>>(B, A, C); }, [] { clear_paths<8><<<1056, 128>>>(B, A, C); }, C, 8448 * 128});
  cases.push_back({"blend_exposures", "no_overlap", "", [] {
    dynamic_shared(blend_exposures<1>, 120 << 10);
    blend_exposures<1><<<132, 256, 120 << 10>>>((float4*)A, C, 48, 24);
  }, [] {
    dynamic_shared(blend_exposures<2>, 120 << 10);
    blend_exposures<2><<<132, 256, 120 << 10>>>((float4*)A, C, 48, 24);
  }, C, 132 * 256});
  cases.push_back({"replay_books", "no_overlap", "", [] {
    dynamic_shared(replay_books<1>, 120 << 10);
    replay_books<1><<<132, 256, 120 << 10>>>((float4*)A, C, 80);
  }, [] {
    dynamic_shared(replay_books<4>, 120 << 10);
    replay_books<4><<<132, 256, 120 << 10>>>((float4*)A, C, 80);
  }, C, 132 * 256});
}
