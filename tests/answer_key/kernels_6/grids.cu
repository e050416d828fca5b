// How work is spread over lanes, warps, blocks and waves: meshes, words, columns, series, rays, hubs, triangles, and pipelines.
#include "set.h"

// ---- mixed_mesh: four kinds of elements in turn, so each warp runs all four; expected 3 times
__device__ inline float element(int kind, float x, int rounds) {
  float s = 0.5f;
  switch (kind) {
    case 0:
      for (int k = 0; k < rounds; ++k) s = fmaf(s, x, 0.1f) * 0.9f;
      break;
    case 1:
      for (int k = 0; k < rounds; ++k) s = rsqrtf(s + x + 1);
      break;
    case 2:
      for (int k = 0; k < rounds; ++k) s = __fdividef(x + 0.3f, s + 1.5f);
      break;
    default:
      for (int k = 0; k < rounds; ++k) s = __expf(-s * x);
  }
  return s;
}
template <int V> __global__ void __launch_bounds__(256) mixed_mesh(const float* a, float* out, int n, int rounds) {
  int i = (int)T, e = V == 0 ? i : i % (n / 4) * 4 + i / (n / 4);
  out[e] = element(e & 3, a[e], rounds);
}
// ---- hash_words: words of 8 to 1023 letters side by side, so a warp takes as long as its longest; expected 1.8 times
__host__ __device__ inline int letters(int word) { return 8 + (int)(mix((unsigned)word + 11) % 1016); }
__global__ void __launch_bounds__(256) hash_words(const int* order, unsigned* out) {
  int word = order[T], n = letters(word);
  unsigned h = 2166136261u ^ word;
  for (int k = 0; k < n; ++k) h = (h ^ (h >> 13 ^ k)) * 16777619u;
  out[word] = h >> 8;
}
// ---- column_ranges: 32 blocks for 8192 columns; expected 10 times
template <int V> __global__ void __launch_bounds__(256) column_ranges(const float* a, int* out, int rows) {
  int column = blockIdx.x * 256 + threadIdx.x, each = rows / gridDim.y;
  float most = 0;
#pragma unroll 8
  for (int r = blockIdx.y * each; r < (int)(blockIdx.y + 1) * each; ++r) most = fmaxf(most, a[(i64)r * 8192 + column]);
  if (V == 0) out[column] = __float_as_int(most);
  else atomicMax(&out[column], __float_as_int(most));
}
// ---- forecast_series: a persistent grid of 80 blocks, the SMs of a V100, or as many as are resident here; expected 3 times
__global__ void __launch_bounds__(256) forecast_series(const float* a, float* out, int n, int steps) {
  for (i64 i = T; i < n; i += STRIDE) {
    float level = a[i], trend = 0.1f, x = 0.3f;
    for (int s = 0; s < steps; ++s) {
      float old = level;
      x = fmaf(x, 0.7f, 0.1f), level = fmaf(0.3f, x - old, old + trend), trend = fmaf(0.2f, level - old - trend, trend);
    }
    out[i] = level;
  }
}
// ---- march_rays: volumes of 186 kB leave room for one block an SM, and 148 blocks take two waves; expected 1.7 times
constexpr int CUBE = 36, VOLUME = CUBE * CUBE * CUBE;
__global__ void __launch_bounds__(512) march_rays(const float* volume, float* out, int batches, int of_block, int steps) {
  extern __shared__ float density[];
  for (int i = threadIdx.x; i < VOLUME; i += 512) density[i] = volume[i];
  __syncthreads();
  for (int k = 0; k < of_block; ++k) {
    int b = of_block == 8 ? blockIdx.x * 8 + k : blockIdx.x + k * gridDim.x;
    if (b >= batches) return;
    unsigned ray = b * 512u + threadIdx.x, h = mix(ray);
    float x = (h & 1023) * 0.03f, y = (h >> 10 & 1023) * 0.03f, z = (h >> 20 & 1023) * 0.03f, s = 0;
    for (int t = 0; t < steps; ++t) {
      s = fmaf(s, 0.98f, density[((int)z * CUBE + (int)y) * CUBE + (int)x]);
      x += 0.13f, y += 0.07f, z += 0.11f;
      x = x < 35 ? x : x - 35, y = y < 35 ? y : y - 35, z = z < 35 ? z : z - 35;
    }
    out[ray] = s;
  }
}
// ---- rows_with_hubs: a block a row, and eight rows have a million values; expected 10 times
constexpr int ROWS = 4096, SHORT = 512, LONG = 1 << 20;
struct Piece { int row, begin, end; };
__global__ void __launch_bounds__(128) rows_with_hubs(const Piece* piece, const float* value, float* out) {
  Piece p = piece[blockIdx.x];
  float s = 0;
#pragma unroll 4
  for (int i = p.begin + threadIdx.x; i < p.end; i += 128) s = fmaf(value[i], value[i], s);
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[p.row], s);
}
static Piece* pieces(int most, int* count) {
  std::vector<Piece> all;
  for (int r = 0, at = 0; r < ROWS; ++r) {
    int end = at + (r % 512 == 100 ? LONG : SHORT);
    for (; at < end; at += most) all.push_back({r, at, std::min(end, at + most)});
    at = end;
  }
  *count = (int)all.size();
  return upload(all);
}
// ---- triangle_of_pairs: a persistent grid whose blocks own 32 rows side by side, of 1 to 8448 pairs, or take rows by ticket; expected 1.7 times
template <int V> __global__ void __launch_bounds__(256) triangle_of_pairs(const float* a, float* out, int rows, int* ticket) {
  __shared__ int next;
  __shared__ float part[8];
  int each = rows / gridDim.x;
  for (int k = 0;; ++k) {
    if (V == 1 && threadIdx.x == 0) next = atomicAdd(ticket, 1);
    __syncthreads();
    int r = V == 0 ? blockIdx.x * each + k : rows - 1 - next;
    if (V == 0 ? k == each : r < 0) return;
    float x = a[r], s = 0;
    for (int j = threadIdx.x; j < r; j += 256) {
      float d = x - a[j], q = fmaf(d, d, 0.01f), w = rsqrtf(q);
      s += w * w * w * fmaf(w, 0.1f, fmaf(q, 0.2f, 0.3f));
    }
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) out[r] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
}
// ---- equalise: warps that load and warps that compute; seven load for one, or one loads for seven; expected 4 times
constexpr int SAMPLES = 1792;
template <int LOADERS> __global__ void __launch_bounds__(256) equalise(const float* a, float* out, int tiles) {
  __shared__ __align__(16) float buffer[2][SAMPLES];
  int warp = threadIdx.x / 32;
  i64 base = (i64)blockIdx.x * tiles * SAMPLES;
  auto load = [&](int t) {
    const float4* from = (const float4*)(a + base + (i64)t * SAMPLES);
#pragma unroll
    for (int i = 0; i < SAMPLES / 128 / LOADERS; ++i) {
      int at = threadIdx.x + i * LOADERS * 32;
      ((float4*)buffer[t & 1])[at] = from[at];
    }
  };
  if (warp < LOADERS) load(0);
  __syncthreads();
  for (int t = 0; t < tiles; ++t) {
    if (warp < LOADERS) {
      if (t + 1 < tiles) load(t + 1);
    } else {
      for (int i = threadIdx.x - LOADERS * 32; i < SAMPLES; i += 256 - LOADERS * 32) {
        float v = buffer[t & 1][i], s = 0.25f;
#pragma unroll
        for (int k = 0; k < 24; ++k) s = fmaf(s, v, 0.05f * k);
        out[base + (i64)t * SAMPLES + i] = s;
      }
    }
    __syncthreads();
  }
}
// ---- squares_by_bulk: bulk copies into shared memory, each awaited before the next is asked for, or six under way; expected 2.5 times
constexpr int BULK = 8192;
__device__ inline unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ inline void bulk(float* to, const float* from, u64* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(full)), "r"(BULK) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(to)), "l"(from), "r"(BULK), "r"(place(full)) : "memory");
}
__device__ inline void await(u64* full, unsigned phase) {
  unsigned done;
  do
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(place(full)), "r"(phase) : "memory");
  while (!done);
}
template <int DEPTH> __global__ void __launch_bounds__(256) squares_by_bulk(const float* a, float* out, int tiles) {
  extern __shared__ __align__(128) float stage[];
  __shared__ u64 full[DEPTH];
  const float* from = a + (i64)blockIdx.x * tiles * (BULK / 4);
  if (threadIdx.x == 0) {
    for (int d = 0; d < DEPTH; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&full[d])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int d = 0; d < DEPTH; ++d) bulk(stage + d * (BULK / 4), from + (i64)d * (BULK / 4), &full[d]);
  }
  __syncthreads();
  float s = 0;
  for (int t = 0; t < tiles; ++t) {
    int d = t % DEPTH;
    await(&full[d], t / DEPTH & 1);
    const float4* x = (const float4*)(stage + d * (BULK / 4));
    for (int i = threadIdx.x; i < BULK / 16; i += 256) {
      float4 v = x[i];
      s += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
    }
    __syncthreads();
    if (threadIdx.x == 0 && t + DEPTH < tiles) bulk(stage + d * (BULK / 4), from + (i64)(t + DEPTH) * (BULK / 4), &full[d]);
  }
  out[T] = s;
}

