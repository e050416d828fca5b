// Roofs of L2, of L1, of shared memory, of atomics, of constants and of textures. L2 is taken as 5.5 TB/s: 24 bytes a cycle and SM.
// Tables that L2 serves are larger than shared memory, and each row is read at a place that only its data tell.
#include "frame.h"

#include <cuda_fp16.h>

// ---- L2
// at the roof of L2, because 692 MB of rows of 512 bytes take 126 us, from a table of 8 MB
__global__ void __launch_bounds__(256, 8) recall_melody_motifs(const float4* a, float* out, int rounds) {
  int lane = threadIdx.x & 31;
  unsigned warp = (unsigned)(T / 32) * 4096;
  float s[4] = {};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    float4 v = __ldcg(&a[(mix(warp + n) & 16383) * 32 + lane]);
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// at the roof of L2, because 692 MB of rows of 128 bytes take 126 us, from a table of 8 MB of halves; 4 HADD2 for 16 bytes
__global__ void __launch_bounds__(256, 8) score_shogi_positions(const uint4* a, float2* out, int rounds) {
  unsigned own = (unsigned)(T / 8) * 4096;
  __half2 s[4] = {};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    uint4 v = __ldcg(&a[(mix(own + n) & 65535) * 8 + (threadIdx.x & 7)]);
    s[0] = __hadd2(s[0], *(__half2*)&v.x), s[1] = __hadd2(s[1], *(__half2*)&v.y), s[2] = __hadd2(s[2], *(__half2*)&v.z), s[3] = __hadd2(s[3], *(__half2*)&v.w);
  }
  out[T] = __half22float2(__hadd2(__hadd2(s[0], s[1]), __hadd2(s[2], s[3])));
}
// at the roof of L2, because 692 MB of rows of 1 kB of BF16 take 126 us, from a table of 16 MB; a list names them, 4 bytes for 1 kB
__global__ void __launch_bounds__(256, 8) read_ngram_vectors(const uint4* a, const int* list, float2* out, int rows) {
  int lane = threadIdx.x & 31;
  const int* own = list + T / 32 * rows;
  __nv_bfloat162 s[4] = {};
  auto add = [&](uint4 v) {
    auto two = [](unsigned w) { return *(__nv_bfloat162*)&w; };
    s[0] = __hadd2(s[0], two(v.x)), s[1] = __hadd2(s[1], two(v.y)), s[2] = __hadd2(s[2], two(v.z)), s[3] = __hadd2(s[3], two(v.w));
  };
#pragma unroll 1
  for (int n = 0; n < rows; n += 2) {
    int2 r = *(const int2*)&own[n];
    uint4 p = __ldcg(&a[r.x * 64 + lane]), q = __ldcg(&a[r.x * 64 + 32 + lane]), u = __ldcg(&a[r.y * 64 + lane]), v = __ldcg(&a[r.y * 64 + 32 + lane]);
    add(p), add(q), add(u), add(v);
  }
  out[T] = __bfloat1622float2(__hadd2(__hadd2(s[0], s[1]), __hadd2(s[2], s[3])));
}
// at the roof of L2, because 692 MB of cells of 64 bytes take 126 us, from a table of 8 MB
__global__ void __launch_bounds__(256, 8) light_probe_cells(const float4* a, float* out, int rounds) {
  unsigned own = (unsigned)(T / 4) * 4096;
  float s[4] = {};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    float4 v = __ldcg(&a[(mix(own + n) & 131071) * 4 + (threadIdx.x & 3)]);
    s[0] = fmaxf(s[0], v.x), s[1] = fmaxf(s[1], v.y), s[2] = fmaxf(s[2], v.z), s[3] = fmaxf(s[3], v.w);
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// at the roof of L2, because 692 MB of single sectors take 126 us, from a table of 12 MB; a pair of lanes reads one
__global__ void __launch_bounds__(256, 8) sense_fault_traces(const float4* a, float* out, int rounds) {
  unsigned own = (unsigned)(T / 2) * 4096;
  float s[4] = {};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    unsigned sector = __umulhi(mix(own + n), 393216u);
    float4 v = __ldcg(&a[sector * 2 + (threadIdx.x & 1)]);
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// at the roof of L2, because 692 MB of grains of 256 bytes take 126 us, from 16 MB of sound; 4 FMAs for 16 bytes
__global__ void __launch_bounds__(256, 8) overlay_grain_clouds(const float4* a, float4* out, int rounds) {
  unsigned own = (unsigned)(T / 16) * 4096;
  float4 s = {0, 0, 0, 0};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    unsigned h = mix(own + n);
    float4 v = __ldcg(&a[(h & 65535) * 16 + (threadIdx.x & 15)]);
    float by = (float)(h >> 24);
    s = {fmaf(by, v.x, s.x), fmaf(by, v.y, s.y), fmaf(by, v.z, s.z), fmaf(by, v.w, s.w)};
  }
  out[T] = s;
}
// at the roof of L2, because 692 MB of leaves of 128 bytes of doubles take 126 us, from a table of 16 MB; 2 DADDs for 16 bytes
__global__ void __launch_bounds__(256, 8) vote_tree_leaves(const double2* a, double2* out, int rounds) {
  unsigned own = (unsigned)(T / 8) * 4096;
  double2 s = {0, 0};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    double2 v = __ldcg(&a[(mix(own + n) & 131071) * 8 + (threadIdx.x & 7)]);
    s.x += v.x, s.y += v.y;
  }
  out[T] = s;
}
// at the roof of L2, because 692 MB of rows of 2 kB take 126 us, from 16 MB of distances; a block of 128 keeps the least
__global__ void __launch_bounds__(128, 16) relax_tram_routes(const uint4* a, uint4* out, int rounds) {
  uint4 s = {~0u, ~0u, ~0u, ~0u};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    unsigned h = mix(blockIdx.x * 4096 + n), w = h >> 20;
    uint4 v = __ldcg(&a[(h & 8191) * 128 + threadIdx.x]);
    s = {min(s.x, v.x + w), min(s.y, v.y + w), min(s.z, v.z + w), min(s.w, v.w + w)};
  }
  out[T] = s;
}
// at the roof of L2, because 692 MB are written in rings of 8 kB, which L2 holds; only the latest two laps leave it
__global__ void __launch_bounds__(256, 8) log_meter_readings(const float4* a, float4* ring, int rounds) {
  float4 v = a[T];
  float4* own = ring + blockIdx.x * 512ll + threadIdx.x;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    v.x += 1.0f, v.y = fmaf(0.5f, v.y, 0.1f);
    __stcg(&own[(n & 1) * 256], v);
    asm volatile("" ::: "memory");
  }
}
// at the roof of L2, because 346 MB are read from an atlas of 8 MB and written into rings of 8 kB that L2 holds
__global__ void __launch_bounds__(256, 8) stage_sprite_sheets(const float4* a, float4* ring, int rounds) {
  float4* own = ring + blockIdx.x * 512ll + threadIdx.x;
#pragma unroll 2
  for (int n = 0; n < rounds; n += 2) {
    float4 p = __ldcg(&a[(mix(blockIdx.x * 4096 + n) & 2047) * 256 + threadIdx.x]), q = __ldcg(&a[(mix(blockIdx.x * 4096 + n + 1) & 2047) * 256 + threadIdx.x]);
    __stcg(&own[0], p), __stcg(&own[256], q);
    asm volatile("" ::: "memory");
  }
}
// at the roof of L2, because 692 MB of tiles of 16 kB take 126 us, from a table of 16 MB; one warp asks for eight bulk copies ahead
__global__ void __launch_bounds__(288) draw_codebook_tiles(const uint4* a, unsigned* out, int tiles) {
  extern __shared__ __align__(128) uint4 shelf[];
  __shared__ u64 full[8], empty[8];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  if (t == 0) {
    for (int d = 0; d < 8; ++d) expect(&full[d], 1), expect(&empty[d], 8);
    show_barriers();
  }
  __syncthreads();
  if (warp == 8) {
    if (lane == 0)
      for (int n = 0; n < tiles; ++n) {
        int d = n & 7;
        if (n >= 8) wait(&empty[d], (n / 8 - 1) & 1);
        announce(&full[d], 16384);
        load_bulk(shelf + d * 1024, a + (mix(blockIdx.x * 4096 + n) & 1023) * 1024, 16384, &full[d]);
      }
    return;
  }
  unsigned s = 0;
#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    int d = n & 7;
    wait(&full[d], n / 8 & 1);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint4 v = shelf[d * 1024 + k * 256 + t];
      s += (v.x ^ v.y) + (v.z ^ v.w);
    }
    __syncwarp();
    if (lane == 0) arrive(&empty[d]);
  }
  out[blockIdx.x * 256 + t] = s;
}
// at the roof of L2, because 692 MB of bricks of 512 bytes take 126 us, from 16 MB of voxels; 4 dot products of bytes for 16 bytes
__global__ void __launch_bounds__(256, 8) shade_voxel_bricks(const int4* a, int* out, int rounds) {
  int lane = threadIdx.x & 31, s = 0, r = 0;
  unsigned warp = (unsigned)(T / 32) * 4096;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    int4 v = __ldcg(&a[(mix(warp + n) & 32767) * 32 + lane]);
    s = __dp4a(v.x, 0x01020304, s), r = __dp4a(v.y, 0x04030201, r), s = __dp4a(v.z, 0x02040103, s), r = __dp4a(v.w, 0x03010402, r);
  }
  out[T] = s + r;
}

