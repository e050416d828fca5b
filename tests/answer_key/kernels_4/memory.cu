// Defects of access to global memory: layouts of tensors, tables of embeddings, records, masks, lists of particles.
#include "set.h"

namespace cg = cooperative_groups;

// ---- layouts of a batch of images: planes of 64 channels (NCHW) and pixels of 64 channels (NHWC)
constexpr int CHANNELS = 64, PIXELS = 1 << 16;  // of one image; 16 images fill 256 MB
template <int V> __global__ void to_channels_last(const float* in, float* out) {
  if (V == 0) {  // a thread an output: neighbours read planes that are 256 kB apart
    int c = threadIdx.x & 63, p = blockIdx.x * 4 + threadIdx.x / 64;
    out[((i64)blockIdx.y * PIXELS + p) * CHANNELS + c] = in[((i64)blockIdx.y * CHANNELS + c) * PIXELS + p];
  } else {
    __shared__ float tile[64][33];
    int p0 = blockIdx.x * 32;
    for (int i = threadIdx.x; i < 2048; i += 256) tile[i / 32][i & 31] = in[((i64)blockIdx.y * CHANNELS + i / 32) * PIXELS + p0 + (i & 31)];
    __syncthreads();
    for (int i = threadIdx.x; i < 2048; i += 256) out[((i64)blockIdx.y * PIXELS + p0 + i / 64) * CHANNELS + (i & 63)] = tile[i & 63][i / 64];
  }
}
template <int V> __global__ void to_channels_first(const float* in, float* out) {
  if (V == 0) {  // a thread an input: neighbours write planes that are 256 kB apart
    int c = threadIdx.x & 63, p = blockIdx.x * 4 + threadIdx.x / 64;
    out[((i64)blockIdx.y * CHANNELS + c) * PIXELS + p] = in[((i64)blockIdx.y * PIXELS + p) * CHANNELS + c];
  } else {
    __shared__ float tile[64][33];
    int p0 = blockIdx.x * 32;
    for (int i = threadIdx.x; i < 2048; i += 256) tile[i & 63][i / 64] = in[((i64)blockIdx.y * PIXELS + p0 + i / 64) * CHANNELS + (i & 63)];
    __syncthreads();
    for (int i = threadIdx.x; i < 2048; i += 256) out[((i64)blockIdx.y * CHANNELS + i / 32) * PIXELS + p0 + (i & 31)] = tile[i / 32][i & 31];
  }
}
// ---- records of which one field is read
struct Station { float north, east, height, pressure, temperature, wind, rain, hour; };
__global__ void split_field(const Station* all, float* field, int n) {
  for (i64 i = T; i < n; i += STRIDE) field[i] = all[i].temperature;
}
template <int V> __global__ void warm_stations(const Station* all, const float* field, float* out, int n) {
  float most = -1;
  for (i64 i = T; i < n; i += STRIDE) most = fmaxf(most, V == 0 ? all[i].temperature : field[i]);
  out[T] = most;
}
// ---- rows of an embedding: 16 values, of which 16 lanes fetch one row each time
template <int PITCH> __global__ void fetch_rows(const float* table, const int* ids, float* out, int n) {
  auto half = cg::tiled_partition<16>(cg::this_thread_block());
  for (i64 row = T / 16; row < n; row += STRIDE / 16) out[row * 16 + half.thread_rank()] = table[(i64)ids[row] * PITCH + half.thread_rank()];
}
__global__ void spread_rows(const float* tight, float* wide, int rows) {
  for (i64 i = T; i < (i64)rows * 16; i += STRIDE) wide[i / 16 * 32 + (i & 15)] = tight[i / 16 * 20 + (i & 15)];
}
// ---- a stream cipher by bytes and by vectors
template <class V> __global__ void xor_stream(const V* text, const V* key, V* out, i64 n);
template <> __global__ void xor_stream<uint8_t>(const uint8_t* text, const uint8_t* key, uint8_t* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = text[i] ^ key[i];
}
template <> __global__ void xor_stream<uint4>(const uint4* text, const uint4* key, uint4* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    uint4 a = text[i], b = key[i];
    out[i] = {a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w};
  }
}
// ---- a flag in each record of 32 bytes, or in an array of flags
template <int STEP> __global__ void flag_outliers(const float* value, int* flag, int n) {
  for (i64 i = T; i < n; i += STRIDE) flag[i * STEP] = value[i] > 0.99f;
}
// ---- a mask of words and of bits
__global__ void make_masks(const float* a, int* words, unsigned* bits, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    bool on = a[i] > 0.5f;
    unsigned all = __ballot_sync(~0u, on);
    words[i] = on;
    if ((threadIdx.x & 31) == 0) bits[i / 32] = all;
  }
}
template <int V> __global__ void kept_tokens(const int4* words, const unsigned* bits, int* out, i64 n) {
  int count = 0;
  if (V == 0)
    for (i64 i = T; i < n / 4; i += STRIDE) count += words[i].x + words[i].y + words[i].z + words[i].w;
  else
    for (i64 i = T; i < n / 32; i += STRIDE) count += __popc(bits[i]);
  count = __reduce_add_sync(~0u, count);
  if ((threadIdx.x & 31) == 0 && count) atomicAdd(out, count);
}
// ---- eight queries against all keys: order of the blocks
template <int V> __global__ void score_keys(const float4* keys, const float4* queries, float* out, int chunks) {
  int query = V == 0 ? blockIdx.x / chunks : blockIdx.x & 7, chunk = V == 0 ? blockIdx.x % chunks : blockIdx.x / 8;
  float s = 0;
  for (int k = 0; k < 8; ++k) {
    float4 a = keys[(i64)chunk * 2048 + k * 256 + threadIdx.x], b = queries[query * 256 + threadIdx.x];
    s += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) out[((i64)query * chunks + chunk) * 8 + threadIdx.x / 32] = s;
}
// ---- particles of a cell: a linked list, or side by side
constexpr int CELLS = 1 << 17, PER_CELL = 16;
__device__ inline unsigned place_of(unsigned i) { return (i * 2654435761u + 12345u) & (CELLS * PER_CELL - 1); }
__global__ void link_cells(const float* a, int* next, float* mass, float* packed) {
  for (i64 i = T; i < CELLS * PER_CELL; i += STRIDE) {
    unsigned p = place_of((unsigned)i);
    next[p] = (i % PER_CELL) + 1 < PER_CELL ? (int)place_of((unsigned)i + 1) : -1;
    mass[p] = packed[i] = a[i];
  }
}
template <int V> __global__ void mass_of_cells(const int* next, const float* mass, const float4* packed, float* out) {
  float s = 0;
  if (V == 0)
    for (int p = place_of((unsigned)T * PER_CELL); p >= 0; p = next[p]) s += mass[p];
  else
    for (int k = 0; k < PER_CELL / 4; ++k) {
      float4 v = packed[T * (PER_CELL / 4) + k];
      s = s + v.x + v.y + v.z + v.w;
    }
  out[T] = s;
}

