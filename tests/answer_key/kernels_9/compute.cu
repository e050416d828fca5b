// Instructions: surfaces, windows, splines, neutrons, lights, splats, slopes, k-mers, spins, documents, ciphers.
#include "set.h"

void spread_cases();  // spread.cu

// ---- fit_surfaces: 36 + 8 sums of normal equations a thread, capped at 32 registers; expected 2.5 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) fit_surfaces(const float2* at, float* out, int samples) {
  float s[36] = {}, r[8] = {};
#pragma unroll 1
  for (int n = 0; n < samples; ++n) {
    float2 p = at[n * STRIDE + T];
    float f[8] = {1, p.x, p.y, p.x * p.y, p.x * p.x, p.y * p.y, p.x * p.x * p.y, p.x * p.y * p.y}, height = fmaf(p.x, 0.3f, 0.2f);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      r[i] = fmaf(f[i], height, r[i]);
#pragma unroll
      for (int j = 0; j <= i; ++j) s[i * (i + 1) / 2 + j] = fmaf(f[i], f[j], s[i * (i + 1) / 2 + j]);
    }
  }
  float all = 0;
#pragma unroll
  for (int k = 0; k < 36; ++k) all = fmaf(all, 0.7f, s[k]);
#pragma unroll
  for (int k = 0; k < 8; ++k) all = fmaf(all, 0.7f, r[k]);
  out[T] = all;
}
// ---- mode_of_windows: a histogram of 16 counts a thread, indexed at run time; or a column of shared memory; expected 4 times
template <int V> __global__ void __launch_bounds__(256) mode_of_windows(const uint4* a, int* out) {
  __shared__ int shared[V == 0 ? 1 : 16 * 256];
  int own[16], best = 0, of = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k)
    if (V == 0) own[k] = 0;
    else shared[k * 256 + threadIdx.x] = 0;
