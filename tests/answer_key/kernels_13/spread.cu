// Grids, blocks and occupancy: halls, crowds, plates, partitions, stars, walkers, drums, visitors, cafes, dialogues, experts.
#include "frame.h"

void spread_cases();

// ---- reverberate_halls: 256 taps over 65,536 samples of each of 12 channels, a block a channel; or 64 blocks a channel; expected 8 times
constexpr int LENGTH = 1 << 16;
__global__ void __launch_bounds__(1024) reverberate_halls(const float* sound, const float* echo, float* out, int each) {
  __shared__ __align__(16) float room[1024 + 256], tap[256];
  int t = threadIdx.x;
  if (t < 256) tap[t] = echo[blockIdx.y * 256 + t] * 0.01f;
  const float* own = sound + (i64)blockIdx.y * (LENGTH + 256);
#pragma unroll 1
  for (int n = blockIdx.x * each; n < (blockIdx.x + 1) * each; ++n) {
    __syncthreads();
    room[t] = own[n * 1024 + t];
    if (t < 256) room[1024 + t] = own[n * 1024 + 1024 + t];
    __syncthreads();
    float s = 0;
#pragma unroll 4
    for (int k = 0; k < 256; k += 4) {
      float4 by = *(const float4*)&tap[k];
      s = fmaf(by.x, room[t + k], s), s = fmaf(by.y, room[t + k + 1], s), s = fmaf(by.z, room[t + k + 2], s), s = fmaf(by.w, room[t + k + 3], s);
    }
    out[(i64)blockIdx.y * LENGTH + n * 1024 + t] = s;
  }
}
// ---- simulate_crowds: 140 tiles for 132 persistent blocks, so that eight blocks take a second one; or tiles of an eighth; expected 1.7 times
__global__ void __launch_bounds__(1024) simulate_crowds(const float* a, float* out, int tiles, int each, int steps) {
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
#pragma unroll 1
    for (int r = 0; r < each; ++r) {
      i64 i = ((i64)tile * each + r) * 1024 + threadIdx.x;
      float want = a[i], x[4], v[4] = {};
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = 0.1f * k + 0.2f * want;
#pragma unroll 4
      for (int n = 0; n < steps; ++n)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float push = fmaf(-0.4f, x[k], want);
          push = fmaf(-0.2f * v[k], v[k], push), v[k] = fmaf(0.05f, push, v[k] * 0.98f), x[k] = fmaf(0.05f, v[k], x[k]);
        }
      out[i] = (x[0] + x[1]) + (x[2] + x[3]);
    }
}
// ---- vibrate_plates: 272 blocks of eight strips, two blocks an SM, so that eight blocks run in a second wave; or 2,176 of one strip; expected 1.4 times
__global__ void __launch_bounds__(1024) vibrate_plates(const float* a, float* out, int each, int steps) {
  __shared__ __align__(16) float4 room[2][1024];
  int t = threadIdx.x;
#pragma unroll 1
  for (int r = 0; r < each; ++r) {
    i64 i = ((i64)blockIdx.x * each + r) * 1024 + t;
    float4 x = ((const float4*)a)[i], v = {0, 0, 0, 0};
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
      room[n & 1][t] = x;
      __syncthreads();
      float before = room[n & 1][t + 1023 & 1023].w, after = room[n & 1][t + 1 & 1023].x;
      v.x = fmaf(0.1f, before + x.y - 2 * x.x, v.x * 0.99f), v.y = fmaf(0.1f, x.x + x.z - 2 * x.y, v.y * 0.99f);
      v.z = fmaf(0.1f, x.y + x.w - 2 * x.z, v.z * 0.99f), v.w = fmaf(0.1f, x.z + after - 2 * x.w, v.w * 0.99f);
      x = {x.x + v.x, x.y + v.y, x.z + v.z, x.w + v.w};
    }
    ((float4*)out)[i] = x;
    __syncthreads();
  }
}
// ---- join_partitions: a block a partition, 1,048 of 1,024 rows and eight of 65,536, each row against 256 keys; or a block for each 1,024 rows; expected 5 times
struct Part {
  int begin, end, keys;
};
__global__ void __launch_bounds__(256) join_partitions(const unsigned* row, const unsigned* key, const Part* part, int* out) {
  __shared__ __align__(16) unsigned of[256];
  Part own = part[blockIdx.x];
  of[threadIdx.x] = key[own.keys * 256 + threadIdx.x] >> 18;
  __syncthreads();
#pragma unroll 1
  for (int i = own.begin + threadIdx.x; i < own.end; i += 256) {
    unsigned v = row[i] >> 18;
    int s = 0;
#pragma unroll 8
    for (int k = 0; k < 256; k += 4) {
      uint4 w = *(const uint4*)&of[k];
      s += (w.x == v) + (w.y == v) * 2 + (w.z == v) * 3 + (w.w == v) * 4;
    }
    out[i] = s;
  }
}
// ---- age_stars: 8,384 blocks of light stars, then 64 of heavy ones with 30 times the steps, which run at the end alone; or the heavy ones first; expected 1.6 times
constexpr int STARS = 8448;
__global__ void __launch_bounds__(256) age_stars(const float* mass, float* out, int heaviest_first) {
  int b = heaviest_first ? STARS - 1 - blockIdx.x : blockIdx.x, steps = b < STARS - 64 ? 200 : 6000;
  i64 i = b * 256ll + threadIdx.x;
  float m = mass[i], heat = 0.5f, ash = 0;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    float burnt = 0.01f * m * heat;
    m = fmaf(-0.01f, burnt, m), heat = fmaf(0.3f, burnt, heat * 0.995f), heat = fminf(heat, 4.0f), ash = fmaf(0.9f, ash, burnt);
  }
  out[i] = m + ash;
}
// ---- score_walkers: 96 traits of a walker are loaded before its walk and used after it, so 16 warps fit an SM and wait for pages; or loaded after it; expected 2 times
template <int V> __global__ void __launch_bounds__(256) score_walkers(float* trait, const unsigned* page, const float* weight, float* out, int steps) {
  __shared__ float by[96];
  int lane = threadIdx.x & 31;
  unsigned warp = (unsigned)(T / 32);
  float x[96];
  if (V == 0)
#pragma unroll
    for (int k = 0; k < 96; ++k) x[k] = trait[k * STRIDE + T];
  if (threadIdx.x < 96) by[threadIdx.x] = weight[threadIdx.x];
  __syncthreads();
  float s = 0, all = 0;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    unsigned v = page[(mix(warp * 977 + n) & (1u << 21) - 1) * 32ll + lane];
    s = fmaf(s, 0.9f, (float)(v & 1023) * 0x1p-10f);
  }
