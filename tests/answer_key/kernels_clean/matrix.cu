// Roofs of tensor cores: by single warps from registers, in doubles, and calls of cuBLAS. cuBLAS is found at run time.
#include <dlfcn.h>

#include "frame.h"

// ---- products of single warps
// at the roof of tensor cores for operands in registers, because each warp multiplies matrices of its own, which no warp group shares, in eight chains
__global__ void __launch_bounds__(256, 2) couple_spin_chains(const unsigned* a, float* out, int steps) {
  unsigned x[2][4], y[4][2];
  float s[8][4] = {}, sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k / 4][k & 3] = a[k * STRIDE + T] & 0x3bff3bffu, y[k / 2][k & 1] = a[(k + 8) * STRIDE + T] & 0x3bff3bffu;
#pragma unroll 1
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(s[k][0]), "+f"(s[k][1]), "+f"(s[k][2]), "+f"(s[k][3]) : "r"(x[k / 4][0]), "r"(x[k / 4][1]), "r"(x[k / 4][2]), "r"(x[k / 4][3]), "r"(y[k & 3][0]), "r"(y[k & 3][1]));
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += (s[k][0] + s[k][1]) + (s[k][2] + s[k][3]);
  out[T] = sum;
}
// at the roof of tensor cores for operands in registers, because each warp multiplies bytes of its own in eight chains
__global__ void __launch_bounds__(256, 2) count_pollen_matches(const unsigned* a, int* out, int steps) {
  unsigned x[2][4], y[4][2];
  int s[8][4] = {}, sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k / 4][k & 3] = a[k * STRIDE + T], y[k / 2][k & 1] = a[(k + 8) * STRIDE + T];
#pragma unroll 1
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 8; ++k)
      asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+r"(s[k][0]), "+r"(s[k][1]), "+r"(s[k][2]), "+r"(s[k][3]) : "r"(x[k / 4][0]), "r"(x[k / 4][1]), "r"(x[k / 4][2]), "r"(x[k / 4][3]), "r"(y[k & 3][0]), "r"(y[k & 3][1]));
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += (s[k][0] + s[k][1]) + (s[k][2] + s[k][3]);
  out[T] = sum;
}
// at the roof of FP64 on tensor cores, because each product of 16 x 8 x 16 doubles takes 16 cycles an SM, in two chains a warp
__global__ void __launch_bounds__(256, 2) rotate_density_states(const double* a, double* out, int steps) {
  double x[8], y[2][4], s[2][4] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = a[k * STRIDE + T], y[k / 4][k & 3] = a[(k + 8) * STRIDE + T];
#pragma unroll 2
  for (int n = 0; n < steps; ++n)
#pragma unroll
    for (int k = 0; k < 2; ++k)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};" : "+d"(s[k][0]), "+d"(s[k][1]), "+d"(s[k][2]), "+d"(s[k][3]) : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]), "d"(x[4]), "d"(x[5]), "d"(x[6]), "d"(x[7]), "d"(y[k][0]), "d"(y[k][1]), "d"(y[k][2]), "d"(y[k][3]));
  out[T] = ((s[0][0] + s[0][1]) + (s[0][2] + s[0][3])) + ((s[1][0] + s[1][1]) + (s[1][2] + s[1][3]));
}
// ---- calls of cuBLAS, all at the roof of tensor cores, because their sides are multiples of large tiles, nearly four waves or more of them
typedef struct cublasContext* Cublas;
static int (*multiply_by)(Cublas, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static Cublas cublas;
static void find_cublas() {
  if (cublas) return;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if ((library = dlopen(name, RTLD_NOW | RTLD_GLOBAL))) break;
  if (!library) { std::fprintf(stderr, "%s\n", dlerror()); std::exit(1); }
  auto start = (int (*)(Cublas*))dlsym(library, "cublasCreate_v2");
  multiply_by = (decltype(multiply_by))dlsym(library, "cublasGemmEx");
  if (!start || !multiply_by || start(&cublas)) { std::fprintf(stderr, "cuBLAS does not start\n"); std::exit(1); }
}
static const int OF_HALF = 2, OF_FLOAT = 0, OF_DOUBLE = 1, OF_BYTE = 3, OF_INT = 10, OF_BF16 = 14, IN_FLOAT = 68, IN_TF32 = 77, IN_DOUBLE = 70, IN_INT = 72;
static void multiply_all(int m, int n, int k, const void* a, const void* b, int type, void* c, int to, int by) {  // the first one transposed
  float one = 1, zero = 0;
  double one8 = 1, zero8 = 0;
  int whole = 1, none = 0;
  const void *p = by == IN_DOUBLE ? (void*)&one8 : by == IN_INT ? (void*)&whole : (void*)&one, *q = by == IN_DOUBLE ? (void*)&zero8 : by == IN_INT ? (void*)&none : (void*)&zero;
  int status = multiply_by(cublas, 1, 0, m, n, k, p, a, type, k, b, type, k, q, c, to, m, by, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}

void matrix_cases() {
  static bf16* few;
  static __half* halves;
  static double *doubles, *states;
  cases.push_back({"couple_spin_chains", "none_at_roof", "", [] { couple_spin_chains<<<264, 256>>>((unsigned*)A, C, 768); }, nullptr});
  cases.push_back({"count_pollen_matches", "none_at_roof", "", [] { count_pollen_matches<<<264, 256>>>((unsigned*)B, (int*)C, 768); }, nullptr});
  cases.push_back({"rotate_density_states", "none_at_roof", "", [] { rotate_density_states<<<264, 256>>>(states, (double*)C, 384); }, nullptr, nullptr, 0, false, [] { states = converted<double>(A, 16 * 264 * 256, 0.5f); }});
  cases.push_back({"library_word_bridges", "none_at_roof", "", [] { multiply_all(4096, 8192, 4096, few, few + (1 << 24), OF_BF16, C, OF_BF16, IN_FLOAT); }, nullptr, nullptr, 0, false, [] {
    find_cublas();
    few = converted<bf16>(A, 3 << 24, 0.5f);
  }});
  cases.push_back({"library_cloud_kernels", "none_at_roof", "", [] { multiply_all(4096, 4096, 4096, halves, halves + (1 << 24), OF_HALF, C, OF_HALF, IN_FLOAT); }, nullptr, nullptr, 0, false, [] {
    find_cublas();
    halves = converted<__half>(B, 2 << 24, 0.5f);
  }});
  cases.push_back({"library_reef_maps", "none_at_roof", "", [] { multiply_all(4096, 4096, 4096, A, B, OF_FLOAT, C, OF_FLOAT, IN_TF32); }, nullptr, nullptr, 0, false, [] { find_cublas(); }});
  cases.push_back({"library_tidal_forces", "none_at_roof", "", [] { multiply_all(2048, 2048, 2048, doubles, doubles + (1 << 22), OF_DOUBLE, C, OF_DOUBLE, IN_DOUBLE); }, nullptr, nullptr, 0, false, [] {
    find_cublas();
    doubles = converted<double>(A, 2 << 22, 0.5f);
  }});
  cases.push_back({"library_seed_codes", "none_at_roof", "", [] { multiply_all(8192, 8192, 4096, A, B, OF_BYTE, C, OF_INT, IN_INT); }, nullptr, nullptr, 0, false, [] { find_cublas(); }});
}
