// Loads and stores: links, sentences, tensors, tracks, packets, codewords, text, FP8 weights, edges, a join's partitions, motifs.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// Names tell the domain, not the defect. operands.csv has the sizes of operands, as a caller knows them from shapes and types.
// Decided before any run: a pair whose forms differ by more than 1e-3, or a defect whose fix is slower, leaves the set; a pair whose fix wins less
// than 6 % of the time is a trap, whatever it was declared to be; one that fails to run leaves the set.
#include <cuda_fp8.h>

#include "set.h"

// ---- rank_of_pages: a sparse matrix of 64 slots a row, a row a thread, with a row's slots side by side; or a slot's rows side by side; expected 3 times
constexpr int PAGES = 1 << 18, SLOTS = 64;
__global__ void __launch_bounds__(256) rank_of_pages(const int* link, const float* weight, const float* rank, float* out, int by_row, int by_slot) {
  int row = (int)T;
  float s = 0;
#pragma unroll 4
  for (int k = 0; k < SLOTS; ++k) s = fmaf(weight[row * by_row + k * by_slot], rank[link[row * by_row + k * by_slot]], s);
  out[row] = s;
}
__global__ void make_links(const float* weight, int* link, int* link_by_slot, float* by_slot) {
  for (int i = (int)T; i < PAGES * SLOTS; i += (int)STRIDE) {
    int row = i / SLOTS, k = i % SLOTS, to = (row + k * 64 + (int)(mix((unsigned)i) & 15)) & (PAGES - 1);
    link[i] = to, link_by_slot[k * PAGES + row] = to, by_slot[k * PAGES + row] = weight[i];
  }
}
// ---- stage_sentences: asynchronous copies of 4 bytes, each lane from its own row of 1 kB; or 16 lanes a row; expected 3 times
template <int V> __global__ void __launch_bounds__(128) stage_sentences(const float* a, float* out) {
  __shared__ __align__(16) float tile[128][17];
  int t = threadIdx.x;
  const float* first = a + blockIdx.x * 128ll * 256;
  float s = 0;
  for (int part = 0; part < 256; part += 16) {
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      int row = V == 0 ? t : k * 8 + t / 16, column = V == 0 ? k : t & 15;
      __pipeline_memcpy_async(&tile[row][column], first + row * 256 + part + column, 4);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) s = fmaf(s, 0.5f, tile[t][k]);
    __syncthreads();
  }
  out[T] = s;
}
// ---- traces_of_tensors: 16 lanes read a diagonal, and each word of it lies in a sector of its own; or diagonals stored apart; expected 7 times
template <int ROW, int STEP> __global__ void __launch_bounds__(256) traces_of_tensors(const float* a, float* out, int n) {
  int lane = threadIdx.x & 15;
#pragma unroll 4
  for (int i = (int)(T / 16); i < n; i += (int)(STRIDE / 16)) {
    float v = a[i * ROW + lane * STEP];
    for (int o = 8; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    if (lane == 0) out[i] = v;
  }
}
__global__ void take_diagonals(const float* a, float* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = a[i / 16 * 256 + (i & 15) * 17];
}
// ---- upsample_tracks: a thread writes the 16 values after its sample, so lanes are 64 bytes apart; or neighbours write neighbours; expected 3 times
template <int V> __global__ void __launch_bounds__(256) upsample_tracks(const float* a, float* out) {
  if (V == 0) {
    float p = a[T], q = a[T + 1];
#pragma unroll
    for (int k = 0; k < 16; ++k) out[T * 16 + k] = fmaf((float)k * 0.0625f, q - p, p);
  } else {
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      int i = k * 256 + threadIdx.x;
      const float* own = a + blockIdx.x * 256ll + i / 16;
      out[blockIdx.x * 4096ll + i] = fmaf((float)(i & 15) * 0.0625f, own[1] - own[0], own[0]);
    }
  }
}
// ---- seal_packets: the last word of each packet of 64 bytes is written; or an array of these words; expected 8 times
template <int STEP> __global__ void __launch_bounds__(256) seal_packets(unsigned* packet, int n) {
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) packet[i * STEP] = mix((unsigned)i);
}
// ---- fetch_codewords: rows of 64 bytes behind a header of 16, so that each lies in three sectors; expected 1.5 times
__global__ void __launch_bounds__(256) fetch_codewords(const float4* book, float* out, int rows) {  // four lanes a row
  float s = 0;
#pragma unroll 8
  for (int k = 0; k < 48; ++k) {
    unsigned row = mix((unsigned)(T / 4) * 48 + k) & (unsigned)(rows - 1);
    float4 v = book[(i64)row * 4 + (threadIdx.x & 3)];
    s += (v.x - v.y) + (v.z - v.w);
  }
  out[T] = s;
}
// ---- words_of_text: beginnings of words of three letters or more, with four loads of a byte for each byte; or 16 bytes at once; expected 2 times
template <int V> __global__ void __launch_bounds__(256) words_of_text(const unsigned char* text, int* out) {  // a block 64 kB
  const unsigned char* own = text + blockIdx.x * 65536ll;
  int found = 0;
  if (V == 0) {
#pragma unroll 8
    for (int i = threadIdx.x; i < 65536; i += 256) found += own[i - 1] <= 32 && own[i] > 32 && own[i + 1] > 32 && own[i + 2] > 32;
  } else {
#pragma unroll 2
    for (int i = threadIdx.x; i < 4096; i += 256) {
      uint4 v = ((const uint4*)own)[i];
      unsigned w[6] = {(unsigned)own[i * 16 - 1] << 24, v.x, v.y, v.z, v.w, *(const unsigned*)(own + i * 16 + 16)}, blank[6];
#pragma unroll
      for (int k = 0; k < 6; ++k) blank[k] = __vcmpleu4(w[k], 0x20202020u);
#pragma unroll
      for (int k = 1; k < 5; ++k)
        found += __popc(__funnelshift_l(blank[k - 1], blank[k], 8) & ~(blank[k] | __funnelshift_r(blank[k], blank[k + 1], 8) | __funnelshift_r(blank[k], blank[k + 1], 16)) & 0x01010101u);
    }
  }
  found = __reduce_add_sync(~0u, found);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[blockIdx.x], found);
}
// ---- widen_fp8: a weight of one byte a thread; or 16; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) widen_fp8(const unsigned char* in, __half* out, const float* scale) {
  auto wide = [](unsigned byte) { return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)byte, __NV_E4M3))); };
  if (V == 0) {
    out[T] = __float2half(wide(in[T] & 0x77u) * scale[T >> 12]);
  } else {
    uint4 v = ((const uint4*)in)[T], to[2];
    float by = scale[T >> 8];
    __half2* p = (__half2*)to;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      unsigned w = (&v.x)[k / 2] >> (k & 1) * 16;
      p[k] = __floats2half2_rn(wide(w & 0x77u) * by, wide(w >> 8 & 0x77u) * by);
    }
    ((uint4*)out)[T * 2] = to[0], ((uint4*)out)[T * 2 + 1] = to[1];
  }
}
// ---- edges_across_cut: ends of edges in 64 bits, of which 24 count; expected 1.9 times
template <class X> __global__ void __launch_bounds__(256) edges_across_cut(const X* edge, int* out, int n, unsigned middle) {
  int s = 0;
#pragma unroll 4
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    X e = edge[i];
    s += (e.x < middle) != (e.y < middle);
  }
  out[T] = s;
}
__global__ void make_edges(ulonglong2* wide, uint2* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    uint2 e = {mix((unsigned)i * 2) >> 8, mix((unsigned)i * 2 + 1) >> 8};
    narrow[i] = e, wide[i] = {e.x, e.y};
  }
}
// ---- probe_partitions: 512 blocks probe each of 32 partitions of 8 MB; a block of each partition in turn, or a partition after the other; expected 1.7 times
__global__ void __launch_bounds__(256) probe_partitions(const float* table, int* out, int interleaved) {  // eight lanes a bucket of 32 bytes
  int p = interleaved ? blockIdx.x & 31 : blockIdx.x >> 9, q = interleaved ? blockIdx.x >> 5 : blockIdx.x & 511, of = p * 512 + q, s = 0;
  const float* own = table + (i64)p * (1 << 21) + (threadIdx.x & 7);
#pragma unroll 8
  for (int k = 0; k < 64; ++k) s += own[(mix((unsigned)(of * 32 + threadIdx.x / 8) * 64 + k) & ((1 << 18) - 1)) * 8] > 0.75f;
  out[of * 256 + threadIdx.x] = s;
}
// ---- match_motifs: an automaton whose next state is a load at the state and one base; or at the state and two bases; expected 1.9 times
constexpr int STATES = 1 << 16, READS = 132 * 128;
template <int BASES> __global__ void __launch_bounds__(128) match_motifs(const unsigned* read, const int* next, int* out, int words) {
  int state = 0;
#pragma unroll 1
  for (int w = 0; w < words; ++w) {
    unsigned v = read[w * READS + T];
#pragma unroll
    for (int k = 0; k < 16; k += BASES) state = next[state << 2 * BASES | (v >> 2 * k & ((1 << 2 * BASES) - 1))];
  }
  out[T] = state;
}

