// Hopper's bulk copies, barriers in shared memory and warpgroup matrix instructions, for the kernels that use them.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

constexpr int BOX = 64;  // 16-bit elements of a 128-byte swizzled row

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void wait_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra READY;\n"
      "bra AGAIN;\n"
      "READY:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The threads of one warpgroup, or `threads` of several, at the named barrier `id`; 0 is that of __syncthreads.
__device__ __forceinline__ void join_named(int id, int threads = 128) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap* map, uint32_t barrier, int column, int row,
                                         int plane) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(plane)
      : "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap* map, uint32_t from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from),
               "r"(column), "r"(row)
               : "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap* map, uint32_t from, int column, int row, int plane) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row), "r"(plane)
               : "memory");
}

// Matrix descriptor of a 128-byte swizzled tile; offsets in bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | 1ULL << 62;
}

// Before the first of a group of matrix instructions, and where their registers were written.
__device__ __forceinline__ void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_multiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most PENDING groups, the youngest ones, run on.
template <int PENDING>
__device__ __forceinline__ void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// d (64 x N) += a (64 x 16, its rows along K) x b (16 x N): from shared memory, rows of b along N (B_BY_ROWS) or columns
// along K. `keep` 0: d = instead of d +=. A warpgroup together; see begin_multiply().
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
template <bool B_BY_ROWS>
__device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, %35;\n"
      "}\n"
      : SUMS_16(0), SUMS_16(16)
      : "l"(a), "l"(b), "r"(keep), "n"(B_BY_ROWS));
}

template <bool B_BY_ROWS>
__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, %67;\n"
      "}\n"
      : SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48)
      : "l"(a), "l"(b), "r"(keep), "n"(B_BY_ROWS));
}

template <bool B_BY_ROWS>
__device__ __forceinline__ void multiply(float (&d)[128], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, %131;\n"
      "}\n"
      : SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48), SUMS_16(64), SUMS_16(80), SUMS_16(96), SUMS_16(112)
      : "l"(a), "l"(b), "r"(keep), "n"(B_BY_ROWS));
}

// The same with a in registers: four pairs of bf16 a thread, as a 64 x 16 piece of sums lies in its registers.
template <bool B_BY_ROWS>
__device__ __forceinline__ void multiply(float (&d)[32], const uint32_t* a, uint64_t b, int keep) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"
      "}\n"
      : SUMS_16(0), SUMS_16(16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(B_BY_ROWS));
}

#undef SUMS_4
#undef SUMS_16

#endif

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time: no link to libcuda.
inline EncodeTensorMap find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess)
    return nullptr;
  return reinterpret_cast<EncodeTensorMap>(function);
}
