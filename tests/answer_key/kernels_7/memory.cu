// Loads and stores of sound, records, samples, weather, atoms, weights.
// The line above a kernel says why its slow form is slow, and how many times as fast its author expects the fixed one, before any run.
// Names tell the domain, not the defect. operands.csv has the sizes of operands, as a caller knows them from shapes and types.
#include <cuda_fp8.h>

#include "set.h"

void layout_cases();  // layout.cu

// ---- envelope: a thread walks its own window of 64 samples, so the lanes of a load are 256 bytes apart; expected 4 times
template <int V> __global__ void __launch_bounds__(256) envelope(const float* sound, float* out) {
  if (V == 0) {
    const float* own = sound + T * 64;
    float most = 0;
#pragma unroll 4
    for (int k = 0; k < 64; ++k) most = fmaxf(most, fabsf(own[k] - 0.5f));
    out[T] = most;
  } else {
    float4 v = ((const float4*)sound)[T];
    float most = fmaxf(fmaxf(fabsf(v.x - 0.5f), fabsf(v.y - 0.5f)), fmaxf(fabsf(v.z - 0.5f), fabsf(v.w - 0.5f)));
    for (int o = 8; o; o >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
    if ((threadIdx.x & 15) == 0) out[T / 16] = most;
  }
}
// ---- fingerprint_records: byte loads whose lanes are 64 bytes apart, or 16 bytes a lane by way of shared memory; expected 4 times
template <int V> __global__ void __launch_bounds__(256) fingerprint_records(const uint4* record, unsigned* out) {
  unsigned h = 2166136261u;
  if constexpr (V == 0) {
    const unsigned char* own = (const unsigned char*)record + T * 64;
#pragma unroll 4
    for (int k = 0; k < 64; ++k) h = (h ^ own[k]) * 16777619u;
  } else {
    __shared__ unsigned stage[256 * 17];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int i = threadIdx.x + k * 256;
      uint4 v = record[blockIdx.x * 1024ll + i];
      unsigned* to = &stage[i / 4 * 17 + (i & 3) * 4];
      to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
    __syncthreads();
#pragma unroll 4
    for (int w = 0; w < 16; ++w) {
      unsigned v = stage[threadIdx.x * 17 + w];
#pragma unroll
      for (int k = 0; k < 4; ++k) h = (h ^ (v >> 8 * k & 255)) * 16777619u;
    }
  }
  out[T] = h;
}
// ---- regroup_samples: lanes store two bytes 16 kB apart, or a tile turns in shared memory; expected 4 times
constexpr int SIDE = 8192;
template <int V> __global__ void __launch_bounds__(256) regroup_samples(const unsigned short* in, unsigned short* out) {
  int x = threadIdx.x, y = threadIdx.y;
  if constexpr (V == 0) {
    int column = blockIdx.x * 32 + x, row = blockIdx.y * 8 + y;
    out[(i64)column * SIDE + row] = in[(i64)row * SIDE + column];
  } else {
    __shared__ unsigned tile[64][33];
    int column = blockIdx.x * 64, row = blockIdx.y * 64;
#pragma unroll
    for (int r = 0; r < 64; r += 8) tile[r + y][x] = ((const unsigned*)in)[((i64)(row + r + y) * SIDE + column) / 2 + x];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 64; r += 8) {
      int c = r + y, shift = (c & 1) * 16;
      unsigned low = tile[2 * x][c / 2] >> shift & 65535, high = tile[2 * x + 1][c / 2] >> shift & 65535;
      ((unsigned*)out)[((i64)(column + c) * SIDE + row) / 2 + x] = low | high << 16;
    }
  }
}
// ---- wind_speed: two of sixteen fields of a record of 64 bytes, or a plane of their own; expected 2.5 times
__global__ void make_stations(const float* a, float2* record, float2* wind, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float2 v = {a[i & (N - 1)], a[(i * 5 + 3) & (N - 1)]};
    wind[i] = v;
    for (int k = 0; k < 8; ++k) record[i * 8 + k] = k == 5 ? v : float2{1, 2};
  }
}
template <int STEP> __global__ void __launch_bounds__(256) wind_speed(const float2* wind, float* out, i64 n) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    float2 v = wind[i * STEP];
    out[i] = sqrtf(fmaf(v.x, v.x, v.y * v.y));
  }
}
// ---- count_active: a byte of each record of 32 bytes; expected 8 times
__global__ void make_members(unsigned* record, unsigned char* state, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned h = mix((unsigned)i + 77);
    state[i] = (unsigned char)h;
    for (int k = 0; k < 8; ++k) record[i * 8 + k] = h + k;
  }
}
template <int STEP> __global__ void __launch_bounds__(256) count_active(const unsigned char* state, int* out, int n) {
  int s = 0;
#pragma unroll 8
  for (int i = (int)T; i < n; i += (int)STRIDE) s += state[(i64)i * STEP] & 1;
  out[T] = s;
}
// ---- gather_atoms: records of 64 bytes behind a header of 16, so that each lies in three sectors and two lines; expected 1.4 times
__global__ void __launch_bounds__(256) gather_atoms(const float4* atom, float* out, unsigned atoms) {  // four lanes an atom
  float s = 0;
#pragma unroll 4
  for (int k = 0; k < 16; ++k) {
    unsigned i = mix((unsigned)(T / 4) * 16 + k) & (atoms - 1);
    float4 v = atom[(i64)i * 4 + (threadIdx.x & 3)];
    s = fmaf(s, 0.9f, (v.x + v.y) + (v.z - v.w));
  }
  out[T] = s;
}
// ---- rescale_weights: a byte of FP8 a thread; expected 3 times
template <int V> __global__ void __launch_bounds__(256) rescale_weights(const void* in, void* out, float by) {
  if (V == 0) {
    __half h = __half(__nv_cvt_fp8_to_halfraw(((const __nv_fp8_storage_t*)in)[T], __NV_E4M3));
    ((__nv_fp8_storage_t*)out)[T] = __nv_cvt_halfraw_to_fp8(__half_raw(__hmul(h, __float2half(by))), __NV_SATFINITE, __NV_E4M3);
  } else {
    uint4 v = ((const uint4*)in)[T], w;
    __half2 two = __float2half2_rn(by);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned word = (&v.x)[k];
      __half2 a = __half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)word, __NV_E4M3)), b = __half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(word >> 16), __NV_E4M3));
      unsigned low = __nv_cvt_halfraw2_to_fp8x2(__half2_raw(__hmul2(a, two)), __NV_SATFINITE, __NV_E4M3), high = __nv_cvt_halfraw2_to_fp8x2(__half2_raw(__hmul2(b, two)), __NV_SATFINITE, __NV_E4M3);
      (&w.x)[k] = low | high << 16;
    }
    ((uint4*)out)[T] = w;
  }
}
// ---- mix_stereo: a sample of 16 bits a thread; expected 1.5 times
template <int V> __global__ void __launch_bounds__(256) mix_stereo(const short* left, const short* right, short* out) {
  auto mixed = [](int l, int r) { return (3 * l + r) >> 2; };
  if (V == 0) {
    out[T] = (short)mixed(left[T], right[T]);
  } else {
    uint4 l = ((const uint4*)left)[T], r = ((const uint4*)right)[T], w;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int a = (int)(&l.x)[k], b = (int)(&r.x)[k];
      (&w.x)[k] = (unsigned)(mixed((short)a, (short)b) & 65535) | (unsigned)mixed(a >> 16, b >> 16) << 16;
    }
    ((uint4*)out)[T] = w;
  }
}