#pragma unroll
  for (int k = 0; k < 96; ++k) all = fmaf(all, s * 0.1f, (V == 0 ? x[k] : trait[k * STRIDE + T]) * by[k]);
  out[T] = all;
}
// ---- gate_drums: a table of 4 kB in a room of 100 kB, so two blocks fit an SM; or in one of 4 kB; expected 3 times
__global__ void __launch_bounds__(256) gate_drums(const float* a, const float* curve, float* out, int each) {
  extern __shared__ __align__(16) unsigned char room[];
  float* of = (float*)room;
  for (int i = threadIdx.x; i < 1024; i += 256) of[i] = curve[i];
  __syncthreads();
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < each; ++n) s = fmaf(s, 0.9f, of[(int)(a[n * STRIDE + T] * 1024)]);
  out[T] = s;
}
// ---- sketch_visitors: the longest run of zeros for each of 4,096 kinds of hashes, in a copy for each of eight warps, so one block fits an SM; or in one copy; expected 4 times
template <int COPIES> __global__ void __launch_bounds__(256) sketch_visitors(const unsigned* visitor, int* out, int each) {
  extern __shared__ __align__(16) unsigned char room[];
  int* zeros = (int*)room;
  for (int i = threadIdx.x; i < 4096 * COPIES; i += 256) zeros[i] = 0;
  __syncthreads();
  int* own = zeros + threadIdx.x / 32 % COPIES * 4096;
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    unsigned h = mix(visitor[n * STRIDE + T] + 0x51ed27u);
    atomicMax(&own[h >> 20], __clz((int)(h << 12)) + 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 4096; i += 256) {
    int s = zeros[i];
#pragma unroll
    for (int k = 1; k < COPIES; ++k) s = max(s, zeros[k * 4096 + i]);
    if (s > out[i]) atomicMax(&out[i], s);
  }
}
// ---- rate_cafes: a warp reads the next row of ratings when it has weighed the last; 32 blocks of a warp fit an SM, or eight of eight; expected 1.6 times
__global__ void rate_cafes(const float* rating, float* out, int visits) {
  unsigned warp = (unsigned)(T / 32), lane = threadIdx.x & 31;
  float trust = 0.5f;
#pragma unroll 1
  for (int n = 0; n < visits; ++n) {
    float v = rating[(mix(warp * 641 + n) & (1u << 21) - 1) * 32ll + lane];
    trust = fmaf(0.8f, trust, 0.1f * v * trust + 0.05f);
  }
  out[T] = trust;
}
// ---- decode_dialogues: each of eight warps attends to its own dialogue, one of 2,048 words and seven of 128, and all meet after each layer; or all attend to each dialogue; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) decode_dialogues(const float* a, const int* words, float* out, int layers) {
  __shared__ float state[8], part[8][8];
  __shared__ int many[8];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  if (t < 8) state[t] = a[blockIdx.x * 8 + t], many[t] = words[t + blockIdx.x & 7];
  __syncthreads();
  auto attend = [&](int d, int from, int step) {
    float q = state[d], s = 0;
#pragma unroll 1
    for (int k = from; k < many[d]; k += step) {
      float x = 0.0005f * k;
#pragma unroll
      for (int r = 0; r < 8; ++r) x = fmaf(x, -0.6f * q, 0.4f + q);
      s += x;
    }
    return s;
  };
