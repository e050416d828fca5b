// Gathers at random with many and with few warps, rows that begin anywhere, and samples at a stride: tills, clinics, people, spectra.
#include "set.h"

__host__ __device__ inline unsigned shuffled(unsigned i, int bits) {  // a permutation of the numbers below 2^bits
  unsigned most = (1u << bits) - 1;
  i = (i ^ i >> bits / 2) * 2654435761u & most;
  i = (i ^ i >> bits / 2) * 2246822519u & most;
  return i ^ i >> bits / 2;
}
// ---- the sum of receipts: articles in the order of the tills, or sorted; a warp's articles are anywhere or side by side
__global__ void make_articles(int* tills, int* sorted, int bits) {
  for (i64 i = T; i < 1ll << bits; i += STRIDE) {
    unsigned p = shuffled((unsigned)i, bits);
    tills[i] = (int)(p * 4 + (mix(p) & 3)), sorted[i] = (int)(i * 4 + (mix((unsigned)i) & 3));
  }
}
__global__ void make_cents(const float* a, int* cents, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) cents[i] = (int)(a[i] * 5000);
}
__global__ void __launch_bounds__(256) sum_receipts(const int* article, const int* cents, int* out, i64 n) {
  int s = 0;
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) s += cents[article[i]];
  s = __reduce_add_sync(~0u, s);
  __shared__ int all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) atomicAdd(&all, s);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, all);
}
// ---- doses from a table: a block asks for shared memory that it does not need
__global__ void __launch_bounds__(256) look_up_doses(const int* id, const float* dose, float* out, i64 n) {
  extern __shared__ float unused[];
  float s = 0;
#pragma unroll 1
  for (i64 i = T; i < n; i += STRIDE) s = fmaf(s, 0.5f, dose[id[i]]);
  if (n < 0) s += unused[threadIdx.x];
  out[T] = s;
}
__global__ void make_ids(int* id, i64 n, unsigned most) {
  for (i64 i = T; i < n; i += STRIDE) id[i] = (int)(mix((unsigned)i * 2 + 1) & (most - 1));
}
// ---- three properties of a person: in three arrays, or side by side
constexpr i64 PEOPLE = N / 4;
__global__ void make_people(const float* a, float4* person) {
  for (i64 i = T; i < PEOPLE; i += STRIDE) person[i] = {a[i], a[PEOPLE + i], a[2 * PEOPLE + i], 0};
}
template <int V> __global__ void __launch_bounds__(256) scores_of_friends(const int* id, const float* columns, const float4* person, float* out, i64 n) {
  extern __shared__ float window[];  // leaves room for half of the warps in both forms
#pragma unroll 2
  for (i64 i = T; i < n; i += STRIDE) {
    i64 p = id[i];
    if (V == 0) {
      out[i] = fmaf(columns[p], columns[PEOPLE + p], columns[2 * PEOPLE + p]);
    } else {
      float4 v = person[p];
      out[i] = fmaf(v.x, v.y, v.z);
    }
  }
  if (n < 0) out[0] = window[threadIdx.x];
}
// ---- sums of 16 rows of eight values: a thread a bag, or eight lanes
template <int V> __global__ void __launch_bounds__(256) sum_bags(const float* table, const int* id, float* out, int bags) {
  if (V == 0) {
    int bag = (int)T;
    float s[8] = {};
    for (int k = 0; k < 16; ++k) {
      const float* row = table + (i64)id[(i64)k * bags + bag] * 8;
#pragma unroll
      for (int c = 0; c < 8; ++c) s[c] += row[c];
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) out[(i64)bag * 8 + c] = s[c];
  } else {
    int bag = (int)(T / 8), c = threadIdx.x & 7;
    float s = 0;
#pragma unroll
    for (int k = 0; k < 16; ++k) s += table[(i64)id[(i64)k * bags + bag] * 8 + c];
    out[T] = s;
  }
}
// ---- spectra of 31 channels: rows of 124 bytes, or of 128
template <int PITCH> __global__ void __launch_bounds__(256) match_spectra(const float* spectra, const int4* id, const float* wanted, float* out, int n) {
  int lane = threadIdx.x & 31;
  float w = lane < 31 ? wanted[lane] : 0;
  for (i64 i = T / 32; i < n / 4; i += STRIDE / 32) {
    int4 r = id[i];
    int at[4] = {r.x, r.y, r.z, r.w};
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = lane < 31 ? spectra[(i64)at[k] * PITCH + lane] : 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float s = warp_sum(v[k] * w);
      if (lane == k) out[i * 4 + k] = s;
    }
  }
}
__global__ void pad_spectra(const float* tight, float* wide, i64 rows) {
  for (i64 i = T; i < rows * 31; i += STRIDE) wide[i / 31 * 32 + i % 31] = tight[i];
}
// ---- rows of a table of a file: used behind the file's header of twelve bytes, or copied to a boundary
__global__ void __launch_bounds__(256) rows_of_file(const float* table, const int4* id, float* out, int n) {
  int lane = threadIdx.x & 31;
  float s = 0;
#pragma unroll 2
  for (i64 i = T / 32; i < n / 4; i += STRIDE / 32) {
    int4 r = id[i];
    s += (table[(i64)r.x * 32 + lane] + table[(i64)r.y * 32 + lane]) + (table[(i64)r.z * 32 + lane] + table[(i64)r.w * 32 + lane]);
  }
  out[T] = s;
}
// ---- packets of 96 bytes to their places: 100 or 128 bytes apart
template <int PITCH> __global__ void __launch_bounds__(256) place_packets(const float* in, float* out, int bits) {
  int lane = threadIdx.x & 31;
#pragma unroll 4
  for (i64 i = T / 32; i < 1ll << bits; i += STRIDE / 32)
    if (lane < 24) out[(i64)shuffled((unsigned)i, bits) * PITCH + lane] = in[i * 24 + lane];
}
// ---- the loudest sample of one of six channels
__global__ void split_channel(const float* frames, float* channel, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) channel[i] = frames[i * 6];
}
template <int STEP> __global__ void __launch_bounds__(256) loudest(const float* samples, float* out, i64 n) {
  float most = 0;
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) most = fmaxf(most, samples[i * STEP]);
  out[T] = most;
}
// ---- every fourth sample of a seismogram
__global__ void split_phase(const float* all, float* phase, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) phase[i] = all[i * 4];
}
template <int STEP> __global__ void __launch_bounds__(256) thin_out(const float* samples, float* out, i64 n) {
#pragma unroll 4
  for (i64 i = T; i < n; i += STRIDE) out[i] = samples[i * STEP] * 0.5f;
}

