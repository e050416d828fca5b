// Libraries: a product and a prefix sum that are asked for badly, and two calls that are good. cuBLAS is found when the program runs.
#include <dlfcn.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include "frame.h"

enum { FLOATS = 0, HALVES = 2, ON_FP32 = 68, ON_TF32 = 77 };  // of library_types.h and cublas_api.h
using Product = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static void* desk;
static Product product_of;
static void open_cublas() {
  if (desk) return;
  void* shelf = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!shelf) shelf = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  auto create = shelf ? (int (*)(void**))dlsym(shelf, "cublasCreate_v2") : nullptr;
  product_of = shelf ? (Product)dlsym(shelf, "cublasGemmEx") : nullptr;
  if (create && product_of && create(&desk) == 0) return;
  std::fprintf(stderr, "cuBLAS does not start here\n");
  std::exit(1);
}
static void call_product(int rows, int columns, int depth, const void* x, const void* w, int type, int units, int type_out) {  // the depth is contiguous in both
  float one = 1, zero = 0;
  int said = product_of(desk, 1, 0, rows, columns, depth, &one, x, type, depth, w, type, depth, &zero, C, type_out, rows, units, -1);
  if (said == 0) return;
  std::fprintf(stderr, "cublasGemmEx said %d\n", said);
  std::exit(1);
}
__global__ void shorten(const float* a, float* out, int n) {  // to values that a half can hold
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = __half2float(__float2half_rn(a[i] - 0.25f));
}
__global__ void make_visits(i64* wide, int* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = (int)(mix((unsigned)i) & 3);
}
// ---- library_tapestries: a product of floats that hold no more than halves do, on FP32 units; or on tensor cores as TF32, which keeps them whole; expected 5 times
// ---- library_turnstiles: running totals of counts below four, which lie in 64 bits; or in 32; expected 1.4 times
constexpr int VISITS = 1 << 25;

void library_cases() {
  static float* threads;
  static half* gowns;
  static i64* wide;
  static int* narrow;
  static void *scan_room, *sum_room;
  static size_t scan_bytes, sum_bytes;
  cases.push_back({"library_tapestries", "fp32_for_matrix", "precision|wide_data", [] { call_product(2048, 2048, 1024, threads, threads + (1 << 22), FLOATS, ON_FP32, FLOATS); }, [] { call_product(2048, 2048, 1024, threads, threads + (1 << 22), FLOATS, ON_TF32, FLOATS); }, C, 1 << 22, false, [] {
    open_cublas();
    threads = device<float>(1 << 23);
    shorten<<<1056, 256>>>(A, threads, 1 << 23);
  }});
  cases.push_back({"library_turnstiles", "wide_data", "precision", [] { CHECK(cub::DeviceScan::InclusiveSum(scan_room, scan_bytes, (const i64*)wide, (int*)C, VISITS)); }, [] { CHECK(cub::DeviceScan::InclusiveSum(scan_room, scan_bytes, (const int*)narrow, (int*)C, VISITS)); }, C, VISITS, true, [] {
    wide = device<i64>(VISITS), narrow = device<int>(VISITS);
    make_visits<<<1056, 256>>>(wide, narrow, VISITS);
    size_t other = 0;
    CHECK(cub::DeviceScan::InclusiveSum(nullptr, scan_bytes, (const i64*)wide, (int*)C, VISITS));
    CHECK(cub::DeviceScan::InclusiveSum(nullptr, other, (const int*)narrow, (int*)C, VISITS));
    scan_bytes = std::max(scan_bytes, other);
    CHECK(cudaMalloc(&scan_room, scan_bytes));
  }});
  cases.push_back({"library_gowns", "none_at_roof", "", [] { call_product(4096, 4096, 4096, gowns, gowns + (1 << 24), HALVES, ON_FP32, HALVES); }, nullptr, nullptr, 0, false, [] {
    open_cublas();
    gowns = converted<half>(A, 1 << 25, 0.5f);
  }});
  cases.push_back({"library_rainfall", "none_at_roof", "", [] { CHECK(cub::DeviceReduce::Sum(sum_room, sum_bytes, (const float*)A, C, (int)N)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceReduce::Sum(nullptr, sum_bytes, (const float*)A, C, (int)N));
    CHECK(cudaMalloc(&sum_room, sum_bytes));
  }});
}
