// Loads and stores: reads of genomes, portfolios, robot arms, alignments, meshes, quotes, descriptors, loads, sides, facets, sprites, genotypes, Laplacians, volumes.
// Above each kernel: why the slow form is slow; or what the fixed form does; and how many times as fast its author expects it, from arithmetic alone, before any run.
// A name gives the domain and not the defect. operands.csv has the bytes of operands that a caller knows from shapes and types.
// Decided before any run: a pair whose forms differ by more than 1e-3 or a defect whose fix is slower leaves the set, and so does a kernel that does not run; a
// slow form below 20 us leaves it too, unless its cause is launch_latency; a fix that wins less than 6 % makes its pair a trap.
#include "frame.h"

// ---- gc_of_reads: 64 words of two-bit bases a read, a read a thread, so that lanes are 256 bytes apart; or the words of 32 reads interleaved; expected 3 times
constexpr int READS = 1 << 20;
template <int V> __global__ void __launch_bounds__(256) gc_of_reads(const unsigned* base, int* out) {
  const unsigned* own = V == 0 ? base + T * 64 : base + T / 32 * 2048 + (threadIdx.x & 31);
  int strong = 0;
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    unsigned w = own[k * (V == 0 ? 1 : 32)];
    strong += __popc((w ^ w >> 1) & 0x55555555u);
  }
  out[T] = strong;
}
__global__ void interleave_reads(const unsigned* base, unsigned* out) {
  for (i64 i = T; i < READS * 64ll; i += STRIDE) out[i] = base[(i / 2048 * 32 + (i & 31)) * 64 + (i / 32 & 63)];
}
// ---- weigh_portfolios: a covariance of 32 x 32 a warp; lanes read down a column of rows of 128 bytes; or along a row, as the form is symmetric; expected 2 times
template <int V> __global__ void __launch_bounds__(256) weigh_portfolios(const float* covariance, const float* weight, float* out) {
  int lane = threadIdx.x & 31;
  const float* own = covariance + T / 32 * 1024;
  float w = weight[T], s = 0;
#pragma unroll 8
  for (int k = 0; k < 32; ++k) s = fmaf(own[V == 0 ? lane * 32 + k : k * 32 + lane], __shfl_sync(~0u, w, k), s);
  s = warp_sum(s * w);
  if (lane == 0) out[T / 32] = s;
}
// ---- fill_jacobians: 36 entries of an arm stored one by one, lanes 144 bytes apart; or through shared memory; expected 3 times
constexpr int ARMS = 1 << 20;
template <int V> __global__ void __launch_bounds__(128) fill_jacobians(const float* angle, float* out) {
  __shared__ float room[V == 0 ? 1 : 128 * 37];
  float x = 0, y = 0, z = 0.1f, pitch = 0;
  float* own = V == 0 ? out + T * 36 : room + threadIdx.x * 37;
#pragma unroll
  for (int j = 0; j < 6; ++j) {
    float s, c;
    pitch += angle[j * ARMS + T];
    __sincosf(pitch, &s, &c);
    x = fmaf(0.4f, c, x), y = fmaf(0.4f, s, y), z = fmaf(0.1f, c, z);
    own[j] = -y, own[6 + j] = x, own[12 + j] = z * c, own[18 + j] = s, own[24 + j] = -c, own[30 + j] = x * c - y * s;
  }
  if (V == 0) return;
  __syncthreads();
#pragma unroll 6
  for (int i = threadIdx.x; i < 128 * 36; i += 128) out[blockIdx.x * 4608ll + i] = room[i + i / 36];
}
// ---- trace_alignments: a warp walks diagonals of a table of 32 x 256 and stores a byte of direction in row order, so that lanes are 255 bytes apart; or diagonal by diagonal; expected 4 times
template <int V> __global__ void __launch_bounds__(128) trace_alignments(const unsigned* a, unsigned char* way, int* out, int columns) {
  int lane = threadIdx.x & 31, h = 0, above = 0, best = 0;
  unsigned pair = (unsigned)(T / 32), query = mix(a[T]) & 3, reference = 0;
#pragma unroll 1
  for (int d = 0; d < columns + 31; ++d) {
    int j = d - lane, diagonal = above;
    reference = __shfl_up_sync(~0u, reference, 1), above = __shfl_up_sync(~0u, h, 1);
    if (lane == 0) reference = mix(pair * 977 + d) & 3, above = 0;
    int match = diagonal + (query == reference ? 3 : -2), gap = max(h, above) - 1, score = max(max(match, gap), 0);
    bool inside = j >= 0 && j < columns;
    h = inside ? score : 0, best = max(best, h);
    unsigned char code = (unsigned char)(score == 0 ? 0 : score == match ? 1 : above > h ? 2 : 3);
    if (V == 1) way[((i64)pair * (columns + 31) + d) * 32 + lane] = code;
    else if (inside) way[((i64)pair * 32 + lane) * columns + j] = code;
  }
  best = __reduce_max_sync(~0u, best);
  if (lane == 0) out[pair] = best;
}
// ---- bounds_of_meshes: three of the eight words of each vertex; or three arrays; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) bounds_of_meshes(const float* vertex, float* out, int n) {
  float low[3] = {9, 9, 9}, high[3] = {-9, -9, -9};
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE)
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      float v = vertex[V == 0 ? (i64)i * 8 + k : (i64)k * n + i];
      low[k] = fminf(low[k], v), high[k] = fmaxf(high[k], v);
    }
  out[T] = (high[0] - low[0]) * (high[1] - low[1]) * (high[2] - low[2]);
}
// ---- spread_of_quotes: bid and ask of records of 64 bytes; or an array of those; expected 4 times
template <int STEP> __global__ void __launch_bounds__(256) spread_of_quotes(const float2* quote, float* out, int n) {
  float widest = 0, s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float2 v = quote[(i64)i * STEP];
    float gap = fabsf(v.y - v.x);
    widest = fmaxf(widest, gap), s += gap;
  }
  out[T] = fmaf(0.1f, s, widest);
}
__global__ void split_records(const float* a, float* out, int n, int words, int first, int many, int planar) {
  for (int i = (int)T; i < n; i += (int)STRIDE)
    for (int k = 0; k < many; ++k) out[planar ? (i64)k * n + i : (i64)i * many + k] = a[(i64)i * words + first + k];
}
// ---- fetch_descriptors: descriptors of 64 bytes in any order, behind a header of 16, so that each lies in three sectors; or in two; expected 1.4 times
template <int OFFSET> __global__ void __launch_bounds__(256) fetch_descriptors(const uint4* table, int* out, unsigned many) {
  unsigned part = threadIdx.x & 3, key = (unsigned)(T / 4);
  int s = 0;
#pragma unroll 8
  for (int k = 0; k < 16; ++k) {
    uint4 v = table[(i64)(mix(key * 16 + k) % many) * 4 + part + OFFSET];
    s += __popc(v.x ^ key) + __popc(v.y) + __popc(v.z & v.w);
  }
  s += __shfl_xor_sync(~0u, s, 1), s += __shfl_xor_sync(~0u, s, 2);
  if (part == 0) out[key] = s;
}
// ---- damp_many_loads: a sparse matrix times rows of 16 numbers, whose pitch is 17, so that each touches three sectors; or 16; expected 1.4 times
constexpr int LINKS = 16;
template <int PITCH> __global__ void __launch_bounds__(256) damp_many_loads(const float* load, const int* column, const float* value, float* out) {
  int lane = threadIdx.x & 15, first = threadIdx.x & 16;
  i64 row = T / 16;
  int own = column[row * LINKS + lane];
  float by = value[row * LINKS + lane], s = 0;
#pragma unroll
  for (int k = 0; k < LINKS; ++k) s = fmaf(load[(i64)__shfl_sync(~0u, own, first + k) * PITCH + lane], __shfl_sync(~0u, by, first + k), s);
  out[T] = s;
}
__global__ void scatter_columns(int* column, int n, unsigned below) {
  for (int i = (int)T; i < n; i += (int)STRIDE) column[i] = (int)(mix((unsigned)i * 3 + 1) % below);
}
__global__ void pad_loads(const float* a, float* out, i64 n, int pitch) {
  for (i64 i = T; i < n; i += STRIDE) out[i / 16 * pitch + (i & 15)] = a[i];
}
// ---- update_one_side: one of eight interleaved solutions is written, four bytes of each sector; or an array of its own; expected 4 times
template <int STEP> __global__ void __launch_bounds__(256) update_one_side(const float* step, float* side, int n, float by) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) side[(i64)i * STEP] = by * step[i];
}
// ---- normals_of_facets: the three words of normals 16 bytes apart, whose fourth word nobody writes, so that memory must merge; or it is written as zero; expected 1.7 times
template <int V> __global__ void __launch_bounds__(256) normals_of_facets(const float* a, float4* out, int n) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float u = a[i] - 0.5f, v = 0.3f - 0.5f * u, w = fmaf(u, v, 0.2f), by = rsqrtf(fmaf(u, u, fmaf(v, v, w * w)));
    if (V == 0) {
      float* own = (float*)(out + i);
      own[0] = u * by, own[1] = v * by, own[2] = w * by;
    } else {
      out[i] = {u * by, v * by, w * by, 0};
    }
  }
}
// ---- composite_sprites: a byte of each layer a thread; or 16; expected 4 times
template <int V> __global__ void __launch_bounds__(256) composite_sprites(const unsigned char* front, const unsigned char* back, unsigned char* out, unsigned alpha) {
  auto over = [&](unsigned p, unsigned q) { return (p * alpha + q * (256 - alpha) + 128) >> 8; };
  if (V == 0) {
    out[T] = (unsigned char)over(front[T], back[T]);
    return;
  }
  uint4 p = ((const uint4*)front)[T], q = ((const uint4*)back)[T];
  auto four = [&](unsigned u, unsigned v) {  // even and odd bytes in halves of a word
    unsigned low = ((u & 0x00ff00ffu) * alpha + (v & 0x00ff00ffu) * (256 - alpha) + 0x00800080u) >> 8 & 0x00ff00ffu;
    unsigned high = ((u >> 8 & 0x00ff00ffu) * alpha + (v >> 8 & 0x00ff00ffu) * (256 - alpha) + 0x00800080u) & 0xff00ff00u;
    return low | high;
  };
  ((uint4*)out)[T] = {four(p.x, q.x), four(p.y, q.y), four(p.z, q.z), four(p.w, q.w)};
}
// ---- pack_genomes: four letters, read one by one, into a byte of two-bit bases a thread; or 64 letters into 16 bytes; expected 4 times
template <int V> __global__ void __launch_bounds__(256) pack_genomes(const unsigned char* letter, unsigned char* out) {
  if (V == 0) {
    unsigned s = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) s |= (letter[T * 4 + k] >> 1 & 3u) << 2 * k;
    out[T] = (unsigned char)s;
    return;
  }
  __shared__ uint4 room[8][128];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const uint4* own = (const uint4*)letter + T / 32 * 128;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int i = k * 32 + lane;
    room[warp][i ^ (i >> 3 & 3)] = own[i];
  }
  __syncwarp();
  auto byte = [](unsigned w) {
    w = w >> 1 & 0x03030303u, w |= w >> 6;
    return (w & 15) | (w >> 12 & 0xf0);
  };
  auto word = [&](uint4 v) { return byte(v.x) | byte(v.y) << 8 | byte(v.z) << 16 | byte(v.w) << 24; };
  unsigned w[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int i = lane * 4 + k;
    w[k] = word(room[warp][i ^ (i >> 3 & 3)]);
  }
  ((uint4*)out)[T] = {w[0], w[1], w[2], w[3]};
}
// ---- apply_laplacians: columns below 65,536 as 64-bit integers beside values of 32; or as 16-bit ones; expected 1.9 times
constexpr int NODES = 1 << 19;
template <class INDEX> __global__ void __launch_bounds__(256) apply_laplacians(const float2* value, const INDEX* column, const float* x, float* out) {
  int lane = threadIdx.x & 31;
  i64 row = T / 32 * 4;
  float s[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 at = (row + k) * 32 + lane;
    float2 v = value[at];
    INDEX c = column[at];
    s[k] = fmaf(v.x, x[c.x], v.y * x[c.y]);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) s[k] = warp_sum(s[k]);
  if (lane == 0) *(float4*)&out[row] = {s[0], s[1], s[2], s[3]};
}
__global__ void make_laplacian(longlong2* wide, ushort2* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned row = (unsigned)i / 32, c = (mix(row) & 1023) * 64 + (i & 31) * 2;
    wide[i] = {(i64)c, (i64)c + 1}, narrow[i] = {(unsigned short)c, (unsigned short)(c + 1)};
  }
}
// ---- polygenic_risks: genotypes of 0, 1 and 2 as floats; or bytes; expected 3 times
constexpr int PEOPLE = 1 << 16;
template <class FOUR> __global__ void __launch_bounds__(256) polygenic_risks(const FOUR* genotype, const float* effect, float4* out) {
  float4 s = {0, 0, 0, 0};
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    int site = blockIdx.y * 64 + k;
    FOUR g = genotype[(i64)site * (PEOPLE / 4) + T];
    float e = __ldg(&effect[site]);
    s = {fmaf(e, (float)g.x, s.x), fmaf(e, (float)g.y, s.y), fmaf(e, (float)g.z, s.z), fmaf(e, (float)g.w, s.w)};
  }
  out[blockIdx.y * (PEOPLE / 4) + T] = s;
}
__global__ void make_genotypes(float* wide, unsigned char* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = (float)(narrow[i] = (unsigned char)(mix((unsigned)i) % 3));
}
// ---- register_volumes: eight shifts of each pair of 32 kB pieces; all pieces for one shift after the other, 1 GB of DRAM; or the eight shifts of a piece together, so that seven come from L2; expected 1.5 times
constexpr int PIECES = 1 << 11;
__global__ void __launch_bounds__(256) register_volumes(const float4* still, const float4* moved, float* out, int by_shift) {
  __shared__ float part[8];
  int shift = by_shift ? blockIdx.x / PIECES : blockIdx.x & 7, piece = by_shift ? blockIdx.x % PIECES : blockIdx.x / 8;
  const float4 *p = still + piece * 2048ll + threadIdx.x, *q = moved + piece * 2048ll + threadIdx.x + shift * 8;
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float4 u = p[k * 256], v = q[k * 256];
    s += (fabsf(u.x - v.x) + fabsf(u.y - v.y)) + (fabsf(u.z - v.z) + fabsf(u.w - v.w));
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) out[piece * 8 + shift] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
// ---- areas_around_vertices: the fan of a vertex through the twin of each half-edge, whose record tells the next, 64 times, in eight warps an SM; or the fan as a list; expected 5 times
constexpr int FANS = 132 * 256, EDGES = 64;
struct HalfEdge {
  unsigned next;
  float area;
};
template <int V> __global__ void __launch_bounds__(256) areas_around_vertices(const HalfEdge* edge, const unsigned* first, const float* area, float* out) {
  float s = 0;
  if (V == 0) {
    unsigned begin = first[T], at = begin;
    do {
      s += edge[at].area;
      at = edge[at ^ 1].next;
    } while (at != begin);
  } else {
#pragma unroll 8
    for (int k = 0; k < EDGES; ++k) s += area[k * FANS + T];
  }
  out[T] = s;
}

