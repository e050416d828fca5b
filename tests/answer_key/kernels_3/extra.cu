// Traps, whose tempting cause should win less than 6 %, and kernels as good as they get.
#include "set.h"

using namespace nvcuda;

namespace {

// ---- traps
template <int FIXED>
__global__ void __launch_bounds__(256) copy_in_step(const float4* in, float4* out, i64 count) {  // DRAM is the limit, barrier or not
  for (i64 i = T; i < count; i += STRIDE) {
    float4 v = in[i];
    v.x += 1;
    out[i] = v;
    if (!FIXED) __syncthreads();  // count is a multiple of the grid
  }
}
__global__ void __launch_bounds__(256) eight_chains(float* out, int steps) {  // the FMA units are full with 16 warps or 64
  extern __shared__ float unused[];
  float x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = threadIdx.x * 0.001f + k;
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], 0.999f, 0.01f);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += x[k];
  if (steps < 0) sum += unused[threadIdx.x];
  if (sum == -1.0f) out[T] = sum;
}
template <int FIXED>
__global__ void add_rows(const float4* in, float4* out, i64 count, int period) {  // one division for 32 bytes of DRAM
  for (i64 i = T; i < count; i += STRIDE) {
    const float row = FIXED ? float(i >> 10) : float(unsigned(i) / unsigned(period));
    float4 v = in[i];
    v.x += row, v.y += row, v.z += row, v.w += row;
    out[i] = v;
  }
}
template <class Sum>
__global__ void __launch_bounds__(256) exact_sum(const float4* in, Sum* out, i64 count) {  // FP64 additions hide behind DRAM
  Sum sum = 0;
  for (i64 i = T; i < count; i += STRIDE) {
    const float4 v = in[i];
    sum += Sum((v.x + v.y) + (v.z + v.w));
  }
  out[T] = sum;
}
template <int FIXED>
__global__ void blur_with_edges(const float* in, float* out, int width, int height) {  // only warps at the edges diverge
  const int x = blockIdx.x * 256 + threadIdx.x, y = blockIdx.y;
  const float* row = in + i64(y) * width;
  if (FIXED) {
    out[i64(y) * width + x] = 0.25f * (row[max(x - 1, 0)] + row[min(x + 1, width - 1)]) + 0.5f * row[x];
  } else {
    float left, right;
    if (x == 0) left = row[0]; else left = row[x - 1];
    if (x == width - 1) right = row[x]; else right = row[x + 1];
    out[i64(y) * width + x] = 0.25f * (left + right) + 0.5f * row[x];
  }
}
__global__ void __launch_bounds__(256) many_waves(const float4* in, float4* out) {  // 30 waves and a part of one, or a persistent grid
  const i64 blocks = 31700;
  for (i64 b = blockIdx.x; b < blocks; b += gridDim.x) {
    float4 v = in[b * 256 + threadIdx.x];
    v.y *= 2;
    out[b * 256 + threadIdx.x] = v;
  }
}

// ---- clean
__global__ void __launch_bounds__(256) integer_tensor_mill(const signed char* a, int* out, int steps) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum[8];
  wmma::load_matrix_sync(fa, a, 16), wmma::load_matrix_sync(fb, a + 256, 16);
  for (auto& one : sum) wmma::fill_fragment(one, 0);
  for (int k = 0; k < steps; ++k)
#pragma unroll
    for (auto& one : sum) wmma::mma_sync(one, fa, fb, one);
  int all = 0;
  for (auto& one : sum) all += one.x[0];
  if (all == -1) out[T] = all;
}
__global__ void __launch_bounds__(256) mask_stream(const uint4* in, uint4* out, uint4 key, i64 count) {
  for (i64 i = T; i < count; i += STRIDE) {
    uint4 v = in[i];
    v.x ^= key.x, v.y ^= key.y, v.z ^= key.z, v.w ^= key.w;
    out[i] = v;
  }
}
__device__ void quarter(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  a += b, d = __funnelshift_l(d ^ a, d ^ a, 16), c += d, b = __funnelshift_l(b ^ c, b ^ c, 12);
  a += b, d = __funnelshift_l(d ^ a, d ^ a, 8), c += d, b = __funnelshift_l(b ^ c, b ^ c, 7);
}
__global__ void __launch_bounds__(256) chacha(uint32_t* out, int rounds) {
  uint32_t s[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) s[k] = mix(uint32_t(T) * 16 + k);
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
    quarter(s[0], s[4], s[8], s[12]), quarter(s[1], s[5], s[9], s[13]), quarter(s[2], s[6], s[10], s[14]), quarter(s[3], s[7], s[11], s[15]);
    quarter(s[0], s[5], s[10], s[15]), quarter(s[1], s[6], s[11], s[12]), quarter(s[2], s[7], s[8], s[13]), quarter(s[3], s[4], s[9], s[14]);
  }
  uint32_t all = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) all ^= s[k];
  out[T] = all;
}
__global__ void __launch_bounds__(256) half_mill(const __half2* in, __half2* out, int steps) {
  __half2 x[8], c = in[threadIdx.x], b = in[threadIdx.x + 256];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = in[threadIdx.x + k];
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __hfma2(x[k], c, b);
#pragma unroll
  for (int k = 1; k < 8; ++k) x[0] = __hadd2(x[0], x[k]);
  out[T] = x[0];
}
__global__ void __launch_bounds__(256) bits_of_words(const uint32_t* in, int* out, int steps) {
  uint32_t x = in[T], y = in[T + 1];
  int sum = 0;
#pragma unroll 8
  for (int k = 0; k < steps; ++k) sum += __popc(x + k) + __popc(y ^ k);
  out[T] = sum;
}
__global__ void __launch_bounds__(512) cached_blocks(const uint4* in, uint32_t* out, int blocks, int rounds) {
  uint32_t sum = 0;  // whole blocks of 512 bytes of 16 MB, at random: L2 is the limit
  const int lane = threadIdx.x % 32;
  for (int r = 0; r < rounds; r += 8) {
    uint4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __ldcg(in + i64(mix(uint32_t(T / 32) * 977 + r + k) % uint32_t(blocks)) * 32 + lane);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (sum == 1) out[T] = sum;
}
__global__ void __launch_bounds__(256) running_totals(const float4* in, float4* out, i64 count) {
  for (i64 i = T; i < count; i += STRIDE) {  // a scan in each warp's 128 values; count is a multiple of the grid
    float4 v = in[i];
    v.y += v.x, v.z += v.y, v.w += v.z;
    float before = v.w;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) { const float below = __shfl_up_sync(~0u, before, o); if (threadIdx.x % 32 >= o) before += below; }
    before -= v.w;
    v.x += before, v.y += before, v.z += before, v.w += before;
    out[i] = v;
  }
}
__global__ void set_seed(uint32_t* out, uint32_t seed) { out[threadIdx.x] = mix(seed + threadIdx.x); }

}  // namespace

