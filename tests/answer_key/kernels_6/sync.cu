// Banks, atomics and barriers: eliminations, counts by byte, losses, packets, gradients, lines, sums of prefixes, variances.
#include "set.h"

namespace cg = cooperative_groups;
void grid_cases();  // grids.cu

// ---- eliminate: a lane a row of a matrix of 32 x 32 in shared memory, so a column lies in one bank; expected 5 times
template <int PITCH> __global__ void __launch_bounds__(128) eliminate(const float* a, float* out) {
  __shared__ float all[4][32 * PITCH];
  float* m = all[threadIdx.x / 32];
  int lane = threadIdx.x & 31;
  i64 base = T / 32 * 1024;
  for (int r = 0; r < 32; ++r) m[r * PITCH + lane] = a[base + r * 32 + lane] + (r == lane ? 32 : 0);
  __syncwarp();
  for (int k = 0; k < 31; ++k) {
    if (lane > k) {
      float f = __fdividef(m[lane * PITCH + k], m[k * PITCH + k]);
      m[lane * PITCH + k] = f;
      for (int c = k + 1; c < 32; ++c) m[lane * PITCH + c] -= f * m[k * PITCH + c];
    }
    __syncwarp();
  }
  for (int r = 0; r < 32; ++r) out[base + r * 32 + lane] = m[r * PITCH + lane];
}
// ---- count_bytes: counters of a thread side by side, so the low ones of 16 lanes share a bank; expected 2.5 times
template <int V> __global__ void __launch_bounds__(256) count_bytes(const unsigned* words, int* out, int n) {
  __shared__ int count[16 * 256];
  for (int i = threadIdx.x; i < 4096; i += 256) count[i] = 0;
  __syncthreads();
  int* own = count + (V == 0 ? threadIdx.x * 16 : threadIdx.x);
#pragma unroll 2
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned w = mix(words[i]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned b = w >> 8 * k & 255, bin = b * b * b >> 20;  // most are small
      own[bin * (V == 0 ? 1 : 256)] += 1;
    }
  }
  __syncthreads();
  int bin = threadIdx.x / 16, part = threadIdx.x & 15, s = 0;
  for (int t = part; t < 256; t += 16) s += count[V == 0 ? t * 16 + bin : bin * 256 + t];
  for (int o = 8; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (part == 0) out[blockIdx.x * 16 + bin] = s;
}
// ---- loss_by_label: each thread adds each of its losses to one of two floats in shared memory; expected 10 times
template <int V> __global__ void __launch_bounds__(256) loss_by_label(const float* p, const float* label, float* out, int n) {
  __shared__ float sum[2];
  if (threadIdx.x < 2) sum[threadIdx.x] = 0;
  __syncthreads();
  float s[2] = {};
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    bool yes = label[i] < 0.5f;
    float v = p[i] + 0.01f, loss = -__logf(yes ? v * 0.99f : 1.02f - v);
    if (V == 0) {
      atomicAdd(&sum[yes], loss);
    } else {
      s[0] += yes ? 0 : loss, s[1] += yes ? loss : 0;
    }
  }
  if (V == 1)
    for (int k = 0; k < 2; ++k) {
      float t = warp_sum(s[k]);
      if ((threadIdx.x & 31) == 0) atomicAdd(&sum[k], t);
    }
  __syncthreads();
  if (threadIdx.x < 2) out[blockIdx.x * 2 + threadIdx.x] = sum[threadIdx.x];
}
// ---- total_traffic: each thread adds its own packets to one total; expected 20 times
template <int V> __global__ void __launch_bounds__(256) total_traffic(const unsigned* packet, u64* out, int n) {
  __shared__ u64 part[8];
  u64 s = 0;
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    u64 bytes = 64 + (packet[i] & 1023);
    if (V == 0) atomicAdd(out, bytes);
    else s += bytes;
  }
  if constexpr (V == 1) {
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, part[0] + part[1] + part[2] + part[3] + part[4] + part[5] + part[6] + part[7]);
  }
}
// ---- embedding_gradient: three of five tokens are padding, and all add to its row; expected 4 times
__global__ void make_tokens(int* token, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) {
    unsigned h = mix((unsigned)i + 3);
    token[i] = h % 5 < 3 ? 0 : (int)(h >> 8 & 255);
  }
}
template <int V> __global__ void __launch_bounds__(256) embedding_gradient(const int* token, const float* gradient, float* table) {  // 64 values a token, 128 tokens a block
  __shared__ float padding[64];
  int column = threadIdx.x & 63;
  if (threadIdx.x < 64) padding[threadIdx.x] = 0;
  __syncthreads();
  float s = 0;
#pragma unroll 4
  for (int k = threadIdx.x / 64; k < 128; k += 4) {
    i64 t = blockIdx.x * 128 + k;
    int id = token[t];
    float g = gradient[t * 64 + column];
    if (V == 1 && id == 0) s += g;
    else atomicAdd(&table[id * 64 + column], g);
  }
  if (V == 0) return;
  atomicAdd(&padding[column], s);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&table[threadIdx.x], padding[threadIdx.x]);
}
// ---- relax_lines: the whole grid meets after each step, though no block reads what another wrote; expected 5 times
template <int V> __global__ void __launch_bounds__(512) relax_lines(const float* a, float* out, int steps) {
  __shared__ float line[2][514];
  int i = threadIdx.x + 1;
  line[0][i] = a[T];
  if (threadIdx.x < 2) line[0][threadIdx.x * 513] = line[1][threadIdx.x * 513] = 0.5f;
  __syncthreads();
  for (int s = 0; s < steps; ++s) {
    const float* now = line[s & 1];
    line[~s & 1][i] = 0.25f * now[i - 1] + 0.5f * now[i] + 0.25f * now[i + 1];
    if (V == 0) cg::this_grid().sync();
    else cg::this_thread_block().sync();
  }
  out[T] = line[steps & 1][i];
}
template <int V> static void relax(const float* a, float* out, int steps) {
  void* arguments[] = {&a, &out, &steps};
  CHECK(cudaLaunchCooperativeKernel((const void*)relax_lines<V>, dim3(132), dim3(512), arguments, 0, nullptr));
}
// ---- prefix_sums: nine rounds of two barriers each, or shuffles and one meeting; expected 2 times
template <int V> __global__ void __launch_bounds__(512) prefix_sums(const int* a, int* out, int tiles) {
  __shared__ int x[512], base[16];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  for (int t = 0; t < tiles; ++t) {
    i64 at = ((i64)blockIdx.x * tiles + t) * 512 + threadIdx.x;
    int v = a[at] & 1023;
    if (V == 0) {
      x[threadIdx.x] = v;
      __syncthreads();
      for (int o = 1; o < 512; o *= 2) {
        int left = threadIdx.x >= o ? x[threadIdx.x - o] : 0;
        __syncthreads();
        x[threadIdx.x] += left;
        __syncthreads();
      }
      v = x[threadIdx.x];
    } else {
      for (int o = 1; o < 32; o *= 2) {
        int left = __shfl_up_sync(~0u, v, o);
        if (lane >= o) v += left;
      }
      if (lane == 31) base[warp] = v;
      __syncthreads();
      int before = lane < warp ? base[lane & 15] : 0;
      v += __reduce_add_sync(~0u, before);
      __syncthreads();
    }
    out[at] = v;
  }
}
// ---- scale_rows: the first thread of a block adds the parts of 256, twice a row; expected 1.8 times
template <int V> __device__ float sum_of_parts(float v, float* part) {
  if (V == 0) {
    part[threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
      float s = 0;
      for (int k = 0; k < 256; ++k) s += part[k];
      part[0] = s;
    }
    __syncthreads();
    v = part[0];
  } else {
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int k = 0; k < 8; ++k) v += part[k];
  }
  __syncthreads();
  return v;
}
template <int V> __global__ void __launch_bounds__(256) scale_rows(const float4* a, float4* out, int rows) {
  __shared__ float part[256];
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    float4 v = a[(i64)r * 256 + threadIdx.x];
    float mean = sum_of_parts<V>((v.x + v.y) + (v.z + v.w), part) / 1024;
    v = {v.x - mean, v.y - mean, v.z - mean, v.w - mean};
    float scale = rsqrtf(sum_of_parts<V>((v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w), part) / 1024);
    out[(i64)r * 256 + threadIdx.x] = {v.x * scale + 4, v.y * scale + 4, v.z * scale + 4, v.w * scale + 4};
  }
}

