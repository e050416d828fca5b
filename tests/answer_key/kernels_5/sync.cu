// Conflicts of banks, last waves and barriers: wavelets, skeletons, codons, nerves, roots, words, strings, spins.
#include "set.h"

// ---- a packet transform in pairs: two values that lie side by side, one by one or as a vector; `begin` is 0
template <int V> __global__ void __launch_bounds__(256) haar_packets(const float* a, float* out, int rounds, int begin) {
  __shared__ __align__(16) float x[2][2048];
  for (int i = threadIdx.x; i < 2048; i += 256) x[0][i] = a[(i64)blockIdx.x * 2048 + i];
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    const float* from = x[r & 1];
    float* to = x[~r & 1];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int i = threadIdx.x + k * 256;
      float2 v = V == 0 ? float2{from[2 * i + begin], from[2 * i + 1 + begin]} : ((const float2*)from)[i];
      to[i] = (v.x + v.y) * 0.70710678f, to[1024 + i] = (v.x - v.y) * 0.70710678f;
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 2048; i += 256) out[(i64)blockIdx.x * 2048 + i] = x[rounds & 1][i];
}
// ---- the joints of a skeleton: four numbers a joint, side by side or in four arrays
template <int V> __global__ void __launch_bounds__(256) pull_joints(const float* a, float* out, int steps) {
  __shared__ float joint[1024];
  for (int i = threadIdx.x; i < 1024; i += 256) joint[V == 0 ? i : (i & 3) * 256 + i / 4] = a[i];
  __syncthreads();
  float s = 0;
#pragma unroll 8
  for (int r = 0; r < steps; ++r) {
    int j = (threadIdx.x + r) & 255, part = r & 3;
    s = fmaf(s, 0.99f, joint[V == 0 ? j * 4 + part : part * 256 + j]);
  }
  out[T] = s;
}
// ---- weights of codons, three bases of two bits each: one table, or one for each lane
__global__ void make_bases(unsigned* bases, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) bases[i] = mix((unsigned)i + 99);
}
template <int V> __global__ void __launch_bounds__(256) weigh_codons(const unsigned* bases, const float* weights, float* out, i64 n) {
  __shared__ float table[V == 0 ? 64 : 64 * 32];
  for (int i = threadIdx.x; i < (V == 0 ? 64 : 2048); i += 256) table[i] = weights[V == 0 ? i : i / 32];
  __syncthreads();
  const float* own = table + (V == 0 ? 0 : threadIdx.x & 31);
  float s = 0;
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned w = bases[i];
#pragma unroll
    for (int k = 0; k < 14; ++k) s += own[(w >> 2 * k & 63) * (V == 0 ? 1 : 32)];
  }
  out[T] = s;
}
// ---- nerves with delays: the states of the last 60 steps fill the shared memory, so an SM has one block
constexpr int DELAY = 60;
__global__ void __launch_bounds__(512) excite_nerves(const float* a, float* out, int groups, int of_block, int steps) {
  extern __shared__ float past[];
  for (int g = blockIdx.x * of_block; g < min(groups, (int)(blockIdx.x + 1) * of_block); ++g) {
    float v = a[g * 512 + threadIdx.x];
    for (int k = 0; k < DELAY; ++k) past[k * 512 + threadIdx.x] = v;
    int at = 0;
    for (int s = 0; s < steps; ++s) {
      float* slot = &past[at * 512 + threadIdx.x];
      v = fmaf(v, 0.95f, fmaf(*slot, -0.04f, 0.02f));
      *slot = v * v;
      at = at + 1 < DELAY ? at + 1 : 0;
    }
    out[g * 512 + threadIdx.x] = v;
  }
}
// ---- cube roots by Newton: an SM has two blocks, by the shared memory that they ask for; a block for four batches, or 264 blocks that take one at a time
constexpr int BATCH = 22 * 256;
__global__ void __launch_bounds__(256) cube_roots(const float* a, float* out, int batches, int of_block, int rounds) {
  extern __shared__ float own[];
  for (int k = 0; k < of_block; ++k) {
    int b = of_block == 4 ? blockIdx.x * 4 + k : blockIdx.x + k * gridDim.x;
    if (b >= batches) return;
    for (int i = threadIdx.x; i < BATCH; i += 256) own[i] = a[(i64)b * BATCH + i];
    for (int i = threadIdx.x; i < BATCH; i += 256) {
      float c = own[i] + 0.5f, x = 1;
      for (int r = 0; r < rounds; ++r) x = (2 * x + __fdividef(c, x * x)) * 0.33333333f;
      own[i] = x;
    }
    for (int i = threadIdx.x; i < BATCH; i += 256) out[(i64)b * BATCH + i] = own[i];
  }
}
// ---- a machine that reads words: its table of 128 kB leaves room for one block an SM
__global__ void __launch_bounds__(256) read_words(const int* next, int* out, int words, int of_block, int length) {
  extern __shared__ int table[];  // 256 states, 128 symbols
  for (int i = threadIdx.x; i < 32768; i += 256) table[i] = next[i];
  __syncthreads();
  for (int w = blockIdx.x * of_block; w < min(words, (int)(blockIdx.x + 1) * of_block); ++w) {
    unsigned word = w * 256u + threadIdx.x, symbols = word * 2654435761u;
    int state = 0;
    for (int k = 0; k < length; ++k) state = table[state * 128 + (symbols >> (k & 15) & 127)];
    out[word] = state;
  }
}
__global__ void make_machine(int* next) { next[T] = (int)(mix((unsigned)T) & 255); }
// ---- running sums of the lanes of a warp through shared memory
template <int V> __global__ void __launch_bounds__(512) sum_lanes(const int* a, int* out, int rounds) {
  __shared__ int x[512];
  auto meet = [] { if (V == 0) __syncthreads(); else __syncwarp(); };
  int lane = threadIdx.x & 31;
  x[threadIdx.x] = a[T] & 255;
  meet();
  for (int r = 0; r < rounds; ++r)
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      int left = lane >= o ? x[threadIdx.x - o] : r;
      meet();
      x[threadIdx.x] += left;
      meet();
    }
  out[T] = x[threadIdx.x];
}
// ---- a string under tension in two arrays by turns: one barrier a step, or two
template <int V> __global__ void __launch_bounds__(512) swing_strings(const float* a, float* out, int steps) {
  __shared__ float u[2][514];
  int i = threadIdx.x + 1;
  float before = a[T];
  u[0][i] = before;
  if (threadIdx.x < 2) u[0][threadIdx.x * 513] = u[1][threadIdx.x * 513] = 0;
  __syncthreads();
  for (int s = 0; s < steps; ++s) {
    const float* now = u[s & 1];
    float mid = now[i], next = 2 * mid - before + 0.2f * (now[i - 1] - 2 * mid + now[i + 1]);
    before = mid;
    if (V == 0) __syncthreads();
    u[~s & 1][i] = next * 0.9999f;
    __syncthreads();
  }
  out[T] = u[steps & 1][i];
}
// ---- spins that cool down: one thread tells all the temperature, or each computes it
template <int V> __global__ void __launch_bounds__(1024) cool_spins(const float* a, float* out, int steps) {
  __shared__ float told;
  float spin = a[T], heat = 4;
  for (int s = 0; s < steps; ++s) {
    if (V == 0) {
      if (threadIdx.x == 0) told = heat * 0.999f;
      __syncthreads();
      heat = told;
      __syncthreads();
    } else {
      heat *= 0.999f;
    }
    spin = fmaf(spin, 0.9f, heat * (spin > 1 ? -0.01f : 0.01f));
  }
  out[T] = spin;
}