#pragma unroll 1
  for (int n = 0; n < layers; ++n) {
    float mine;
    if (V == 0) {
      mine = warp_sum(attend(warp, lane, 32));
    } else {
      float s[8];
#pragma unroll
      for (int d = 0; d < 8; ++d) s[d] = attend(d, t, 256);
#pragma unroll
      for (int d = 0; d < 8; ++d) s[d] = warp_sum(s[d]);
      if (lane == 0)
#pragma unroll
        for (int d = 0; d < 8; ++d) part[d][warp] = s[d];
      __syncthreads();
      mine = 0;
#pragma unroll
      for (int w = 0; w < 8; ++w) mine += part[warp][w];
    }
    float next = fmaf(0.5f, state[warp], 0.3f * state[warp + 1 & 7]) + 0.1f * mine / (float)many[warp];
    __syncthreads();
    if (lane == 0) state[warp] = next;
    __syncthreads();
  }
  if (t < 8) out[blockIdx.x * 8 + t] = state[t];
}
// ---- unpack_experts: one of eight warps widens the weights of four bits that all then use, and seven wait; or each widens an eighth; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) unpack_experts(const unsigned* packed, const float* a, float* out, int tiles) {
  __shared__ float tile[8][512];
  int t = threadIdx.x;
  float x[4], s[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = a[k * STRIDE + T];
  const unsigned* own = packed + (i64)blockIdx.x * tiles * 512;
  auto widen = [&](int n, int i) {
    unsigned w = own[n * 512 + i];
#pragma unroll
    for (int k = 0; k < 8; ++k) tile[k][i] = (float)((int)(w >> k * 4 & 15) - 7);
  };
#pragma unroll 1
  for (int n = 0; n < tiles; ++n) {
    if (V == 0) {
      if (t < 32)
#pragma unroll 4
        for (int i = t; i < 512; i += 32) widen(n, i);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) widen(n, i * 256 + t);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      float w = tile[k / 2][(k & 1) * 256 + t];
#pragma unroll
      for (int j = 0; j < 4; ++j) s[j] = fmaf(w, x[j], s[j] * 0.9f);
    }
    __syncthreads();
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}