#pragma unroll 1
  for (int j = 0; j < 4; ++j) {
    uint4 v = a[j * STRIDE + T];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned w = mix((&v.x)[k]);
#pragma unroll
      for (int b = 0; b < 32; b += 4) {
        if (V == 0) ++own[w >> b & 15];
        else ++shared[(w >> b & 15) * 256 + threadIdx.x];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    int many = V == 0 ? own[k] : shared[k * 256 + threadIdx.x];
    if (many > best) best = many, of = k;
  }
  out[T] = best * 16 + of;
}
// ---- evaluate_splines: de Boor's array with a degree known at run time; or as a constant; expected 3 times
template <int DEGREE> __global__ void __launch_bounds__(256) evaluate_splines(const float* at, const float* control, float* out, int asked) {
  __shared__ float c[64];
  if (threadIdx.x < 64) c[threadIdx.x] = control[threadIdx.x];
  __syncthreads();
  int p = DEGREE ? DEGREE : asked;
  float x = 8 + at[T] * 40, d[8], s = 0;
#pragma unroll 1
  for (int curve = 0; curve < 4; ++curve, x += 1.25f) {
    int span = (int)x;
#pragma unroll
    for (int j = 0; j <= p; ++j) d[j] = c[span - p + j];
#pragma unroll
    for (int r = 1; r <= p; ++r)
#pragma unroll
      for (int j = p; j >= r; --j) {
        float by = __fdividef(x - (float)(j + span - p), (float)(p + 1 - r));
        d[j] = fmaf(by, d[j] - d[j - 1], d[j - 1]);
      }
    s += d[p];
  }
  out[T] = s;
}
// ---- slow_neutrons: a lane waits for the longest history of its warp before each of 16; or takes its next one at once; expected 2.2 times
template <int V> __global__ void __launch_bounds__(256) slow_neutrons(const float* a, float* out) {
  float x = a[T], s = 0;
  auto collide = [&](unsigned& h, float& e) {
    h = h * 1664525u + 1013904223u;
    float u = (float)(h >> 8) * 0x1p-24f;
    e = fmaf(e, fmaf(u, 0.3f, 0.6f), x * 0.05f);
    return u >= 0.0625f;
  };
  if (V == 0) {
#pragma unroll 1
    for (int n = 0; n < 16; ++n) {
      unsigned h = mix((unsigned)T * 16 + n);
      float e = 1;
#pragma unroll 1
      while (collide(h, e)) {}
      s += e;
    }
  } else {
    unsigned h = mix((unsigned)T * 16);
    float e = 1;
#pragma unroll 1
    for (int n = 0; n < 16;) {
      bool flies = collide(h, e);
      if (!flies) s += e, e = 1, h = mix((unsigned)T * 16 + ++n);
    }
  }
  out[T] = s;
}
// ---- shine_surfaces: __powf with an exponent that is always 16; or four squares; expected 2.3 times
template <int V> __global__ void __launch_bounds__(256) shine_surfaces(const float2* normal, float* out, float shininess) {
  float2 n = normal[T];
  float s = 1;
#pragma unroll
  for (int light = 0; light < 24; ++light) {
    float by = fmaf(n.x, 0.04f * light, n.y * (1 - 0.04f * light));
    if (V == 0) {
      s += __powf(by, shininess);
    } else {
      by *= by, by *= by, by *= by;
      s = fmaf(by, by, s);
    }
  }
  out[T] = s;
}
// ---- splat_gaussians: literals of doubles and exp() of a double; expected 6 times
template <class R> __global__ void __launch_bounds__(256) splat_gaussians(const float2* pixel, const float4* splat, float* out) {
  __shared__ float4 all[32];
  if (threadIdx.x < 32) all[threadIdx.x] = splat[threadIdx.x];
  __syncthreads();
  float2 p = pixel[T];
  float through = 1, s = 0;
#pragma unroll 1
  for (int k = 0; k < 32; ++k) {
    float4 g = all[k];
    float x = p.x - g.x, y = p.y - g.y;
    float alpha = (float)((R)0.3 * g.w * exp((R)-0.5 * (x * x + y * y) * (R)4.0));
    s = fmaf(alpha * through, g.z, s), through = (float)(through * ((R)1.0 - alpha));
  }
  out[T] = s;
}
// ---- limit_slopes: van Leer's limiter with literals of doubles, and so divisions of doubles; expected 3 times
template <class R> __device__ inline float limited(float left, float right) {
  float r = left / (right + (right >= 0 ? 1e-3f : -1e-3f));
  return (float)((r + fabsf(r)) / ((R)1.0 + fabsf(r)) * (R)0.5 * right);
}
template <class R> __global__ void __launch_bounds__(256) limit_slopes(const float* cell, float* out) {
  float a = cell[T], b = cell[T + 1], c = cell[T + 2], d = cell[T + 3], e = cell[T + 4];
  float f = c + limited<R>(c - b, d - c), g = b + limited<R>(b - a, c - b), h = d + limited<R>(d - c, e - d);
  out[T] = c - 0.3f * (f - g) + 0.1f * h;
}
// ---- bucket_of_kmers: four remainders of 64 bits by a size known at run time; or multiplications by its reciprocal; expected 3 times
template <int V> __global__ void __launch_bounds__(256) bucket_of_kmers(const u64* kmer, unsigned* out, u64 size, u64 reciprocal) {
  u64 key = kmer[T];
  unsigned s = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    u64 h = (key ^ key >> 29) * (0x9e3779b97f4a7c15ull + 2 * k), r;
    if (V == 0) {
      r = h % size;
    } else {
      r = h - __umul64hi(h, reciprocal) * size;
      while (r >= size) r -= size;
    }
    s = s * 31 + (unsigned)r;
  }
  out[T] = s;
}
// ---- couple_spins: coordinates and periodic neighbours by division and remainder of a linear index; or from the grid; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) couple_spins(const int* spin, int* out, int nx, int ny, int nz) {
  int x, y, z, left, right, up, down, front, back;
  if (V == 0) {
    int i = (int)T;
    x = i % nx, y = i / nx % ny, z = i / (nx * ny);
    left = (x + nx - 1) % nx, right = (x + 1) % nx, up = (y + ny - 1) % ny, down = (y + 1) % ny, front = (z + nz - 1) % nz, back = (z + 1) % nz;
  } else {
    x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    left = x ? x - 1 : nx - 1, right = x + 1 < nx ? x + 1 : 0, up = y ? y - 1 : ny - 1, down = y + 1 < ny ? y + 1 : 0, front = z ? z - 1 : nz - 1, back = z + 1 < nz ? z + 1 : 0;
  }
  const int *row = spin + (z * ny + y) * nx;
  int near = row[left] + row[right] + spin[(z * ny + up) * nx + x] + spin[(z * ny + down) * nx + x] + spin[(front * ny + y) * nx + x] + spin[(back * ny + y) * nx + x];
  out[(z * ny + y) * nx + x] = near * 3 - row[x];
}
// ---- hash_documents: a polynomial hash whose step needs the one before, in four warps an SM; or four interleaved ones; expected 1.7 times
template <int WAYS> __global__ void __launch_bounds__(128) hash_documents(const unsigned* text, unsigned* out, int rounds) {
  __shared__ __align__(16) unsigned word[4096];
  for (int i = threadIdx.x; i < 4096; i += 128) word[i] = text[i];
  __syncthreads();
  unsigned seed = mix((unsigned)T), by = 1, h[WAYS] = {}, all = 0;
#pragma unroll
  for (int k = 0; k < WAYS; ++k) by *= 16777619u;
  for (int r = 0; r < rounds; ++r)
#pragma unroll 16
    for (int i = 0; i < 4096; i += WAYS)
#pragma unroll
      for (int k = 0; k < WAYS; ++k) h[k] = h[k] * by + (word[i + k] ^ seed);
#pragma unroll
  for (int k = 0; k < WAYS; ++k) all = all * 16777619u + h[k];
  out[T] = all;
}
// ---- mix_rounds: 256 double rounds of a cipher unrolled into 400 kB of code; or a loop of one; expected 1.4 times
__device__ inline void quarter(unsigned& a, unsigned& b, unsigned& c, unsigned& d) {
  a += b, d = __funnelshift_l(d ^ a, d ^ a, 16), c += d, b = __funnelshift_l(b ^ c, b ^ c, 12);
  a += b, d = __funnelshift_l(d ^ a, d ^ a, 8), c += d, b = __funnelshift_l(b ^ c, b ^ c, 7);
}
template <int UNROLL> __global__ void __launch_bounds__(256) mix_rounds(const unsigned* in, unsigned* out, int passes) {
  unsigned x[16], s = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) x[k] = in[k * STRIDE + T];
