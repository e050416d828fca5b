// Grids, blocks and occupancy: sensors, shelves, silences, assets, rings, tiles, documents.
#include "set.h"

void spread_cases();

// ---- calibrate_sensors: 128 coefficients in registers of each thread, so 12 warps fit an SM; or in constant memory; expected 2 times
__constant__ float COEFFICIENT[128];
template <int V> __global__ void __launch_bounds__(128) calibrate_sensors(const float* reading, const float* coefficient, float* out, int each) {
  float c[128], total = 0;
  if (V == 0)
#pragma unroll
    for (int k = 0; k < 128; ++k) c[k] = coefficient[k];
#pragma unroll 1
  for (int n = 0; n < each; ++n) {
    float v = reading[n * STRIDE + T], square = v * v, by = square * square, s[4] = {};
#pragma unroll
    for (int k = 0; k < 128; ++k) s[k & 3] = fmaf(s[k & 3], by, V == 0 ? c[k] : COEFFICIENT[k]);
    total += (s[0] + s[1] * v) + (s[2] + s[3] * v) * square;
  }
  out[T] = total;
}
// ---- search_shelves: shared memory for the greatest shelf, 100 kB, of which 4 kB hold one; or 4 kB; expected 2.5 times
__global__ void __launch_bounds__(256) search_shelves(const float* shelf, const float* asked, int* out, int each) {
  extern __shared__ float room[];
  for (int i = threadIdx.x; i < 1024; i += 256) room[i] = shelf[i];
  __syncthreads();
  int s = 0;
#pragma unroll 1
  for (int k = 0; k < each; ++k) {
    float v = asked[k * STRIDE + T];
    s += room[(int)(v * 1023)] < v;
  }
  out[T] = s;
}
// ---- longest_silences: a warp a recording, which looks at 32 samples before it asks for the next; 32 blocks of a warp fit an SM, or eight of eight; expected 1.7 times
__global__ void longest_silences(const float* sample, int* out, int length) {
  int lane = threadIdx.x & 31, run = 0, most = 0;
  const float* own = sample + T / 32 * length;
#pragma unroll 1
  for (int i = 0; i < length && most < 512; i += 32) {
    unsigned loud = __ballot_sync(~0u, own[i + lane] > 0.9f);
    run = loud ? run + __ffs((int)loud) - 1 : run + 32, most = max(most, run);
    if (loud) run = __clz((int)loud);
  }
  if (lane == 0) out[T / 32] = most;
}
// ---- covariance_of_assets: 16 blocks, one for each tile of 128 x 128 covariances; or 32 parts of the days; expected 10 times
__global__ void __launch_bounds__(256) covariance_of_assets(const float* day, float* out, int days) {
  __shared__ __align__(16) float left[32][32], right[32][32];
  int t = threadIdx.x, row = t / 32 * 4, column = t & 31;
  const float* own = day + (i64)blockIdx.z * days * 128;
  float s[4] = {};
  for (int d = 0; d < days; d += 32) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int r = t / 32 + k * 8;
      left[r][column] = own[(d + r) * 128 + blockIdx.y * 32 + column], right[r][column] = own[(d + r) * 128 + blockIdx.x * 32 + column];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      float4 v = *(const float4*)&left[j][row];
      float w = right[j][column];
      s[0] = fmaf(v.x, w, s[0]), s[1] = fmaf(v.y, w, s[1]), s[2] = fmaf(v.z, w, s[2]), s[3] = fmaf(v.w, w, s[3]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) atomicAdd(&out[(blockIdx.y * 32 + row + k) * 128 + blockIdx.x * 32 + column], s[k]);
}
// ---- settle_rings: 148 blocks of 32 rings in 160 kB, one an SM, so that 16 run in a second wave; or blocks of four; expected 1.6 times
constexpr int RING = 1280;
__global__ void __launch_bounds__(1024) settle_rings(const float* a, float* out, int steps) {  // a warp a ring
  extern __shared__ float room[];
  int lane = threadIdx.x & 31;
  float* ring = room + threadIdx.x / 32 * RING;
  i64 from = T / 32 * RING;
  for (int i = lane; i < RING; i += 32) ring[i] = a[from + i];
  __syncwarp();
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
#pragma unroll 4
    for (int i = lane; i < RING; i += 32) {
      float left = i ? ring[i - 1] : ring[RING - 1], v = ring[i];
      __syncwarp();
      ring[i] = fmaf(0.3f, left - v, v) * fmaf(-0.01f, v, 1.0f);
      __syncwarp();
    }
  }
  for (int i = lane; i < RING; i += 32) out[from + i] = ring[i];
}
// ---- shade_tiles: 132 persistent blocks and 160 tiles, so 28 blocks have two; or 1280 tiles; expected 1.5 times
__global__ void __launch_bounds__(512) shade_tiles(const float* a, float* out, int tiles, int pixels) {  // pixels a thread and tile
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
#pragma unroll 1
    for (int k = 0; k < pixels; ++k) {
      i64 i = ((i64)tile * pixels + k) * 512 + threadIdx.x;
      float v = a[i], p[4] = {v, v + 0.1f, v + 0.2f, v + 0.3f};
#pragma unroll 4
      for (int n = 0; n < 64; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) p[j] = fmaf(p[j], fmaf(-0.5f, p[j], 0.8f), 0.2f);
      out[i] = (p[0] + p[1]) + (p[2] + p[3]);
    }
}
// ---- digest_documents: persistent blocks with eight neighbours of documents that grow with their number; or every 528th; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) digest_documents(const unsigned* word, const int* begin, unsigned* out, int each) {
  for (int k = 0; k < each; ++k) {
    int d = V == 0 ? blockIdx.x * each + k : k * gridDim.x + blockIdx.x;
    unsigned s = 0;
#pragma unroll 2
    for (int i = begin[d] + threadIdx.x; i < begin[d + 1]; i += 256) {
      unsigned h = word[i];
#pragma unroll
      for (int r = 0; r < 6; ++r) h = mix(h + r);
      s += h;
    }
    out[d * 256 + threadIdx.x] = s;
  }
}

