// Defects of arithmetic, branches, registers and occupancy.
#include "set.h"

// ---- registers and local memory
template <int V> __global__ void __launch_bounds__(128) solve8(const float* a, float* x, int n) {
  // a system of 8 equations a thread, with a search for the pivot; the fixed one swaps rows by selection
  i64 t = T;
  float m[8][9];
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 9; ++c) m[r][c] = a[(i64)(r * 9 + c) % 64 * n + t] + (r == c ? 4.0f : 0.0f);
  if (V == 0) {
#pragma unroll 1
    for (int k = 0; k < 8; ++k) {
      int p = k;
      for (int r = k + 1; r < 8; ++r) if (fabsf(m[r][k]) > fabsf(m[p][k])) p = r;
      if (p != k) for (int c = 0; c < 9; ++c) { float u = m[k][c]; m[k][c] = m[p][c], m[p][c] = u; }
      float scale = 1.0f / m[k][k];
      for (int r = 0; r < 8; ++r) {
        if (r == k) continue;
        float f = m[r][k] * scale;
        for (int c = k; c < 9; ++c) m[r][c] -= f * m[k][c];
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int r = k + 1; r < 8; ++r) {
        bool swap = fabsf(m[r][k]) > fabsf(m[k][k]);
#pragma unroll
        for (int c = 0; c < 9; ++c) { float u = m[k][c], v = m[r][c]; m[k][c] = swap ? v : u, m[r][c] = swap ? u : v; }
      }
      float scale = 1.0f / m[k][k];
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        float f = r == k ? 0.0f : m[r][k] * scale;
#pragma unroll
        for (int c = k; c < 9; ++c) m[r][c] -= f * m[k][c];
      }
    }
  }
  for (int k = 0; k < 8; ++k) x[(i64)k * n + t] = m[k][8] / m[k][k];
}
__device__ __forceinline__ void dct8(float& a, float& b, float& c, float& d, float& e, float& f, float& g, float& h) {
  float p0 = a + h, p1 = b + g, p2 = c + f, p3 = d + e, m0 = a - h, m1 = b - g, m2 = c - f, m3 = d - e;
  float s = p0 + p3, t = p1 + p2, u = p0 - p3, v = p1 - p2;
  a = 0.353553f * (s + t), e = 0.353553f * (s - t);
  c = 0.461940f * u + 0.191342f * v, g = 0.191342f * u - 0.461940f * v;
  b = 0.490393f * m0 + 0.415735f * m1 + 0.277785f * m2 + 0.097545f * m3;
  d = 0.415735f * m0 - 0.097545f * m1 - 0.490393f * m2 - 0.277785f * m3;
  f = 0.277785f * m0 - 0.490393f * m1 + 0.097545f * m2 + 0.415735f * m3;
  h = 0.097545f * m0 - 0.277785f * m1 + 0.415735f * m2 - 0.490393f * m3;
}
template <int V> __global__ void __launch_bounds__(256, V == 0 ? 8 : 2) block_dct(const float* a, float* out, i64 n) {
  float x[64];  // a block of 8 x 8 pixels a thread
  i64 t = T;
#pragma unroll
  for (int k = 0; k < 64; ++k) x[k] = a[k * n + t];
#pragma unroll
  for (int r = 0; r < 8; ++r) dct8(x[8 * r], x[8 * r + 1], x[8 * r + 2], x[8 * r + 3], x[8 * r + 4], x[8 * r + 5], x[8 * r + 6], x[8 * r + 7]);
#pragma unroll
  for (int c = 0; c < 8; ++c) dct8(x[c], x[c + 8], x[c + 16], x[c + 24], x[c + 32], x[c + 40], x[c + 48], x[c + 56]);
#pragma unroll
  for (int k = 0; k < 64; ++k) out[k * n + t] = x[k];
}
template <int V> __global__ void __launch_bounds__(128) register_coefficients(const float* table, const int* keys, const float* coefficients, float* out, int n) {
  // 144 coefficients a thread in registers, or in shared memory
  __shared__ __align__(16) float shared[144];
  float own[V == 0 ? 144 : 1];
  if (V == 0) {
#pragma unroll
    for (int k = 0; k < 144; ++k) { own[k] = coefficients[k]; asm volatile("" : "+f"(own[k])); }
  } else {
    for (int k = threadIdx.x; k < 144; k += 128) shared[k] = coefficients[k];
    __syncthreads();
  }
#pragma unroll 1
  for (i64 i = T; i < n; i += STRIDE) {
    float v = table[keys[i]], u = table[(int)(v * 67108863.0f)], s[8] = {};
    if (V == 1) asm volatile("" ::: "memory");  // or the compiler keeps the coefficients in registers
#pragma unroll
    for (int k = 0; k < 144; ++k) s[k & 7] = fmaf(s[k & 7], u, V == 0 ? own[V == 0 ? k : 0] : shared[k]);
    out[i] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  }
}
template <class X> __global__ void __launch_bounds__(128) join_table(const float* payload, const int* keys, float* out, int n) {
  // a dimension table of 22,000 entries in shared memory: of floats, or of bytes
  extern __shared__ char raw[];
  X* own = (X*)raw;
  for (int i = threadIdx.x; i < 22000; i += 128) own[i] = (X)(i & 127);
  __syncthreads();
  float s = 0;
#pragma unroll 1
  for (i64 i = T; i < n; i += STRIDE) {
    float v = payload[keys[i]];
    s += v * (float)own[(int)(v * 21999.0f)];
  }
  atomicAdd(out + (T & 16383), s);
}
// ---- branches
template <int V> __global__ void mandelbrot(int* out, int width, int height) {
  // lanes are pixels 512 rows apart, or neighbours
  i64 t = T;
  int x = (int)(V == 0 ? t / 32 % width : t % width), y = (int)(V == 0 ? t / 32 / width + (t & 31) * (height / 32) : t / width);
  float cx = -2.2f + 3.0f * x / width, cy = -1.3f + 2.6f * y / height, u = 0, v = 0;
  int k = 0;
  for (; k < 1024 && u * u + v * v < 4; ++k) { float next = u * u - v * v + cx; v = 2 * u * v + cy, u = next; }
  out[(i64)y * width + x] = k;
}
template <int K> __device__ __noinline__ float shade(float x) {
  for (int k = 0; k < 48; ++k) x = fmaf(x, 0.9f - 0.01f * K, __fdividef(1.0f + K, x + 2.0f + K));
  return x;
}
__global__ void shade_materials(const float* a, const uint8_t* materials, float* out, int n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float x = a[i];
    switch (materials[i]) {
      case 0: x = shade<0>(x); break;
      case 1: x = shade<1>(x); break;
      case 2: x = shade<2>(x); break;
      case 3: x = shade<3>(x); break;
      case 4: x = shade<4>(x); break;
      case 5: x = shade<5>(x); break;
      case 6: x = shade<6>(x); break;
      default: x = shade<7>(x);
    }
    out[i] = x;
  }
}
// ---- arithmetic
template <int V> __global__ void bilateral(const float* a, float* out, int w, int h, float space, float range) {
  int x = blockIdx.x * 32 + (threadIdx.x & 31), y = blockIdx.y * 8 + threadIdx.x / 32;
  if (x < 3 || y < 3 || x >= w - 3 || y >= h - 3) return;
  float centre = a[(i64)y * w + x], s = 0, weights = 0;
#pragma unroll
  for (int dy = -3; dy <= 3; ++dy)
#pragma unroll
    for (int dx = -3; dx <= 3; ++dx) {
      float v = a[(i64)(y + dy) * w + x + dx], d = v - centre, far = dx * dx + dy * dy;
      float weight = V == 0 ? __expf(-far * space) * __expf(-d * d * range) : __expf(-(far * space + d * d * range));
      s += v * weight, weights += weight;
    }
  out[(i64)y * w + x] = __fdividef(s, weights);
}
template <int V> __global__ void tone_phase(const float* a, float* out, i64 n) {
  // a tone at a late time: the phase is some millions of radians
  for (i64 i = T; i < n; i += STRIDE) {
    float s = 0;
    for (int k = 1; k <= 4; ++k) {
      float turns = (a[i] + 1) * 440000.0f * k;
      s += V == 0 ? sinf(turns * 6.2831853f) : sinpif(2.0f * (turns - floorf(turns)));
    }
    out[i] = s;
  }
}
template <int V> __global__ void haversine(const float* latitude, const float* longitude, float* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) {
    if (V == 0) {
      float a = latitude[i] * M_PI / 180.0, b = latitude[i + 1] * M_PI / 180.0, d = (longitude[i + 1] - longitude[i]) * M_PI / 180.0;
      float h = pow(sin((b - a) / 2.0), 2.0) + cos(a) * cos(b) * pow(sin(d / 2.0), 2.0);
      out[i] = 2.0 * 6371.0 * asin(sqrt(h));
    } else {
      const float r = 0.01745329252f;
      float a = latitude[i] * r, b = latitude[i + 1] * r, d = (longitude[i + 1] - longitude[i]) * r, u = sinf((b - a) * 0.5f), v = sinf(d * 0.5f);
      out[i] = 12742.0f * asinf(sqrtf(u * u + cosf(a) * cosf(b) * v * v));
    }
  }
}
template <class R> __global__ void lennard_jones(const float4* bodies, float* out, int n) {
  __shared__ float4 tile[256];
  float4 me = bodies[T];
  R x = me.x, y = me.y, z = me.z, energy = 0;
  for (int base = 0; base < n; base += 256) {
    tile[threadIdx.x] = bodies[base + threadIdx.x];
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < 256; ++k) {
      R dx = x - (R)tile[k].x, dy = y - (R)tile[k].y, dz = z - (R)tile[k].z;
      R r2 = dx * dx + dy * dy + dz * dz + (R)0.25, s = (R)1 / r2, s3 = s * s * s;
      energy += s3 * s3 - s3;
    }
    __syncthreads();
  }
  out[T] = (float)energy;
}
template <int V> __global__ void circular_taps(const float* ring, float* out, int n, int length, int hop) {
  for (i64 t = T; t < n; t += STRIDE) {
    float s = 0;
    int at = (int)t % length;
#pragma unroll 4
    for (int k = 0; k < 24; ++k) {
      if (V == 0) { s += ring[((int)t + k * hop) % length]; }
      else { s += ring[at]; at += hop; if (at >= length) at -= length; }
    }
    out[t] = s;
  }
}
template <int V> __global__ void shard_of(const u64* ids, unsigned* out, int n, u64 shards, u64 inverse) {
  // eight hashes of an identifier, modulo a number known at run time: by division, or by its reciprocal
  for (i64 i = T; i < n; i += STRIDE) {
    u64 x = ids[i];
    unsigned s = 0;
    for (int k = 0; k < 8; ++k) {
      x = x * 6364136223846793005ull + 1442695040888963407ull;
      u64 r;
      if (V == 0) r = x % shards;
      else { r = x - __umul64hi(x, inverse) * shards; while (r >= shards) r -= shards; }
      s = s * 31 + (unsigned)r;
    }
    out[i] = s;
  }
}
__device__ inline float scene(float x, float y, float z) {
  float p = rsqrtf(x * x + y * y + z * z + 1e-6f), q = rsqrtf((x - 1) * (x - 1) + y * y + (z - 2) * (z - 2) + 1e-6f);
  return fminf(__frcp_rn(p) - 0.5f, __frcp_rn(q) - 0.7f);
}
template <int V> __global__ void march_rays(const float* a, float* out, int steps) {
  // eight rays a thread: one after another, or all at once
  const int R = V == 0 ? 1 : 8;
  for (int first = 0; first < 8; first += R) {
    float d[R], t[R];
#pragma unroll
    for (int r = 0; r < R; ++r) d[r] = a[T * 8 + first + r] * 0.4f - 0.2f, t[r] = 0;
#pragma unroll 1
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) t[r] = fmaf(scene(d[r] * t[r], 0.1f * t[r], t[r] - 4), 0.5f, t[r]);
#pragma unroll
    for (int r = 0; r < R; ++r) out[T * 8 + first + r] = t[r];
  }
}
__constant__ float gamma_table[1024];
template <int V> __global__ void apply_gamma(const uint16_t* a, float* out, i64 n) {
  __shared__ float own[1024];
  if (V == 1) {
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) own[i] = gamma_table[i];
    __syncthreads();
  }
  for (i64 i = T; i < n; i += STRIDE) { int v = a[i] & 1023; out[i] = V == 0 ? gamma_table[v] : own[v]; }
}
static std::vector<int> random_keys(int n) {
  std::vector<int> v(n);
  for (int i = 0; i < n; ++i) v[i] = mix(i + 12345) & (N - 1);
  return v;
}

