// Calls of CUB, Thrust and cuBLAS: three whose arguments cost time, and three near a roof. cuBLAS is found at run time.
#include <dlfcn.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/transform.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include "set.h"

typedef struct cublasContext* Cublas;
static int (*product_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static Cublas cublas;
static const int F32 = 0, F64 = 1, BF16 = 14, BY_F32 = 68, BY_F64 = 70;
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
static void done(int status) {
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
// ---- library_heat: a sum of one field of records of 48 bytes, by an iterator; expected 4 times
constexpr int PROBES = 5 << 20;
struct Heat {
  const float* record;
  __host__ __device__ float operator()(int i) const { return record[i * 12ll + 7]; }
};
__global__ void pack_heat(const float* record, float* heat) {
  for (i64 i = T; i < PROBES; i += STRIDE) heat[i] = record[i * 12 + 7];
}
static void* scratch;
static size_t scratch_bytes = 16 << 20;
template <class In> static void add_up(In in, int n) { CHECK(cub::DeviceReduce::Sum(scratch, scratch_bytes, in, C, n)); }
static void open_scratch() {
  if (!scratch) CHECK(cudaMalloc(&scratch, scratch_bytes));
}
// ---- library_heads: bf16 in columns of 4097 values, so that no column but the first begins at 16 bytes; expected 2 times
constexpr int ROWS = 4096, INNER = 2048, COLUMNS = 2048;
__global__ void fill_heads(const float* a, __nv_bfloat16* out, int pitch) {
  for (i64 i = T; i < (i64)ROWS * INNER; i += STRIDE) out[i / ROWS * pitch + i % ROWS] = __float2bfloat16(a[i]);
}
static void heads(const __nv_bfloat16* a, int pitch, const __nv_bfloat16* b) {
  float one = 1, zero = 0;
  done(product_of(cublas, 0, 0, ROWS, COLUMNS, INNER, &one, a, BF16, pitch, b, BF16, INNER, &zero, C, F32, ROWS, BY_F32, -1));
}
// ---- library_response: the caller's function has literals of doubles; expected 2 times
template <class R> struct Response {
  __host__ __device__ float operator()(float x) const {
    R v = x;
    for (int k = 0; k < 12; ++k) v = v * ((R)0.7 + (R)0.2 * v) + (R)0.01;
    return (float)(v / ((R)1.0 + v * v));
  }
};
template <class R> static void respond() { thrust::transform(thrust::cuda::par_nosync, A, A + N / 2, C, Response<R>()); }

void library_cases() {
  static float* heat;
  static __nv_bfloat16 *odd, *even, *other;
  cases.push_back({"library_heat", "strided_sectors", "uncoalesced_loads", [] { add_up(thrust::make_transform_iterator(thrust::make_counting_iterator(0), Heat{A}), PROBES); }, [] { add_up(heat, PROBES); }, C, 1, false, [] {
    open_scratch(), heat = device<float>(PROBES);
    pack_heat<<<1056, 256>>>(A, heat);
  }});
  cases.push_back({"library_heads", "misaligned_base", "narrow_accesses", [] { heads(odd, ROWS + 1, other); }, [] { heads(even, ROWS, other); }, C, ROWS * COLUMNS, false, [] {
    open_cublas();
    odd = device<__nv_bfloat16>((ROWS + 1) * INNER), even = device<__nv_bfloat16>(ROWS * INNER), other = device<__nv_bfloat16>(ROWS * INNER);
    fill_heads<<<1056, 256>>>(A, odd, ROWS + 1), fill_heads<<<1056, 256>>>(A, even, ROWS), fill_heads<<<1056, 256>>>(B, other, ROWS);
  }});
  cases.push_back({"library_response", "fp64_by_accident", "", respond<double>, respond<float>, C, N / 2});
  cases.push_back({"library_total", "none_at_roof", "", [] { add_up(A, (int)N); }, nullptr, nullptr, 0, false, open_scratch});
  cases.push_back({"library_running", "none_at_roof", "", [] { CHECK(cub::DeviceScan::InclusiveSum(scratch, scratch_bytes, (int*)A, (int*)C, (int)N)); }, nullptr, nullptr, 0, false, open_scratch});
  cases.push_back({"library_orbitals", "none_at_roof", "", [] {
    double one = 1, zero = 0;
    done(product_of(cublas, 0, 1, 4096, 4096, 2048, &one, A, F64, 4096, B, F64, 4096, &zero, C, F64, 4096, BY_F64, -1));
  }, nullptr, nullptr, 0, false, open_cublas});
}
