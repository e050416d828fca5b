// How work is spread over blocks, warps and launches: residuals, heads, patches, records, messages, blocks of disks, pages, sequences, filters.
#include "set.h"

// ---- norm_of_residual: 16 blocks for 128 MB; or 1056; expected 5 times
__global__ void __launch_bounds__(512) norm_of_residual(const float4* a, const float4* b, float* out, int n) {
  __shared__ float part[16];
  float s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float4 v = a[i], w = b[i];
    float p = v.x - w.x, q = v.y - w.y, r = v.z - w.z, t = v.w - w.w;
    s = fmaf(p, p, s), s = fmaf(q, q, s), s = fmaf(r, r, s), s = fmaf(t, t, s);
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  s = warp_sum(threadIdx.x < 16 ? part[threadIdx.x] : 0);
  if (threadIdx.x == 0) atomicAdd(out, s);
}
// ---- project_heads: 64 x 16384 by 16384 x 256 in four tiles; or each in 64 parts of the sum; expected 20 times
__global__ void __launch_bounds__(256) project_heads(const float* x, const float* w, float* out, int depth, int columns, int each) {
  __shared__ __align__(16) float left[16][68], right[16][68];
  int row = blockIdx.y * 64, column = blockIdx.x * 64, begin = blockIdx.z * each, r = threadIdx.x / 16, c = threadIdx.x & 15;
  float s[4][4] = {};
  for (int k = begin; k < begin + each; k += 16) {
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.x; i < 1024; i += 256) {
      left[i & 15][i / 16] = x[(i64)(row + i / 16) * depth + k + (i & 15)];
      right[i / 64][i & 63] = w[(i64)(k + i / 64) * columns + column + (i & 63)];
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
  for (int i = 0; i < 16; ++i) atomicAdd(&out[(row + r * 4 + i / 4) * columns + column + c * 4 + (i & 3)], s[i / 4][i & 3]);
}
// ---- evolve_patches: 300 blocks of eight rounds, two an SM, so 36 blocks are a wave of their own; or 2400 of one; expected 1.4 times
__global__ void __launch_bounds__(1024, 2) evolve_patches(const float* a, float* out, int each, int steps) {
  for (int k = 0; k < each; ++k) {
    i64 patch = k * STRIDE + T;
    float x = a[patch], prey = 0.4f + 0.1f * x, hunters = 0.3f;
#pragma unroll 4
    for (int s = 0; s < steps; ++s) {
      float met = prey * hunters;
      prey = fmaf(prey, 1.01f - 0.02f * prey, -0.03f * met), hunters = fmaf(hunters, 0.98f, 0.05f * met);
    }
    out[patch] = prey - hunters;
  }
}
// ---- classify_records: a rare branch inverts a matrix of 12 x 12, for which all threads hold its registers; or a cap, so that the branch spills; expected 4 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) classify_records(const unsigned* record, float* out, unsigned rare) {
  i64 at = T / 32;
  int lane = threadIdx.x & 31;
  unsigned h = 1;
#pragma unroll 1
  for (int k = 0; k < 64; ++k) {
    h = h * 31 + mix(record[at * 2048 + k * 32 + lane]);
    if (__all_sync(~0u, (h & 63) == 63)) break;
  }
  float s = (float)(h & 65535);
  if (h == rare) {
    float m[12][12];
#pragma unroll
    for (int i = 0; i < 144; ++i) m[i / 12][i % 12] = (float)(mix(record[at * 2048 + i]) & 255) + (i / 12 == i % 12 ? 3000 : 0);
#pragma unroll
    for (int k = 0; k < 12; ++k)
#pragma unroll
      for (int i = 0; i < 12; ++i)
        if (i != k) {
          float by = m[i][k] / m[k][k];
#pragma unroll
          for (int j = 0; j < 12; ++j) m[i][j] = fmaf(-by, m[k][j], m[i][j]);
        }
    s = 0;
#pragma unroll
    for (int i = 0; i < 144; ++i) s += m[i / 12][i % 12];
  }
  out[T] = s;
}
// ---- parse_messages: shared memory for a message of 100 kB, of which 1 kB is used; or 1 kB; expected 3 times
__global__ void __launch_bounds__(256) parse_messages(const unsigned* word, const float* value, float* out) {
  extern __shared__ float meaning[];
  meaning[threadIdx.x] = value[threadIdx.x];
  __syncthreads();
  i64 at = T / 32;
  int lane = threadIdx.x & 31, k = 0;
  float s = 0;
#pragma unroll 1
  for (; k < 64; ++k) {
    unsigned w = word[at * 2048 + k * 32 + lane] >> 3;
    s = fmaf(s, 0.75f, meaning[w & 255] + meaning[w >> 8 & 255]);
    if (__any_sync(~0u, s < 0)) break;
  }
  s = warp_sum(s);
  if (lane == 0) out[at] = s + k;
}
// ---- check_parities: blocks of one warp, 32 of which fill half an SM; or of eight; expected 1.7 times
__global__ void check_parities(const unsigned* disk, unsigned* out) {
  i64 at = T / 32;
  int lane = threadIdx.x & 31;
  unsigned parity = 0;
#pragma unroll 1
  for (int k = 0; k < 64; ++k) {
    parity ^= disk[at * 2048 + k * 32 + lane];
    if (__all_sync(~0u, parity == 0xffffffffu)) break;
  }
  parity = __reduce_xor_sync(~0u, parity);
  if (lane == 0) out[at] = parity;
}
// ---- rank_pages: a warp a row, and the first of eight has 16 times the links, for which its block stays; or rows in order of length; expected 3 times
constexpr int PAGES = 88064, LONG = 4096, SHORT = 256;
__global__ void __launch_bounds__(256) rank_pages(const float* weight, const int* begin, const int* order, float* out) {
  int page = order[T / 32], lane = threadIdx.x & 31, end = begin[page + 1];
  float s = 0;
#pragma unroll 1
  for (int i = begin[page] + lane; i < end; i += 32) s = fmaf(weight[i], 0.85f, s);
  s = warp_sum(s);
  if (lane == 0) out[page] = s;
}
// ---- pool_sequences: a block a sequence, and two of 400 have 100 times the tokens; or pieces of 16384; expected 8 times
constexpr int FEW = 65536, MANY = FEW * 100, SEQUENCES = 400, TOKENS = MANY * 2 + FEW * (SEQUENCES - 2), PIECE = 16384;
template <int V> __global__ void __launch_bounds__(256) pool_sequences(const float4* token, float* out) {
  int begin = blockIdx.x * PIECE, end = begin + PIECE, sequence = blockIdx.x;
  if (V == 0) begin = sequence < 2 ? sequence * MANY : MANY * 2 + (sequence - 2) * FEW, end = begin + (sequence < 2 ? MANY : FEW);
  else sequence = begin < MANY * 2 ? begin / MANY : 2 + (begin - MANY * 2) / FEW;
  float s = 0;
#pragma unroll 4
  for (int i = begin / 4 + threadIdx.x; i < end / 4; i += 256) {
    float4 v = token[i];
    s += (v.x + v.y) + (v.z + v.w);
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[sequence], s);
}
// ---- advance_filters: a launch of one block for each of 12 measurements; or one launch; expected 4 times
__global__ void __launch_bounds__(128) advance_filters(const float* measured, float* state, int begin, int end) {
  int t = threadIdx.x;
  float x = state[t], p = state[t + 128] + 1e-3f;
  for (int k = begin; k < end; ++k) {
    p += 0.01f;
    float gain = p / (p + 0.5f);
    x = fmaf(gain, measured[k * 128 + t] - x, x), p *= 1 - gain;
  }
  state[t] = x, state[t + 128] = p - 1e-3f;
}

