// Products, tiles and pipelines: teachers, pipes, heads, values, signals, experts, molecules, states, orbits.
#include "frame.h"

// A tile of 128 x 128 of the product of x and w, both row by row along the depth, by eight warps of 32 x 64. Slices of 32 of the depth arrive
// asynchronously in STAGES places: with one place, a slice is asked for when the last one is used up. SUM adds to what is there.
const int SLICE = 2 * 128 * 40;
template <int STAGES, int SUM> static __global__ void __launch_bounds__(256, 1) tiles_of_product(const bf16* x, const bf16* w, float* out, int depth, int span, int columns, i64 step_x, i64 step_w, i64 step_out) {
  extern __shared__ __align__(128) unsigned char memory[];
  bf16* room = (bf16*)memory;
  int t = threadIdx.x, lane = t & 31, warp = t / 32, top = warp % 4 * 32, left = warp / 4 * 64;
  const bf16 *p = x + blockIdx.z * step_x + (i64)blockIdx.y * 128 * depth, *q = w + blockIdx.z * step_w + (i64)blockIdx.x * 128 * depth;
  float* to = out + blockIdx.z * step_out + (i64)blockIdx.y * 128 * columns + blockIdx.x * 128;
  int slices = span / 32;
  auto ask = [&](int n) {
    if (n < slices) {
      bf16* slot = room + n % STAGES * SLICE;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        int row = t / 4 + h * 64, k = (t & 3) * 8;
        __pipeline_memcpy_async(slot + row * 40 + k, p + (i64)row * depth + n * 32 + k, 16);
        __pipeline_memcpy_async(slot + (128 + row) * 40 + k, q + (i64)row * depth + n * 32 + k, 16);
      }
    }
    __pipeline_commit();
  };
  float s[2][8][4] = {};
#pragma unroll
  for (int n = 0; n < STAGES - 1; ++n) ask(n);