void sync_cases() {
  static int* token;
  cases.push_back({"eliminate", "shared_bank_conflicts", "", [] { eliminate<32><<<1024, 128>>>(A, C); }, [] { eliminate<33><<<1024, 128>>>(A, C); }, C, 1 << 22});
  cases.push_back({"count_bytes", "shared_bank_conflicts", "", [] { count_bytes<0><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 23); }, [] { count_bytes<1><<<1056, 256>>>((unsigned*)A, (int*)C, 1 << 23); }, C, 1056 * 16, true});
  cases.push_back({"loss_by_label", "shared_atomics_one_address", "", [] { loss_by_label<0><<<1056, 256>>>(A, B, C, 1 << 22); }, [] { loss_by_label<1><<<1056, 256>>>(A, B, C, 1 << 22); }, C, 1056 * 2});
  cases.push_back({"total_traffic", "global_atomics_one_address", "", [] { total_traffic<0><<<1056, 256>>>((unsigned*)A, (u64*)C, 1 << 20); }, [] { total_traffic<1><<<1056, 256>>>((unsigned*)A, (u64*)C, 1 << 20); }, C, 2, true});
  cases.push_back({"embedding_gradient", "global_atomics_one_address", "", [] { embedding_gradient<0><<<1024, 256>>>(token, A, C); }, [] { embedding_gradient<1><<<1024, 256>>>(token, A, C); }, C, 1 << 14, false, [] {
    token = device<int>(1 << 17);
    make_tokens<<<512, 256>>>(token, 1 << 17);
  }});
  cases.push_back({"relax_lines", "needless_barriers", "", [] { relax<0>(A, C, 200); }, [] { relax<1>(A, C, 200); }, C, 132 * 512});
  cases.push_back({"prefix_sums", "needless_barriers", "", [] { prefix_sums<0><<<528, 512>>>((int*)A, (int*)C, 64); }, [] { prefix_sums<1><<<528, 512>>>((int*)A, (int*)C, 64); }, C, 528 * 64 * 512, true});
  cases.push_back({"scale_rows", "one_warp_reduction", "", [] { scale_rows<0><<<1056, 256>>>((float4*)A, (float4*)C, 33792); }, [] { scale_rows<1><<<1056, 256>>>((float4*)A, (float4*)C, 33792); }, C, 33792 * 1024});
  grid_cases();
}
