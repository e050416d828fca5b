// Stencils, transforms, dynamic programming and scans: shared memory, barriers and how work is spread over the GPU.
#include "set.h"

namespace {

// Walsh-Hadamard transforms of 4096 values, a block each; a thread owns 16 neighbours in each of three rounds.
template <int FIXED>
__global__ void __launch_bounds__(256) walsh(const float* in, float* out) {
  __shared__ float s[4096 + 256];
  auto at = [](int i) { return FIXED ? i + i / 16 : i; };
  const i64 base = i64(blockIdx.x) * 4096;
  for (int i = threadIdx.x; i < 4096; i += 256) s[at(i)] = in[base + i];
  for (int round = 0; round < 3; ++round) {
    __syncthreads();
    float v[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = s[at(threadIdx.x * 16 + k)];
    __syncthreads();
#pragma unroll
    for (int h = 1; h < 16; h *= 2)
#pragma unroll
      for (int k = 0; k < 16; ++k)
        if (!(k & h)) { const float a = v[k], b = v[k | h]; v[k] = a + b, v[k | h] = a - b; }
#pragma unroll
    for (int k = 0; k < 16; ++k) s[at(k * 256 + threadIdx.x)] = v[k];  // rotates the axes
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 4096; i += 256) out[base + i] = s[at(i)];
}

// Key streams: each thread steps its own shift register, kept in shared memory; the slow one meets at every step.
template <int FIXED>
__global__ void __launch_bounds__(256) key_streams(uint32_t* out, int steps) {
  __shared__ uint32_t state[256];
  state[threadIdx.x] = mix(uint32_t(T) + 1);
  uint32_t sum = 0;
  for (int k = 0; k < steps; ++k) {
    uint32_t x = state[threadIdx.x];
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    state[threadIdx.x] = x;
    sum += x >> 16;
    if (!FIXED) __syncthreads();
  }
  out[T] = sum;
}

// Lengths of runs to offsets: a prefix sum over the 256 totals of a block, by one thread or by all.
template <int FIXED>
__global__ void __launch_bounds__(256) run_offsets(const uint8_t* length, int* out, int rounds) {
  __shared__ int total[256], base[8];
  for (int r = 0; r < rounds; ++r) {
    const uint32_t four = ((const uint32_t*)length)[(i64(blockIdx.x) * rounds + r) * 256 + threadIdx.x];
    int sum = (four & 15) + (four >> 8 & 15) + (four >> 16 & 15) + (four >> 24 & 15), offset;
    if (FIXED) {
      int scan = sum;
      for (int o = 1; o < 32; o *= 2) { const int below = __shfl_up_sync(~0u, scan, o); if (threadIdx.x % 32 >= o) scan += below; }
      if (threadIdx.x % 32 == 31) base[threadIdx.x / 32] = scan;
      __syncthreads();
      offset = scan - sum;
      for (int w = 0; w < threadIdx.x / 32; ++w) offset += base[w];
    } else {
      total[threadIdx.x] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        int scan = 0;
        for (int k = 0; k < 256; ++k) { const int own = total[k]; total[k] = scan, scan += own; }
      }
      __syncthreads();
      offset = total[threadIdx.x];
    }
    out[(i64(blockIdx.x) * rounds + r) * 256 + threadIdx.x] = offset;
    __syncthreads();
  }
}

// Eight rows of a ragged batch a block, summed and then divided by their common total; the first row is 32 times as long.
template <int FIXED>
__global__ void __launch_bounds__(256) ragged_softmax(const float* in, float* out, int rounds) {
  __shared__ float part[8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int r = 0; r < rounds; ++r) {
    const float* row = in + ((i64(blockIdx.x) * rounds + r) * 4992) % (N - 4992);
    float sum = 0;
    if (FIXED) for (int i = threadIdx.x; i < 4992; i += 256) sum += __expf(row[i]);
    else for (int i = lane; i < (warp == 0 ? 4096 : 128); i += 32) sum += __expf(row[(warp == 0 ? 0 : 4096 + (warp - 1) * 128) + i]);
    sum = warp_sum(sum);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) { float all = 0; for (float p : part) all += p; out[i64(blockIdx.x) * rounds + r] = 1 / all; }
    __syncthreads();
  }
}

