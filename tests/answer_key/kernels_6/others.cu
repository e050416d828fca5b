// Traps, whose tempting fix should win less than 6 %, and kernels near a roof or well built: layers of networks, bodies, planes, rows.
#include "set.h"

// ---- traps: an exact exponential beside a full DRAM; a wave and a half of a stream; long rows that begin first
template <int V> __global__ void __launch_bounds__(256) open_gates(const float4* a, float4* out, i64 n) {
  auto gate = [](float x) { return V == 0 ? 1 / (1 + expf(-x)) : __fdividef(1, 1 + __expf(-x)); };
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 v = a[i];
    out[i] = {gate(v.x), gate(v.y), gate(v.z), gate(v.w)};
  }
}
__global__ void __launch_bounds__(256) difference_of_frames(const float4* a, const float4* b, float4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    float4 u = a[i], v = b[i];
    out[i] = {fabsf(u.x - v.x), fabsf(u.y - v.y), fabsf(u.z - v.z), fabsf(u.w - v.w)};
  }
}
struct Run { int row, begin, end; };
__global__ void __launch_bounds__(128) sums_of_rows(const Run* run, const float4* value, float* out) {
  Run r = run[blockIdx.x];
  float s = 0;
#pragma unroll 4
  for (int i = r.begin + threadIdx.x; i < r.end; i += 128) {
    float4 v = value[i];
    s += (v.x + v.y) + (v.z + v.w);
  }
  s = warp_sum(s);
  if ((threadIdx.x & 31) == 0) atomicAdd(&out[r.row], s);
}
static Run* falling(int most, int* count) {  // 8192 rows, of 4096 float4 to none
  std::vector<Run> all;
  for (int r = 0, at = 0; r < 8192; ++r) {
    int end = at + (8192 - r) / 2;
    for (; at < end; at += most) all.push_back({r, at, std::min(end, at + most)});
    at = end;
  }
  *count = (int)all.size();
  return upload(all);
}