// ---- shared memory and L1
// at the roof of shared memory, because a warp reads 512 bytes in 4 cycles, and its 9 instructions take 2.3
__global__ void __launch_bounds__(256, 8) loop_tape_echoes(const float4* a, float4* out, int rounds) {
  __shared__ float4 tape[1024];
  int t = threadIdx.x;
#pragma unroll
  for (int k = 0; k < 4; ++k) tape[k * 256 + t] = a[blockIdx.x * 1024 + k * 256 + t];
  __syncthreads();
  float4 s = {0, 0, 0, 0};
  int at = t;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    float4 v = tape[at];
    at = (at + 88) & 1023;
    s = {fmaf(0.7f, s.x, v.x), fmaf(0.7f, s.y, v.y), fmaf(0.7f, s.z, v.z), fmaf(0.7f, s.w, v.w)};
  }
  out[T] = s;
}
// at the roof of shared memory, because a warp reads a word a bank in a cycle, and each 16 reads come from a place that the last ones tell
__global__ void __launch_bounds__(256, 8) jumble_radio_codes(const unsigned* a, unsigned* out, int rounds) {
  __shared__ unsigned code[64 * 32];
  int t = threadIdx.x;
#pragma unroll
  for (int k = 0; k < 8; ++k) code[k * 256 + t] = a[blockIdx.x * 2048 + k * 256 + t];
  __syncthreads();
  unsigned s = t, r = t * 3;
#pragma unroll 1
  for (int n = 0; n < rounds; ++n) {  // lanes keep different banks, whatever their rows
    const unsigned* own = code + (s & 31) * 32 + ((t ^ n) & 31);
    const unsigned* other = code + (r & 31) * 32 + ((t + n) & 31);
#pragma unroll
    for (int k = 0; k < 16; ++k) s ^= own[k * 32], r += other[k * 64];
  }
  out[T] = s ^ r;
}
// at the roof of shared memory, because a warp writes and reads 1 kB in 8 cycles, and its 14 instructions take 4
__global__ void __launch_bounds__(256, 8) braid_silk_threads(const uint4* a, uint4* out, int rounds) {
  __shared__ uint4 loom[8][32];
  int lane = threadIdx.x & 31;
  uint4* own = loom[threadIdx.x / 32];
  uint4 v = a[T];
#pragma unroll 2
  for (int n = 0; n < rounds; ++n) {
    own[lane] = v;
    __syncwarp();
    uint4 w = own[lane ^ (n & 7) ^ 8];
    v = {v.y + w.x, v.z ^ w.y, v.w + w.z, v.x ^ w.w};
    __syncwarp();
  }
  out[T] = v;
}
// at the roof of shuffles, because an SM shuffles a warp in a cycle, and each of them follows a lane that the values tell
__global__ void __launch_bounds__(256, 8) turn_kaleidoscope_facets(const unsigned* a, unsigned* out, int rounds) {
  unsigned v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = a[k * STRIDE + T];
#pragma unroll 4
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] += __shfl_sync(~0u, v[k], (int)v[(k + 1) & 3]);
  out[T] = (v[0] ^ v[1]) + (v[2] ^ v[3]);
}
// at the roof of L1, because a warp reads 512 bytes in 4 cycles or more from 64 kB that L1 holds, and its 9 instructions take 2.5
__global__ void __launch_bounds__(256, 8) quiz_flash_cards(const float4* __restrict__ a, float* out, int rounds) {
  int lane = threadIdx.x & 31;
  unsigned h = threadIdx.x / 32 + blockIdx.x * 8;
  float s[4] = {};
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    h = h * 1664525u + 1013904223u;
    float4 v = __ldg(&a[(h >> 25) * 32 + lane]);
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// at the roof of L1, because a warp reads two lines in 2 cycles or more from 64 kB that L1 holds
__global__ void __launch_bounds__(256, 8) check_tariff_sheets(const uint2* __restrict__ a, unsigned* out, int rounds) {
  int lane = threadIdx.x & 31;
  unsigned s = 0, h = threadIdx.x / 32 + blockIdx.x * 8;
#pragma unroll 1
  for (int n = 0; n < rounds; ++n) {
    h = h * 1664525u + 1013904223u;
    const uint2* own = a + (h >> 28) * 512 + lane;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      uint2 v = __ldg(&own[k * 32]);
      s ^= v.x ^ v.y;
    }
  }
  out[T] = s;
}
// at the roof of shared memory, because four matrices of 8 x 8 take 4 cycles a warp, in rows of 80 bytes without conflicts
__global__ void __launch_bounds__(256, 8) stack_mosaic_tiles(const uint4* a, unsigned* out, int rounds) {
  __shared__ __align__(128) uint4 tile[64 * 5];  // 64 rows of 80 bytes
  int lane = threadIdx.x & 31;
  tile[threadIdx.x] = a[T];
  if (threadIdx.x < 64) tile[256 + threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  unsigned s = 0, r = 0;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    unsigned v[4];
    fetch_four(v, &tile[((n & 3) * 16 + (lane & 15)) * 5 + lane / 16 + (n & 2)]);
    s ^= v[0] ^ v[1], r ^= v[2] ^ v[3];
  }
  out[T] = s + r;
}
// at the roof of atomics of shared memory, because each lane adds to counters of its own bank, and the four instructions beside take 1.5 cycles
__global__ void __launch_bounds__(256, 8) punch_loom_cards(const unsigned* a, unsigned* out, int rounds) {
  __shared__ unsigned hole[16 * 256];
  int t = threadIdx.x;
#pragma unroll
  for (int k = 0; k < 16; ++k) hole[k * 256 + t] = 0;
  __syncthreads();
  unsigned h = a[T], at = t * 4, base = place(hole);
#pragma unroll 2
  for (int n = 0; n < rounds; n += 4) {
    h = h * 1664525u + 1013904223u;
    auto punch = [&](unsigned by) {  // another row of 1 kB, in the same bank
      at ^= by & 0x3c00;
      asm volatile("red.shared::cta.add.u32 [%0], %1;" ::"r"(base + at), "r"(t) : "memory");
    };
    punch(h >> 18), punch(h >> 15), punch(h >> 12), punch(h >> 9);
  }
  __syncthreads();
  unsigned s = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) s ^= hole[k * 256 + t];
  out[T] = s;
}