void sync_cases() {
  static unsigned* bases;
  static int* machine;
  const int NERVES = DELAY * 512 * 4, ROOTS = 90112, MACHINE = 131072;
  cases.push_back({"haar_packets", "shared_bank_conflicts", "", [] { haar_packets<0><<<2048, 256>>>(A, C, 96, 0); }, [] { haar_packets<1><<<2048, 256>>>(A, C, 96, 0); }, C, 1 << 22});
  cases.push_back({"pull_joints", "shared_bank_conflicts", "", [] { pull_joints<0><<<1056, 256>>>(A, C, 2048); }, [] { pull_joints<1><<<1056, 256>>>(A, C, 2048); }, C, 1056 * 256});
  cases.push_back({"weigh_codons", "shared_bank_conflicts", "", [] { weigh_codons<0><<<1056, 256>>>(bases, A, C, 1 << 24); }, [] { weigh_codons<1><<<1056, 256>>>(bases, A, C, 1 << 24); }, C, 1056 * 256, false, [] {
    bases = device<unsigned>(1 << 24);
    make_bases<<<1056, 256>>>(bases, 1 << 24);
  }});
  cases.push_back({"excite_nerves", "tail_effect", "", [=] { excite_nerves<<<150, 512, NERVES>>>(A, C, 600, 4, 1000); }, [=] { excite_nerves<<<600, 512, NERVES>>>(A, C, 600, 1, 1000); }, C, 600 * 512, false, [=] { dynamic_shared(excite_nerves, NERVES); }});
  cases.push_back({"cube_roots", "tail_effect", "", [=] { cube_roots<<<300, 256, ROOTS>>>(A, C, 1200, 4, 40); }, [=] { cube_roots<<<264, 256, ROOTS>>>(A, C, 1200, 5, 40); }, C, 1200 * BATCH, false, [=] { dynamic_shared(cube_roots, ROOTS); }});
  cases.push_back({"read_words", "tail_effect", "", [=] { read_words<<<278, 256, MACHINE>>>(machine, (int*)C, 1112, 4, 1000); }, [=] { read_words<<<132, 256, MACHINE>>>(machine, (int*)C, 1112, 9, 1000); }, C, 1112 * 256, true, [=] {
    dynamic_shared(read_words, MACHINE), machine = device<int>(32768);
    make_machine<<<128, 256>>>(machine);
  }});
  cases.push_back({"sum_lanes", "needless_barriers", "", [] { sum_lanes<0><<<264, 512>>>((int*)A, (int*)C, 300); }, [] { sum_lanes<1><<<264, 512>>>((int*)A, (int*)C, 300); }, C, 264 * 512, true});
  cases.push_back({"swing_strings", "needless_barriers", "", [] { swing_strings<0><<<132, 512>>>(A, C, 2000); }, [] { swing_strings<1><<<132, 512>>>(A, C, 2000); }, C, 132 * 512});
  cases.push_back({"cool_spins", "needless_barriers", "", [] { cool_spins<0><<<132, 1024>>>(A, C, 2000); }, [] { cool_spins<1><<<132, 1024>>>(A, C, 2000); }, C, 132 * 1024});
}