// All pairs i < j of points: a block has neighbouring rows i, or every n-th.
template <int FIXED>
__global__ void __launch_bounds__(512) pair_energy(const float4* point, float* out, int count) {
  const int each = count / gridDim.x;
  float energy = 0;
  for (int r = 0; r < each; ++r) {
    const int i = FIXED ? blockIdx.x + r * gridDim.x : blockIdx.x * each + r;
    const float4 p = point[i];
    for (int j = i + 1 + threadIdx.x; j < count; j += 512) {
      const float4 q = point[j];
      const float x = p.x - q.x, y = p.y - q.y, z = p.z - q.z, d = x * x + y * y + z * z + 0.01f;
      energy += p.w * q.w / d;
    }
  }
  energy = warp_sum(energy);
  if (threadIdx.x % 32 == 0) atomicAdd(out, energy);
}

// Edit distances of pairs of words of 32 letters, a pair a thread and a row in registers; few blocks with many pairs, or many.
__global__ void __launch_bounds__(128) edit_distance(const uint8_t* word, int* out, int pairs, int count) {
  for (i64 p = T; p < pairs; p += STRIDE) {
    uint8_t row[33];
#pragma unroll
    for (int k = 0; k <= 32; ++k) row[k] = k;
    for (int i = 0; i < 32; ++i) {
      const uint8_t letter = word[i64(i) * count + p] & 7;
      int diagonal = row[0];
      row[0] = i + 1;
#pragma unroll
      for (int k = 1; k <= 32; ++k) {
        const int best = min(min(row[k] + 1, row[k - 1] + 1), diagonal + (letter != ((k * 5 + p) & 7)));
        diagonal = row[k], row[k] = best;
      }
    }
    out[p] = row[32];
  }
}

// Cellular automaton on tiles that live in shared memory; a block has one tile of 164 KB, or an eighth of it.
template <int FIXED>
__global__ void __launch_bounds__(FIXED ? 128 : 1024) game_of_cells(const float* in, float* out, int steps) {
  extern __shared__ float cell[];
  const int threads = blockDim.x, own = 41 * threads;
  for (int i = threadIdx.x; i < own; i += threads) cell[i] = in[i64(blockIdx.x) * own + i];
  __syncwarp();
  for (int s = 0; s < steps; ++s)
    for (int i = threadIdx.x; i < own; i += threads) {
      const float c = cell[i];
      cell[i] = 3.7f * c * (1 - c);
    }
  for (int i = threadIdx.x; i < own; i += threads) out[i64(blockIdx.x) * own + i] = cell[i];
}

// Random reads of a large table through a small dictionary in shared memory; the launch asks for 100 KB or for what it uses.
__global__ void __launch_bounds__(256) decode_words(const float* table, const int* code, float* out, int count) {
  extern __shared__ float dictionary[];
  dictionary[threadIdx.x] = threadIdx.x * 0.5f;
  __syncthreads();
  for (i64 i = T; i < count; i += STRIDE) {
    const uint32_t c = mix(uint32_t(code[i]) + uint32_t(i));
    out[i] = table[c % uint32_t(1 << 25)] + dictionary[c >> 24];
  }
}

// Random walks on a graph of fixed degree, one a thread, in blocks of 32 or 256 threads.
__global__ void random_walks(const int* neighbour, int* out, int vertices, int steps) {
  uint32_t at = uint32_t(T) % uint32_t(vertices), seed = uint32_t(T);
  for (int k = 0; k < steps; ++k) {
    seed = seed * 1664525u + 1013904223u;
    at = (uint32_t(neighbour[at * 4 + (seed >> 30)]) ^ mix(at)) % uint32_t(vertices);
  }
  out[T] = int(at);
}

