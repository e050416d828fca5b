// Calls of CUB and cuBLAS: four whose arguments cost time, and three near what they can do. cuBLAS is found at run time.
#include <dlfcn.h>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>

#include "set.h"

typedef struct cublasContext* Cublas;
static int (*products_of)(Cublas, int, int, int, int, int, const void*, const void*, int, int, i64, const void*, int, int, i64, const void*, void*, int, int, i64, int, int, int);
static Cublas cublas;
static const int F32 = 0, F16 = 2, BF16 = 14, BY_F32 = 68, BY_TF32 = 77;
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
static void product(int m, int n, int k, const void* a, int lda, const void* b, int type, int ldc, int by) {  // into floats at C
  float one = 1, zero = 0;
  int status = products_of(cublas, 0, 0, m, n, k, &one, a, type, lda, 0, b, type, k, 0, &zero, C, F32, ldc, 0, 1, by, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
template <class X> __global__ void narrow_values(const float* a, X* out, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) out[i] = X(a[i] - 0.25f);
}
__global__ void set_pitch(const __nv_bfloat16* a, __nv_bfloat16* out, int rows, int from, int to, int columns) {
  for (int i = (int)T; i < rows * columns; i += (int)STRIDE) out[i / rows * to + i % rows] = a[i / rows * from + i % rows];
}
__global__ void make_keys(u64* wide, unsigned* narrow, int* place, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = mix((unsigned)i) >> 8, place[i] = i;
}
// ---- library_embeddings: a product of floats without TF32; or with it; expected 5 times
// ---- library_vocabulary: a matrix of BF16 whose columns have 4097 elements; or a pitch of 4104; expected 2 times
const int WORDS = 4097, ROOM = 4104;
// ---- library_catalogue: pairs sorted by keys of 64 bits, of which 24 count; or of 32 bits; expected 2.5 times
const int RECORDS = 1 << 23;
// ---- library_hubs: a sum of each segment, and so a block a segment, one of which has 4,194,304 elements and the others 256; or that one in 4,096 parts; expected 10 times
const int HUB = 1 << 22, PARTS = 4096, OTHERS = 4096, FEW = 256;

void library_cases() {
  static __nv_bfloat16 *values, *odd, *even;
  static __half* halves;
  static u64 *wide, *wide_sorted;
  static unsigned *narrow, *narrow_sorted;
  static int *places, *segments, *parts, *totals;
  static float* middle;
  static void *scratch, *room, *some;
  static size_t bytes = 0, taken = 0, needed = 8 << 20;
  cases.push_back({"library_embeddings", "fp32_for_matrix", "precision", [] { product(2048, 2048, 2048, A, 2048, B, F32, 2048, BY_F32); }, [] { product(2048, 2048, 2048, A, 2048, B, F32, 2048, BY_TF32); }, C, 1 << 22, false, open_cublas});
  cases.push_back({"library_vocabulary", "misaligned_base", "alignment|narrow_accesses", [] { product(WORDS, 4096, 1024, odd, WORDS, values, BF16, ROOM, BY_F32); }, [] { product(WORDS, 4096, 1024, even, ROOM, values, BF16, ROOM, BY_F32); }, C, ROOM * 4096, false, [] {
    open_cublas();
    values = device<__nv_bfloat16>(1 << 22), odd = device<__nv_bfloat16>(WORDS * 1024), even = device<__nv_bfloat16>(ROOM * 1024);
    narrow_values<<<1056, 256>>>(A, values, 1 << 22);
    narrow_values<<<1056, 256>>>(B, even, ROOM * 1024);
    set_pitch<<<1056, 256>>>(even, odd, WORDS, ROOM, WORDS, 1024);
  }});
  cases.push_back({"library_catalogue", "wide_data", "precision", [] { CHECK(cub::DeviceRadixSort::SortPairs(room, taken, wide, wide_sorted, places, (int*)C, RECORDS)); }, [] { CHECK(cub::DeviceRadixSort::SortPairs(room, taken, narrow, narrow_sorted, places, (int*)C, RECORDS)); }, C, RECORDS, true, [] {
    wide = device<u64>(RECORDS), wide_sorted = device<u64>(RECORDS), narrow = device<unsigned>(RECORDS), narrow_sorted = device<unsigned>(RECORDS), places = device<int>(RECORDS);
    make_keys<<<1056, 256>>>(wide, narrow, places, RECORDS);
    CHECK(cub::DeviceRadixSort::SortPairs(nullptr, taken, wide, wide_sorted, places, (int*)C, RECORDS));
    CHECK(cudaMalloc(&room, taken));
  }});
  cases.push_back({"library_hubs", "uneven_blocks", "tail_effect", [] { CHECK(cub::DeviceSegmentedReduce::Sum(some, needed, (const float*)A, C, OTHERS + 1, segments, segments + 1)); }, [] {
    CHECK(cub::DeviceSegmentedReduce::Sum(some, needed, (const float*)A, middle, PARTS + OTHERS, parts, parts + 1));
    CHECK(cub::DeviceSegmentedReduce::Sum(some, needed, (const float*)middle, C, OTHERS + 1, totals, totals + 1));
  }, C, OTHERS + 1, false, [] {
    std::vector<int> all(OTHERS + 2), split(PARTS + OTHERS + 1), last(OTHERS + 2);
    for (int k = 1; k <= OTHERS + 1; ++k) all[k] = HUB + (k - 1) * FEW, last[k] = PARTS + k - 1;
    for (int k = 0; k <= PARTS + OTHERS; ++k) split[k] = k < PARTS ? k * (HUB / PARTS) : HUB + (k - PARTS) * FEW;
    segments = upload(all), parts = upload(split), totals = upload(last), middle = device<float>(PARTS + OTHERS);
    CHECK(cudaMalloc(&some, needed));
  }});
  cases.push_back({"library_halves", "none_at_roof", "", [] { product(8192, 8192, 4096, halves, 8192, halves + (1 << 25), F16, 8192, BY_F32); }, nullptr, nullptr, 0, false, [] {
    open_cublas();
    halves = device<__half>(1 << 26);
    narrow_values<<<1056, 256>>>(A, halves, 1 << 26);
  }});
  cases.push_back({"library_least", "none_at_roof", "", [] { CHECK(cub::DeviceReduce::Min(scratch, bytes, (const float*)A, C, (int)N)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceReduce::Min(nullptr, bytes, (const float*)A, C, (int)N));
    CHECK(cudaMalloc(&scratch, bytes));
  }});
  cases.push_back({"library_few", "launch_latency", "", [] { product(64, 64, 64, values, 64, values + 4096, BF16, 64, BY_F32); }, nullptr, nullptr, 0, false, [] {
    open_cublas();
    values = device<__nv_bfloat16>(1 << 22);
    narrow_values<<<1056, 256>>>(A, values, 1 << 22);
  }});
}
