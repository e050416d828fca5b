// Data wider than needed, and operands that DRAM delivers several times: gauges, land, oceans, orders, antennas, seismograms.
// operands.csv has the sizes of the operands of the latter, as a caller knows them from shapes and types.
#include "set.h"

void access_cases();  // access.cu

__device__ inline void add_of_block(int s, int* out) {  // 256 threads, one atomic
  __shared__ int part[8];
  s = __reduce_add_sync(~0u, s);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, part[0] + part[1] + part[2] + part[3] + part[4] + part[5] + part[6] + part[7]);
}
// ---- heights of gauges in millimetres: 64 bits each, though 16 hold them
__global__ void make_levels(const float* a, i64* wide, short* narrow, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) wide[i] = narrow[i] = (short)(a[i] * 8000 - 4000);
}
__global__ void high_waters(const longlong2* level, int* out, i64 n) {
  int s = 0;
#pragma unroll 4
  for (i64 i = T; i < n / 2; i += STRIDE) {
    longlong2 v = level[i];
    s += max(0, (int)v.x - 3000) + max(0, (int)v.y - 3000);
  }
  add_of_block(s, out);
}
__global__ void high_waters(const short4* level, int* out, i64 n) {
  int s = 0;
#pragma unroll 4
  for (i64 i = T; i < n / 4; i += STRIDE) {
    short4 v = level[i];
    s += max(0, v.x - 3000) + max(0, v.y - 3000) + max(0, v.z - 3000) + max(0, v.w - 3000);
  }
  add_of_block(s, out);
}
// ---- five classes of land from a byte a pixel, written as words or as bytes
__device__ inline unsigned classes(unsigned four) { return __vsetgtu4(four, 0x14141414) + __vsetgtu4(four, 0x3c3c3c3c) + __vsetgtu4(four, 0x78787878) + __vsetgtu4(four, 0xc8c8c8c8); }
template <int V> __global__ void land_classes(const unsigned* pixels, uint4* out, i64 n) {
  if (V == 0)
    for (i64 i = T; i < n / 4; i += STRIDE) {
      unsigned c = classes(pixels[i]);
      out[i] = {c & 255, c >> 8 & 255, c >> 16 & 255, c >> 24};
    }
  else
    for (i64 i = T; i < n / 16; i += STRIDE) {
      uint4 p = ((const uint4*)pixels)[i];
      out[i] = {classes(p.x), classes(p.y), classes(p.z), classes(p.w)};
    }
}
// ---- heat of columns of water, whose temperatures were measured with 24 bits
constexpr int LAYERS = 16;
__global__ void widen_layers(const float* a, double* wide, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) wide[i] = a[i];
}
template <class V> __global__ void ocean_heat(const V* layer, float2* out, i64 pairs) {
  i64 i = T;
  float2 h = {0, 0};
#pragma unroll
  for (int k = 0; k < LAYERS; ++k) {
    V t = layer[k * pairs + i];
    h.x = fmaf((float)t.x, 4.1f + 0.3f * k, h.x), h.y = fmaf((float)t.y, 4.1f + 0.3f * k, h.y);
  }
  out[i] = h;
}
// ---- the turnover of orders: records of 32 bytes whose values need 8
struct Order { float price; unsigned short volume; unsigned char side, venue; };
__global__ void make_orders(const float* a, longlong2* wide, Order* narrow, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned h = mix((unsigned)i);
    Order o = {10 + a[i], (unsigned short)(h & 1023), (unsigned char)(h >> 10 & 1), (unsigned char)(h >> 11 & 7)};
    narrow[i] = o;
    wide[2 * i] = {__double_as_longlong((double)o.price), o.volume}, wide[2 * i + 1] = {o.side, o.venue};
  }
}
__device__ inline float fee(float price, int volume, int side, int venue) { return (side ? 1.0f : -1.0f) * (1 - 0.001f * venue) * price * volume; }
__global__ void turnover(const longlong2* order, float* out, i64 n) {
  float s = 0;
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    longlong2 u = order[2 * i], v = order[2 * i + 1];
    s += fee((float)__longlong_as_double(u.x), (int)u.y, (int)v.x, (int)v.y);
  }
  out[T] = s;
}
__global__ void turnover(const Order* order, float* out, i64 n) {
  float s = 0;
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    uint2 w = ((const uint2*)order)[i];
    s += fee(__uint_as_float(w.x), (int)(w.y & 65535), (int)(w.y >> 16 & 255), (int)(w.y >> 24));
  }
  out[T] = s;
}
// ---- the power of eight beams of an antenna: a block for one of them, or for all of a chunk
constexpr int BEAMS = 8;
template <int V> __global__ void __launch_bounds__(256) beam_powers(const float4* samples, float* power, int chunks, int per) {
  constexpr int OWN = V == 0 ? 1 : BEAMS;
  int chunk = V == 0 ? blockIdx.x % chunks : blockIdx.x, first = V == 0 ? blockIdx.x / chunks : 0;
  float s[OWN] = {};
#pragma unroll 4
  for (int i = threadIdx.x; i < per; i += 256) {
    float4 v = samples[(i64)chunk * per + i];
#pragma unroll
    for (int b = 0; b < OWN; ++b) {
      float w = 0.1f * (first + b + 1), d = v.x * w + v.y * (w - 0.3f) + v.z * (w - 0.5f) + v.w * (w - 0.7f);
      s[b] = fmaf(d, d, s[b]);
    }
  }
#pragma unroll
  for (int b = 0; b < OWN; ++b) {
    float t = warp_sum(s[b]);
    if ((threadIdx.x & 31) == 0) atomicAdd(&power[(first + b) * chunks + chunk], t);
  }
}
// ---- seismograms of 49,152 samples, less their mean and by their deviation: read three times, or kept in shared memory
constexpr int TRACE = 49152;
template <int THREADS> __device__ float sum_of_block(float v) {
  __shared__ float part[32];
  v = warp_sum(v);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  float s = 0;
  for (int w = 0; w < THREADS / 32; ++w) s += part[w];
  return s;
}
template <int V, int THREADS> __global__ void __launch_bounds__(THREADS) standardise_traces(const float4* in, float4* out, int traces) {
  extern __shared__ float4 kept[];
  for (int r = blockIdx.x; r < traces; r += gridDim.x) {
    const float4* x = in + (i64)r * (TRACE / 4);
    float s = 0, q = 0;
#pragma unroll 6
    for (int i = threadIdx.x; i < TRACE / 4; i += THREADS) {
      float4 v = x[i];
      if (V == 1) kept[i] = v;
      s += (v.x + v.y) + (v.z + v.w);
    }
    float mean = sum_of_block<THREADS>(s) / TRACE;
#pragma unroll 6
    for (int i = threadIdx.x; i < TRACE / 4; i += THREADS) {
      float4 v = V == 1 ? kept[i] : x[i];
      q += (v.x - mean) * (v.x - mean) + (v.y - mean) * (v.y - mean) + (v.z - mean) * (v.z - mean) + (v.w - mean) * (v.w - mean);
    }
    float scale = rsqrtf(sum_of_block<THREADS>(q) / TRACE);
#pragma unroll 6
    for (int i = threadIdx.x; i < TRACE / 4; i += THREADS) {
      float4 v = V == 1 ? kept[i] : x[i];
      out[(i64)r * (TRACE / 4) + i] = {(v.x - mean) * scale, (v.y - mean) * scale, (v.z - mean) * scale, (v.w - mean) * scale};
    }
  }
}
// ---- one matrix times a vector, and its transpose times another: by two kinds of blocks, or from one look at each element
constexpr int SIDE = 8192;
__device__ inline float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w); }
template <int V> __global__ void __launch_bounds__(256) both_products(const float4* a, const float4* p, const float* r, float* q, float* s) {
  int lane = threadIdx.x & 31, block = blockIdx.x;
  if (V == 0 && block < SIDE / 8) {
    int row = block * 8 + threadIdx.x / 32;
    float d = 0;
#pragma unroll 8
    for (int c = lane; c < SIDE / 4; c += 32) d += dot(a[(i64)row * (SIDE / 4) + c], p[c]);
    d = warp_sum(d);
    if (lane == 0) q[row] = d;
    return;
  }
  if (V == 0) block -= SIDE / 8;
  int col = (block & 7) * 256 + threadIdx.x, first = block / 8 * 64;
  float4 sum = {0, 0, 0, 0}, own = p[col];
#pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    float4 v = a[(i64)(first + k) * (SIDE / 4) + col];
    float w = r[first + k];
    sum.x = fmaf(v.x, w, sum.x), sum.y = fmaf(v.y, w, sum.y), sum.z = fmaf(v.z, w, sum.z), sum.w = fmaf(v.w, w, sum.w);
    if (V == 1) {
      float d = warp_sum(dot(v, own));
      if (lane == 0) atomicAdd(&q[first + k], d);
    }
  }
  float* to = s + col * 4;
  atomicAdd(to, sum.x), atomicAdd(to + 1, sum.y), atomicAdd(to + 2, sum.z), atomicAdd(to + 3, sum.w);
}
// ---- a pulsar's signal times itself, eight lags of an eighth of it
constexpr i64 LAG = N / 32;  // float4
template <int V> __global__ void __launch_bounds__(256) lagged_products(const float4* a, float* out) {
  float s[8] = {};
  if (V == 0)
    for (i64 i = T; i < 8 * LAG; i += STRIDE) {
      float4 v = a[i];
#pragma unroll
      for (int k = 0; k < 8; ++k) s[k] += dot(v, a[(i + k * LAG) & (8 * LAG - 1)]);
    }
  else
    for (i64 i = T; i < LAG; i += STRIDE) {
      float4 v[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] = a[i + k * LAG];
#pragma unroll
      for (int k = 0; k < 8; ++k)
#pragma unroll
        for (int j = 0; j < 8; ++j) s[k] += dot(v[j], v[(j + k) & 7]);
    }
  __shared__ float part[8][8];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float t = warp_sum(s[k]);
    if ((threadIdx.x & 31) == 0) part[k][threadIdx.x / 32] = t;
  }
  __syncthreads();
  if (threadIdx.x < 8) {
    float t = 0;
    for (int w = 0; w < 8; ++w) t += part[threadIdx.x][w];
    atomicAdd(&out[threadIdx.x], t);
  }
}