void memory_cases() {
  static int *links, *links_by_slot, *one_base, *two_bases;
  static float *weights_by_slot, *diagonals, *headed;
  static unsigned* packets;
  static ulonglong2* wide;
  static uint2* narrow;
  cases.push_back({"rank_of_pages", "uncoalesced_loads", "strided_sectors", [] { rank_of_pages<<<PAGES / 256, 256>>>(links, A, B, C, SLOTS, 1); }, [] { rank_of_pages<<<PAGES / 256, 256>>>(links_by_slot, weights_by_slot, B, C, 1, PAGES); }, C, PAGES, false, [] {
    links = device<int>(PAGES * SLOTS), links_by_slot = device<int>(PAGES * SLOTS), weights_by_slot = device<float>(PAGES * SLOTS);
    make_links<<<1056, 256>>>(A, links, links_by_slot, weights_by_slot);
  }});
  cases.push_back({"stage_sentences", "uncoalesced_loads", "", [] { stage_sentences<0><<<2048, 128>>>(A, C); }, [] { stage_sentences<1><<<2048, 128>>>(A, C); }, C, 1 << 18});
  cases.push_back({"traces_of_tensors", "strided_sectors", "uncoalesced_loads", [] { traces_of_tensors<256, 17><<<1056, 256>>>(A, C, 1 << 18); }, [] { traces_of_tensors<16, 1><<<1056, 256>>>(diagonals, C, 1 << 18); }, C, 1 << 18, false, [] {
    diagonals = device<float>(1 << 22);
    take_diagonals<<<1056, 256>>>(A, diagonals, 1 << 22);
  }});
  cases.push_back({"upsample_tracks", "uncoalesced_stores", "partial_sector_writes", [] { upsample_tracks<0><<<(1 << 22) / 256, 256>>>(A, C); }, [] { upsample_tracks<1><<<(1 << 22) / 256, 256>>>(A, C); }, C, N});
  cases.push_back({"seal_packets", "partial_sector_writes", "strided_sectors|uncoalesced_stores", [] { seal_packets<16><<<1056, 256>>>(packets + 15, 1 << 23); }, [] { seal_packets<1><<<1056, 256>>>((unsigned*)C, 1 << 23); }, nullptr, 0, false, [] { packets = device<unsigned>(1 << 27); }});
  cases.push_back({"fetch_codewords", "misaligned_base", "uncoalesced_loads", [] { fetch_codewords<<<1056, 256>>>((float4*)(headed + 4), C, 1 << 22); }, [] { fetch_codewords<<<1056, 256>>>((float4*)A, C, 1 << 22); }, C, 1056 * 256, false, [] {
    headed = device<float>(N + 8);
    CHECK(cudaMemcpy(headed + 4, A, N * 4, cudaMemcpyDefault));
  }});
  cases.push_back({"words_of_text", "narrow_accesses", "", [] { words_of_text<0><<<2048, 256>>>((unsigned char*)A + 64, (int*)C); }, [] { words_of_text<1><<<2048, 256>>>((unsigned char*)A + 64, (int*)C); }, C, 2048, true});
  cases.push_back({"widen_fp8", "narrow_accesses", "", [] { widen_fp8<0><<<(1 << 26) / 256, 256>>>((unsigned char*)A, (__half*)C, B); }, [] { widen_fp8<1><<<(1 << 26) / 4096, 256>>>((unsigned char*)A, (__half*)C, B); }, C, 1 << 25, true});
  cases.push_back({"edges_across_cut", "wide_data", "precision", [] { edges_across_cut<<<1056, 256>>>(wide, (int*)C, 1 << 24, 7u << 20); }, [] { edges_across_cut<<<1056, 256>>>(narrow, (int*)C, 1 << 24, 7u << 20); }, C, 1056 * 256, true, [] {
    wide = device<ulonglong2>(1 << 24), narrow = device<uint2>(1 << 24);
    make_edges<<<1056, 256>>>(wide, narrow, 1 << 24);
  }});
  cases.push_back({"probe_partitions", "block_order_l2", "", [] { probe_partitions<<<16384, 256>>>(A, (int*)C, 1); }, [] { probe_partitions<<<16384, 256>>>(A, (int*)C, 0); }, C, 16384 * 256, true});
  cases.push_back({"match_motifs", "pointer_chasing", "", [] { match_motifs<1><<<132, 128>>>((unsigned*)A, one_base, (int*)C, 64); }, [] { match_motifs<2><<<132, 128>>>((unsigned*)A, two_bases, (int*)C, 64); }, C, READS, true, [] {
    std::vector<int> one(STATES * 4), two(STATES * 16);
    for (int i = 0; i < STATES * 4; ++i) one[i] = (int)(mix((unsigned)i + 77) & (STATES - 1));
    for (int i = 0; i < STATES * 16; ++i) two[i] = one[one[i / 16 * 4 + (i & 3)] * 4 + (i / 4 & 3)];
    one_base = upload(one), two_bases = upload(two);
  }});
}