void grid_cases() {
  static int *order, *sorted, *ticket, whole, split;
  static Piece *rows, *parts;
  const int WORDS = 1 << 19, BATCHES = 148 * 8;
  cases.push_back({"mixed_mesh", "divergence", "", [] { mixed_mesh<0><<<4096, 256>>>(A, C, 1 << 20, 400); }, [] { mixed_mesh<1><<<4096, 256>>>(A, C, 1 << 20, 400); }, C, 1 << 20});
  cases.push_back({"hash_words", "divergence", "uneven_warps", [=] { hash_words<<<WORDS / 256, 256>>>(order, (unsigned*)C); }, [=] { hash_words<<<WORDS / 256, 256>>>(sorted, (unsigned*)C); }, C, WORDS, true, [=] {
    std::vector<int> v(WORDS);
    for (int i = 0; i < WORDS; ++i) v[i] = i;
    order = upload(v);
    std::stable_sort(v.begin(), v.end(), [](int a, int b) { return letters(a) > letters(b); });
    sorted = upload(v);
  }});
  cases.push_back({"column_ranges", "grid_too_small", "", [] { column_ranges<0><<<dim3(32, 1), 256>>>(A, (int*)C, 4096); }, [] { column_ranges<1><<<dim3(32, 32), 256>>>(A, (int*)C, 4096); }, C, 8192});
  cases.push_back({"forecast_series", "grid_too_small", "", [] { forecast_series<<<80, 256>>>(A, C, 1 << 19, 200); }, [] { forecast_series<<<1056, 256>>>(A, C, 1 << 19, 200); }, C, 1 << 19});
  cases.push_back({"march_rays", "tail_effect", "", [=] { march_rays<<<148, 512, VOLUME * 4>>>(A, C, BATCHES, 8, 256); }, [=] { march_rays<<<132, 512, VOLUME * 4>>>(A, C, BATCHES, 9, 256); }, C, BATCHES * 512, false, [] { dynamic_shared(march_rays, VOLUME * 4); }});
  cases.push_back({"rows_with_hubs", "uneven_blocks", "", [] { rows_with_hubs<<<whole, 128>>>(rows, A, C); }, [] { rows_with_hubs<<<split, 128>>>(parts, A, C); }, C, ROWS, false, [] { rows = pieces(LONG, &whole), parts = pieces(4096, &split); }});
  cases.push_back({"triangle_of_pairs", "uneven_blocks", "", [] { triangle_of_pairs<0><<<264, 256>>>(A, C, 8448, ticket); }, [] { triangle_of_pairs<1><<<264, 256>>>(A, C, 8448, ticket); }, C, 8448, false, [] { ticket = device<int>(1); }, [] { CHECK(cudaMemset(ticket, 0, 4)); }});
  cases.push_back({"equalise", "uneven_warps", "no_overlap", [] { equalise<7><<<528, 256>>>(A, C, 24); }, [] { equalise<1><<<528, 256>>>(A, C, 24); }, C, 528 * 24 * SAMPLES});
  cases.push_back({"squares_by_bulk", "no_overlap", "", [] { squares_by_bulk<1><<<132, 256, BULK>>>(A, C, 240); }, [] { squares_by_bulk<6><<<132, 256, BULK * 6>>>(A, C, 240); }, C, 132 * 256, false, [] { dynamic_shared(squares_by_bulk<6>, BULK * 6); }});
}