void memory_cases() {
  static i64* level;
  static short* level16;
  static double* layer;
  static longlong2* orders;
  static Order* orders8;
  cases.push_back({"high_waters", "wide_data", "", [] { high_waters<<<1056, 256>>>((longlong2*)level, (int*)C, N / 2); }, [] { high_waters<<<1056, 256>>>((short4*)level16, (int*)C, N / 2); }, C, 1, true, [] {
    level = device<i64>(N / 2), level16 = device<short>(N / 2);
    make_levels<<<1056, 256>>>(A, level, level16, N / 2);
  }});
  cases.push_back({"land_classes", "wide_data", "", [] { land_classes<0><<<2112, 256>>>((unsigned*)A, (uint4*)C, N); }, [] { land_classes<1><<<2112, 256>>>((unsigned*)A, (uint4*)C, N); }});
  cases.push_back({"ocean_heat", "wide_data", "fp64_by_accident", [] { ocean_heat<<<4096, 256>>>((double2*)layer, (float2*)C, N / 64); }, [] { ocean_heat<<<4096, 256>>>((float2*)A, (float2*)C, N / 64); }, C, N / 32, false, [] {
    layer = device<double>(N / 2);
    widen_layers<<<1056, 256>>>(A, layer, N / 2);
  }});
  cases.push_back({"turnover", "wide_data", "", [] { turnover<<<792, 256>>>(orders, C, N / 8); }, [] { turnover<<<792, 256>>>(orders8, C, N / 8); }, C, 792 * 256, false, [] {
    orders = device<longlong2>(N / 4), orders8 = device<Order>(N / 8);
    make_orders<<<1056, 256>>>(A, orders, orders8, N / 8);
  }});
  cases.push_back({"beam_powers", "no_tile", "block_order_l2", [] { beam_powers<0><<<2048 * BEAMS, 256>>>((float4*)A, C, 2048, N / 8192); }, [] { beam_powers<1><<<2048, 256>>>((float4*)A, C, 2048, N / 8192); }, C, 2048 * BEAMS});
  cases.push_back({"standardise_traces", "no_tile", "block_order_l2", [] { standardise_traces<0, 512><<<528, 512>>>((float4*)A, (float4*)C, 1056); }, [] { standardise_traces<1, 1024><<<132, 1024, TRACE * 4>>>((float4*)A, (float4*)C, 1056); }, C, 1056 * TRACE, false, [] { dynamic_shared(standardise_traces<1, 1024>, TRACE * 4); }});
  cases.push_back({"both_products", "block_order_l2", "no_tile", [] { both_products<0><<<SIDE / 4, 256>>>((float4*)A, (float4*)B, B + SIDE, C, C + SIDE); }, [] { both_products<1><<<SIDE / 8, 256>>>((float4*)A, (float4*)B, B + SIDE, C, C + SIDE); }, C, 2 * SIDE});
  cases.push_back({"lagged_products", "no_tile", "block_order_l2", [] { lagged_products<0><<<528, 256>>>((float4*)A, C); }, [] { lagged_products<1><<<396, 256>>>((float4*)A, C); }, C, 8});
  access_cases();
}