void memory_cases() {
  static unsigned *woven, *firsts;
  static float *planes, *quotes, *loads17, *loads16, *wide_genes, *areas;
  static unsigned char* genes;
  static uint4* descriptors;
  static int* columns;
  static longlong2* wide_columns;
  static ushort2* narrow_columns;
  static HalfEdge* edges;
  cases.push_back({"gc_of_reads", "uncoalesced_loads", "", [] { gc_of_reads<0><<<READS / 256, 256>>>((unsigned*)A, (int*)C); }, [] { gc_of_reads<1><<<READS / 256, 256>>>(woven, (int*)C); }, C, READS, true, [] {
    woven = device<unsigned>(N);
    interleave_reads<<<1056, 256>>>((unsigned*)A, woven);
  }});
  cases.push_back({"weigh_portfolios", "uncoalesced_loads", "", [] { weigh_portfolios<0><<<8192, 256>>>(A, B, C); }, [] { weigh_portfolios<1><<<8192, 256>>>(A, B, C); }, C, 65536});
  cases.push_back({"fill_jacobians", "uncoalesced_stores", "partial_sector_writes", [] { fill_jacobians<0><<<ARMS / 128, 128>>>(A, C); }, [] { fill_jacobians<1><<<ARMS / 128, 128>>>(A, C); }, C, ARMS * 36ll});
  cases.push_back({"trace_alignments", "uncoalesced_stores", "partial_sector_writes", [] { trace_alignments<0><<<1056, 128>>>((unsigned*)A, (unsigned char*)D, (int*)C, 256); }, [] { trace_alignments<1><<<1056, 128>>>((unsigned*)A, (unsigned char*)D, (int*)C, 256); }, C, 4224, true});
  cases.push_back({"bounds_of_meshes", "strided_sectors", "uncoalesced_loads", [] { bounds_of_meshes<0><<<1056, 256>>>(A, C, 1 << 23); }, [] { bounds_of_meshes<1><<<1056, 256>>>(planes, C, 1 << 23); }, C, 1056 * 256, false, [] {
    planes = device<float>(3 << 23);
    split_records<<<1056, 256>>>(A, planes, 1 << 23, 8, 0, 3, 1);
  }});
  cases.push_back({"spread_of_quotes", "strided_sectors", "uncoalesced_loads", [] { spread_of_quotes<8><<<1056, 256>>>((float2*)A + 1, C, 1 << 22); }, [] { spread_of_quotes<1><<<1056, 256>>>((float2*)quotes, C, 1 << 22); }, C, 1056 * 256, false, [] {
    quotes = device<float>(2 << 22);
    split_records<<<1056, 256>>>(A, quotes, 1 << 22, 16, 2, 2, 0);
  }});
  cases.push_back({"fetch_descriptors", "misaligned_base", "alignment", [] { fetch_descriptors<1><<<2048, 256>>>(descriptors, (int*)C, 1 << 22); }, [] { fetch_descriptors<0><<<2048, 256>>>((uint4*)A, (int*)C, 1 << 22); }, C, 2048 * 64, true, [] {
    descriptors = device<uint4>((1 << 24) + 1);
    CHECK(cudaMemcpy(descriptors + 1, A, (i64)N * 4, cudaMemcpyDefault));
  }});
  cases.push_back({"damp_many_loads", "misaligned_base", "alignment", [] { damp_many_loads<17><<<(1 << 18) / 16, 256>>>(loads17, columns, B, C); }, [] { damp_many_loads<16><<<(1 << 18) / 16, 256>>>(loads16, columns, B, C); }, C, 1 << 22, false, [] {
    const i64 rows = 1 << 21;
    loads17 = device<float>(rows * 17), loads16 = device<float>(rows * 16), columns = device<int>(1 << 22);
    pad_loads<<<1056, 256>>>(A, loads17, rows * 16, 17), pad_loads<<<1056, 256>>>(A, loads16, rows * 16, 16);
    scatter_columns<<<1056, 256>>>(columns, 1 << 22, (unsigned)rows);
  }});
  cases.push_back({"update_one_side", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { update_one_side<8><<<1056, 256>>>(A, C + 3, 1 << 23, 0.5f); }, [] { update_one_side<1><<<1056, 256>>>(A, D, 1 << 23, 0.5f); }});
  cases.push_back({"normals_of_facets", "partial_sector_writes", "uncoalesced_stores", [] { normals_of_facets<0><<<1056, 256>>>(A, (float4*)C, 1 << 24); }, [] { normals_of_facets<1><<<1056, 256>>>(A, (float4*)C, 1 << 24); }, C, N, false, nullptr, [] { CHECK(cudaMemset(C, 0, N * 4)); }});
  cases.push_back({"composite_sprites", "narrow_accesses", "", [] { composite_sprites<0><<<N / 256, 256>>>((unsigned char*)A, (unsigned char*)B, (unsigned char*)C, 77); }, [] { composite_sprites<1><<<N / 4096, 256>>>((unsigned char*)A, (unsigned char*)B, (unsigned char*)C, 77); }, C, N / 4, true});
  cases.push_back({"pack_genomes", "narrow_accesses", "", [] { pack_genomes<0><<<N / 512, 256>>>((unsigned char*)A, (unsigned char*)C); }, [] { pack_genomes<1><<<N / 8192, 256>>>((unsigned char*)A, (unsigned char*)C); }, C, N / 8, true});
  cases.push_back({"apply_laplacians", "wide_data", "precision", [] { apply_laplacians<<<NODES / 32, 256>>>((float2*)A, wide_columns, B, C); }, [] { apply_laplacians<<<NODES / 32, 256>>>((float2*)A, narrow_columns, B, C); }, C, NODES, false, [] {
    wide_columns = device<longlong2>(NODES * 32), narrow_columns = device<ushort2>(NODES * 32);
    make_laplacian<<<1056, 256>>>(wide_columns, narrow_columns, NODES * 32);
  }});
  cases.push_back({"polygenic_risks", "wide_data", "precision", [] { polygenic_risks<<<dim3(PEOPLE / 1024, 16), 256>>>((float4*)wide_genes, B, (float4*)C); }, [] { polygenic_risks<<<dim3(PEOPLE / 1024, 16), 256>>>((uchar4*)genes, B, (float4*)C); }, C, PEOPLE * 16, false, [] {
    wide_genes = device<float>(N), genes = device<unsigned char>(N);
    make_genotypes<<<1056, 256>>>(wide_genes, genes, (int)N);
  }});
  cases.push_back({"register_volumes", "block_order_l2", "", [] { register_volumes<<<PIECES * 8, 256>>>((float4*)A, (float4*)B, C, 1); }, [] { register_volumes<<<PIECES * 8, 256>>>((float4*)A, (float4*)B, C, 0); }, C, PIECES * 8});
  cases.push_back({"areas_around_vertices", "pointer_chasing", "", [] { areas_around_vertices<0><<<132, 256>>>(edges, firsts, nullptr, C); }, [] { areas_around_vertices<1><<<132, 256>>>(nullptr, nullptr, areas, C); }, C, FANS, false, [] {
    const int all = FANS * EDGES;
    std::vector<unsigned> place(all), first(FANS);
    for (int i = 0; i < all; ++i) place[i] = (unsigned)i;
    for (int i = all - 1; i; --i) std::swap(place[i], place[mix((unsigned)i) % (unsigned)(i + 1)]);
    std::vector<HalfEdge> records(all * 2);
    std::vector<float> list(all);
    for (int v = 0; v < FANS; ++v) {
      first[v] = place[v * EDGES] * 2;
      for (int k = 0; k < EDGES; ++k) {
        unsigned at = place[v * EDGES + k] * 2;
        records[at].area = list[k * FANS + v] = share((unsigned)(v * EDGES + k)), records[at].next = 0;
        records[at + 1] = {place[v * EDGES + (k + 1) % EDGES] * 2, 0};
      }
    }
    edges = upload(records), firsts = upload(first), areas = upload(list);
  }});
}