#pragma unroll 1
  for (int n = 0; n < slices; ++n) {
    if (STAGES == 1) __syncthreads(), ask(n), __pipeline_wait_prior(0);
    else __pipeline_wait_prior(STAGES > 1 ? STAGES - 2 : 0);
    __syncthreads();
    if (STAGES > 1) ask(n + STAGES - 1);
    const bf16* slot = room + n % STAGES * SLICE;
#pragma unroll
    for (int k = 0; k < 32; k += 16) {
      unsigned a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) take_pieces(a[i], slot + (top + i * 16 + (lane & 15)) * 40 + k + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        unsigned b[4];
        take_pieces(b, slot + (128 + left + j * 16 + (lane & 7) + lane / 16 * 8) * 40 + k + (lane >> 3 & 1) * 8);
#pragma unroll
        for (int i = 0; i < 2; ++i) tensor_add(s[i][j * 2], a[i], b[0], b[1]), tensor_add(s[i][j * 2 + 1], a[i], b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* at = to + (i64)(top + i * 16 + lane / 4 + h * 8) * columns + left + j * 8 + (lane & 3) * 2;
        if (SUM) atomicAdd(at, s[i][j][h * 2]), atomicAdd(at + 1, s[i][j][h * 2 + 1]);
        else *(float2*)at = {s[i][j][h * 2], s[i][j][h * 2 + 1]};
      }
}
template <int STAGES, int SUM> void multiply_tiles(dim3 grid, const bf16* x, const bf16* w, float* out, int depth, int span, int columns, i64 step_x = 0, i64 step_w = 0, i64 step_out = 0) {
  dynamic_shared(tiles_of_product<STAGES, SUM>, STAGES * SLICE * 2);
  tiles_of_product<STAGES, SUM><<<grid, 256, STAGES * SLICE * 2>>>(x, w, out, depth, span, columns, step_x, step_w, step_out);
}
// ---- distil_teachers: 128 x 256 outputs of a depth of 16,384 in two blocks; or the depth in 64 parts; expected 6 times: tiles_of_product
// ---- widest_pipes: the greatest of least capacities over 1,024 middles, with two loads from global memory for each; or tiles of 64 x 64; expected 2 times
constexpr int TOWNS = 1024;
template <int V> __global__ void __launch_bounds__(256) widest_pipes(const float* first, const float* second, float* out) {
  __shared__ __align__(16) float from[V == 0 ? 1 : 16][68], to[V == 0 ? 1 : 16][64];
  int t = threadIdx.x;
  if (V == 0) {
    int i = blockIdx.y, j = blockIdx.x * 256 + t;
    float s = 0;
#pragma unroll 8
    for (int k = 0; k < TOWNS; ++k) s = fmaxf(s, fminf(first[i * TOWNS + k], second[k * TOWNS + j]));
    out[i * TOWNS + j] = s;
    return;
  }
  int y = t / 16 * 4, x = t % 16 * 4, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float s[4][4] = {};
#pragma unroll 1
  for (int k = 0; k < TOWNS; k += 16) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      int i = h * 256 + t;
      from[i & 15][i / 16] = first[(row + i / 16) * TOWNS + k + (i & 15)], to[i / 64][i & 63] = second[(k + i / 64) * TOWNS + column + (i & 63)];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float4 u = *(float4*)&from[j][y], v = *(float4*)&to[j][x];
      float p[4] = {u.x, u.y, u.z, u.w}, q[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int n = 0; n < 16; ++n) s[n / 4][n & 3] = fmaxf(s[n / 4][n & 3], fminf(p[n / 4], q[n & 3]));
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[(row + y + i) * TOWNS + column + x] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- whiten_heads: a matrix of 64 x 64 for each of 16 heads, with two loads from global memory for each product; or 64 tokens of a head in shared memory; expected 3 times
constexpr int SPOKEN_TOKENS = 8192;
template <int V> __global__ void __launch_bounds__(256) whiten_heads(const float* x, const float* matrix, float* out) {  // x and out: a token, a head, 64 numbers
  __shared__ __align__(16) float by[V == 0 ? 1 : 64][64], room[V == 0 ? 1 : 64][68];
  int t = threadIdx.x, head = blockIdx.y;
  const float* m = matrix + head * 4096;
  if (V == 0) {
    int d = t & 63;
    i64 row = ((blockIdx.x * 4ll + t / 64) * 16 + head) * 64;
    float s = 0;
#pragma unroll 8
    for (int k = 0; k < 64; ++k) s = fmaf(x[row + k], m[k * 64 + d], s);
    out[row + d] = s;
    return;
  }
  i64 first = (blockIdx.x * 64ll * 16 + head) * 64;
#pragma unroll
  for (int h = 0; h < 4; ++h) {
    int i = h * 256 + t, row = i / 16, k = (i & 15) * 4;
    *(float4*)&by[row][k] = *(const float4*)&m[row * 64 + k];
    float4 v = *(const float4*)&x[first + row * 1024 + k];
    room[k][row] = v.x, room[k + 1][row] = v.y, room[k + 2][row] = v.z, room[k + 3][row] = v.w;
  }
  __syncthreads();
  int y = t / 16 * 4, c = t % 16 * 4;
  float s[4][4] = {};
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    float4 u = *(float4*)&room[k][y], v = *(float4*)&by[k][c];
    float p[4] = {u.x, u.y, u.z, u.w}, q[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int n = 0; n < 16; ++n) s[n / 4][n & 3] = fmaf(p[n / 4], q[n & 3], s[n / 4][n & 3]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[first + (y + i) * 1024 + c] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- weigh_values: each warp reads a tile of values from shared memory again for each of its eight queries; or once for the eight; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) weigh_values(const float* chance, const float* value, float* out) {  // 16 heads, 1,024 queries and keys, 64 numbers
  __shared__ __align__(16) float room[64][64], p[64][68];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  const float *own = chance + ((i64)blockIdx.y * 1024 + blockIdx.x * 64) * 1024, *from = value + blockIdx.y * 65536ll;
  float2 s[8] = {};
  auto add = [](float2& u, float w, float2 v) { u = {fmaf(w, v.x, u.x), fmaf(w, v.y, u.y)}; };
#pragma unroll 1
  for (int n = 0; n < 1024; n += 64) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      int i = h * 256 + t, row = i / 16, k = (i & 15) * 4;
      *(float4*)&room[row][k] = *(const float4*)&from[(n + row) * 64 + k];
      *(float4*)&p[row][k] = *(const float4*)&own[row * 1024 + n + k];
    }
    __syncthreads();
    if (V == 0) {
#pragma unroll
      for (int q = 0; q < 8; ++q)
#pragma unroll 4
        for (int k = 0; k < 64; k += 4) {
          float4 w = *(const float4*)&p[warp * 8 + q][k];
          add(s[q], w.x, *(const float2*)&room[k][lane * 2]), add(s[q], w.y, *(const float2*)&room[k + 1][lane * 2]);
          add(s[q], w.z, *(const float2*)&room[k + 2][lane * 2]), add(s[q], w.w, *(const float2*)&room[k + 3][lane * 2]);
        }
    } else {
#pragma unroll 2
      for (int k = 0; k < 64; k += 4) {
        float2 v[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] = *(const float2*)&room[k + j][lane * 2];
#pragma unroll
        for (int q = 0; q < 8; ++q) {
          float4 w = *(const float4*)&p[warp * 8 + q][k];
          add(s[q], w.x, v[0]), add(s[q], w.y, v[1]), add(s[q], w.z, v[2]), add(s[q], w.w, v[3]);
        }
      }
    }
  }
#pragma unroll
  for (int q = 0; q < 8; ++q) *(float2*)&out[((i64)blockIdx.y * 1024 + blockIdx.x * 64 + warp * 8 + q) * 64 + lane * 2] = s[q];
}
// ---- scramble_signals: sums and differences of 4,096 numbers in 12 passes over shared memory, of two each; or in three passes of 16 each; expected 2 times
template <int V> __global__ void __launch_bounds__(256) scramble_signals(const float* a, float* out, int rounds) {
  __shared__ float room[4096 + 256];
  auto at = [&](int i) -> float& { return room[i + i / 16]; };
  int t = threadIdx.x;
  const float* own = a + blockIdx.x * 4096ll;
#pragma unroll
  for (int k = 0; k < 16; ++k) at(k * 256 + t) = own[k * 256 + t];
  __syncthreads();
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
    if (V == 0) {
#pragma unroll 1
      for (int h = 1; h < 4096; h *= 2) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          int n = k * 256 + t, i = (n & -h) * 2 + (n & h - 1);
          float p = at(i), q = at(i + h);
          at(i) = 0.7f * (p + q), at(i + h) = 0.7f * (p - q);
        }
        __syncthreads();
      }
    } else {
#pragma unroll
      for (int h = 1; h < 4096; h *= 16) {
        int first = t / h * h * 16 + t % h;
        float x[16];
#pragma unroll
        for (int k = 0; k < 16; ++k) x[k] = at(first + k * h);
#pragma unroll
        for (int o = 1; o < 16; o *= 2)
#pragma unroll
          for (int k = 0; k < 16; ++k)
            if (!(k & o)) {
              float p = x[k], q = x[k | o];
              x[k] = 0.7f * (p + q), x[k | o] = 0.7f * (p - q);
            }
#pragma unroll
        for (int k = 0; k < 16; ++k) at(first + k * h) = x[k];
        __syncthreads();
      }
    }
  }
