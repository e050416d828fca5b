// Calls of CUB and cuBLAS: two whose arguments cost time, and two near what they can do. cuBLAS is found at run time.
#include <dlfcn.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>

#include "set.h"

typedef struct cublasContext* Cublas;
static int (*products_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, i64, const void*, int, int, i64, const void*, void*, int, int, i64, int, int, int);
static Cublas cublas;
static const int F32 = 0, BF16 = 14, BY_F32 = 68;
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
static void products(int m, int n, int k, const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int many) {
  float one = 1, zero = 0;
  int status = products_of(cublas, 0, 0, m, n, k, &one, a, BF16, m, (i64)m * k, b, BF16, k, (i64)k * n, &zero, c, F32, m, (i64)m * n, many, BY_F32, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
__global__ void narrowed(const float* a, __nv_bfloat16* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = __float2bfloat16(a[i] - 0.25f);
}
// ---- library_channels: a segmented sum of 24 segments, and so of 24 blocks; or of 1536 parts, then of the parts; expected 3 times
const int SEGMENTS = 24, PARTS = 64, LENGTH = 1 << 20;
// ---- library_experts: 8 small products one after the other; or a batch; expected 4 times

void library_cases() {
  static __nv_bfloat16* values;
  static int *begins, *parts, *totals;
  static float* middle;
  static void *scratch, *room;
  static size_t bytes = 0, taken = 1 << 20;
  cases.push_back({"library_channels", "grid_too_small", "", [] { CHECK(cub::DeviceSegmentedReduce::Sum(room, taken, (const float*)A, C, SEGMENTS, begins, begins + 1)); }, [] {
    CHECK(cub::DeviceSegmentedReduce::Sum(room, taken, (const float*)A, middle, SEGMENTS * PARTS, parts, parts + 1));
    CHECK(cub::DeviceSegmentedReduce::Sum(room, taken, (const float*)middle, C, SEGMENTS, totals, totals + 1));
  }, C, SEGMENTS, false, [] {
    std::vector<int> all(SEGMENTS + 1), some(SEGMENTS * PARTS + 1), last(SEGMENTS + 1);
    for (int k = 0; k <= SEGMENTS; ++k) all[k] = k * LENGTH, last[k] = k * PARTS;
    for (int k = 0; k <= SEGMENTS * PARTS; ++k) some[k] = k * (LENGTH / PARTS);
    begins = upload(all), parts = upload(some), totals = upload(last), middle = device<float>(SEGMENTS * PARTS);
    CHECK(cudaMalloc(&room, taken));
  }});
  cases.push_back({"library_experts", "grid_too_small", "launch_latency", [] { for (int k = 0; k < 8; ++k) products(256, 256, 1024, values + k * (256 << 10), values + (8 + k) * (256 << 10), C + k * (256 << 8), 1); }, [] { products(256, 256, 1024, values, values + 8 * (256 << 10), C, 8); }, C, 8 * (256 << 8), false, [] {
    open_cublas();
    values = device<__nv_bfloat16>(1 << 26);
    narrowed<<<1056, 256>>>(A, values, 1 << 26);
  }});
  cases.push_back({"library_bfloats", "none_at_roof", "", [] { products(8192, 4096, 4096, values, values + (1 << 25), C, 1); }, nullptr, nullptr, 0, false, [] {
    open_cublas();
    values = device<__nv_bfloat16>(1 << 26);
    narrowed<<<1056, 256>>>(A, values, 1 << 26);
  }});
  cases.push_back({"library_sum", "none_at_roof", "", [] { CHECK(cub::DeviceReduce::Sum(scratch, bytes, (const float*)A, C, (int)N)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceReduce::Sum(nullptr, bytes, (const float*)A, C, (int)N));
    CHECK(cudaMalloc(&scratch, bytes));
  }});
}