void spread_cases() {
  static int *begins, *plain, *by_length;
  cases.push_back({"norm_of_residual", "grid_too_small", "", [] { norm_of_residual<<<16, 512>>>((float4*)A, (float4*)B, C, 1 << 22); }, [] { norm_of_residual<<<528, 512>>>((float4*)A, (float4*)B, C, 1 << 22); }, C, 1});
  cases.push_back({"project_heads", "grid_too_small", "", [] { project_heads<<<dim3(4, 1, 1), 256>>>(A, B, C, 16384, 256, 16384); }, [] { project_heads<<<dim3(4, 1, 64), 256>>>(A, B, C, 16384, 256, 256); }, C, 16384});
  cases.push_back({"evolve_patches", "tail_effect", "", [] { evolve_patches<<<300, 1024>>>(A, C, 8, 512); }, [] { evolve_patches<<<2400, 1024>>>(A, C, 1, 512); }, C, 2400 * 1024});
  cases.push_back({"classify_records", "occupancy_registers", "", [] { classify_records<1><<<4096, 256>>>((unsigned*)A, C, 12345); }, [] { classify_records<8><<<4096, 256>>>((unsigned*)A, C, 12345); }, C, 1 << 20});
  cases.push_back({"parse_messages", "occupancy_shared", "", [] { parse_messages<<<4096, 256, 100 << 10>>>((unsigned*)A, B, C); }, [] { parse_messages<<<4096, 256, 1 << 10>>>((unsigned*)A, B, C); }, C, 32768, false, [] { dynamic_shared(parse_messages, 100 << 10); }});
  cases.push_back({"check_parities", "occupancy_block_size", "", [] { check_parities<<<32768, 32>>>((unsigned*)A, (unsigned*)C); }, [] { check_parities<<<4096, 256>>>((unsigned*)A, (unsigned*)C); }, C, 32768, true});
  cases.push_back({"rank_pages", "uneven_warps", "uneven_blocks", [] { rank_pages<<<PAGES / 8, 256>>>(A, begins, plain, C); }, [] { rank_pages<<<PAGES / 8, 256>>>(A, begins, by_length, C); }, C, PAGES, false, [] {
    std::vector<int> begin(PAGES + 1), order(PAGES);
    for (int k = 0; k < PAGES; ++k) begin[k + 1] = begin[k] + (k & 7 ? SHORT : LONG), order[k] = k;
    begins = upload(begin), plain = upload(order);
    std::stable_sort(order.begin(), order.end(), [](int a, int b) { return !(a & 7) > !(b & 7); });
    by_length = upload(order);
  }});
  cases.push_back({"pool_sequences", "uneven_blocks", "", [] { pool_sequences<0><<<SEQUENCES, 256>>>((float4*)A, C); }, [] { pool_sequences<1><<<TOKENS / PIECE, 256>>>((float4*)A, C); }, C, SEQUENCES});
  cases.push_back({"advance_filters", "launch_latency", "grid_too_small", [] { for (int k = 0; k < 12; ++k) advance_filters<<<1, 128>>>(A, C, k, k + 1); }, [] { advance_filters<<<1, 128>>>(A, C, 0, 12); }, C, 256});
}
