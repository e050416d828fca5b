// Calls of CUB and cuBLAS: three whose arguments cost time, and two that are as good as they can be. cuBLAS is found at run time.
#include <dlfcn.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include "set.h"

typedef struct cublasContext* Cublas;
static int (*products_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, i64, const void*, int, int, i64, const void*, void*, int, int, i64, int, int, int);
static Cublas cublas;
static const int F32 = 0, F64 = 1, F16 = 2, BY_F32 = 68, BY_F64 = 70, BY_TF32 = 77;
static void open_cublas() {
  if (cublas) return;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) { std::fprintf(stderr, "%s\n", dlerror()); std::exit(1); }
  auto create = (int (*)(Cublas*))dlsym(library, "cublasCreate_v2");
  products_of = (decltype(products_of))dlsym(library, "cublasGemmStridedBatchedEx");
  if (!create || !products_of || create(&cublas)) { std::fprintf(stderr, "cuBLAS does not start\n"); std::exit(1); }
}
static void products(int m, int n, int k, const void* a, const void* b, int type, void* c, int to, int many, int by) {
  float one = 1, zero = 0;
  double wide_one = 1, wide_zero = 0;
  bool wide = by == BY_F64;
  const void *alpha = wide ? (void*)&wide_one : &one, *beta = wide ? (void*)&wide_zero : &zero;
  int status = products_of(cublas, 0, 0, m, n, k, alpha, a, type, m, (i64)m * k, b, type, k, (i64)k * n, beta, c, to, m, (i64)m * n, many, by, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
template <class X> __global__ void converted(const float* a, X* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = X(a[i] - 0.25f);
}
__global__ void make_entries(u64* wide, unsigned* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = mix((unsigned)i) & 63;
}
// ---- library_couplings: 48 products of floats without TF32; or with it; expected 4 times
// ---- library_tissues: a matrix of halves that begins two bytes after a multiple of 16; or at one; expected 2 times
// ---- library_balances: running totals of entries of 64 bits, of which 6 count and whose totals fit 32; or of 32 bits; expected 1.5 times
const int ENTRIES = 1 << 25;

void library_cases() {
  static __half *odd, *even;
  static double* doubles;
  static u64* wide;
  static unsigned* narrow;
  static void *room, *scratch;
  static size_t taken = 0, bytes = 0;
  cases.push_back({"library_couplings", "fp32_for_matrix", "precision", [] { products(512, 512, 512, A, B, F32, C, F32, 48, BY_F32); }, [] { products(512, 512, 512, A, B, F32, C, F32, 48, BY_TF32); }, C, 48 << 18, false, open_cublas});
  cases.push_back({"library_tissues", "misaligned_base", "alignment|narrow_accesses", [] { products(4096, 2048, 2048, odd + 1, even + (1 << 23), F16, C, F32, 1, BY_F32); }, [] { products(4096, 2048, 2048, even, even + (1 << 23), F16, C, F32, 1, BY_F32); }, C, 1 << 23, false, [] {
    open_cublas();
    odd = device<__half>((1 << 23) + 8), even = device<__half>(3 << 22);
    converted<<<1056, 256>>>(A, even, 3 << 22);
    CHECK(cudaMemcpy(odd + 1, even, 1 << 24, cudaMemcpyDefault));
  }});
  cases.push_back({"library_balances", "wide_data", "precision", [] { CHECK(cub::DeviceScan::InclusiveSum(room, taken, (const u64*)wide, (unsigned*)C, ENTRIES)); }, [] { CHECK(cub::DeviceScan::InclusiveSum(room, taken, (const unsigned*)narrow, (unsigned*)C, ENTRIES)); }, C, ENTRIES, true, [] {
    wide = device<u64>(ENTRIES), narrow = device<unsigned>(ENTRIES);
    make_entries<<<1056, 256>>>(wide, narrow, ENTRIES);
    size_t other = 0;
    CHECK(cub::DeviceScan::InclusiveSum(nullptr, taken, (const u64*)wide, (unsigned*)C, ENTRIES));
    CHECK(cub::DeviceScan::InclusiveSum(nullptr, other, (const unsigned*)narrow, (unsigned*)C, ENTRIES));
    taken = std::max(taken, other);
    CHECK(cudaMalloc(&room, taken));
  }});
  cases.push_back({"library_overlaps", "none_at_roof", "", [] { products(4096, 4096, 1024, doubles, doubles + (1 << 22), F64, C, F64, 1, BY_F64); }, nullptr, nullptr, 0, false, [] {
    open_cublas();
    doubles = device<double>(1 << 23);
    converted<<<1056, 256>>>(A, doubles, 1 << 23);
  }});
  cases.push_back({"library_highest", "none_at_roof", "", [] { CHECK(cub::DeviceReduce::Max(scratch, bytes, (const int*)A, (int*)C, (int)N)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceReduce::Max(nullptr, bytes, (const int*)A, (int*)C, (int)N));
    CHECK(cudaMalloc(&scratch, bytes));
  }});
}