void spread_cases() {
  static Part *whole, *pieces;
  static int some;
  static int* words;
  cases.push_back({"reverberate_halls", "grid_too_small", "", [] { reverberate_halls<<<dim3(1, 12), 1024>>>(A, B, C, 64); }, [] { reverberate_halls<<<dim3(64, 12), 1024>>>(A, B, C, 1); }, C, 12 * LENGTH});
  cases.push_back({"simulate_crowds", "tail_effect", "uneven_blocks", [] { simulate_crowds<<<132, 1024>>>(A, C, 140, 8, 256); }, [] { simulate_crowds<<<132, 1024>>>(A, C, 1120, 1, 256); }, C, 1120 * 1024});
  cases.push_back({"vibrate_plates", "tail_effect", "uneven_blocks", [] { vibrate_plates<<<272, 1024>>>(A, C, 8, 64); }, [] { vibrate_plates<<<2176, 1024>>>(A, C, 1, 64); }, C, 2176 * 4096});
  cases.push_back({"join_partitions", "uneven_blocks", "tail_effect", [] { join_partitions<<<1056, 256>>>((unsigned*)A, (unsigned*)B, whole, (int*)C); }, [] { join_partitions<<<some, 256>>>((unsigned*)A, (unsigned*)B, pieces, (int*)C); }, C, 1048 * 1024 + 8 * 65536, true, [] {
    std::vector<Part> all, parts;
    for (int k = 0, at = 0; k < 1056; ++k) {
      int end = at + (k % 132 == 100 ? 65536 : 1024);
      all.push_back({at, end, k});
      for (int i = at; i < end; i += 1024) parts.push_back({i, i + 1024, k});
      at = end;
    }
    whole = upload(all), pieces = upload(parts), some = (int)parts.size();
  }});
  cases.push_back({"age_stars", "uneven_blocks", "tail_effect", [] { age_stars<<<STARS, 256>>>(A, C, 0); }, [] { age_stars<<<STARS, 256>>>(A, C, 1); }, C, STARS * 256});
  cases.push_back({"score_walkers", "occupancy_registers", "", [] { score_walkers<0><<<1056, 256>>>(A, (unsigned*)B, D, C, 64); }, [] { score_walkers<1><<<1056, 256>>>(A, (unsigned*)B, D, C, 64); }, C, 1056 * 256});
  cases.push_back({"gate_drums", "occupancy_shared", "", [] {
    dynamic_shared(gate_drums, 100 << 10);
    gate_drums<<<1056, 256, 100 << 10>>>(A, B, C, 96);
  }, [] { gate_drums<<<1056, 256, 4 << 10>>>(A, B, C, 96); }, C, 1056 * 256});
  cases.push_back({"sketch_visitors", "occupancy_shared", "", [] {
    dynamic_shared(sketch_visitors<8>, 128 << 10);
    sketch_visitors<8><<<1056, 256, 128 << 10>>>((unsigned*)A, (int*)C, 64);
  }, [] { sketch_visitors<1><<<1056, 256, 16 << 10>>>((unsigned*)A, (int*)C, 64); }, C, 4096, true});
  cases.push_back({"rate_cafes", "occupancy_block_size", "", [] { rate_cafes<<<16896, 32>>>(A, C, 96); }, [] { rate_cafes<<<2112, 256>>>(A, C, 96); }, C, 16896 * 32});
  cases.push_back({"decode_dialogues", "uneven_warps", "", [] { decode_dialogues<0><<<264, 256>>>(A, words, C, 96); }, [] { decode_dialogues<1><<<264, 256>>>(A, words, C, 96); }, C, 264 * 8, false, [] { words = upload(std::vector<int>{128, 128, 2048, 128, 128, 128, 128, 128}); }});
  cases.push_back({"unpack_experts", "uneven_warps", "", [] { unpack_experts<0><<<264, 256>>>((unsigned*)A, B, C, 64); }, [] { unpack_experts<1><<<264, 256>>>((unsigned*)A, B, C, 64); }, C, 264 * 256});
}
