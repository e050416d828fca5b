// Defects of arithmetic and of instructions: options, embeddings of positions, sampling, sums without error, small nets.
#include "set.h"

// ---- random walks until they leave: of mixed and of sorted lengths
__global__ void walk_lengths(const int* lengths, float* out, int n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float x = 0.3f + 1e-7f * (i & 1023);
    for (int k = lengths[i]; k > 0; --k) x = fmaf(x, 3.7f * (1 - x), 0.0f);
    out[i] = x;
  }
}
// ---- the features of a distance: 32 bells side by side, each from its own exponential or from its neighbour's
template <int V> __global__ void radial_basis(const float* a, float* out, int n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float x = a[i] * 4, s = 0;
    if (V == 0) {
#pragma unroll
      for (int k = 0; k < 32; ++k) {
        float d = x - 0.125f * k;
        s = fmaf(__expf(-d * d), 0.01f * (k + 1), s);
      }
    } else {  // neighbours differ by a factor, and these factors by another
      float bell = __expf(-x * x), ratio = __expf(0.25f * x - 0.015625f);
#pragma unroll
      for (int k = 0; k < 32; ++k) {
        s = fmaf(bell, 0.01f * (k + 1), s);
        bell *= ratio, ratio *= 0.96923323f;
      }
    }
    out[i] = s;
  }
}
// ---- prices of options
template <class R> __global__ void option_prices(const float* spot, float* out, int n, int rounds) {
  for (i64 i = T; i < n; i += STRIDE) {
    float price = 0;
    for (int r = 1; r <= rounds; ++r) {
      R s = 50 + 100 * (R)spot[i], k = 80 + r, t = (R)0.25 * r, v = (R)0.3;
      R d = ((s / k - 1) * (R)1.02 + (R)0.045 * v * t) / (v * (1 + (R)0.4 * t)), w = 1 / (1 + (R)0.2316419 * (d < 0 ? -d : d));
      R tail = w * ((R)0.31938 + w * ((R)-0.35656 + w * ((R)1.78148 + w * ((R)-1.82126 + w * (R)1.33027))));
      price += (float)(s * (1 - tail) - k * tail * (1 - (R)0.02 * t + (R)0.0002 * t * t));
    }
    out[i] = price;
  }
}
// ---- a permutation of five axes whose lengths are known at run time
template <int V> __global__ void permute_axes(const float* a, float* out, int d0, int d1, int d2, int d3, int d4) {
  if (V == 0) {
    unsigned n = d0 * d1 * d2 * d3 * d4;
    for (unsigned i = (unsigned)T; i < n; i += (unsigned)STRIDE) {
      unsigned e = i % d4, r = i / d4, d = r % d3, c, b, z;
      r /= d3, c = r % d2, r /= d2, b = r % d1, z = r / d1;
      out[i] = a[((((c * d1 + b) * d0 + z) * d3) + d) * d4 + e];
    }
  } else {  // a block a row of two axes
    unsigned e = threadIdx.x % d4, first = threadIdx.x / d4, step = blockDim.x / d4, c = blockIdx.x, b = blockIdx.y, z = blockIdx.z;
    const float* in = a + ((i64)(c * d1 + b) * d0 + z) * d3 * d4;
    float* to = out + ((i64)(z * d1 + b) * d2 + c) * d3 * d4;
    for (unsigned d = first; d < (unsigned)d3; d += step) to[d * d4 + e] = in[d * d4 + e];
  }
}
// ---- a sum without the error of rounding: one chain of it, or eight
template <int CHAINS> __global__ void exact_sum(const float* a, float* out, int n) {
  float s[CHAINS] = {}, c[CHAINS] = {};
  __shared__ float part[512];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) part[i] = a[i];
  __syncthreads();
  for (int i = 0; i < n; i += CHAINS)
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) {
      float y = __fsub_rn(part[(i + k) & 511] + 1e-3f * threadIdx.x, c[k]), t = __fadd_rn(s[k], y);
      c[k] = __fsub_rn(__fsub_rn(t, s[k]), y), s[k] = t;
    }
  float all = 0;
  for (int k = 0; k < CHAINS; ++k) all += s[k];
  out[T] = all;
}
// ---- sampling from a distribution: a table of limits, read by each lane at its own place
__constant__ float LIMITS[4096];
template <int V> __global__ void draw_samples(const float* a, float* out, int n) {
  __shared__ float own[4096];
  if (V == 1) {
    for (int i = threadIdx.x; i < 4096; i += 256) own[i] = LIMITS[i];
    __syncthreads();
  }
  for (i64 i = T; i < n; i += STRIDE) {
    float u = a[i];
    int at = 0;
    for (int step = 2048; step; step /= 2) {
      float limit = V == 0 ? LIMITS[at + step - 1] : own[at + step - 1];
      if (u >= limit) at += step;
    }
    out[i] = at;
  }
}
// ---- a mixing function of many rounds, written out or as a loop
template <int ROUNDS> __global__ void mix_words(const unsigned* a, unsigned* out, int n, int times) {
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned x = a[i], y = x ^ 0x9e3779b9u;
    for (int t = 0; t < times; ++t)
      if (ROUNDS > 1) {
#pragma unroll
        for (int k = 0; k < 3072; ++k) x = __funnelshift_l(x, x, 1 + k % 29) + (y ^ (0x85ebca6bu * (k + 1))), y += x;
      } else {
#pragma unroll 1
        for (int k = 0; k < 3072; k += 29)
#pragma unroll
          for (int j = 0; j < 29; ++j)
            if (k + j < 3072) x = __funnelshift_l(x, x, 1 + j) + (y ^ (0x85ebca6bu * (unsigned)(k + j + 1))), y += x;
      }
    out[i] = x ^ y;
  }
}
// ---- a small net in registers, with and without a cap
template <int THREADS, int LEAST> __global__ void __launch_bounds__(THREADS, LEAST) small_net(const float* a, float* out, int n) {
  for (i64 i = T; i < n; i += STRIDE) {
    float h[80];
#pragma unroll
    for (int k = 0; k < 80; ++k) h[k] = a[(i + k * 977) & (N - 1)] * 0.1f;
    for (int layer = 0; layer < 4; ++layer)
#pragma unroll
      for (int k = 0; k < 80; ++k) h[k] = fmaf(h[(k + 1) % 80], 0.37f, fmaf(h[(k + 7) % 80], -0.21f, fmaf(h[(k * 3 + 5) % 80], 0.11f, h[k])));
    float s = 0;
#pragma unroll
    for (int k = 0; k < 80; ++k) s += h[k] * (k + 1);
    out[i] = s;
  }
}
// ---- bins of each thread: in an array with a running index, or in shared memory
template <int V> __global__ void own_bins(const float* a, float* out, int n) {
  __shared__ float shared_bins[V == 0 ? 1 : 24 * 256];
  float bins[V == 0 ? 24 : 1];
  for (int k = 0; k < 24; ++k) (V == 0 ? bins[V == 0 ? k : 0] : shared_bins[V == 0 ? 0 : k * 256 + threadIdx.x]) = 0;
  for (i64 i = T; i < n; i += STRIDE) {
    float v = a[i];
    int k = (int)(v * 24);
    if (V == 0) bins[V == 0 ? k : 0] += v; else shared_bins[V == 0 ? 0 : k * 256 + threadIdx.x] += v;
  }
  float s = 0;
  for (int k = 0; k < 24; ++k) s += (V == 0 ? bins[V == 0 ? k : 0] : shared_bins[V == 0 ? 0 : k * 256 + threadIdx.x]) * (k + 1);
  out[T] = s;
}