// ---- atomics of L2, each lane another address
// at the roof of L2's atomics, because 16 million counts go to 2 million random words, and their keys need only 16 us of DRAM
__global__ void __launch_bounds__(256) census_forest_species(const uint4* a, unsigned* bins) {
  uint4 v = a[T];
  atomicAdd(&bins[mix(v.x) & 2097151], 1u), atomicAdd(&bins[mix(v.y) & 2097151], 1u), atomicAdd(&bins[mix(v.z) & 2097151], 1u), atomicAdd(&bins[mix(v.w) & 2097151], 1u);
}
// at the roof of L2's atomics, because 16 million floats are added at 4 million random places of 16 MB
__global__ void __launch_bounds__(256) scatter_photon_energy(const float4* a, float* cell) {
  float4 v = a[T];
  unsigned i = (unsigned)T * 4;
  auto add = [&](unsigned k, float x) { atomicAdd(&cell[mix(i + k) & 4194303], x); };
  add(0, v.x), add(1, v.y), add(2, v.z), add(3, v.w);
}
// at the roof of L2's atomics, because 16 million bits are set in 2 million random words
__global__ void __launch_bounds__(256) mark_visited_harbours(const uint4* a, unsigned* map) {
  uint4 v = a[T];
  auto mark = [&](unsigned x) {
    unsigned h = mix(x ^ 0x5bd1e995u);
    atomicOr(&map[h & 2097151], 1u << (h >> 27));
  };
  mark(v.x), mark(v.y), mark(v.z), mark(v.w);
}
// at the roof of L2's atomics, because 16 million maxima of 64 bits go to 1 million random places of 8 MB
__global__ void __launch_bounds__(256) date_buoy_reports(const uint4* a, u64* latest) {
  uint4 v = a[T];
  auto report = [&](unsigned x, unsigned y) { atomicMax(&latest[mix(x) & 1048575], (u64)y << 32 | x); };
  report(v.x, v.y), report(v.y, v.z), report(v.z, v.w), report(v.w, v.x);
}
// at the roof of L2's atomics, because 519 MB of rows of 512 bytes are added to random rows of 8 MB, four floats an operation
__global__ void __launch_bounds__(256) teach_memory_rows(const float4* a, float4* row, int rounds) {
  int lane = threadIdx.x & 31;
  float4 v = a[T];
  unsigned warp = (unsigned)(T / 32) * 4096;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    unsigned h = mix(warp + n);
    float by = (float)(h >> 20) * 1e-6f;
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(&row[(h & 16383) * 32 + lane]), "f"(v.x * by), "f"(v.y * by), "f"(v.z * by), "f"(v.w * by) : "memory");
  }
}
// at the roof of L2's atomics, because 4 million rows of 128 bytes are added to random rows of 8 MB, two BF16 a lane
__global__ void __launch_bounds__(256) gather_village_gossip(const unsigned* a, __nv_bfloat162* village, int rounds) {
  int lane = threadIdx.x & 31;
  unsigned warp = (unsigned)(T / 32) * 4096;
  __nv_bfloat162 v = __floats2bfloat162_rn((a[T] & 255) * 1e-4f, lane * 1e-4f);
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) asm volatile("red.relaxed.gpu.global.add.noftz.bf16x2 [%0], %1;" ::"l"(&village[(mix(warp + n) & 65535) * 32 + lane]), "r"(*(unsigned*)&v) : "memory");
}