#pragma unroll
  for (int k = 0; k < 16; ++k) out[blockIdx.x * 4096ll + k * 256 + t] = at(k * 256 + t);
}
// ---- gate_experts: eight experts' layers of 16 bits on FP32 units, in tiles of 64 x 64; or on tensor cores; expected 6 times
__global__ void __launch_bounds__(256) gate_experts(const bf16* x, const bf16* w, float* out, int depth, int columns, int rows) {
  __shared__ __align__(16) float token[32][68], weight[32][68];
  int t = threadIdx.x, y = t / 16 * 4, c = t % 16 * 4;
  const bf16 *p = x + ((i64)blockIdx.z * rows + blockIdx.y * 64) * depth, *q = w + ((i64)blockIdx.z * columns + blockIdx.x * 64) * depth;
  float s[4][4] = {};
#pragma unroll 1
  for (int k = 0; k < depth; k += 32) {
    __syncthreads();
    int row = t / 4, from = (t & 3) * 8;
    uint4 u = *(const uint4*)&p[row * depth + k + from], v = *(const uint4*)&q[row * depth + k + from];
    unsigned m[4] = {u.x, u.y, u.z, u.w}, n[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int h = 0; h < 8; ++h) {
      token[from + h][row] = __uint_as_float(h & 1 ? m[h / 2] & 0xffff0000u : m[h / 2] << 16);
      weight[from + h][row] = __uint_as_float(h & 1 ? n[h / 2] & 0xffff0000u : n[h / 2] << 16);
    }
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < 32; ++j) {
      float4 a = *(float4*)&token[j][y], b = *(float4*)&weight[j][c];
      float e[4] = {a.x, a.y, a.z, a.w}, f[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int r = 0; r < 16; ++r) s[r / 4][r & 3] = fmaf(e[r / 4], f[r & 3], s[r / 4][r & 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) *(float4*)&out[((i64)blockIdx.z * rows + blockIdx.y * 64 + y + i) * columns + blockIdx.x * 64 + c] = {s[i][0], s[i][1], s[i][2], s[i][3]};
}
// ---- embed_molecules: each warp has 16 x 32 outputs and reads their operands from global memory for each product; or from tiles in shared memory; expected 5 times
__global__ void __launch_bounds__(256) embed_molecules(const bf16* x, const bf16* w, float* out, int depth, int columns) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = (lane & 3) * 2;
  i64 row = blockIdx.y * 64 + warp % 4 * 16, column = blockIdx.x * 64 + warp / 4 * 32;
  float s[4][4] = {};
#pragma unroll 2
  for (int k = 0; k < depth; k += 16) {
    unsigned a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = *(const unsigned*)&x[(row + g + (i & 1) * 8) * depth + k + c + (i & 2) * 4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bf16* own = &w[(column + j * 8 + g) * depth + k + c];
      tensor_add(s[j], a, *(const unsigned*)own, *(const unsigned*)(own + 8));
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) *(float2*)&out[(row + g + h * 8) * columns + column + j * 8 + c] = {s[j][h * 2], s[j][h * 2 + 1]};
}
// ---- project_states: a block an SM copies a slice of both operands, waits, and computes; or four slices are on their way; expected 1.7 times: tiles_of_product
// ---- blend_orbits: a tile of 32 kB arrives, then 512 threads work on it, and nothing arrives meanwhile; or the next one does; expected 1.7 times
template <int STAGES> __global__ void __launch_bounds__(512) blend_orbits(const float4* a, float* out, int tiles) {
  extern __shared__ __align__(128) unsigned char memory[];
  float4* room = (float4*)memory;
  int t = threadIdx.x;
  const float4* own = a + (i64)blockIdx.x * tiles * 2048;
  auto ask = [&](int n) {
    if (n < tiles)
#pragma unroll
      for (int k = 0; k < 4; ++k) __pipeline_memcpy_async(&room[n % STAGES * 2048 + k * 512 + t], &own[n * 2048 + k * 512 + t], 16);
    __pipeline_commit();
  };
  float all = 0;
  if (STAGES > 1) ask(0);
#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    if (STAGES == 1) __syncthreads(), ask(n), __pipeline_wait_prior(0);
    else ask(n + 1), __pipeline_wait_prior(1);
    __syncthreads();
    const float4* tile = room + n % STAGES * 2048;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float4 u = tile[k * 512 + (t ^ 32)], v = tile[k * 512 + (t ^ 96)];
#pragma unroll
      for (int r = 0; r < 24; ++r) u.x = fmaf(u.x, v.x, 0.1f), u.y = fmaf(u.y, v.y, 0.2f), u.z = fmaf(u.z, v.z, 0.1f), u.w = fmaf(u.w, v.w, 0.3f);
      all += fminf((u.x + u.y) + (u.z + u.w), 50.0f);
    }
    if (STAGES > 1) __syncthreads();
  }
  out[T] = all;
}