// Planes of a stencil along z: one block an SM stages 12 KB, waits, works on them, and only then asks for the next; or two ahead.
template <int FIXED>
__global__ void __launch_bounds__(512, 1) march_planes(const float* in, float* out, int planes) {
  extern __shared__ __align__(16) float stage[];
  constexpr int DEPTH = FIXED ? 3 : 1, CELLS = 3072;
  const i64 base = i64(blockIdx.x) * planes * CELLS;
  auto request = [&](int p) {
    if (p < planes)
      for (int i = threadIdx.x; i < CELLS / 4; i += 512) __pipeline_memcpy_async((float4*)(stage + p % DEPTH * CELLS) + i, (const float4*)(in + base + i64(p) * CELLS) + i, 16);
    __pipeline_commit();
  };
  for (int p = 0; p < DEPTH - 1; ++p) request(p);
  for (int p = 0; p < planes; ++p) {
    request(p + DEPTH - 1);
    __pipeline_wait_prior(DEPTH - 1);
    __syncthreads();
    const float* now = stage + p % DEPTH * CELLS;
    for (int i = threadIdx.x; i < CELLS; i += 512) {
      const float c = now[i], l = now[i ? i - 1 : 0], r = now[i + 1 < CELLS ? i + 1 : i];
      float v = 0.5f * c + 0.25f * (l + r);
#pragma unroll
      for (int k = 0; k < 12; ++k) v = fmaf(v, 0.99f, 0.01f * c);
      out[base + i64(p) * CELLS + i] = v;
    }
    __syncthreads();
  }
}

int* neighbours;
__global__ void fill_ints(int* a, i64 n, uint32_t most) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = int(mix(uint32_t(i)) % most);
}

}  // namespace

void sync_cases() {
  cases.push_back({"walsh", "shared_bank_conflicts", "", [] { walsh<0><<<8192, 256>>>(A, C); }, [] { walsh<1><<<8192, 256>>>(A, C); }, C, 1 << 25});
  cases.push_back({"key_streams", "needless_barriers", "", [] { key_streams<0><<<1056, 256>>>((uint32_t*)C, 2000); }, [] { key_streams<1><<<1056, 256>>>((uint32_t*)C, 2000); }, C, 1056 * 256, true});
  cases.push_back({"run_offsets", "one_warp_reduction", "uneven_warps", [] { run_offsets<0><<<1056, 256>>>((uint8_t*)A, (int*)C, 64); }, [] { run_offsets<1><<<1056, 256>>>((uint8_t*)A, (int*)C, 64); }, C, 1056 * 64 * 256, true});
  cases.push_back({"ragged_softmax", "uneven_warps", "", [] { ragged_softmax<0><<<1056, 256>>>(A, C, 12); }, [] { ragged_softmax<1><<<1056, 256>>>(A, C, 12); }, C, 1056 * 12});
  cases.push_back({"pair_energy", "uneven_blocks", "", [] { pair_energy<0><<<264, 512>>>((float4*)A, C, 16896); }, [] { pair_energy<1><<<264, 512>>>((float4*)A, C, 16896); }});
  cases.push_back({"edit_distance", "grid_too_small", "", [] { edit_distance<<<24, 128>>>((uint8_t*)A, (int*)C, 1 << 18, 1 << 18); }, [] { edit_distance<<<2048, 128>>>((uint8_t*)A, (int*)C, 1 << 18, 1 << 18); }, C, 1 << 18, true});
  cases.push_back({"game_of_cells", "tail_effect", "", [] { game_of_cells<0><<<160, 1024, 167936>>>(A, C, 200); }, [] { game_of_cells<1><<<1280, 128, 20992>>>(A, C, 200); }, C, 160 * 41984, false, [] { dynamic_shared(game_of_cells<0>, 167936); }});
  cases.push_back({"decode_words", "occupancy_shared", "", [] { decode_words<<<1056, 256, 100000>>>(A, (int*)B, C, 1 << 24); }, [] { decode_words<<<1056, 256, 1024>>>(A, (int*)B, C, 1 << 24); }, C, 1 << 24, false, [] { dynamic_shared(decode_words, 100000); }});
  cases.push_back({"random_walks", "occupancy_block_size", "pointer_chasing", [] { random_walks<<<16384, 32>>>(neighbours, (int*)C, 1 << 23, 64); }, [] { random_walks<<<2048, 256>>>(neighbours, (int*)C, 1 << 23, 64); }, C, 1 << 19, true, [] {
    neighbours = device<int>(1 << 25);
    fill_ints<<<2112, 256>>>(neighbours, 1 << 25, 1 << 23);
  }});
  cases.push_back({"march_planes", "no_overlap", "", [] { march_planes<0><<<132, 512, 36864>>>(A, C, 150); }, [] { march_planes<1><<<132, 512, 36864>>>(A, C, 150); }, C, 132 * 150 * 3072});
}
