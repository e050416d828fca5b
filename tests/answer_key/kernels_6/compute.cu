// Arithmetic: paths, attenuation, rotations, vibrations, layouts, neighbours, moments, channels, spheres.
#include "set.h"

// ---- simulate_paths: four paths of a thread one after another, each a chain, and an SM has four warps; expected 2.5 times
template <int BESIDE> __global__ void __launch_bounds__(128) simulate_paths(float* out, int steps) {
  for (int first = 0; first < 4; first += BESIDE) {
    float x[BESIDE], v[BESIDE];
#pragma unroll
    for (int k = 0; k < BESIDE; ++k) x[k] = 1e-5f * T + 0.1f * (first + k), v[k] = 0.04f;
    for (int s = 0; s < steps; ++s)
#pragma unroll
      for (int k = 0; k < BESIDE; ++k) v[k] = fmaf(v[k], 0.9f, fmaf(x[k] * x[k], 0.01f, 0.004f)), x[k] = fmaf(x[k], 0.98f, v[k] * 0.1f);
#pragma unroll
    for (int k = 0; k < BESIDE; ++k) out[(first + k) * STRIDE + T] = x[k];
  }
}
// ---- attenuate: the power of 1.5 by powf, or by a root; expected 5 times
template <int V> __global__ void __launch_bounds__(256) attenuate(const float* a, float* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float x = a[i], s = 0;
#pragma unroll
    for (int k = 1; k <= 16; ++k) {
      float d = fmaf(x, 0.3f * k, 0.05f * k);
      s += V == 0 ? powf(d, 1.5f) : d * sqrtf(d);
    }
    out[i] = s;
  }
}
// ---- rotate_heads: the angle, its sine and its cosine for each of 32 heads, or once for all; expected 1.7 times
template <int V> __global__ void __launch_bounds__(256) rotate_heads(const float2* q, float2* out) {  // 64 pairs, 32 heads, tokens
  int head = (int)(T / 64 % 32), pair = threadIdx.x & 63, token = (int)(V == 0 ? T / 2048 : T / 64);
  float angle = token * powf(10000.0f, -pair / 64.0f), s = sinf(angle), c = cosf(angle);
  for (int h = V == 0 ? head : 0; h < (V == 0 ? head + 1 : 32); ++h) {
    i64 at = ((i64)token * 32 + h) * 64 + pair;
    float2 v = q[at];
    out[at] = {v.x * c - v.y * s + 2, v.x * s + v.y * c + 2};
  }
}
// ---- ring_down: literals without f, so exponential and sine are those of doubles; expected 5 times
template <class R> __global__ void __launch_bounds__(256) ring_down(const float* a, float* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    R t = a[i] * (R)8;
    out[i] = (float)((R)0.7 * exp((R)-0.15 * t) * sin((R)6.2831853 * t) + (R)1.2);
  }
}
// ---- permute_axes5: four divisions of 64 bits by sizes that the compiler does not know; expected 2.5 times
__global__ void __launch_bounds__(256) permute_axes5(const float* in, float* out, i64 n, i64 d1, i64 d2, i64 d3, i64 d4) {
  for (i64 o = T; o < n; o += STRIDE) {  // axes 0 3 1 2 4 of the input
    i64 rest = o, x4 = rest % d4;
    rest /= d4;
    i64 x2 = rest % d2;
    rest /= d2;
    i64 x1 = rest % d1;
    rest /= d1;
    i64 x3 = rest % d3, x0 = rest / d3;
    out[o] = in[(((x0 * d1 + x1) * d2 + x2) * d3 + x3) * d4 + x4];
  }
}
__global__ void __launch_bounds__(256) permute_axes5(const float* in, float* out) {  // 64 x 32 x 16 x 16 x 32
  int x1 = blockIdx.x, x3 = blockIdx.y, x0 = blockIdx.z, x4 = threadIdx.x;
  for (int x2 = threadIdx.y; x2 < 16; x2 += 8) out[(((x0 * 16 + x3) * 32 + x1) * 16 + x2) * 32 + x4] = in[(((x0 * 32 + x1) * 16 + x2) * 16 + x3) * 32 + x4];
}
// ---- nearest_eight: the best of a thread in an array whose index the compiler does not know; expected 4 times
template <int V> __global__ void __launch_bounds__(256) nearest_eight(const float* distance, float* out, int rows) {  // of 64 candidates
  float best[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) best[j] = 2;
  for (int k = 0; k < 64; ++k) {
    float v = distance[(i64)k * rows + T];
    if (V == 0) {
      if (v >= best[7]) continue;
      int j = 7;
      for (; j > 0 && best[j - 1] > v; --j) best[j] = best[j - 1];
      best[j] = v;
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float low = fminf(best[j], v);
        v = fmaxf(best[j], v), best[j] = low;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) out[(i64)j * rows + T] = best[j];
}
// ---- moments_of_chebyshev: 48 sums a thread, but launch bounds that leave 32 registers; expected 6 times
template <int LEAST> __global__ void __launch_bounds__(256, LEAST) moments_of_chebyshev(const float* a, float* out, int points) {
  float sum[48];
#pragma unroll
  for (int k = 0; k < 48; ++k) sum[k] = 0;
  for (int p = 0; p < points; ++p) {
    float x = a[p * STRIDE + T], before = 1, now = x;
#pragma unroll
    for (int k = 0; k < 48; ++k) {
      sum[k] = fmaf(now, now, sum[k]);
      float next = fmaf(2 * x, now, -before);
      before = now, now = next;
    }
  }
#pragma unroll
  for (int k = 0; k < 48; ++k) out[k * STRIDE + T] = sum[k];
}
// ---- equalise_channels: lanes read different words of constant memory; expected 6 times
__constant__ float GAIN[2048];
template <int V> __global__ void __launch_bounds__(256) equalise_channels(const float* a, const float* gain, float* out, int taps) {
  float s = a[T];
#pragma unroll 4
  for (int k = 0; k < taps; ++k) {
    int at = (threadIdx.x + k * 7) & 2047;
    s = fmaf(s, 0.5f, V == 0 ? GAIN[at] : gain[at]);
  }
  out[T] = s;
}
// ---- sphere_areas: a root of doubles and literals of doubles among floats; expected 2 times
template <class R> __global__ void __launch_bounds__(256) sphere_areas(const float4* a, float4* out, int n) {
  auto area = [](float r) {
    R v = r;
    for (int k = 0; k < 4; ++k) v = sqrt(v * v + (R)0.3) * (R)0.8 + (R)0.1;
    return (float)((R)12.566371 * v * v);
  };
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    float4 v = a[i];
    out[i] = {area(v.x), area(v.y), area(v.z), area(v.w)};
  }
}

