// What the clean specimens of both halves share: cuBLAS, loaded when it is needed, so that nothing is linked to it.
#pragma once

#include <dlfcn.h>

#include "specimen.cuh"

namespace specimens {

enum : int { CUBLAS_TURN = 1, CUBLAS_KEEP = 0, CUBLAS_FP32 = 68, CUBLAS_DEFAULT = -1 };  // values of cublas_api.h

// c = a b in column-major order, both n x n of `type` (cudaDataType), c too, sums in FP32.
inline void cublas_square(const void* a, const void* b, void* c, int n, cudaDataType_t type) {
  using Create = int (*)(void**);
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, cudaDataType_t, int, const void*,
                       cudaDataType_t, int, const void*, void*, cudaDataType_t, int, int, int);
  static void *library = nullptr, *handle = nullptr;
  static Gemm gemm = nullptr;
  if (!gemm) {
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if (!library) library = dlopen(name, RTLD_NOW);
    if (!library) {
      std::fprintf(stderr, "libcublas.so.13 is on no library path: set LD_LIBRARY_PATH\n");
      std::exit(1);
    }
    if (reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"))(&handle)) std::exit(1);
    gemm = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
  }
  const float one = 1, zero = 0;
  if (gemm(handle, CUBLAS_KEEP, CUBLAS_KEEP, n, n, n, &one, a, type, n, b, type, n, &zero, c, type, n, CUBLAS_FP32,
           CUBLAS_DEFAULT)) {
    std::fprintf(stderr, "cublasGemmEx failed\n");
    std::exit(1);
  }
}

}  // namespace specimens
