// Banks, barriers, reductions, atomics and tables: phonemes, audio, oscillators, trades, gradients, villages, galaxies, photons, frontiers, songs, FP4, queries.
#include "frame.h"

// ---- tag_phonemes: rows of 64 values of 16 bits, 128 bytes apart in shared memory, so eight rows of a matrix load meet in four banks; or 144 bytes apart; expected 4 times
template <int PITCH> __global__ void __launch_bounds__(128) tag_phonemes(const bf16* sound, const bf16* phoneme, float* out, int rounds) {
  __shared__ __align__(128) bf16 room[128][PITCH];
  int t = threadIdx.x, lane = t & 31, g = lane / 4, c = (lane & 3) * 2;
  for (int i = t; i < 1024; i += 128) *(uint4*)&room[i / 8][(i & 7) * 8] = ((const uint4*)phoneme)[i];
  __syncthreads();
  const bf16* own = sound + T / 32 * 1024;
  unsigned a[4][4];
#pragma unroll
  for (int k = 0; k < 16; ++k) a[k / 4][k & 3] = *(const unsigned*)&own[(g + (k & 1) * 8) * 64 + k / 4 * 16 + c + (k & 2) * 4];
  float all = 0;
#pragma unroll 1
  for (int r = 0; r < rounds; ++r)
#pragma unroll 2
    for (int n = 0; n < 128; n += 16) {
      float s[2][4] = {};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        unsigned b[4];
        take_pieces(b, &room[n + (lane & 7) + lane / 16 * 8][k * 16 + (lane >> 3 & 1) * 8]);
        tensor_add(s[0], a[k], b[0], b[1]), tensor_add(s[1], a[k], b[2], b[3]);
      }
      all = fmaf(all, 0.5f, fmaxf(fmaxf(s[0][0], s[0][1]), fmaxf(s[1][2], s[1][3])) + fmaxf(fmaxf(s[0][2], s[0][3]), fmaxf(s[1][0], s[1][1])));
    }
  out[T] = all;
}
// ---- decimate_audio: each eighth output of a filter of 64 taps, so lanes read words eight apart, which lie in four banks; or each of eight phases on its own; expected 4 times
struct Taps {
  float of[64];
};
template <int V> __global__ void __launch_bounds__(256) decimate_audio(const float* a, float* out, int lead, const Taps tap) {
  __shared__ float room[8 * 292];
  int t = threadIdx.x;
  for (int i = t; i < 2104 - lead; i += 256) room[V == 0 ? i + lead : (i & 7) * 292 + i / 8] = a[blockIdx.x * 2048ll + i];
  __syncthreads();
  float s = 0;
#pragma unroll
  for (int k = 0; k < 56; ++k) s = fmaf(tap.of[k], V == 0 ? room[t * 8 + k + lead] : room[(k & 7) * 292 + t + k / 8], s);
  out[T] = s;
}
// ---- tune_oscillators: the four blocks of a cluster meet after each step, though each thread's oscillator is its own; or never; expected 4 times
template <int V> __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(512) tune_oscillators(const float* a, float* out, int steps) {
  float x = a[T], v = 0.2f, k = 0.5f + a[T + STRIDE];
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    float f = fmaf(-k, x, -0.1f * v);
    f = fmaf(-0.3f * x, x * x, f), v = fmaf(0.02f, f, v), x = fmaf(0.02f, v, x);
    if (V == 0) cg::this_cluster().sync();
  }
  out[T] = x + v;
}
// ---- journal_trades: a fence after each entry of a thread's own journal, which nobody reads before the end; or none; expected 3 times
template <int V> __global__ void __launch_bounds__(256) journal_trades(const float* a, float* out, int entries) {
  float price = a[T], sum = 0;
#pragma unroll 4
  for (int n = 0; n < entries; ++n) {
    price = fmaf(price, 0.97f, 0.01f * (n & 3)), sum += price;
    out[n * STRIDE + T] = sum;
    if (V == 0) __threadfence();
  }
}
// ---- bias_gradients: 16 sums over the rows of a block of 32 kB; one warp adds 256 parts of each while 31 wait; or shuffles first; expected 2 times
template <int V> __global__ void __launch_bounds__(1024) bias_gradients(const float4* a, float* out) {
  __shared__ float4 part[V == 0 ? 1024 : 128];
  int t = threadIdx.x;
  float4 u = a[blockIdx.x * 2048ll + t], v = a[blockIdx.x * 2048ll + 1024 + t];
  u = {u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w};
  if (V == 1)
    for (int o = 4; o < 32; o *= 2) u = {u.x + __shfl_xor_sync(~0u, u.x, o), u.y + __shfl_xor_sync(~0u, u.y, o), u.z + __shfl_xor_sync(~0u, u.z, o), u.w + __shfl_xor_sync(~0u, u.w, o)};
  if (V == 0) part[t] = u;
  else if ((t & 31) < 4) part[t / 32 * 4 + (t & 31)] = u;
  __syncthreads();
  if (t >= 16) return;
  float s = 0;
  const float* own = (const float*)part + t;
  if (V == 0) {
#pragma unroll 1
    for (int k = 0; k < 256; ++k) s += own[k * 16];
  } else {
#pragma unroll
    for (int k = 0; k < 32; ++k) s += own[k * 16];
  }
  out[blockIdx.x * 16 + t] = s;
}
// ---- rank_villages: ranks on a ring are scaled to a sum of one after each step; one thread adds the parts of 32 warps; or each warp does by shuffles; expected 2 times
template <int V> __global__ void __launch_bounds__(1024) rank_villages(const float* a, float* out, int steps) {
  __shared__ float rank[1024], part[32], all;
  int t = threadIdx.x, lane = t & 31;
  float x = a[T] + 0.1f;
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    rank[t] = x;
    __syncthreads();
    x = fmaf(0.5f, x, fmaf(0.3f, rank[t + 1023 & 1023], 0.21f * rank[t + 1 & 1023] * x));
    float s = warp_sum(x);
    if (lane == 0) part[t / 32] = s;
    __syncthreads();
    if (V == 0) {
      if (t == 0) {
        s = 0;
#pragma unroll 1
        for (int k = 0; k < 32; ++k) s += part[k];
        all = s;
      }
      __syncthreads();
      s = all;
    } else {
      s = warp_sum(part[lane]);
    }
    x = __fdividef(x * 1024, s);
  }
  out[T] = x;
}
// ---- bound_galaxy: each warp keeps the six bounds of its stars in global memory after each 32 of them; or each block after all; expected 10 times
template <int V> __global__ void __launch_bounds__(256) bound_galaxy(const float* a, unsigned* out, int n) {  // the greatest of values and of their complements
  __shared__ unsigned block[6];
  if (threadIdx.x < 6) block[threadIdx.x] = 0;
  __syncthreads();
  unsigned most[6] = {};
  bool first = (threadIdx.x & 31) == 0;
#pragma unroll 1
  for (int i = (int)T; i < n; i += (int)STRIDE)
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      unsigned v = __float_as_uint(a[(i64)k * n + i]);
      if (V == 0) {
        unsigned high = __reduce_max_sync(~0u, v), low = __reduce_max_sync(~0u, ~v);
        if (first) atomicMax(&out[k], high), atomicMax(&out[3 + k], low);
      } else {
        most[k] = max(most[k], v), most[3 + k] = max(most[3 + k], ~v);
      }
    }
  if (V == 0) return;