// ---- constants and textures
__constant__ float RECIPE[32];
__constant__ float4 BARREL[256];
// at the roof of issue slots, because 32 constants of a recipe are operands of its FMAs, and nothing else takes 5 % of the slots
__global__ void __launch_bounds__(256, 8) grind_lens_recipes(const float* a, float* out, int rounds) {
  float x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = a[k * STRIDE + T];
#pragma unroll 1
  for (int n = 0; n < rounds; ++n)
#pragma unroll
    for (int m = 0; m < 64; ++m) x[m & 3] = fmaf(x[m & 3], x[m & 3], RECIPE[m & 31]);
  out[T] = (x[0] + x[1]) + (x[2] + x[3]);
}
// at the roof of FMAs, because 16 bytes of constants, read once a warp at a place of its own, serve 24 FMAs
__global__ void __launch_bounds__(256, 8) play_barrel_organs(const float* a, float* out, int rounds) {
  float x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[k * STRIDE + T];
  int at = threadIdx.x / 32 * 32;
#pragma unroll 1
  for (int n = 0; n < rounds; n += 8, at = (at + 8) & 255)
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      float4 v = BARREL[at + m];
#pragma unroll
      for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], v.x, v.y);
#pragma unroll
      for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], x[k], v.z);
#pragma unroll
      for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], x[k], v.w);
    }
  out[T] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
