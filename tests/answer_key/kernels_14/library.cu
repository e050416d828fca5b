// cuBLAS and CUB, called badly twice and well twice. cuBLAS is opened at run time, so that the program links without it.
#include <dlfcn.h>

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_select.cuh>

#include "frame.h"

using Handle = void*;
using GemmEx = int (*)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static const int REAL32 = 0, REALBF16 = 14, IN_FP32 = 68;
struct Blas {
  Handle handle = nullptr;
  GemmEx gemm = nullptr;
  Blas() {
    void* so = nullptr;
    for (const char* file : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if ((so = dlopen(file, RTLD_NOW | RTLD_GLOBAL))) break;
    auto open = so ? (int (*)(Handle*))dlsym(so, "cublasCreate_v2") : nullptr;
    gemm = so ? (GemmEx)dlsym(so, "cublasGemmEx") : nullptr;
    if (!open || !gemm || open(&handle)) std::fprintf(stderr, "no cuBLAS here\n"), std::exit(1);
  }
};
static Blas& blas() {
  static Blas one;
  return one;
}
static void multiply(int rows, int columns, int depth, const void* x, const void* w, int type) {  // the depth contiguous in both
  const float one = 1, zero = 0;
  int status = blas().gemm(blas().handle, 1, 0, rows, columns, depth, &one, x, type, depth, w, type, depth, &zero, C, REAL32, rows, IN_FP32, -1);
  if (status) std::fprintf(stderr, "cublasGemmEx returns %d\n", status), std::exit(1);
}
__global__ void widen(const bf16* a, float* out, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) out[i] = __bfloat162float(a[i]);
}
__global__ void make_flags(i64* wide, unsigned char* narrow, int n) {
  for (int i = (int)T; i < n; i += (int)STRIDE) wide[i] = narrow[i] = (unsigned char)(mix((unsigned)i) % 8 == 0);
}
// ---- library_attention: a product of operands that hold BF16 in floats, on FP32 units; or in BF16; expected 8 times
// ---- library_survivors: the flags of a compaction as 64-bit integers beside floats; or bytes; expected 2 times
const int CANDIDATES = 1 << 24;

void library_cases() {
  static bf16* few;
  static float* wide;
  static i64* flags64;
  static unsigned char* flags8;
  static int* kept;
  static void *select_room, *least_room;
  static size_t select_bytes, least_bytes;
  cases.push_back({"library_attention", "fp32_for_matrix", "precision|wide_data", [] { multiply(2048, 2048, 1024, wide, wide + (1 << 22), REAL32); }, [] { multiply(2048, 2048, 1024, few, few + (1 << 22), REALBF16); }, C, 1 << 22, false, [] {
    blas();
    few = recoded<bf16>(A, 1 << 23, 0.25f), wide = device<float>(1 << 23);
    widen<<<1056, 256>>>(few, wide, 1 << 23);
  }});
  cases.push_back({"library_survivors", "wide_data", "precision", [] { CHECK(cub::DeviceSelect::Flagged(select_room, select_bytes, (const float*)A, flags64, C, kept, CANDIDATES)); }, [] { CHECK(cub::DeviceSelect::Flagged(select_room, select_bytes, (const float*)A, flags8, C, kept, CANDIDATES)); }, C, 1 << 20, false, [] {
    flags64 = device<i64>(CANDIDATES), flags8 = device<unsigned char>(CANDIDATES), kept = device<int>(1);
    make_flags<<<1056, 256>>>(flags64, flags8, CANDIDATES);
    size_t other = 0;
    CHECK(cub::DeviceSelect::Flagged(nullptr, select_bytes, (const float*)A, flags64, C, kept, CANDIDATES));
    CHECK(cub::DeviceSelect::Flagged(nullptr, other, (const float*)A, flags8, C, kept, CANDIDATES));
    select_bytes = std::max(select_bytes, other);
    CHECK(cudaMalloc(&select_room, select_bytes));
  }});
  cases.push_back({"library_experts_up", "none_at_roof", "", [] { multiply(8192, 4096, 2048, few, few + (1 << 24), REALBF16); }, nullptr, nullptr, 0, false, [] {
    blas();
    few = recoded<bf16>(A, 3 << 23, 0.25f);
  }});
  cases.push_back({"library_lowest", "none_at_roof", "", [] { CHECK(cub::DeviceReduce::Min(least_room, least_bytes, (const float*)A, C, (int)N)); }, nullptr, nullptr, 0, false, [] {
    CHECK(cub::DeviceReduce::Min(nullptr, least_bytes, (const float*)A, C, (int)N));
    CHECK(cudaMalloc(&least_room, least_bytes));
  }});
}