void compute_cases() {
  static int* keys;
  static uint8_t *mixed, *grouped;
  const u64 shards = 1000003;
  cases.push_back({"solve8", "local_array", "", [] { solve8<0><<<4096, 128>>>(A, C, 1 << 19); }, [] { solve8<1><<<4096, 128>>>(A, C, 1 << 19); }, C, 1 << 22});
  cases.push_back({"block_dct", "register_spills", "", [] { block_dct<0><<<4096, 256>>>(A, C, 1 << 20); }, [] { block_dct<1><<<4096, 256>>>(A, C, 1 << 20); }, C, 1 << 26});
  cases.push_back({"register_coefficients", "occupancy_registers", "", [] { register_coefficients<0><<<132 * 16, 128>>>(A, keys, B, C, 1 << 22); }, [] { register_coefficients<1><<<132 * 16, 128>>>(A, keys, B, C, 1 << 22); }, C, 1 << 22, false, [] { keys = upload(random_keys(1 << 22)); }});
  cases.push_back({"join_table", "occupancy_shared", "", [] { join_table<float><<<132 * 8, 128, 88000>>>(A, keys, C, 1 << 23); }, [] { join_table<uint8_t><<<132 * 8, 128, 22000>>>(A, keys, C, 1 << 23); }, nullptr, 0, false, [] {
    keys = upload(random_keys(1 << 23));
    dynamic_shared(join_table<float>, 88000);
  }});
  cases.push_back({"mandelbrot", "divergence", "", [] { mandelbrot<0><<<8192, 256>>>((int*)C, 2048, 1024); }, [] { mandelbrot<1><<<8192, 256>>>((int*)C, 2048, 1024); }, C, 1 << 21, true});
  cases.push_back({"shade_materials", "divergence", "", [] { shade_materials<<<2112, 256>>>(A, mixed, C, 1 << 22); }, [] { shade_materials<<<2112, 256>>>(A, grouped, C, 1 << 22); }, nullptr, 0, false, [] {
    std::vector<uint8_t> v(1 << 22);
    for (size_t i = 0; i < v.size(); ++i) v[i] = mix((uint32_t)i) & 7;
    mixed = upload(v), std::sort(v.begin(), v.end()), grouped = upload(v);
  }});
  cases.push_back({"bilateral", "special_functions", "", [] { bilateral<0><<<dim3(64, 256), 256>>>(A, C, 2048, 2048, 0.1f, 8.0f); }, [] { bilateral<1><<<dim3(64, 256), 256>>>(A, C, 2048, 2048, 0.1f, 8.0f); }, C, 1 << 22});
  cases.push_back({"tone_phase", "local_array", "special_functions", [] { tone_phase<0><<<2112, 256>>>(A, C, 1 << 22); }, [] { tone_phase<1><<<2112, 256>>>(A, C, 1 << 22); }});
  cases.push_back({"haversine", "fp64_by_accident", "", [] { haversine<0><<<2112, 256>>>(A, B, C, 1 << 22); }, [] { haversine<1><<<2112, 256>>>(A, B, C, 1 << 22); }, C, 1 << 22});
  cases.push_back({"lennard_jones", "fp64_by_accident", "", [] { lennard_jones<double><<<264, 256>>>((float4*)A, C, 4096); }, [] { lennard_jones<float><<<264, 256>>>((float4*)A, C, 4096); }, C, 264 * 256});
  cases.push_back({"circular_taps", "integer_division", "", [] { circular_taps<0><<<2112, 256>>>(A, C, 1 << 22, 40009, 1009); }, [] { circular_taps<1><<<2112, 256>>>(A, C, 1 << 22, 40009, 1009); }, C, 1 << 22});
  cases.push_back({"shard_of", "integer_division", "", [] { shard_of<0><<<2112, 256>>>((u64*)A, (unsigned*)C, 1 << 22, shards, ~0ull / shards); }, [] { shard_of<1><<<2112, 256>>>((u64*)A, (unsigned*)C, 1 << 22, shards, ~0ull / shards); }, C, 1 << 22, true});
  cases.push_back({"march_rays", "dependent_chain", "", [] { march_rays<0><<<132, 128>>>(A, C, 256); }, [] { march_rays<1><<<132, 128>>>(A, C, 256); }, C, 132 * 128 * 8});
  cases.push_back({"apply_gamma", "constant_divergence", "", [] { apply_gamma<0><<<1056, 256>>>((uint16_t*)A, C, 1 << 24); }, [] { apply_gamma<1><<<1056, 256>>>((uint16_t*)A, C, 1 << 24); }, C, 1 << 24, false, [] {
    std::vector<float> v(1024);
    for (int i = 0; i < 1024; ++i) v[i] = std::pow(i / 1023.0f, 0.4545f);
    CHECK(cudaMemcpyToSymbol(gamma_table, v.data(), 4096));
  }});
}