// at the roof of textures, because an SM filters four pixels a cycle, 8 cycles a warp, and its 10 instructions take 2.5
__global__ void __launch_bounds__(256, 8) weave_rug_patterns(cudaTextureObject_t rug, float* out, int rounds) {
  float x = (threadIdx.x & 15) * (1 / 128.0f) + blockIdx.x * 0.0371f, y = threadIdx.x / 16 * (1 / 128.0f) + blockIdx.x * 0.0137f, s = 0, r = 0;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    float4 v = tex2D<float4>(rug, x, y);
    x += 0.0313f, y += 0.0177f, s += v.x + v.y, r += v.z + v.w;
  }
  out[T] = s + r;
}
// at the roof of textures, because a sample between eight voxels takes 16 cycles a warp
__global__ void __launch_bounds__(256, 8) sound_plasma_clouds(cudaTextureObject_t cloud, float* out, int rounds) {
  float x = (threadIdx.x & 31) * (1 / 32.0f), y = threadIdx.x / 32 * (1 / 32.0f) + blockIdx.x * 0.0137f, z = blockIdx.x * 0.0271f, s = 0;
#pragma unroll 4
  for (int n = 0; n < rounds; ++n) {
    s = fmaf(0.9f, s, tex3D<float>(cloud, x, y, z));
    x += 0.0113f, y += 0.0177f, z += 0.0219f;
  }
  out[T] = s;
}

