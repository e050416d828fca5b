// Calls of cuBLAS whose arguments cost time, and one that costs none. It is found at run time: it needs neither its headers nor a link.
#include <dlfcn.h>

#include "set.h"

typedef struct cublasContext* Cublas;
static int (*product_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static int (*products_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, i64, const void*, int, int, i64, const void*, void*, int, int, i64, int, int, int);
static Cublas cublas;
static const int F32 = 0, F64 = 1, F16 = 2, BF16 = 14, BY_F32 = 68, BY_F64 = 70, BY_TF32 = 77;

static void open_cublas() {
  if (cublas) return;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) { std::fprintf(stderr, "%s\n", dlerror()); std::exit(1); }
  auto create = (int (*)(Cublas*))dlsym(library, "cublasCreate_v2");
  product_of = (decltype(product_of))dlsym(library, "cublasGemmEx");
  products_of = (decltype(products_of))dlsym(library, "cublasGemmStridedBatchedEx");
  if (!create || !product_of || !products_of || create(&cublas)) { std::fprintf(stderr, "cuBLAS does not start\n"); std::exit(1); }
}
static void product(int type, int by, int m, int n, int k, const void* a, const void* b, void* c, bool turned = false) {
  float one = 1, zero = 0;
  double one64 = 1, zero64 = 0;
  bool wide = by == BY_F64;
  int status = product_of(cublas, turned, 0, m, n, k, wide ? (void*)&one64 : &one, a, type, turned ? k : m, b, type, k, wide ? (void*)&zero64 : &zero, c, type, m, by, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
static void scores(int type, const void* q, const void* k) {  // 128 heads, 512 x 512 scores of vectors of 128
  float one = 1, zero = 0;
  int status = products_of(cublas, 1, 0, 512, 512, 128, &one, q, type, 128, 512 * 128, k, type, 128, 512 * 128, &zero, C, F32, 512, 512 * 512, 128, BY_F32, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
__global__ void widen_matrix(const float* a, double* wide, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) wide[i] = a[i];
}
__global__ void round_vectors(const float* a, __half* narrow, float* same, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) narrow[i] = __float2half(a[i]), same[i] = __half2float(narrow[i]);
}
__global__ void fill_bf16(__nv_bfloat16* a, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = __float2bfloat16((int)(mix((unsigned)i) & 15) * 0.0625f - 0.45f);
}
static __nv_bfloat16 *ba, *bb, *bc;
static void bf16() {
  open_cublas();
  if (ba) return;
  const i64 n = N + 64;
  ba = device<__nv_bfloat16>(n), bb = device<__nv_bfloat16>(n), bc = device<__nv_bfloat16>(n);
  fill_bf16<<<2112, 256>>>(ba, n), fill_bf16<<<2112, 256>>>(bb, n);
}

void library_cases() {
  static double *da, *dc;
  static __half* hq;
  static float* fq;
  cases.push_back({"library_covariance", "fp64_by_accident", "precision", [] { product(F64, BY_F64, 2048, 2048, 4096, da, da, dc); }, [] { product(F32, BY_TF32, 2048, 2048, 4096, A, A, C); }, nullptr, 0, false, [] {
    open_cublas();
    da = device<double>(1 << 23), dc = device<double>(1 << 22);
    widen_matrix<<<1056, 256>>>(A, da, 1 << 23);
  }});
  cases.push_back({"library_scores", "fp32_for_matrix", "precision", [] { scores(F32, fq, fq + (1 << 23)); }, [] { scores(F16, hq, hq + (1 << 23)); }, C, 1 << 25, false, [] {
    open_cublas();
    hq = device<__half>(1 << 24), fq = device<float>(1 << 24);
    round_vectors<<<1056, 256>>>(A, hq, fq, 1 << 24);
  }});
  cases.push_back({"library_view", "misaligned_base", "narrow_accesses", [] { product(BF16, BY_F32, 4096, 4096, 2048, ba + 1, bb + 1, bc); }, [] { product(BF16, BY_F32, 4096, 4096, 2048, ba, bb, bc); }, nullptr, 0, false, bf16});
  cases.push_back({"library_bf16", "none_at_roof", "", [] { product(BF16, BY_F32, 8192, 4096, 8192, ba, bb, bc, true); }, nullptr, nullptr, 0, false, bf16});
}