#pragma unroll 1
  for (int p = 0; p < passes; ++p)
#pragma unroll UNROLL
    for (unsigned r = 0; r < 256; ++r) {
      x[0] ^= r * 0x9e3779b9u;
      quarter(x[0], x[4], x[8], x[12]), quarter(x[1], x[5], x[9], x[13]), quarter(x[2], x[6], x[10], x[14]), quarter(x[3], x[7], x[11], x[15]);
      quarter(x[0], x[5], x[10], x[15]), quarter(x[1], x[6], x[11], x[12]), quarter(x[2], x[7], x[8], x[13]), quarter(x[3], x[4], x[9], x[14]);
    }
#pragma unroll
  for (int k = 0; k < 16; ++k) s ^= x[k];
  out[T] = s;
}

void compute_cases() {
  static const u64 size = 1000000007ull, reciprocal = ~0ull / size;
  cases.push_back({"fit_surfaces", "register_spills", "", [] { fit_surfaces<8><<<1056, 256>>>((float2*)A, C, 96); }, [] { fit_surfaces<2><<<1056, 256>>>((float2*)A, C, 96); }, C, 1056 * 256});
  cases.push_back({"mode_of_windows", "local_array", "", [] { mode_of_windows<0><<<4096, 256>>>((uint4*)A, (int*)C); }, [] { mode_of_windows<1><<<4096, 256>>>((uint4*)A, (int*)C); }, C, 1 << 20, true});
  cases.push_back({"evaluate_splines", "local_array", "", [] { evaluate_splines<0><<<32768, 256>>>(A, B, C, 3); }, [] { evaluate_splines<3><<<32768, 256>>>(A, B, C, 3); }, C, 1 << 23});
  cases.push_back({"slow_neutrons", "divergence", "", [] { slow_neutrons<0><<<2112, 256>>>(A, C); }, [] { slow_neutrons<1><<<2112, 256>>>(A, C); }, C, 2112 * 256});
  cases.push_back({"shine_surfaces", "special_functions", "", [] { shine_surfaces<0><<<65536, 256>>>((float2*)A, C, 16); }, [] { shine_surfaces<1><<<65536, 256>>>((float2*)A, C, 16); }, C, 1 << 24});
  cases.push_back({"splat_gaussians", "fp64_by_accident", "", [] { splat_gaussians<double><<<8192, 256>>>((float2*)A, (float4*)B, C); }, [] { splat_gaussians<float><<<8192, 256>>>((float2*)A, (float4*)B, C); }, C, 1 << 21});
  cases.push_back({"limit_slopes", "fp64_by_accident", "", [] { limit_slopes<double><<<65536, 256>>>(A, C); }, [] { limit_slopes<float><<<65536, 256>>>(A, C); }, C, 1 << 24});
  cases.push_back({"bucket_of_kmers", "integer_division", "", [] { bucket_of_kmers<0><<<32768, 256>>>((u64*)A, (unsigned*)C, size, reciprocal); }, [] { bucket_of_kmers<1><<<32768, 256>>>((u64*)A, (unsigned*)C, size, reciprocal); }, C, 1 << 23, true});
  cases.push_back({"couple_spins", "integer_division", "", [] { couple_spins<0><<<1 << 18, 256>>>((int*)A, (int*)C, 256, 512, 512); }, [] { couple_spins<1><<<dim3(512, 512), 256>>>((int*)A, (int*)C, 256, 512, 512); }, C, N, true});
  cases.push_back({"hash_documents", "dependent_chain", "", [] { hash_documents<1><<<132, 128>>>((unsigned*)A, (unsigned*)C, 4); }, [] { hash_documents<4><<<132, 128>>>((unsigned*)A, (unsigned*)C, 4); }, C, 132 * 128, true});
  cases.push_back({"mix_rounds", "instruction_cache", "", [] { mix_rounds<256><<<528, 256>>>((unsigned*)A, (unsigned*)C, 2); }, [] { mix_rounds<1><<<528, 256>>>((unsigned*)A, (unsigned*)C, 2); }, C, 528 * 256, true});
  spread_cases();
}