void product_cases() {
  static bf16* brief;
  auto make_brief = [] {
    if (!brief) brief = cast<bf16>(A, 1 << 24, 0.25f);
  };
  cases.push_back({"distil_teachers", "grid_too_small", "", [] { multiply_tiles<4, 1>(dim3(2, 1, 1), brief, brief + (1 << 22), C, 16384, 16384, 256); }, [] { multiply_tiles<4, 1>(dim3(2, 1, 64), brief, brief + (1 << 22), C, 16384, 256, 256, 256, 256, 0); }, C, 128 * 256, false, make_brief, [] { CHECK(cudaMemset(C, 0, 128 * 256 * 4)); }});
  cases.push_back({"widest_pipes", "no_tile", "", [] { widest_pipes<0><<<dim3(4, TOWNS), 256>>>(A, B, C); }, [] { widest_pipes<1><<<dim3(16, 16), 256>>>(A, B, C); }, C, TOWNS * TOWNS});
  cases.push_back({"whiten_heads", "no_tile", "", [] { whiten_heads<0><<<dim3(SPOKEN_TOKENS / 4, 16), 256>>>(A, B, C); }, [] { whiten_heads<1><<<dim3(SPOKEN_TOKENS / 64, 16), 256>>>(A, B, C); }, C, SPOKEN_TOKENS * 1024});
  cases.push_back({"weigh_values", "shared_instruction_bound", "", [] { weigh_values<0><<<dim3(16, 16), 256>>>(A, B, C); }, [] { weigh_values<1><<<dim3(16, 16), 256>>>(A, B, C); }, C, 1 << 20});
  cases.push_back({"scramble_signals", "shared_instruction_bound", "", [] { scramble_signals<0><<<4096, 256>>>(A, C, 2); }, [] { scramble_signals<1><<<4096, 256>>>(A, C, 2); }, C, 1 << 24});
  cases.push_back({"gate_experts", "fp32_for_matrix", "", [] { gate_experts<<<dim3(16, 8, 8), 256>>>(brief, brief + (1 << 22), C, 1024, 1024, 512); }, [] { multiply_tiles<4, 0>(dim3(8, 4, 8), brief, brief + (1 << 22), C, 1024, 1024, 1024, 512 * 1024, 1024 * 1024, 512 * 1024); }, C, 8 * 512 * 1024, false, make_brief});
  cases.push_back({"embed_molecules", "tensor_starved", "uncoalesced_loads|no_tile", [] { embed_molecules<<<dim3(32, 32), 256>>>(brief, brief + (1 << 22), C, 1024, 2048); }, [] { multiply_tiles<4, 0>(dim3(16, 16), brief, brief + (1 << 22), C, 1024, 1024, 2048); }, C, 1 << 22, false, make_brief});
  cases.push_back({"project_states", "no_overlap", "tensor_starved", [] { multiply_tiles<1, 0>(dim3(16, 8), brief, brief + (1 << 22), C, 4096, 4096, 2048); }, [] { multiply_tiles<4, 0>(dim3(16, 8), brief, brief + (1 << 22), C, 4096, 4096, 2048); }, C, 1 << 21, false, make_brief});
  cases.push_back({"blend_orbits", "no_overlap", "", [] {
    dynamic_shared(blend_orbits<1>, 32 << 10);
    blend_orbits<1><<<132, 512, 32 << 10>>>((float4*)A, C, 60);
  }, [] {
    dynamic_shared(blend_orbits<2>, 64 << 10);
    blend_orbits<2><<<132, 512, 64 << 10>>>((float4*)A, C, 60);
  }, C, 132 * 512});
}