void spread_cases() {
  static int* begins;
  static float* coefficients;
  cases.push_back({"calibrate_sensors", "occupancy_registers", "", [] { calibrate_sensors<0><<<1584, 128>>>(A, coefficients, C, 64); }, [] { calibrate_sensors<1><<<1584, 128>>>(A, nullptr, C, 64); }, C, 1584 * 128, false, [] {
    std::vector<float> v(128);
    for (int k = 0; k < 128; ++k) v[k] = (float)(mix(k) >> 8) * 0x1p-24f;
    coefficients = upload(v);
    CHECK(cudaMemcpyToSymbol(COEFFICIENT, v.data(), 512));
  }});
  cases.push_back({"search_shelves", "occupancy_shared", "", [] {
    dynamic_shared(search_shelves, 100 << 10);
    search_shelves<<<1056, 256, 100 << 10>>>(B, A, (int*)C, 128);
  }, [] { search_shelves<<<1056, 256, 4 << 10>>>(B, A, (int*)C, 128); }, C, 1056 * 256, true});
  cases.push_back({"longest_silences", "occupancy_block_size", "", [] { longest_silences<<<16384, 32>>>(A, (int*)C, 4096); }, [] { longest_silences<<<2048, 256>>>(A, (int*)C, 4096); }, C, 16384, true});
  cases.push_back({"covariance_of_assets", "grid_too_small", "", [] { covariance_of_assets<<<dim3(4, 4, 1), 256>>>(A, C, 1 << 14); }, [] { covariance_of_assets<<<dim3(4, 4, 32), 256>>>(A, C, 1 << 9); }, C, 128 * 128});
  cases.push_back({"settle_rings", "tail_effect", "occupancy_shared", [] {
    dynamic_shared(settle_rings, 32 * RING * 4);
    settle_rings<<<148, 1024, 32 * RING * 4>>>(A, C, 48);
  }, [] { settle_rings<<<1184, 128, 4 * RING * 4>>>(A, C, 48); }, C, 4736 * RING});
  cases.push_back({"shade_tiles", "tail_effect", "uneven_blocks", [] { shade_tiles<<<132, 512>>>(A, C, 160, 64); }, [] { shade_tiles<<<132, 512>>>(A, C, 1280, 8); }, C, 160 * 64 * 512});
  cases.push_back({"digest_documents", "uneven_blocks", "", [] { digest_documents<0><<<528, 256>>>((unsigned*)A, begins, (unsigned*)C, 8); }, [] { digest_documents<1><<<528, 256>>>((unsigned*)A, begins, (unsigned*)C, 8); }, C, 528 * 8 * 256, true, [] {
    std::vector<int> v(4225);
    for (int d = 0; d < 4224; ++d) {
      double u = d / 4224.0;
      v[d + 1] = v[d] + 512 + (int)(30000 * u * u * u * u);
    }
    begins = upload(v);
  }});
}
