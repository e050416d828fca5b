// Kernels in which a known defect is really there, and costs nothing, because another roof takes longer. The line above a kernel names both.
#include "frame.h"

// at the roof of DRAM, because 512 MB take 128 us; the lanes that write a column of the tile meet four by four, 5 cycles for the 14 in which DRAM moves 32 words both ways
__global__ void __launch_bounds__(256) flip_mural_panels(const float* a, float* out, int side) {
  __shared__ float tile[64][68];
  int x = threadIdx.x & 63, y = threadIdx.x / 64;
#pragma unroll
  for (int k = 0; k < 64; k += 4) tile[x][y + k] = a[(blockIdx.y * 64ll + y + k) * side + blockIdx.x * 64 + x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 64; k += 4) out[(blockIdx.x * 64ll + y + k) * side + blockIdx.y * 64 + x] = tile[y + k][x];
}
// at the roof of DRAM, because 512 MB take 128 us; lanes take one of four ways, about 90 instructions in all, of 220 slots
__global__ void __launch_bounds__(256) judge_orchard_fruit(const float4* a, float4* out) {
  float4 v = a[T];
  int kind = (int)(v.x * 3.999f);
  if (kind == 0) {
#pragma unroll 1
    for (int k = 0; k < 2; ++k) v = scaled(v, 0.9f, 0.05f);
  } else if (kind == 1) {
    v = {v.y * v.y, v.z * v.z, v.w * v.w, v.x};
  } else if (kind == 2) {
#pragma unroll 1
    for (int k = 0; k < 3; ++k) v = scaled(v, 0.8f, 0.02f * k);
  } else {
    v.w = rsqrtf(v.x) + v.y;
  }
  out[T] = v;
}
// at the roof of DRAM, because 512 MB take 128 us; each lane also looks up a price at random in 16 kB that L1 holds, 28 cycles of 57
__global__ void __launch_bounds__(256) price_parcel_zones(const float4* a, const float* __restrict__ price, float4* out) {
  float4 v = a[T];
  float p = __ldg(&price[(int)(v.x * 4096.0f) & 4095]);
  out[T] = {v.x, v.y * p, v.z * p, v.w * p};
}
// at the roof of DRAM, because 260 MB are read in 62 us; the grid makes 1.5 waves, and half a wave still has 64 kB an SM in flight
__global__ void __launch_bounds__(512, 2) survey_glacier_snow(const float4* a, float* out) {
  float s[4] = {};
#pragma unroll 1
  for (int n = 0; n < 10; ++n) {
    float4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = a[(i64)n * 8 * STRIDE + k * STRIDE + T];
#pragma unroll
    for (int k = 0; k < 8; ++k) s[0] += v[k].x, s[1] += v[k].y, s[2] += v[k].z, s[3] += v[k].w;
  }
  out[T] = (s[0] + s[1]) + (s[2] + s[3]);
}
// at the roof of FP32 and of issue slots, because two warps a scheduler have sixteen chains each; only an eighth of the warps is resident
__global__ void __launch_bounds__(256, 1) pace_solo_rowers(const float* a, float* out, int steps) {
  float x[16], c = -0.5f * a[T];
#pragma unroll
  for (int k = 0; k < 16; ++k) x[k] = 0.05f * k;
#pragma unroll 4
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 16; ++k) x[k] = fmaf(x[k], x[k], c);
#pragma unroll
  for (int k = 1; k < 16; ++k) x[0] += x[k];
  out[T] = x[0];
}
// at the roof of DRAM, because 512 MB take 128 us; five barriers a row, but eight blocks an SM fill each other's waits
__global__ void __launch_bounds__(256, 8) rest_bread_doughs(const float4* a, float4* out) {
  __shared__ float edge[2][258];
  int t = threadIdx.x;
  float4 v = a[T];
  if (t < 2) edge[t][0] = edge[t][257] = 0.5f;
#pragma unroll
  for (int n = 0; n < 5; ++n) {
    edge[n & 1][t + 1] = v.y + v.z;
    __syncthreads();
    float l = edge[n & 1][t], r = edge[n & 1][t + 2];
    v = {fmaf(0.1f, l, 0.8f * v.x), fmaf(0.1f, v.x + v.z, 0.8f * v.y), fmaf(0.1f, v.y + v.w, 0.8f * v.z), fmaf(0.1f, r, 0.8f * v.w)};
  }
  out[T] = v;
}
// at the roof of DRAM, because 512 MB take 128 us; a local array, turned by a number known at run time, moves 64 bytes a thread through L1, a sixth of its rate
__global__ void __launch_bounds__(256) reseat_choir_rows(const float4* a, const int* turn, float4* out) {
  float v[16];
  i64 first = blockIdx.x * 1024ll + threadIdx.x;
  int by = (int)((unsigned)turn[blockIdx.x] >> 3);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float4 u = a[first + k * 256];
    v[k * 4] = u.x, v[k * 4 + 1] = u.y, v[k * 4 + 2] = u.z, v[k * 4 + 3] = u.w;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) out[first + k * 256] = {v[(k * 4 + by) & 15], v[(k * 4 + 1 + by) & 15], v[(k * 4 + 2 + by) & 15], v[(k * 4 + 3 + by) & 15]};
}
// at the roof of DRAM, because 256 MB are read in 64 us; 4096 blocks add to one address, one in 15 ns, which L2 does in 1
__global__ void __launch_bounds__(256) total_rain_barrels(const float4* a, float* out) {
  __shared__ float part[8];
  float s[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  float all = sum_of_block((s[0] + s[1]) + (s[2] + s[3]), part);
  if (threadIdx.x == 0) atomicAdd(out, all);
}
// at the roof of DRAM, because 512 MB take 128 us; 40 registers a thread are too few for nine vectors, and L1 takes the spilled words
__global__ void __launch_bounds__(256, 6) blend_perfume_notes(const float4* a, float4* out) {
  float4 v[8];
  i64 first = blockIdx.x * 2048ll + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = a[first + k * 256];
  float4 s = {0, 0, 0, 0};
#pragma unroll
  for (int k = 0; k < 8; ++k) s = {fmaf(s.x, 0.7f, v[k].x), fmaf(s.y, 0.7f, v[k].y), fmaf(s.z, 0.7f, v[k].z), fmaf(s.w, 0.7f, v[k].w)};
#pragma unroll
  for (int k = 0; k < 8; ++k) out[first + k * 256] = {fmaf(0.2f, s.x, v[k].x), fmaf(0.2f, s.y, v[k].y), fmaf(0.2f, s.z, v[k].z), fmaf(0.2f, s.w, v[k].w)};
}
// at the roof of DRAM, because 512 MB take 128 us; two divisions of 32 bits for 16 bytes take 45 of 220 slots
__global__ void __launch_bounds__(256) number_theatre_seats(const float4* a, const float* __restrict__ tier, float4* out, unsigned row, unsigned floor) {
  unsigned i = blockIdx.x * 256 + threadIdx.x, r = i / row, f = r / floor;
  float4 v = a[i];
  float by = __ldg(&tier[f & 63]), more = (float)(r - f * floor);
  out[i] = scaled(v, by, more);
}
// at the roof of DRAM, because 512 MB take 128 us; a literal of type double costs eight conversions for 16 bytes, 16 cycles of 57
__global__ void __launch_bounds__(256) convert_old_guilders(const float4* a, float4* out) {
  float4 v = a[T];
  out[T] = {(float)(v.x * 0.45378), (float)(v.y * 0.45378), (float)(v.z * 0.45378), (float)(v.w * 0.45378)};
}
// at the roof of DRAM, because 512 MB take 128 us; a sine and an exponential of each number take 16 cycles of 57
__global__ void __launch_bounds__(256) tune_theremin_tones(const float4* a, float4* out) {
  auto tone = [](float x) { return __sinf(6.0f * x) * power_of_two(-x); };
  float4 v = a[T];
  out[T] = {tone(v.x), tone(v.y), tone(v.z), tone(v.w)};
}
// at the roof of DRAM, because 265 MB are read in 63 us in one full wave; all warps of a block share its 64 bins, but 16 bytes make one atomic, 8 of 27 cycles
__global__ void __launch_bounds__(256, 7) bin_meteor_masses(const float4* a, unsigned* out, int each) {
  __shared__ unsigned bins[64];
  int t = threadIdx.x;
  if (t < 64) bins[t] = 0;
  __syncthreads();
  const float4* own = a + (i64)blockIdx.x * each * 256 + t;
#pragma unroll 7
  for (int k = 0; k < each; ++k) {
    float4 v = own[k * 256];
    atomicAdd(&bins[(int)(64.0f * fmaf(v.x, 0.5f, 0.5f * v.y) + 0.001f * (v.z + v.w)) & 63], 1u);
  }
  __syncthreads();
  if (t < 64) atomicAdd(&out[t], bins[t]);
}
// at the roof of DRAM, because 256 MB take 64 us; two bytes a lane and instruction, but 16 loads a thread are in flight, and an instruction still moves two whole sectors
__global__ void __launch_bounds__(256) dim_stage_lamps(const __half* a, __half* out) {
  __half v[16];
  i64 first = blockIdx.x * 4096ll + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 16; ++k) v[k] = a[first + k * 256];
#pragma unroll
  for (int k = 0; k < 16; ++k) out[first + k * 256] = __hmul(v[k], __float2half(0.75f));
}
// at the roof of DRAM, because 268 MB are read in 64 us; letters of 16 to 48 kB make blocks uneven, but 8192 of them share the SMs
__global__ void __launch_bounds__(256) weigh_mixed_letters(const float4* a, const int* start, float* out) {
  __shared__ float part[8];
  int from = start[blockIdx.x], to = start[blockIdx.x + 1];
  float s[4] = {};
#pragma unroll 4
  for (int k = from + threadIdx.x; k < to; k += 256) {
    float4 v = a[k];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  float all = sum_of_block((s[0] + s[1]) + (s[2] + s[3]), part);
  if (threadIdx.x == 0) out[blockIdx.x] = all;
}
// at the roof of DRAM, because 256 MB are read in 64 us; one warp adds what eight warps left, and a barrier holds the others, for each 64 kB
__global__ void __launch_bounds__(256) audit_bakery_tills(const float4* a, float* out) {
  __shared__ float part[256];
  float s[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    float4 v = a[blockIdx.x * 4096ll + k * 256 + threadIdx.x];
    s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
  }
  part[threadIdx.x] = (s[0] + s[1]) + (s[2] + s[3]);
  __syncthreads();
  if (threadIdx.x < 32) {
    float all = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) all += part[k * 32 + threadIdx.x];
    all = warp_sum(all);
    if (threadIdx.x == 0) out[blockIdx.x] = all;
  }
}