void trap_cases() {
  const i64 whole = i64(2112) * 256 * 28;
  cases.push_back({"copy_in_step", "needless_barriers", "", [=] { copy_in_step<0><<<2112, 256>>>((float4*)A, (float4*)C, whole); }, [=] { copy_in_step<1><<<2112, 256>>>((float4*)A, (float4*)C, whole); }, C, 1 << 24});
  cases.push_back({"eight_chains", "occupancy_shared", "", [] { eight_chains<<<1056, 256, 100000>>>(C, 4096); }, [] { eight_chains<<<1056, 256>>>(C, 4096); }, nullptr, 0, false, [] { dynamic_shared(eight_chains, 100000); }});
  cases.push_back({"add_rows", "integer_division", "", [] { add_rows<0><<<2112, 256>>>((float4*)A, (float4*)C, N / 4, 1024); }, [] { add_rows<1><<<2112, 256>>>((float4*)A, (float4*)C, N / 4, 1024); }, C, 1 << 26});
  cases.push_back({"exact_sum", "fp64_by_accident", "", [] { exact_sum<double><<<1056, 256>>>((float4*)A, (double*)C, N / 4); }, [] { exact_sum<float><<<1056, 256>>>((float4*)A, C, N / 4); }});
  cases.push_back({"blur_with_edges", "divergence", "", [] { blur_with_edges<0><<<dim3(32, 8192), 256>>>(A, C, 8192, 8192); }, [] { blur_with_edges<1><<<dim3(32, 8192), 256>>>(A, C, 8192, 8192); }, C, 1 << 26});
  cases.push_back({"many_waves", "tail_effect", "", [] { many_waves<<<31700, 256>>>((float4*)A, (float4*)C); }, [] { many_waves<<<1056, 256>>>((float4*)A, (float4*)C); }, C, 31700 * 1024});
}
void clean_cases() {
  const i64 whole = i64(2112) * 256 * 28;
  cases.push_back({"integer_tensor_mill", "none_at_roof", "", [] { integer_tensor_mill<<<528, 256>>>((signed char*)A, (int*)C, 4096); }, nullptr});
  cases.push_back({"mask_stream", "none_at_roof", "", [] { mask_stream<<<2112, 256>>>((uint4*)A, (uint4*)C, make_uint4(1, 2, 3, 4), N / 4); }, nullptr});
  cases.push_back({"chacha", "none_at_roof", "", [] { chacha<<<2112, 256>>>((uint32_t*)C, 512); }, nullptr});
  cases.push_back({"half_mill", "none_at_roof", "", [] { half_mill<<<1056, 256>>>((__half2*)A, (__half2*)C, 4096); }, nullptr});
  cases.push_back({"bits_of_words", "none_at_roof", "", [] { bits_of_words<<<1056, 256>>>((uint32_t*)A, (int*)C, 4096); }, nullptr});
  cases.push_back({"cached_blocks", "none_at_roof", "", [] { cached_blocks<<<528, 512>>>((uint4*)A, (uint32_t*)C, 1 << 15, 512); }, nullptr});
  cases.push_back({"running_totals", "none_at_roof", "", [=] { running_totals<<<2112, 256>>>((float4*)A, (float4*)C, whole); }, nullptr});
  cases.push_back({"set_seed", "launch_latency", "", [] { set_seed<<<1, 64>>>((uint32_t*)C, 9); }, nullptr});
}