// ---- clean kernels
__device__ inline float2 two(unsigned w) { return __bfloat1622float2(*(__nv_bfloat162*)&w); }
__device__ inline unsigned pack(float x, float y) {
  __nv_bfloat162 w = __floats2bfloat162_rn(x, y);
  return *(unsigned*)&w;
}
__global__ void fill_bf16(const float* a, unsigned* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = pack(a[i], 1 - a[i]);
}
template <class F> __device__ float of_block(float v, F f) {
  __shared__ float part[32];
  for (int o = 16; o; o >>= 1) v = f(v, __shfl_xor_sync(~0u, v, o));
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) v = f(v, part[w]);
  return v;
}
__global__ void __launch_bounds__(256) rms_norm_bf16(const uint4* x, const uint4* gain, uint4* out) {  // 4096 values a row, a block
  const uint4* row = x + blockIdx.x * 512ll;
  uint4 v[2] = {row[threadIdx.x], row[threadIdx.x + 256]};
  float s = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float2 p = two((&v[k / 4].x)[k & 3]);
    s = fmaf(p.x, p.x, fmaf(p.y, p.y, s));
  }
  float scale = rsqrtf(of_block(s, [](float a, float b) { return a + b; }) / 4096 + 1e-5f);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    uint4 g = gain[threadIdx.x + k * 256], w;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 p = two((&v[k].x)[j]), q = two((&g.x)[j]);
      (&w.x)[j] = pack(p.x * scale * q.x, p.y * scale * q.y);
    }
    out[blockIdx.x * 512ll + threadIdx.x + k * 256] = w;
  }
}
__global__ void __launch_bounds__(256) swiglu_bf16(const uint4* gate, const uint4* up, uint4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    uint4 g = gate[i], u = up[i], w;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 p = two((&g.x)[j]), q = two((&u.x)[j]);
      (&w.x)[j] = pack(__fdividef(p.x, 1 + __expf(-p.x)) * q.x, __fdividef(p.y, 1 + __expf(-p.y)) * q.y);
    }
    out[i] = w;
  }
}
__global__ void make_rows(int* token, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) token[i] = (int)(mix((unsigned)i + 9) & 65535);
}
__global__ void __launch_bounds__(128) embed_rows(const int4* token, const uint4* table, uint4* out) {  // rows of 2 kB, four a block
  int4 t = token[blockIdx.x];
  i64 l = threadIdx.x;
  uint4 p = table[t.x * 128ll + l], q = table[t.y * 128ll + l], r = table[t.z * 128ll + l], s = table[t.w * 128ll + l];
  uint4* to = out + blockIdx.x * 512ll + l;
  to[0] = p, to[128] = q, to[256] = r, to[384] = s;
}
__global__ void __launch_bounds__(256) largest_bf16(const uint4* x, int* out, i64 n) {
  __nv_bfloat162 most = __floats2bfloat162_rn(0, 0);
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    uint4 v = x[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) most = __hmax2(most, __habs2(((__nv_bfloat162*)&v)[j]));
  }
  float2 p = __bfloat1622float2(most);
  float all = of_block(fmaxf(p.x, p.y), [](float a, float b) { return fmaxf(a, b); });
  if (threadIdx.x == 0) atomicMax(out, __float_as_int(all));
}
__global__ void __launch_bounds__(256) gravity(const float4* body, const float4* at, float4* out, int bodies) {  // four places a thread
  __shared__ float4 tile[256];
  float4 p[4];
  float3 s[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) p[k] = at[k * STRIDE + T];
  for (int first = 0; first < bodies; first += 256) {
    __syncthreads();
    tile[threadIdx.x] = body[first + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < 256; ++j) {
      float4 q = tile[j];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float x = q.x - p[k].x, y = q.y - p[k].y, z = q.z - p[k].z, r = rsqrtf(fmaf(x, x, fmaf(y, y, fmaf(z, z, 0.01f)))), w = q.w * r * r * r;
        s[k].x = fmaf(w, x, s[k].x), s[k].y = fmaf(w, y, s[k].y), s[k].z = fmaf(w, z, s[k].z);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) out[k * STRIDE + T] = {s[k].x, s[k].y, s[k].z, 0};
}
__global__ void __launch_bounds__(256) pack_planes(const float* r, const float* g, const float* b, const float* a, float4* out, i64 n) {
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) out[i] = {r[i], g[i], b[i], a[i]};
}
__global__ void __launch_bounds__(256) unpack_int4(const unsigned* in, uint4* out, i64 n) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) {
    unsigned w = in[i];
    uint4 v;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned h = (w >> 8 * j & 15) | (w >> 8 * j & 240) << 12 | 0x43004300u;  // 128 + the number, as bf16
      __nv_bfloat162 d = __hsub2(*(__nv_bfloat162*)&h, __floats2bfloat162_rn(136, 136));
      (&v.x)[j] = *(unsigned*)&d;
    }
    out[i] = v;
  }
}
__global__ void __launch_bounds__(512) cross_entropy(const float4* logits, const int* label, float* loss) {  // 32768 logits a row, a block
  const float4* row = logits + blockIdx.x * 8192ll;
  float most = -1e30f, s = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < 8192; i += 512) {
    float4 v = row[i];
    float now = fmaxf(most, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    s = s * __expf(most - now) + ((__expf(v.x - now) + __expf(v.y - now)) + (__expf(v.z - now) + __expf(v.w - now)));
    most = now;
  }
  float all = of_block(most, [](float a, float b) { return fmaxf(a, b); });
  __syncthreads();
  s = of_block(s * __expf(most - all), [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) loss[blockIdx.x] = __logf(s) + all - ((const float*)row)[label[blockIdx.x] & 32767];
}
__global__ void __launch_bounds__(256) quantise_rows(const float4* x, char4* out, float* scale) {  // 4096 values a row, a block
  float4 v[4];
  float most = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k] = x[blockIdx.x * 1024ll + k * 256 + threadIdx.x];
    most = fmaxf(most, fmaxf(fmaxf(fabsf(v[k].x), fabsf(v[k].y)), fmaxf(fabsf(v[k].z), fabsf(v[k].w))));
  }
  most = of_block(most, [](float a, float b) { return fmaxf(a, b); });
  float by = 127 / most;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    out[blockIdx.x * 1024ll + k * 256 + threadIdx.x] = {(signed char)__float2int_rn(v[k].x * by), (signed char)__float2int_rn(v[k].y * by), (signed char)__float2int_rn(v[k].z * by), (signed char)__float2int_rn(v[k].w * by)};
  if (threadIdx.x == 0) scale[blockIdx.x] = most / 127;
}
__global__ void __launch_bounds__(256) split_heads(const uint4* x, uint4* out) {  // 8192 tokens, 32 heads of 128 bf16
  i64 i = blockIdx.x * 1024ll + threadIdx.x;
  uint4 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = x[i + k * 256];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    i64 at = i + k * 256, token = at / 512, head = at / 16 & 31;
    out[(head * 8192 + token) * 16 + (at & 15)] = v[k];
  }
}
__global__ void next_step(int* step, float* rate) {
  int s = ++*step;
  *rate = 1e-3f * __fdividef(1, sqrtf((float)s + 1));
}
__global__ void __launch_bounds__(128) best_beam(const float* score, int* out) {  // a warp a row of 32 scores
  int lane = threadIdx.x & 31, best = lane;
  float v = score[T];
  for (int o = 16; o; o >>= 1) {
    float other = __shfl_xor_sync(~0u, v, o);
    int at = __shfl_xor_sync(~0u, best, o);
    if (other > v || (other == v && at < best)) v = other, best = at;
  }
  if (lane == 0) out[T / 32] = best;
}