void tempting_cases() {
  static int* starts;
  static __half* lamps;
  cases.push_back({"flip_mural_panels", "none_at_roof", "", [] { flip_mural_panels<<<dim3(128, 128), 256>>>(A, C, 8192); }, nullptr});
  cases.push_back({"judge_orchard_fruit", "none_at_roof", "", [] { judge_orchard_fruit<<<65536, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"price_parcel_zones", "none_at_roof", "", [] { price_parcel_zones<<<65536, 256>>>((float4*)A, B, (float4*)C); }, nullptr});
  cases.push_back({"survey_glacier_snow", "none_at_roof", "", [] { survey_glacier_snow<<<396, 512>>>((float4*)A, C); }, nullptr});
  cases.push_back({"pace_solo_rowers", "none_at_roof", "", [] { pace_solo_rowers<<<132, 256>>>(A, C, 6144); }, nullptr});
  cases.push_back({"rest_bread_doughs", "none_at_roof", "", [] { rest_bread_doughs<<<65536, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"reseat_choir_rows", "none_at_roof", "", [] { reseat_choir_rows<<<16384, 256>>>((float4*)A, (int*)B, (float4*)C); }, nullptr});
  cases.push_back({"total_rain_barrels", "none_at_roof", "", [] { total_rain_barrels<<<4096, 256>>>((float4*)A, C); }, nullptr});
  cases.push_back({"blend_perfume_notes", "none_at_roof", "", [] { blend_perfume_notes<<<8192, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"number_theatre_seats", "none_at_roof", "", [] { number_theatre_seats<<<65536, 256>>>((float4*)A, B, (float4*)C, 1187u, 53u); }, nullptr});
  cases.push_back({"convert_old_guilders", "none_at_roof", "", [] { convert_old_guilders<<<65536, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"tune_theremin_tones", "none_at_roof", "", [] { tune_theremin_tones<<<65536, 256>>>((float4*)A, (float4*)C); }, nullptr});
  cases.push_back({"bin_meteor_masses", "none_at_roof", "", [] { bin_meteor_masses<<<924, 256>>>((float4*)A, (unsigned*)C, 70); }, nullptr});
  cases.push_back({"dim_stage_lamps", "none_at_roof", "", [] { dim_stage_lamps<<<16384, 256>>>(lamps, (__half*)C); }, nullptr, nullptr, 0, false, [] { lamps = converted<__half>(A, N, 0); }});
  cases.push_back({"weigh_mixed_letters", "none_at_roof", "", [] { weigh_mixed_letters<<<8192, 256>>>((float4*)A, starts, C); }, nullptr, nullptr, 0, false, [] {
    std::vector<int> v(8193);
    for (unsigned k = 0; k < 8192; ++k) v[k + 1] = std::min(v[k] + 256 * (int)(4 + mix(k) % 9), (int)(N / 4));
    starts = upload(v);
  }});
  cases.push_back({"audit_bakery_tills", "none_at_roof", "", [] { audit_bakery_tills<<<4096, 256>>>((float4*)A, C); }, nullptr});
}