#pragma unroll
  for (int k = 0; k < 6; ++k) {
    unsigned high = __reduce_max_sync(~0u, most[k]);
    if (first) atomicMax(&block[k], high);
  }
  __syncthreads();
  if (threadIdx.x < 6) atomicMax(&out[threadIdx.x], block[threadIdx.x]);
}
// ---- absorb_photons: each warp adds the photons of a bounce that a wall takes to one counter in global memory; or each block after 32 bounces; expected 10 times
template <int V> __global__ void __launch_bounds__(256) absorb_photons(const float* a, unsigned* taken, int bounces) {
  __shared__ unsigned block;
  if (threadIdx.x == 0) block = 0;
  __syncthreads();
  unsigned seed = __float_as_uint(a[T]) + (unsigned)T, own = 0;
#pragma unroll 1
  for (int n = 0; n < bounces; ++n) {
    seed = mix(seed + 0x9e3779b9u);
    float u = (seed & 0xffff) * 0x1p-16f, v = (seed >> 16) * 0x1p-16f;
    unsigned hit = __popc(__ballot_sync(~0u, fmaf(u, u, v * v) < 0.4f));
    if (V == 0) {
      if ((threadIdx.x & 31) == 0) atomicAdd(taken, hit);
    } else {
      own += hit;
    }
  }
  if (V == 0) return;
  if ((threadIdx.x & 31) == 0) atomicAdd(&block, own);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(taken, block);
}
// ---- pack_frontiers: each vertex takes as many places as it has edges from one word in shared memory; or each warp for its 32; expected 2 times
template <int V> __global__ void __launch_bounds__(256) pack_frontiers(const unsigned* a, unsigned* from, unsigned* out) {
  __shared__ unsigned tail;
  int t = threadIdx.x, lane = t & 31;
  if (t == 0) tail = 0;
  __syncthreads();
#pragma unroll 4
  for (int k = 0; k < 16; ++k) {
    i64 vertex = blockIdx.x * 4096ll + k * 256 + t;
    unsigned edges = 1 + (a[vertex] >> 3 & 7), place;
    if (V == 0) {
      place = atomicAdd(&tail, edges);
    } else {
      unsigned sum = edges;
#pragma unroll
      for (int o = 1; o < 32; o *= 2) {
        unsigned v = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += v;
      }
      place = lane == 31 ? atomicAdd(&tail, sum) : 0;
      place = __shfl_sync(~0u, place, 31) + sum - edges;
    }
    from[vertex] = place;
  }
  __syncthreads();
  if (t == 0) out[blockIdx.x] = tail;
}
// ---- nearest_songs: each of 4,096 distances goes to one of two words of shared memory, nearly always to the first; or the least of each warp's do; expected 3 times
template <int V> __global__ void __launch_bounds__(256) nearest_songs(const float* a, unsigned* out) {
  __shared__ unsigned best[2];  // of songs, and of the few that are live
  int t = threadIdx.x;
  if (t < 2) best[t] = ~0u;
  __syncthreads();
  const float* own = a + blockIdx.x * 4096ll;
  float query = 0.2f + 0.0002f * blockIdx.x;
  unsigned least[2] = {~0u, ~0u};
#pragma unroll 8
  for (int k = 0; k < 16; ++k) {
    float x = own[k * 256 + t], d = x - query;
    unsigned key = (unsigned)(d * d * 1048575) << 12 | (k * 256 + t);
    bool live = (__float_as_uint(x) & 62) == 0;
    if (V == 0) atomicMin(&best[live], key);
    else least[0] = min(least[0], live ? ~0u : key), least[1] = min(least[1], live ? key : ~0u);
  }
  if (V == 1) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      least[k] = __reduce_min_sync(~0u, least[k]);
      if ((t & 31) == 0) atomicMin(&best[k], least[k]);
    }
  }
  __syncthreads();
  if (t < 2) out[blockIdx.x * 2 + t] = best[t];
}
// ---- widen_mxfp4: the values of four bits from a table of 16 in constant memory, of which lanes read different ones; or in shared memory; expected 4 times
__constant__ float NIBBLE[16];
template <int V> __global__ void __launch_bounds__(256) widen_mxfp4(const uint4* a, const float* table, float* out) {
  __shared__ float of[16];
  if (threadIdx.x < 16) of[threadIdx.x] = table[threadIdx.x];
  __syncthreads();
  float s = 0;
#pragma unroll 1
  for (int n = 0; n < 2; ++n) {
    uint4 v = a[n * STRIDE + T];
    unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      unsigned i = w[k / 8] >> k % 8 * 4 & 15;
      s = fmaf(V == 0 ? NIBBLE[i] : of[i], 0.1f + 0.01f * k, s);
    }
  }
  out[T] = s;
}
// ---- lex_queries: kinds of characters and states of a lexer in constant memory, where lanes read different words; or in shared memory; expected 3 times
__constant__ unsigned KIND[256], FOLLOW[64];
template <int V> __global__ void __launch_bounds__(256) lex_queries(const uint4* a, const unsigned* table, unsigned* out, int pieces) {
  __shared__ unsigned kind[256], follow[64];
  kind[threadIdx.x] = table[threadIdx.x];
  if (threadIdx.x < 64) follow[threadIdx.x] = table[256 + threadIdx.x];
  __syncthreads();
  unsigned state = 0, words = 0;
#pragma unroll 1
  for (int n = 0; n < pieces; ++n) {
    uint4 v = a[n * STRIDE + T];
    unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      unsigned c = w[k / 4] >> k % 4 * 8 & 255;
      state = V == 0 ? FOLLOW[state * 8 + KIND[c]] : follow[state * 8 + kind[c]];
      words += state == 3;
    }
  }
  out[T] = words * 8 + state;
}

