// Calls of CUB, Thrust and cuBLAS: three whose arguments cost time, and two near what they can do. cuBLAS is found at run time.
#include <dlfcn.h>
#include <thrust/execution_policy.h>
#include <thrust/gather.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/transform.h>

#include <cub/device/device_radix_sort.cuh>

#include "set.h"

typedef struct cublasContext* Cublas;
static int (*product_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static Cublas cublas;
static const int F32 = 0, F16 = 2, BY_F32 = 68;
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
static void product(int m, int n, int k, const void* a, const void* b, int type) {
  float one = 1, zero = 0;
  int status = product_of(cublas, 0, 0, m, n, k, &one, a, type, m, b, type, k, &zero, C, F32, m, BY_F32, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
// ---- library_layer: operands of 16 bits that the caller widened to FP32; expected 5 times
__global__ void narrowed(const float* a, __half* half, float* wide, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) half[i] = __float2half(a[i] - 0.25f), wide[i] = __half2float(half[i]);
}
// ---- library_gather: a map below 2^18 in 64 bits; expected 1.4 times
template <class I> __global__ void make_map(I* map, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) map[i] = (I)((i * 5 / 4) & ((1 << 18) - 1));
}
// ---- library_fields: one field of records of 32 bytes; expected 3 times
struct Warmth {
  const float* field;
  int step;
  __host__ __device__ float operator()(int i) const { return field[(i64)i * step] * 1.8f + 32; }
};
static void warm(const float* field, int step) { thrust::transform(thrust::cuda::par_nosync, thrust::make_counting_iterator(0), thrust::make_counting_iterator(1 << 23), C, Warmth{field, step}); }
__global__ void take_field(const float* record, float* field, int n) {
  for (i64 i = T; i < n; i += STRIDE) field[i] = record[i * 8 + 5];
}

void library_cases() {
  static __half* half;
  static float *wide, *field;
  static i64* long_map;
  static int* short_map;
  static void* scratch;
  static size_t bytes = 0;
  static auto parallel = thrust::cuda::par_nosync;
  cases.push_back({"library_layer", "fp32_for_matrix", "precision", [] { product(4096, 2048, 2048, wide, wide + (1 << 23), F32); }, [] { product(4096, 2048, 2048, half, half + (1 << 23), F16); }, C, 1 << 23, false, [] {
    open_cublas();
    half = device<__half>(1 << 25), wide = device<float>(1 << 25);
    narrowed<<<1056, 256>>>(A, half, wide, 1 << 25);
  }});
  cases.push_back({"library_gather", "wide_data", "", [] { thrust::gather(parallel, long_map, long_map + (1 << 25), A, C); }, [] { thrust::gather(parallel, short_map, short_map + (1 << 25), A, C); }, C, 1 << 25, false, [] {
    long_map = device<i64>(1 << 25), short_map = device<int>(1 << 25);
    make_map<<<1056, 256>>>(long_map, 1 << 25), make_map<<<1056, 256>>>(short_map, 1 << 25);
  }});
  cases.push_back({"library_fields", "strided_sectors", "uncoalesced_loads", [] { warm(A + 5, 8); }, [] { warm(field, 1); }, C, 1 << 23, false, [] {
    field = device<float>(1 << 23);
    take_field<<<1056, 256>>>(A, field, 1 << 23);
  }});
  cases.push_back({"library_pairs", "none_at_roof", "", [] { product(8192, 4096, 4096, half, half + (1 << 25), F16); }, nullptr, nullptr, 0, false, [] {
    open_cublas();
    half = device<__half>(1 << 26), wide = device<float>(1 << 26);
    narrowed<<<1056, 256>>>(A, half, wide, 1 << 26);
  }});
  cases.push_back({"library_order", "none_at_roof", "", [] { CHECK(cub::DeviceRadixSort::SortKeys(scratch, bytes, (const unsigned*)A, (unsigned*)C, 1 << 24)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, (const unsigned*)A, (unsigned*)C, 1 << 24));
    CHECK(cudaMalloc(&scratch, bytes));
  }});
}
