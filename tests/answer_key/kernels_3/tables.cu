// Hash tables, sparse rows, graphs, lists and strings: how they read and write global memory.
#include "set.h"

namespace {

constexpr int ROWS = 1 << 18, DEGREE = 64;

// Sparse matrix times vector. Every row has DEGREE entries, stored row by row. Slow: one lane walks along a row.
template <int FIXED>
__global__ void csr_times_vector(const float* __restrict__ value, const int* __restrict__ column, const float* __restrict__ x, float* y) {
  if (FIXED) {
    const int row = int(T / 32), lane = threadIdx.x % 32;
    if (row >= ROWS) return;
    float sum = 0;
    for (int e = lane; e < DEGREE; e += 32) sum += value[row * DEGREE + e] * x[column[row * DEGREE + e]];
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
  } else {
    const int row = int(T);
    if (row >= ROWS) return;
    float sum = 0;
    for (int e = 0; e < DEGREE; ++e) sum += value[row * DEGREE + e] * x[column[row * DEGREE + e]];
    y[row] = sum;
  }
}
__global__ void fill_columns(int* column, int count, int columns) {
  for (i64 i = T; i < count; i += STRIDE) column[i] = int(mix(uint32_t(i / DEGREE)) % uint32_t(columns / 2) + (i % DEGREE) * 4);
}

// Boxes of a bounding-volume tree: 64 bytes each. A pass needs their upper z only.
struct Box { float lower[3], upper[3]; int left, right, first, count; float pad[6]; };
__global__ void highest_of_boxes(const Box* box, float* out, int count) {
  float most = -1e30f;
  for (i64 i = T; i < count; i += STRIDE) most = fmaxf(most, box[i].upper[2]);
  out[T] = most;
}
__global__ void highest_of_array(const float* upper, float* out, int count) {
  float most = -1e30f;
  for (i64 i = T; i < count; i += STRIDE) most = fmaxf(most, upper[i]);
  out[T] = most;
}

// Breadth-first search marks the level of each vertex: in its record of 32 bytes, or in an array of levels.
struct Vertex { int level, parent, begin, end; float rank, mass, x, y; };
template <int FIXED>
__global__ void mark_level(Vertex* vertex, int* level, const int* depth, int count) {
  for (i64 v = T; v < count; v += STRIDE) {
    if (FIXED) level[v] = depth[v]; else vertex[v].level = depth[v];
  }
}

// Order of an FFT of 2^24 points: out[reversed bits of i] = in[i]. Fixed: 64 x 64 elements at a time through shared memory.
__device__ unsigned reversed(unsigned i, int bits) { return __brev(i) >> (32 - bits); }
template <int FIXED>
__global__ void __launch_bounds__(256) bit_reversal(const float* in, float* out) {
  if (FIXED) {
    __shared__ float tile[64][65];
    const unsigned middle = blockIdx.x, turned = reversed(middle, 12);
    for (int k = threadIdx.x; k < 4096; k += 256) tile[k / 64][k % 64] = in[(unsigned(k / 64) << 18) | (middle << 6) | (k % 64)];
    __syncthreads();
    for (int k = threadIdx.x; k < 4096; k += 256) {
      const unsigned low = reversed(k / 64, 6), high = reversed(k % 64, 6);
      out[(unsigned(k / 64) << 18) | (turned << 6) | (k % 64)] = tile[high][low];
    }
  } else {
    for (int k = threadIdx.x; k < 4096; k += 256) {
      const unsigned i = blockIdx.x * 4096 + k;
      out[reversed(i, 24)] = in[i];
    }
  }
}

// Adjacency lists as linked nodes scattered over memory, or laid out step by step.
struct Link { int next; float weight; };
template <int FIXED>
__global__ void list_weights(const Link* link, const float* laid, float* out, int lists, int length) {
  const int list = int(T);
  if (list >= lists) return;
  float sum = 0;
  if (FIXED) {
    for (int k = 0; k < length; ++k) sum += laid[i64(k) * lists + list];
  } else {
    int at = list;
    for (int k = 0; k < length; ++k) {
      const Link one = link[at];
      sum += one.weight;
      at = one.next;
    }
  }
  out[list] = sum;
}
__global__ void scatter_links(Link* link, float* laid, int lists, int length) {  // an odd factor permutes the nodes of each step
  for (i64 i = T; i < i64(lists) * length; i += STRIDE) {
    const int step = int(i / lists), list = int(i % lists);
    auto place = [&](int s) { return s == 0 ? list : s * lists + int((unsigned(list) * 2654435761u + unsigned(s) * 40503u) % unsigned(lists)); };
    const float weight = (mix(uint32_t(i)) & 255) * 0.0078125f;
    link[place(step)] = {step + 1 < length ? place(step + 1) : 0, weight};
    laid[i] = weight;
  }
}

// ASCII to upper case: a byte a thread, or 16.
__device__ uint32_t upper4(uint32_t w) {
  uint32_t r = 0;
  for (int b = 0; b < 32; b += 8) {
    uint32_t c = w >> b & 255;
    r |= (c - 'a' < 26u ? c - 32 : c) << b;
  }
  return r;
}
template <int FIXED>
__global__ void to_upper(const uint8_t* in, uint8_t* out, i64 count) {
  if (FIXED) {
    for (i64 i = T; i < count / 16; i += STRIDE) {
      uint4 v = ((const uint4*)in)[i];
      v.x = upper4(v.x), v.y = upper4(v.y), v.z = upper4(v.z), v.w = upper4(v.w);
      ((uint4*)out)[i] = v;
    }
  } else {
    for (i64 i = T; i < count; i += STRIDE) out[i] = in[i] - 'a' < 26u ? in[i] - 32 : in[i];
  }
}

// Labels of 0 to 200, kept as 64-bit integers or as bytes: how many are odd?
template <class Label>
__global__ void odd_labels(const Label* label, int* out, i64 count) {
  constexpr int EACH = 16 / sizeof(Label);
  int odd = 0;
  for (i64 i = T; i < count / EACH; i += STRIDE) {
    union { uint4 raw; Label one[EACH]; } u;
    u.raw = ((const uint4*)label)[i];
#pragma unroll
    for (int k = 0; k < EACH; ++k) odd += int(u.one[k]) & 1;
  }
  out[T] = odd;
}
template <class Label>
__global__ void fill_labels(Label* label, i64 count) {
  for (i64 i = T; i < count; i += STRIDE) label[i] = Label(mix(uint32_t(i)) % 201);
}

// Embeddings of 8 floats, one lane pair a row; the table begins in the middle of a sector, or at its start.
__global__ void embed_tokens(const float* table, float* out, int tokens, int rows) {
  for (i64 i = T; i < i64(tokens) * 2; i += STRIDE) {
    const uint32_t row = mix(uint32_t(i / 2)) % uint32_t(rows);
    ((float4*)out)[i] = ((const float4*)(table + i64(row) * 8))[i & 1];
  }
}

// Means over four neighbouring frames of a film, each of 32 MB. Slow: frame after frame; fixed: place after place.
template <int FIXED>
__global__ void __launch_bounds__(256) mean_of_frames(const float4* frame, float4* out, int each, int frames) {
  const int tiles = each / 1024, tile = FIXED ? blockIdx.x / frames : blockIdx.x % tiles, first = FIXED ? blockIdx.x % frames : blockIdx.x / tiles;
  for (int k = threadIdx.x; k < 1024; k += 256) {
    float4 sum = make_float4(0, 0, 0, 0);
    for (int f = 0; f < 4; ++f) {
      const float4 v = frame[i64(first + f) * each + tile * 1024 + k];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    if (sum.x + sum.y + sum.z + sum.w < -1.0f) out[tile] = sum;  // a scene change: never here
  }
}

// A ray against many triangles: the nearest hit of all, as distance and index in one word.
template <int FIXED>
__global__ void __launch_bounds__(256) nearest_hit(const float* distance, u64* nearest, i64 count) {
  u64 mine = ~0ull;
  for (i64 i = T; i < count; i += STRIDE) {
    const u64 key = u64(__float_as_uint(distance[i] + 1.0f)) << 32 | unsigned(i);
    if (FIXED) mine = key < mine ? key : mine;
    else atomicMin((unsigned long long*)nearest, (unsigned long long)key);
  }
  if (FIXED) {
    for (int o = 16; o; o >>= 1) {
      const u64 other = __shfl_xor_sync(~0u, (unsigned long long)mine, o);
      mine = other < mine ? other : mine;
    }
    if (threadIdx.x % 32 == 0) atomicMin((unsigned long long*)nearest, (unsigned long long)mine);
  }
}

// Weight of each component of a graph, of which one is a giant. Slow: each vertex adds to its component's word.
template <int FIXED>
__global__ void __launch_bounds__(256) component_weight(const float* weight, float* out, i64 count) {
  __shared__ float own[64];
  if (threadIdx.x < 64) own[threadIdx.x] = 0;
  __syncthreads();
  float giant = 0;
  for (i64 i = T; i < count; i += STRIDE) {
    const uint32_t h = mix(uint32_t(i));
    const int component = h % 16 ? 0 : h >> 8 & 63;
    if (FIXED && component == 0) giant += weight[i]; else atomicAdd(own + component, weight[i]);
  }
  if (FIXED) {
    giant = warp_sum(giant);
    if (threadIdx.x % 32 == 0) atomicAdd(own, giant);
  }
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(out + threadIdx.x, own[threadIdx.x]);
}

Box* boxes;
Vertex* vertices;
Link* links;
int *columns, *depths;
i64* wide;
uint8_t* narrow;
constexpr int LISTS = 1 << 17, LENGTH = 64;

}  // namespace

void memory_cases() {
  cases.push_back({"csr_times_vector", "uncoalesced_loads", "", [] { csr_times_vector<0><<<ROWS / 256, 256>>>(A, columns, B, C); }, [] { csr_times_vector<1><<<ROWS / 8, 256>>>(A, columns, B, C); }, C, ROWS, false, [] {
    columns = device<int>(i64(ROWS) * DEGREE);
    fill_columns<<<2112, 256>>>(columns, ROWS * DEGREE, 1 << 20);
  }});
  cases.push_back({"highest_of_boxes", "strided_sectors", "", [] { highest_of_boxes<<<1056, 256>>>(boxes, C, 1 << 22); }, [] { highest_of_array<<<1056, 256>>>(A, C, 1 << 22); }, nullptr, 0, false, [] {
    boxes = device<Box>(1 << 22);
    CHECK(cudaMemset(boxes, 0, sizeof(Box) << 22));
  }});
  cases.push_back({"mark_level", "partial_sector_writes", "strided_sectors", [] { mark_level<0><<<2112, 256>>>(vertices, (int*)C, depths, 1 << 23); }, [] { mark_level<1><<<2112, 256>>>(vertices, (int*)C, depths, 1 << 23); }, nullptr, 0, false, [] {
    vertices = device<Vertex>(1 << 23), depths = device<int>(1 << 23);
    CHECK(cudaMemset(depths, 1, 4 << 23));
  }});
  cases.push_back({"bit_reversal", "uncoalesced_stores", "partial_sector_writes", [] { bit_reversal<0><<<4096, 256>>>(A, C); }, [] { bit_reversal<1><<<4096, 256>>>(A, C); }, C, 1 << 24});
  cases.push_back({"list_weights", "pointer_chasing", "", [] { list_weights<0><<<LISTS / 256, 256>>>(links, D, C, LISTS, LENGTH); }, [] { list_weights<1><<<LISTS / 256, 256>>>(links, D, C, LISTS, LENGTH); }, C, LISTS, false, [] {
    links = device<Link>(i64(LISTS) * LENGTH);
    scatter_links<<<2112, 256>>>(links, D, LISTS, LENGTH);
  }});
  cases.push_back({"to_upper", "narrow_accesses", "", [] { to_upper<0><<<2112, 256>>>((uint8_t*)A, (uint8_t*)C, 1 << 27); }, [] { to_upper<1><<<2112, 256>>>((uint8_t*)A, (uint8_t*)C, 1 << 27); }, C, 1 << 25, true});
  cases.push_back({"odd_labels", "wide_data", "", [] { odd_labels<i64><<<1056, 256>>>(wide, (int*)C, 1 << 25); }, [] { odd_labels<uint8_t><<<1056, 256>>>(narrow, (int*)C, 1 << 25); }, nullptr, 0, false, [] {
    wide = device<i64>(1 << 25), narrow = device<uint8_t>(1 << 25);
    fill_labels<<<2112, 256>>>(wide, 1 << 25), fill_labels<<<2112, 256>>>(narrow, 1 << 25);
  }});
  cases.push_back({"embed_tokens", "misaligned_base", "", [] { embed_tokens<<<2112, 256>>>(A + 4, C, 1 << 22, 1 << 22); }, [] { embed_tokens<<<2112, 256>>>(A, C, 1 << 22, 1 << 22); }});
  cases.push_back({"mean_of_frames", "block_order_l2", "", [] { mean_of_frames<0><<<2048 * 5, 256>>>((float4*)A, (float4*)C, 1 << 21, 5); }, [] { mean_of_frames<1><<<2048 * 5, 256>>>((float4*)A, (float4*)C, 1 << 21, 5); }});
  cases.push_back({"nearest_hit", "global_atomics_one_address", "", [] { nearest_hit<0><<<528, 256>>>(A, (u64*)C, 1 << 21); }, [] { nearest_hit<1><<<528, 256>>>(A, (u64*)C, 1 << 21); }, C, 2, true, nullptr, [] { CHECK(cudaMemset(C, 255, 8)); }});
  cases.push_back({"component_weight", "shared_atomics_one_address", "", [] { component_weight<0><<<1056, 256>>>(A, C, 1 << 23); }, [] { component_weight<1><<<1056, 256>>>(A, C, 1 << 23); }, C, 64});
}