void trap_cases() {
  static int whole, split;
  static Run *rows, *parts;
  cases.push_back({"open_gates", "special_functions", "", [] { open_gates<0><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, [] { open_gates<1><<<1056, 256>>>((float4*)A, (float4*)C, N / 4); }, C, N});
  cases.push_back({"difference_of_frames", "tail_effect", "", [] { difference_of_frames<<<1584, 256>>>((float4*)A, (float4*)B, (float4*)C, N / 8); }, [] { difference_of_frames<<<1056, 256>>>((float4*)A, (float4*)B, (float4*)C, N / 8); }, C, N / 2});
  cases.push_back({"sums_of_rows", "uneven_blocks", "", [] { sums_of_rows<<<whole, 128>>>(rows, (float4*)A, C); }, [] { sums_of_rows<<<split, 128>>>(parts, (float4*)A, C); }, C, 8192, false, [] { rows = falling(4096, &whole), parts = falling(1024, &split); }});
}
void clean_cases() {
  static unsigned* bf16;  // N values
  static int* token;
  auto fill = [] {
    if (bf16) return;
    bf16 = device<unsigned>(N / 2);
    fill_bf16<<<1056, 256>>>(A, bf16, N / 2);
  };
  cases.push_back({"rms_norm_bf16", "none_at_roof", "", [] { rms_norm_bf16<<<16384, 256>>>((uint4*)bf16, (uint4*)bf16, (uint4*)C); }, nullptr, nullptr, 0, false, fill});
  cases.push_back({"swiglu_bf16", "none_at_roof", "", [] { swiglu_bf16<<<1056, 256>>>((uint4*)bf16, (uint4*)bf16 + N / 16, (uint4*)C, N / 16); }, nullptr, nullptr, 0, false, fill});
  cases.push_back({"embed_rows", "none_at_roof", "", [] { embed_rows<<<8192, 128>>>((int4*)token, (uint4*)bf16, (uint4*)C); }, nullptr, nullptr, 0, false, [fill] {
    fill(), token = device<int>(32768);
    make_rows<<<128, 256>>>(token, 32768);
  }});
  cases.push_back({"largest_bf16", "none_at_roof", "", [] { largest_bf16<<<1056, 256>>>((uint4*)bf16, (int*)C, N / 8); }, nullptr, nullptr, 0, false, fill});
  cases.push_back({"gravity", "none_at_roof", "", [] { gravity<<<264, 256>>>((float4*)A, (float4*)B, (float4*)C, 8192); }, nullptr});
  cases.push_back({"pack_planes", "none_at_roof", "", [] { pack_planes<<<1056, 256>>>(A, B, D, A + N / 2, (float4*)C, N / 4); }, nullptr});
  cases.push_back({"unpack_int4", "none_at_roof", "", [] { unpack_int4<<<1056, 256>>>((unsigned*)A, (uint4*)C, N / 4); }, nullptr});
  cases.push_back({"cross_entropy", "none_at_roof", "", [] { cross_entropy<<<2048, 512>>>((float4*)A, (int*)B, C); }, nullptr});
  cases.push_back({"quantise_rows", "none_at_roof", "", [] { quantise_rows<<<16384, 256>>>((float4*)A, (char4*)C, D); }, nullptr});
  cases.push_back({"split_heads", "none_at_roof", "", [] { split_heads<<<4096, 256>>>((uint4*)bf16, (uint4*)C); }, nullptr, nullptr, 0, false, fill});
  cases.push_back({"next_step", "launch_latency", "", [] { next_step<<<1, 1>>>((int*)C, C + 1); }, nullptr});
  cases.push_back({"best_beam", "launch_latency", "", [] { best_beam<<<4, 128>>>(A, (int*)C); }, nullptr});
}