void compute_cases() {
  static float* gain;
  cases.push_back({"simulate_paths", "dependent_chain", "grid_too_small", [] { simulate_paths<1><<<132, 128>>>(C, 2048); }, [] { simulate_paths<4><<<132, 128>>>(C, 2048); }, C, 4 * 132 * 128});
  cases.push_back({"attenuate", "special_functions", "", [] { attenuate<0><<<1056, 256>>>(A, C, 1 << 22); }, [] { attenuate<1><<<1056, 256>>>(A, C, 1 << 22); }, C, 1 << 22});
  cases.push_back({"rotate_heads", "special_functions", "", [] { rotate_heads<0><<<32768, 256>>>((float2*)A, (float2*)C); }, [] { rotate_heads<1><<<1024, 256>>>((float2*)A, (float2*)C); }, C, 1 << 24});
  cases.push_back({"ring_down", "fp64_by_accident", "", [] { ring_down<double><<<1056, 256>>>(A, C, 1 << 23); }, [] { ring_down<float><<<1056, 256>>>(A, C, 1 << 23); }, C, 1 << 23});
  cases.push_back({"permute_axes5", "integer_division", "", [] { permute_axes5<<<2112, 256>>>(A, C, 1 << 24, 32, 16, 16, 32); }, [] { permute_axes5<<<dim3(32, 16, 64), dim3(32, 8)>>>(A, C); }, C, 1 << 24});
  cases.push_back({"nearest_eight", "local_array", "divergence", [] { nearest_eight<0><<<1024, 256>>>(A, C, 1 << 18); }, [] { nearest_eight<1><<<1024, 256>>>(A, C, 1 << 18); }, C, 1 << 21});
  cases.push_back({"moments_of_chebyshev", "register_spills", "", [] { moments_of_chebyshev<8><<<1056, 256>>>(A, C, 64); }, [] { moments_of_chebyshev<2><<<1056, 256>>>(A, C, 64); }, C, 48 * 1056 * 256});
  cases.push_back({"equalise_channels", "constant_divergence", "", [] { equalise_channels<0><<<1056, 256>>>(A, gain, C, 256); }, [] { equalise_channels<1><<<1056, 256>>>(A, gain, C, 256); }, C, 1056 * 256, false, [] {
    gain = device<float>(2048);
    CHECK(cudaMemcpy(gain, B, 8192, cudaMemcpyDefault));
    CHECK(cudaMemcpyToSymbol(GAIN, B, 8192, 0, cudaMemcpyDeviceToDevice));
  }});
  cases.push_back({"sphere_areas", "fp64_by_accident", "", [] { sphere_areas<double><<<1056, 256>>>((float4*)A, (float4*)C, 1 << 21); }, [] { sphere_areas<float><<<1056, 256>>>((float4*)A, (float4*)C, 1 << 21); }, C, 1 << 23});
}
