// Library kernels called badly, and one called well. cuBLAS is found at run time: it needs neither its headers nor a link.
#include <dlfcn.h>

#include "set.h"

typedef struct cublasContext* Handle;
static int (*gemm_ex)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int);
static int (*gemm_strided)(Handle, int, int, int, int, int, const void*, const void*, int, int, i64, const void*, int, int, i64, const void*, void*, int, int, i64, int, int, int);
static Handle handle;
static const int R32F = 0, R16F = 2, COMPUTE_32F = 68, COMPUTE_32F_TF32 = 77, N_ = 0, T_ = 1;

static void open_library() {
  if (handle) return;
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) { std::fprintf(stderr, "%s\n", dlerror()); std::exit(1); }
  auto create = (int (*)(Handle*))dlsym(library, "cublasCreate_v2");
  gemm_ex = (decltype(gemm_ex))dlsym(library, "cublasGemmEx");
  gemm_strided = (decltype(gemm_strided))dlsym(library, "cublasGemmStridedBatchedEx");
  if (!create || !gemm_ex || !gemm_strided || create(&handle)) { std::fprintf(stderr, "cuBLAS does not start\n"); std::exit(1); }
}
static void gemm(int type, int compute, int m, int n, int k, const void* a, int lda, const void* b, int ldb, void* c, int ldc, int ta = N_) {
  float one = 1, zero = 0;
  int status = gemm_ex(handle, ta, N_, m, n, k, &one, a, type, lda, b, type, ldb, &zero, c, type, ldc, compute, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
static void gemms(int type, int compute, int m, int n, int k, const void* a, i64 sa, const void* b, i64 sb, void* c, i64 sc, int count) {
  float one = 1, zero = 0;
  int status = gemm_strided(handle, N_, N_, m, n, k, &one, a, type, m, sa, b, type, k, sb, &zero, c, type, m, sc, count, compute, -1);
  if (status) { std::fprintf(stderr, "cuBLAS: status %d\n", status); std::exit(1); }
}
static __half *ha, *hb, *hc;
__global__ void fill_halves(__half* a, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = __float2half((int)(mix((uint32_t)i) & 7) * 0.125f - 0.4f);
}
static void halves() {
  open_library();
  if (ha) return;
  const i64 n = 8200 * 8200;
  ha = device<__half>(n), hb = device<__half>(n), hc = device<__half>(n);
  fill_halves<<<2112, 256>>>(ha, n), fill_halves<<<2112, 256>>>(hb, n);
}

void library_cases() {
  cases.push_back({"library_fp32", "precision", "fp32_for_matrix", [] { gemm(R32F, COMPUTE_32F, 4096, 4096, 4096, A, 4096, B, 4096, C, 4096); }, [] { gemm(R32F, COMPUTE_32F_TF32, 4096, 4096, 4096, A, 4096, B, 4096, C, 4096); }, C, 1 << 20, false, open_library});
  cases.push_back({"library_odd_pitch", "misaligned_base", "narrow_accesses", [] { gemm(R16F, COMPUTE_32F, 4096, 4096, 4096, ha, 4099, hb, 4099, hc, 4099); }, [] { gemm(R16F, COMPUTE_32F, 4096, 4096, 4096, ha, 4104, hb, 4104, hc, 4104); }, nullptr, 0, false, halves});
  cases.push_back({"library_loop", "grid_too_small", "launch_latency", [] {
    for (int k = 0; k < (PROFILED ? 1 : 64); ++k) gemm(R32F, COMPUTE_32F, 128, 128, 256, A + k * 32768, 128, B + k * 32768, 256, C + k * 16384, 128);
  }, [] { gemms(R32F, COMPUTE_32F, 128, 128, 256, A, 32768, B, 32768, C, 16384, 64); }, C, 1 << 20, false, open_library});
  cases.push_back({"library_half", "none_at_roof", "", [] { gemm(R16F, COMPUTE_32F, 8192, 8192, 8192, ha, 8192, hb, 8192, hc, 8192, T_); }, nullptr, nullptr, 0, false, halves});
}
