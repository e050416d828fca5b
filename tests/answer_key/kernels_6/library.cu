// Calls of CUB and cuBLAS whose arguments cost time, and one of 8-bit integers that costs none. cuBLAS is found at run time.
#include <dlfcn.h>

#if __has_include(<cub/device/device_segmented_reduce.cuh>)
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#define HAS_CUB
#endif

#include "set.h"

typedef struct cublasContext* Cublas;
static int (*product_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static int (*copy_of)(Cublas, int, const float*, int, float*, int);
static Cublas cublas;
static const int F32 = 0, I8 = 3, I32 = 10, BY_F32 = 68, BY_I32 = 72, BY_TF32 = 77;

static void open_cublas() {
  if (cublas) return;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) { std::fprintf(stderr, "%s\n", dlerror()); std::exit(1); }
  auto create = (int (*)(Cublas*))dlsym(library, "cublasCreate_v2");
  product_of = (decltype(product_of))dlsym(library, "cublasGemmEx"), copy_of = (decltype(copy_of))dlsym(library, "cublasScopy_v2");
  if (!create || !product_of || !copy_of || create(&cublas)) { std::fprintf(stderr, "cuBLAS does not start\n"); std::exit(1); }
}
static void done(int status) {
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
// ---- library_tokens: FP32 without leave to use TF32; expected 4 times
static void tokens(int by) {
  float one = 1, zero = 0;
  done(product_of(cublas, 0, 0, 8192, 2048, 1024, &one, A, F32, 8192, B, F32, 1024, &zero, C, F32, 8192, by, -1));
}
// ---- library_column: a column of a matrix with 16 columns, copied as a vector of that increment; expected 4 times
constexpr int MANY = 1 << 22, STEP = 16;
__global__ void pack_column(const float* a, float* out) {
  for (i64 i = T; i < MANY; i += STRIDE) out[i] = a[i * STEP];
}
// ---- library_segments: a block a segment, and there are eight segments of eight million; expected 3 times
constexpr int SEGMENTS = 8, EACH = 1 << 23;
#ifdef HAS_CUB
static void *scratch, *scratch_of_one;
static size_t bytes, bytes_of_one;
static int* offsets;
static void segments() { CHECK(cub::DeviceSegmentedReduce::Sum(scratch, bytes, A, C, SEGMENTS, offsets, offsets + 1)); }
static void one_by_one() {
  for (int k = 0; k < SEGMENTS; ++k) CHECK(cub::DeviceReduce::Sum(scratch_of_one, bytes_of_one, A + (i64)k * EACH, C + k, EACH));
}
#endif

void library_cases() {
  static float* column;
  cases.push_back({"library_tokens", "fp32_for_matrix", "precision", [] { tokens(BY_F32); }, [] { tokens(BY_TF32); }, C, 8192 * 2048, false, open_cublas});
  cases.push_back({"library_column", "strided_sectors", "uncoalesced_loads", [] { done(copy_of(cublas, MANY, A, STEP, C, 1)); }, [] { done(copy_of(cublas, MANY, column, 1, C, 1)); }, C, MANY, false, [] {
    open_cublas();
    column = device<float>(MANY);
    pack_column<<<1056, 256>>>(A, column);
  }});
#ifdef HAS_CUB
  cases.push_back({"library_segments", "grid_too_small", "", segments, one_by_one, C, SEGMENTS, false, [] {
    std::vector<int> v;
    for (int k = 0; k <= SEGMENTS; ++k) v.push_back(k * EACH);
    offsets = upload(v);
    segments(), one_by_one();  // without scratch, both only say how much they need
    CHECK(cudaMalloc(&scratch, bytes + 1));
    CHECK(cudaMalloc(&scratch_of_one, bytes_of_one + 1));
  }});
#endif
  cases.push_back({"library_int8", "none_at_roof", "", [] {
    int one = 1, zero = 0;
    done(product_of(cublas, 1, 0, 8192, 4096, 8192, &one, A, I8, 8192, B, I8, 8192, &zero, C, I32, 8192, BY_I32, -1));
  }, nullptr, nullptr, 0, false, open_cublas});
}