void memory_cases() {
  static float *field, *aligned, *mass, *packed;
  static int *ids, *words, *next;
  static unsigned* bits;
  cases.push_back({"to_channels_last", "uncoalesced_loads", "", [] { to_channels_last<0><<<dim3(PIXELS / 4, 16), 256>>>(A, C); }, [] { to_channels_last<1><<<dim3(PIXELS / 32, 16), 256>>>(A, C); }, C, N});
  cases.push_back({"to_channels_first", "uncoalesced_stores", "", [] { to_channels_first<0><<<dim3(PIXELS / 4, 16), 256>>>(A, C); }, [] { to_channels_first<1><<<dim3(PIXELS / 32, 16), 256>>>(A, C); }, C, N});
  cases.push_back({"warm_stations", "strided_sectors", "", [] { warm_stations<0><<<1056, 256>>>((Station*)A, field, C, N / 8); }, [] { warm_stations<1><<<1056, 256>>>((Station*)A, field, C, N / 8); }, C, 1056 * 256, false, [] {
    field = device<float>(N / 8);
    split_field<<<1056, 256>>>((Station*)A, field, N / 8);
  }});
  cases.push_back({"fetch_rows", "misaligned_base", "", [] { fetch_rows<20><<<2112, 256>>>(A, ids, C, 1 << 21); }, [] { fetch_rows<32><<<2112, 256>>>(aligned, ids, C, 1 << 21); }, C, 1 << 25, false, [] {
    const int rows = 1 << 21;
    std::vector<int> v(rows);
    for (int i = 0; i < rows; ++i) v[i] = (int)(mix((uint32_t)i) & (rows - 1));
    ids = upload(v), aligned = device<float>((i64)rows * 32);
    spread_rows<<<2112, 256>>>(A, aligned, rows);
  }});
  cases.push_back({"xor_stream", "narrow_accesses", "", [] { xor_stream<uint8_t><<<2112, 256>>>((uint8_t*)A, (uint8_t*)B, (uint8_t*)C, N * 2); }, [] { xor_stream<uint4><<<2112, 256>>>((uint4*)A, (uint4*)B, (uint4*)C, N / 8); }, C, N / 2, true});
  cases.push_back({"flag_outliers", "partial_sector_writes", "", [] { flag_outliers<8><<<2112, 256>>>(A, (int*)C, N / 8); }, [] { flag_outliers<1><<<2112, 256>>>(A, (int*)C, N / 8); }});
  cases.push_back({"kept_tokens", "wide_data", "", [] { kept_tokens<0><<<1056, 256>>>((int4*)words, bits, (int*)C, N); }, [] { kept_tokens<1><<<1056, 256>>>((int4*)words, bits, (int*)C, N); }, C, 1, true, [] {
    words = device<int>(N), bits = device<unsigned>(N / 32);
    make_masks<<<2048, 256>>>(A, words, bits, N);
  }});
  cases.push_back({"score_keys", "block_order_l2", "no_tile", [] { score_keys<0><<<8 * (N / 8192), 256>>>((float4*)A, (float4*)B, C, N / 8192); }, [] { score_keys<1><<<8 * (N / 8192), 256>>>((float4*)A, (float4*)B, C, N / 8192); }, C, 8 * (N / 8192) * 8});
  cases.push_back({"mass_of_cells", "pointer_chasing", "", [] { mass_of_cells<0><<<CELLS / 128, 128>>>(next, mass, (float4*)packed, C); }, [] { mass_of_cells<1><<<CELLS / 128, 128>>>(next, mass, (float4*)packed, C); }, C, CELLS, false, [] {
    next = device<int>(CELLS * PER_CELL), mass = device<float>(CELLS * PER_CELL), packed = device<float>(CELLS * PER_CELL);
    link_cells<<<1056, 256>>>(A, next, mass, packed);
  }});
}