void memory_cases() {
  static float2 *record, *wind;
  static unsigned* member;
  static unsigned char* state;
  static float4* aligned;
  const i64 STATIONS = 1 << 24, MEMBERS = 1 << 25;
  const unsigned ATOMS = 1 << 21;
  cases.push_back({"envelope", "uncoalesced_loads", "", [] { envelope<0><<<4096, 256>>>(A, C); }, [] { envelope<1><<<65536, 256>>>(A, C); }, C, 1 << 20});
  cases.push_back({"fingerprint_records", "uncoalesced_loads", "", [] { fingerprint_records<0><<<8192, 256>>>((uint4*)A, (unsigned*)C); }, [] { fingerprint_records<1><<<8192, 256>>>((uint4*)A, (unsigned*)C); }, C, 1 << 21, true});
  cases.push_back({"regroup_samples", "uncoalesced_stores", "partial_sector_writes", [] { regroup_samples<0><<<dim3(SIDE / 32, SIDE / 8), dim3(32, 8)>>>((unsigned short*)A, (unsigned short*)C); }, [] { regroup_samples<1><<<dim3(SIDE / 64, SIDE / 64), dim3(32, 8)>>>((unsigned short*)A, (unsigned short*)C); }, C, (i64)SIDE * SIDE / 2, true});
  cases.push_back({"wind_speed", "strided_sectors", "", [=] { wind_speed<8><<<1056, 256>>>(record + 5, C, STATIONS); }, [=] { wind_speed<1><<<1056, 256>>>(wind, C, STATIONS); }, C, STATIONS, false, [=] {
    record = device<float2>(STATIONS * 8), wind = device<float2>(STATIONS);
    make_stations<<<1056, 256>>>(A, record, wind, STATIONS);
  }});
  cases.push_back({"count_active", "strided_sectors", "", [=] { count_active<32><<<1056, 256>>>((unsigned char*)member, (int*)C, (int)MEMBERS); }, [=] { count_active<1><<<1056, 256>>>(state, (int*)C, (int)MEMBERS); }, C, 1056 * 256, true, [=] {
    member = device<unsigned>(MEMBERS * 8), state = device<unsigned char>(MEMBERS);
    make_members<<<1056, 256>>>(member, state, MEMBERS);
  }});
  cases.push_back({"gather_atoms", "misaligned_base", "", [=] { gather_atoms<<<4096, 256>>>((float4*)A + 1, C, ATOMS); }, [=] { gather_atoms<<<4096, 256>>>(aligned, C, ATOMS); }, C, 1 << 20, false, [=] {
    aligned = device<float4>(ATOMS * 4);
    CHECK(cudaMemcpy(aligned, (float4*)A + 1, ATOMS * 64ll, cudaMemcpyDefault));
  }});
  cases.push_back({"rescale_weights", "narrow_accesses", "", [] { rescale_weights<0><<<1 << 19, 256>>>(A, C, 0.75f); }, [] { rescale_weights<1><<<1 << 15, 256>>>(A, C, 0.75f); }, C, 1 << 25, true});
  cases.push_back({"mix_stereo", "narrow_accesses", "", [] { mix_stereo<0><<<1 << 18, 256>>>((short*)A, (short*)B, (short*)C); }, [] { mix_stereo<1><<<1 << 15, 256>>>((short*)A, (short*)B, (short*)C); }, C, 1 << 25, true});
  layout_cases();
}