void compute_cases() {
  static int *mixed, *sorted;
  cases.push_back({"walk_lengths", "divergence", "", [] { walk_lengths<<<1056, 256>>>(mixed, C, 1 << 21); }, [] { walk_lengths<<<1056, 256>>>(sorted, C, 1 << 21); }, nullptr, 0, false, [] {
    std::vector<int> v(1 << 21);
    for (size_t i = 0; i < v.size(); ++i) {
      unsigned h = mix((uint32_t)i);
      v[i] = (h & 15) == 0 ? 600 + (int)(h >> 24) : 40 + (int)(h >> 27);
    }
    mixed = upload(v);
    std::vector<int> w = v;
    std::sort(w.begin(), w.end());
    for (size_t i = 0; i < v.size(); ++i) v[i] = w[i / 32 * 40503 % (v.size() / 32) * 32 + i % 32];  // long and short warps mixed
    sorted = upload(v);
  }});
  cases.push_back({"radial_basis", "special_functions", "", [] { radial_basis<0><<<1056, 256>>>(A, C, 1 << 24); }, [] { radial_basis<1><<<1056, 256>>>(A, C, 1 << 24); }, C, 1 << 24});
  cases.push_back({"option_prices", "fp64_by_accident", "", [] { option_prices<double><<<1056, 256>>>(A, C, 1 << 20, 32); }, [] { option_prices<float><<<1056, 256>>>(A, C, 1 << 20, 32); }, C, 1 << 20});
  cases.push_back({"permute_axes", "integer_division", "", [] { permute_axes<0><<<1056, 256>>>(A, C, 12, 40, 50, 36, 64); }, [] { permute_axes<1><<<dim3(50, 40, 12), 256>>>(A, C, 12, 40, 50, 36, 64); }, C, 12 * 40 * 50 * 36 * 64});
  cases.push_back({"exact_sum", "dependent_chain", "", [] { exact_sum<1><<<132, 128>>>(A, C, 1 << 16); }, [] { exact_sum<8><<<132, 128>>>(A, C, 1 << 16); }, C, 132 * 128});
  cases.push_back({"draw_samples", "constant_divergence", "", [] { draw_samples<0><<<1056, 256>>>(A, C, 1 << 23); }, [] { draw_samples<1><<<1056, 256>>>(A, C, 1 << 23); }, C, 1 << 23, false, [] {
    std::vector<float> v(4096);
    for (int i = 0; i < 4096; ++i) v[i] = std::sqrt((i + 1) / 4096.0f);
    CHECK(cudaMemcpyToSymbol(LIMITS, v.data(), sizeof(LIMITS)));
  }});
  cases.push_back({"mix_words", "instruction_cache", "", [] { mix_words<3072><<<528, 256>>>((unsigned*)A, (unsigned*)C, 528 * 256, 4); }, [] { mix_words<1><<<528, 256>>>((unsigned*)A, (unsigned*)C, 528 * 256, 4); }, C, 528 * 256, true});
  cases.push_back({"small_net", "register_spills", "", [] { small_net<256, 8><<<1056, 256>>>(A, C, 1 << 21); }, [] { small_net<256, 1><<<1056, 256>>>(A, C, 1 << 21); }, C, 1 << 21});
  cases.push_back({"own_bins", "local_array", "", [] { own_bins<0><<<1056, 256>>>(A, C, N / 2); }, [] { own_bins<1><<<1056, 256>>>(A, C, N / 2); }, C, 1056 * 256});
}