void sync_cases() {
  static bf16* sounds;
  static unsigned *from, *lexer;
  static float* nibbles;
  static Taps taps;
  cases.push_back({"tag_phonemes", "shared_bank_conflicts", "", [] { tag_phonemes<64><<<1056, 128>>>(sounds, sounds + 333312, C, 8); }, [] { tag_phonemes<72><<<1056, 128>>>(sounds, sounds + 333312, C, 8); }, C, 1056 * 128, false, [] { sounds = cast<bf16>(A, 1 << 23, 0.25f); }});
  cases.push_back({"decimate_audio", "shared_bank_conflicts", "", [] { decimate_audio<0><<<8192, 256>>>(A, C, 3, taps); }, [] { decimate_audio<1><<<8192, 256>>>(A, C, 3, taps); }, C, 8192 * 256, false, [] {
    for (unsigned k = 0; k < 64; ++k) taps.of[k] = 0.01f + 0.02f * dice(k);
  }});
  cases.push_back({"tune_oscillators", "needless_barriers", "", [] { tune_oscillators<0><<<132, 512>>>(A, C, 1024); }, [] { tune_oscillators<1><<<132, 512>>>(A, C, 1024); }, C, 132 * 512});
  cases.push_back({"journal_trades", "needless_barriers", "", [] { journal_trades<0><<<528, 256>>>(A, C, 96); }, [] { journal_trades<1><<<528, 256>>>(A, C, 96); }, C, 528 * 256 * 96});
  cases.push_back({"bias_gradients", "one_warp_reduction", "", [] { bias_gradients<0><<<8192, 1024>>>((float4*)A, C); }, [] { bias_gradients<1><<<8192, 1024>>>((float4*)A, C); }, C, 8192 * 16});
  cases.push_back({"rank_villages", "one_warp_reduction", "", [] { rank_villages<0><<<264, 1024>>>(A, C, 256); }, [] { rank_villages<1><<<264, 1024>>>(A, C, 256); }, C, 264 * 1024});
  cases.push_back({"bound_galaxy", "global_atomics_one_address", "", [] { bound_galaxy<0><<<528, 256>>>(A, (unsigned*)C, 1 << 20); }, [] { bound_galaxy<1><<<528, 256>>>(A, (unsigned*)C, 1 << 20); }, C, 6, true});
  cases.push_back({"absorb_photons", "global_atomics_one_address", "", [] { absorb_photons<0><<<1056, 256>>>(A, (unsigned*)C, 32); }, [] { absorb_photons<1><<<1056, 256>>>(A, (unsigned*)C, 32); }, C, 1, true});
  cases.push_back({"pack_frontiers", "shared_atomics_one_address", "", [] { pack_frontiers<0><<<4096, 256>>>((unsigned*)A, from, (unsigned*)C); }, [] { pack_frontiers<1><<<4096, 256>>>((unsigned*)A, from, (unsigned*)C); }, C, 4096, true, [] { from = device<unsigned>(1 << 24); }});
  cases.push_back({"nearest_songs", "shared_atomics_one_address", "", [] { nearest_songs<0><<<4096, 256>>>(A, (unsigned*)C); }, [] { nearest_songs<1><<<4096, 256>>>(A, (unsigned*)C); }, C, 8192, true});
  cases.push_back({"widen_mxfp4", "constant_divergence", "", [] { widen_mxfp4<0><<<4096, 256>>>((uint4*)A, nibbles, C); }, [] { widen_mxfp4<1><<<4096, 256>>>((uint4*)A, nibbles, C); }, C, 1 << 20, false, [] {
    std::vector<float> v = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, 0.4f, 0.9f, 1.4f, 1.9f, 2.9f, 3.9f, 5.9f};
    nibbles = upload(v);
    CHECK(cudaMemcpyToSymbol(NIBBLE, v.data(), 64));
  }});
  cases.push_back({"lex_queries", "constant_divergence", "", [] { lex_queries<0><<<1056, 256>>>((uint4*)A, lexer, (unsigned*)C, 4); }, [] { lex_queries<1><<<1056, 256>>>((uint4*)A, lexer, (unsigned*)C, 4); }, C, 1056 * 256, true, [] {
    std::vector<unsigned> v(320);
    for (unsigned k = 0; k < 320; ++k) v[k] = mix(k + 3) >> 9 & 7;
    lexer = upload(v);
    CHECK(cudaMemcpyToSymbol(KIND, v.data(), 1024));
    CHECK(cudaMemcpyToSymbol(FOLLOW, v.data() + 256, 256));
  }});
}