void access_cases() {
  static int *tills, *sorted, *cents, *doses, *friends, *members, *wanted, *rows;
  static float4* person;
  static float *padded, *channel, *phase, *table;
  auto ids = [](i64 n, i64 most) {
    int* id = device<int>(n);
    make_ids<<<1056, 256>>>(id, n, (unsigned)most);
    return id;
  };
  static const i64 FRAMES = 10 << 20;
  cases.push_back({"sum_receipts", "uncoalesced_loads", "", [] { sum_receipts<<<1056, 256>>>(tills, cents, (int*)C, 1 << 23); }, [] { sum_receipts<<<1056, 256>>>(sorted, cents, (int*)C, 1 << 23); }, C, 1, true, [] {
    tills = device<int>(1 << 23), sorted = device<int>(1 << 23), cents = device<int>(1 << 25);
    make_articles<<<1056, 256>>>(tills, sorted, 23), make_cents<<<1056, 256>>>(A, cents, 1 << 25);
  }});
  cases.push_back({"look_up_doses", "occupancy_shared", "", [] { look_up_doses<<<1056, 256, 100000>>>(doses, A, C, 1 << 23); }, [] { look_up_doses<<<1056, 256>>>(doses, A, C, 1 << 23); }, C, 1056 * 256, false, [ids] { dynamic_shared(look_up_doses, 100000), doses = ids(1 << 23, N); }});
  cases.push_back({"scores_of_friends", "uncoalesced_loads", "", [] { scores_of_friends<0><<<528, 256, 50000>>>(friends, A, person, C, 1 << 22); }, [] { scores_of_friends<1><<<528, 256, 50000>>>(friends, A, person, C, 1 << 22); }, C, 1 << 22, false, [ids] {
    dynamic_shared(scores_of_friends<0>, 50000), dynamic_shared(scores_of_friends<1>, 50000);
    friends = ids(1 << 22, PEOPLE), person = device<float4>(PEOPLE);
    make_people<<<1056, 256>>>(A, person);
  }});
  cases.push_back({"sum_bags", "uncoalesced_loads", "", [] { sum_bags<0><<<1024, 256>>>(A, members, C, 1 << 18); }, [] { sum_bags<1><<<8192, 256>>>(A, members, C, 1 << 18); }, C, 1 << 21, false, [ids] { members = ids(1 << 22, N / 8); }});
  cases.push_back({"match_spectra", "misaligned_base", "", [] { match_spectra<31><<<1056, 256>>>(A, (int4*)wanted, B, C, 1 << 20); }, [] { match_spectra<32><<<1056, 256>>>(padded, (int4*)wanted, B, C, 1 << 20); }, C, 1 << 20, false, [ids] {
    wanted = ids(1 << 20, N / 32), padded = device<float>(N);
    pad_spectra<<<1056, 256>>>(A, padded, N / 32);
  }});
  cases.push_back({"rows_of_file", "misaligned_base", "", [] { rows_of_file<<<1056, 256>>>(A + 3, (int4*)rows, C, 1 << 22); }, [] { rows_of_file<<<1056, 256>>>(table, (int4*)rows, C, 1 << 22); }, C, 1056 * 256, false, [ids] {
    rows = ids(1 << 22, 1 << 17), table = device<float>(1 << 22);
    CHECK(cudaMemcpy(table, A + 3, 4 << 22, cudaMemcpyDefault));
  }});
  cases.push_back({"place_packets", "misaligned_base", "partial_sector_writes", [] { place_packets<25><<<1056, 256>>>(A, C, 21); }, [] { place_packets<32><<<1056, 256>>>(A, C, 21); }});
  cases.push_back({"loudest", "strided_sectors", "", [] { loudest<6><<<1056, 256>>>(A, C, FRAMES); }, [] { loudest<1><<<1056, 256>>>(channel, C, FRAMES); }, C, 1056 * 256, false, [] {
    channel = device<float>(FRAMES);
    split_channel<<<1056, 256>>>(A, channel, FRAMES);
  }});
  cases.push_back({"thin_out", "strided_sectors", "", [] { thin_out<4><<<1056, 256>>>(A, C, N / 4); }, [] { thin_out<1><<<1056, 256>>>(phase, C, N / 4); }, C, N / 4, false, [] {
    phase = device<float>(N / 4);
    split_phase<<<1056, 256>>>(A, phase, N / 4);
  }});
}