void cache_cases() {
  static int* list;
  static float* table;  // 16 MB, for atomics
  static cudaTextureObject_t rug, cloud;
  auto make_table = [] {
    if (table) return;
    table = device<float>(1 << 22);
    CHECK(cudaMemset(table, 0, 1 << 24));
  };
  cases.push_back({"recall_melody_motifs", "none_at_roof", "", [] { recall_melody_motifs<<<1056, 256>>>((float4*)A, C, 160); }, nullptr});
  cases.push_back({"score_shogi_positions", "none_at_roof", "", [] { score_shogi_positions<<<1056, 256>>>((uint4*)B, (float2*)C, 160); }, nullptr});
  cases.push_back({"read_ngram_vectors", "none_at_roof", "", [] { read_ngram_vectors<<<1056, 256>>>((uint4*)A, list, (float2*)C, 80); }, nullptr, nullptr, 0, false, [] {
    std::vector<int> v(1056 * 8 * 80);
    for (unsigned i = 0; i < v.size(); ++i) v[i] = mix(i) & 16383;
    list = upload(v);
  }});
  cases.push_back({"light_probe_cells", "none_at_roof", "", [] { light_probe_cells<<<1056, 256>>>((float4*)D, C, 160); }, nullptr});
  cases.push_back({"sense_fault_traces", "none_at_roof", "", [] { sense_fault_traces<<<1056, 256>>>((float4*)A, C, 160); }, nullptr});
  cases.push_back({"overlay_grain_clouds", "none_at_roof", "", [] { overlay_grain_clouds<<<1056, 256>>>((float4*)B, (float4*)C, 160); }, nullptr});
  cases.push_back({"vote_tree_leaves", "none_at_roof", "", [] { vote_tree_leaves<<<1056, 256>>>((double2*)A, (double2*)C, 160); }, nullptr});
  cases.push_back({"relax_tram_routes", "none_at_roof", "", [] { relax_tram_routes<<<2112, 128>>>((uint4*)A, (uint4*)C, 160); }, nullptr});
  cases.push_back({"log_meter_readings", "none_at_roof", "", [] { log_meter_readings<<<1056, 256>>>((float4*)A, (float4*)C, 160); }, nullptr});
  cases.push_back({"stage_sprite_sheets", "none_at_roof", "", [] { stage_sprite_sheets<<<1056, 256>>>((float4*)A, (float4*)C, 80); }, nullptr});
  cases.push_back({"draw_codebook_tiles", "none_at_roof", "", [] {
    dynamic_shared(draw_codebook_tiles, 8 * 16384);
    draw_codebook_tiles<<<132, 288, 8 * 16384>>>((uint4*)A, (unsigned*)C, 320);
  }, nullptr});
  cases.push_back({"shade_voxel_bricks", "none_at_roof", "", [] { shade_voxel_bricks<<<1056, 256>>>((int4*)D, (int*)C, 160); }, nullptr});
  cases.push_back({"loop_tape_echoes", "none_at_roof", "", [] { loop_tape_echoes<<<1056, 256>>>((float4*)A, (float4*)C, 1024); }, nullptr});
  cases.push_back({"jumble_radio_codes", "none_at_roof", "", [] { jumble_radio_codes<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 96); }, nullptr});
  cases.push_back({"braid_silk_threads", "none_at_roof", "", [] { braid_silk_threads<<<1056, 256>>>((uint4*)A, (uint4*)C, 512); }, nullptr});
  cases.push_back({"turn_kaleidoscope_facets", "none_at_roof", "", [] { turn_kaleidoscope_facets<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 768); }, nullptr});
  cases.push_back({"quiz_flash_cards", "none_at_roof", "", [] { quiz_flash_cards<<<1056, 256>>>((float4*)A, C, 768); }, nullptr});
  cases.push_back({"check_tariff_sheets", "none_at_roof", "", [] { check_tariff_sheets<<<1056, 256>>>((uint2*)B, (unsigned*)C, 96); }, nullptr});
  cases.push_back({"stack_mosaic_tiles", "none_at_roof", "", [] { stack_mosaic_tiles<<<1056, 256>>>((uint4*)A, (unsigned*)C, 768); }, nullptr});
  cases.push_back({"punch_loom_cards", "none_at_roof", "", [] { punch_loom_cards<<<1056, 256>>>((unsigned*)A, (unsigned*)C, 1024); }, nullptr});
  cases.push_back({"census_forest_species", "none_at_roof", "", [] { census_forest_species<<<16384, 256>>>((uint4*)A, (unsigned*)table); }, nullptr, nullptr, 0, false, make_table});
  cases.push_back({"scatter_photon_energy", "none_at_roof", "", [] { scatter_photon_energy<<<16384, 256>>>((float4*)A, table); }, nullptr, nullptr, 0, false, make_table, [] { CHECK(cudaMemset(table, 0, 1 << 24)); }});
  cases.push_back({"mark_visited_harbours", "none_at_roof", "", [] { mark_visited_harbours<<<16384, 256>>>((uint4*)B, (unsigned*)table); }, nullptr, nullptr, 0, false, make_table, [] { CHECK(cudaMemset(table, 0, 1 << 24)); }});
  cases.push_back({"date_buoy_reports", "none_at_roof", "", [] { date_buoy_reports<<<16384, 256>>>((uint4*)D, (u64*)table); }, nullptr, nullptr, 0, false, make_table, [] { CHECK(cudaMemset(table, 0, 1 << 24)); }});
  cases.push_back({"teach_memory_rows", "none_at_roof", "", [] { teach_memory_rows<<<1056, 256>>>((float4*)A, (float4*)table, 120); }, nullptr, nullptr, 0, false, make_table, [] { CHECK(cudaMemset(table, 0, 1 << 24)); }});
  cases.push_back({"gather_village_gossip", "none_at_roof", "", [] { gather_village_gossip<<<1056, 256>>>((unsigned*)A, (__nv_bfloat162*)table, 480); }, nullptr, nullptr, 0, false, make_table, [] { CHECK(cudaMemset(table, 0, 1 << 24)); }});
  auto make_constants = [] {
    std::vector<float> v(1024);
    for (unsigned k = 0; k < 1024; ++k) v[k] = -0.5f * uniform(k);
    CHECK(cudaMemcpyToSymbol(RECIPE, v.data(), 128));
    CHECK(cudaMemcpyToSymbol(BARREL, v.data(), 4096));
  };
  cases.push_back({"grind_lens_recipes", "none_at_roof", "", [] { grind_lens_recipes<<<1056, 256>>>(A, C, 256); }, nullptr, nullptr, 0, false, make_constants});
  cases.push_back({"play_barrel_organs", "none_at_roof", "", [] { play_barrel_organs<<<1056, 256>>>(A, C, 512); }, nullptr, nullptr, 0, false, make_constants});
  cases.push_back({"weave_rug_patterns", "none_at_roof", "", [] { weave_rug_patterns<<<1056, 256>>>(rug, C, 384); }, nullptr, nullptr, 0, false, [] {
    std::vector<unsigned> v(128 * 128);
    for (unsigned k = 0; k < v.size(); ++k) v[k] = mix(k);
    cudaArray_t array;
    cudaChannelFormatDesc form = cudaCreateChannelDesc<uchar4>();
    CHECK(cudaMallocArray(&array, &form, 128, 128));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, v.data(), 512, 512, 128, cudaMemcpyHostToDevice));
    cudaResourceDesc what = {};
    what.resType = cudaResourceTypeArray, what.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap, how.filterMode = cudaFilterModeLinear, how.readMode = cudaReadModeNormalizedFloat, how.normalizedCoords = 1;
    CHECK(cudaCreateTextureObject(&rug, &what, &how, nullptr));
  }});
  cases.push_back({"sound_plasma_clouds", "none_at_roof", "", [] { sound_plasma_clouds<<<1056, 256>>>(cloud, C, 256); }, nullptr, nullptr, 0, false, [] {
    std::vector<float> v(32 * 32 * 32);
    for (unsigned k = 0; k < v.size(); ++k) v[k] = uniform(k);
    cudaArray_t array;
    cudaChannelFormatDesc form = cudaCreateChannelDesc<float>();
    CHECK(cudaMalloc3DArray(&array, &form, make_cudaExtent(32, 32, 32)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(v.data(), 128, 32, 32), copy.dstArray = array, copy.extent = make_cudaExtent(32, 32, 32), copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    cudaResourceDesc what = {};
    what.resType = cudaResourceTypeArray, what.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = how.addressMode[2] = cudaAddressModeWrap, how.filterMode = cudaFilterModeLinear, how.readMode = cudaReadModeElementType, how.normalizedCoords = 1;
    CHECK(cudaCreateTextureObject(&cloud, &what, &how, nullptr));
  }});
}
