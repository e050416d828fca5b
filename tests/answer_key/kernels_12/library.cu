// Calls of CUB and cuBLAS: two whose arguments cost time, and two that are as good as they can be. cuBLAS is found at run time.
#include <dlfcn.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include "frame.h"

typedef struct cublasContext* Cublas;
static int (*product_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static Cublas cublas;
static const int F32 = 0, COMPLEX = 4, BF16 = 14, BY_F32 = 68, BY_TF32 = 77;
static void open_cublas() {
  if (cublas) return;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) { std::fprintf(stderr, "%s\n", dlerror()); std::exit(1); }
  auto create = (int (*)(Cublas*))dlsym(library, "cublasCreate_v2");
  product_of = (decltype(product_of))dlsym(library, "cublasGemmEx");
  if (!create || !product_of || create(&cublas)) { std::fprintf(stderr, "cuBLAS does not start\n"); std::exit(1); }
}
static void product(int m, int n, int k, const void* a, const void* b, int type, void* c, int to, int by) {  // a transposed
  float one[2] = {1, 0}, zero[2] = {0, 0};
  int status = product_of(cublas, 1, 0, m, n, k, one, a, type, k, b, type, k, zero, c, to, m, by, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
__global__ void make_signals(const float* a, float2* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = {a[2 * i], 0.25f * a[2 * i + 1]};
}
// ---- library_visibilities: a product of complex floats without TF32; or with it; expected 3 times
// ---- library_receipts: the sum of amounts as doubles that were measured as floats; or as floats; expected 1.9 times
const int RECEIPTS = 1 << 25;

void library_cases() {
  static float2* signals;
  static double* receipts;
  static bf16* few;
  static void *room, *scratch;
  static size_t taken = 0, bytes = 0;
  cases.push_back({"library_visibilities", "fp32_for_matrix", "precision", [] { product(2048, 2048, 512, signals, signals + (1 << 20), COMPLEX, C, COMPLEX, BY_F32); }, [] { product(2048, 2048, 512, signals, signals + (1 << 20), COMPLEX, C, COMPLEX, BY_TF32); }, C, 1 << 23, false, [] {
    open_cublas();
    signals = device<float2>(1 << 21);
    make_signals<<<1056, 256>>>(A, signals, 1 << 21);
  }});
  cases.push_back({"library_receipts", "wide_data", "precision|fp64_by_accident", [] { CHECK(cub::DeviceReduce::Sum(room, taken, (const double*)receipts, C, RECEIPTS)); }, [] { CHECK(cub::DeviceReduce::Sum(room, taken, (const float*)A, C, RECEIPTS)); }, C, 1, false, [] {
    receipts = converted<double>(A, RECEIPTS, 0);
    size_t other = 0;
    CHECK(cub::DeviceReduce::Sum(nullptr, taken, (const double*)receipts, C, RECEIPTS));
    CHECK(cub::DeviceReduce::Sum(nullptr, other, (const float*)A, C, RECEIPTS));
    taken = std::max(taken, other);
    CHECK(cudaMalloc(&room, taken));
  }});
  cases.push_back({"library_logits", "none_at_roof", "", [] { product(8192, 4096, 4096, few, few + (1 << 25), BF16, C, F32, BY_F32); }, nullptr, nullptr, 0, false, [] {
    open_cublas();
    few = converted<bf16>(A, 3 << 24, 0.5f);
  }});
  cases.push_back({"library_offsets", "none_at_roof", "", [] { CHECK(cub::DeviceScan::ExclusiveSum(scratch, bytes, (const int*)A, (int*)C, (int)N)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceScan::ExclusiveSum(nullptr, bytes, (const int*)A, (int*)C, (int)N));
    CHECK(cudaMalloc(&scratch, bytes));
  }});
}
