// Hopper's bulk copies, barriers in shared memory and warpgroup matrix instructions, for the kernels that use them.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <utility>

constexpr int BOX = 64;  // 16-bit elements of a 128-byte swizzled row

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes initialised barriers visible to TMA.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Initialises the barriers of a ring: one thread fills a stage, `readers` arrivals empty it. Call it in one thread.
template <int STAGES>
__device__ __forceinline__ void init_ring(uint32_t full, uint32_t empty, int readers) {
  for (int stage = 0; stage < STAGES; ++stage) {
    init_barrier(full + 8 * stage, 1);
    init_barrier(empty + 8 * stage, readers);
  }
  publish_barriers();
}

// The next stage of a ring, and the phase of its barriers.
template <int STAGES>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
};

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

// Waits at the named barrier `id` for a warpgroup, or for `threads` threads. Barrier 0 is that of __syncthreads.
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

// The matrix descriptor of a 128-byte swizzled tile. Leading and stride offsets are in bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | 1ULL << 62;
}

// Call it before the first wgmma of a group, and after other code has written the group's registers.
__device__ __forceinline__ void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_multiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until only the PENDING youngest groups may still run.
template <int PENDING>
__device__ __forceinline__ void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// d (64 x N) += a (64 x 16, its rows along K) x b (16 x N). Both are in shared memory; b has rows along N (B_BY_ROWS)
// or columns along K. With `keep` 0, d = instead of d +=. A whole warpgroup calls it, after begin_multiply().
#define SUMS_8(i)                                                                                             \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
// The names of the sums, by N.
#define NAMES_N16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_N64                                                                  \
  NAMES_N16                                                                        \
  ", %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_N128                                                                   \
  NAMES_N64                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_N192                                                                   \
  NAMES_N128                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_N256                                                                               \
  NAMES_N192                                                                                     \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define MULTIPLY(N, A, B, KEEP, BY_ROWS, ...)                                                       \
  template <bool B_BY_ROWS>                                                                         \
  __device__ __forceinline__ void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, int keep) {   \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " KEEP ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
                 "k16.f32.bf16.bf16 {" NAMES_N##N "}, " A ", " B ", p, 1, 1, 0, " BY_ROWS "; }"     \
                 : __VA_ARGS__                                                                      \
                 : "l"(a), "l"(b), "r"(keep), "n"(B_BY_ROWS));                                      \
  }
MULTIPLY(16, "%8", "%9", "%10", "%11", SUMS_8(0))
MULTIPLY(64, "%32", "%33", "%34", "%35", SUMS_32(0))
MULTIPLY(128, "%64", "%65", "%66", "%67", SUMS_32(0), SUMS_32(32))
MULTIPLY(192, "%96", "%97", "%98", "%99", SUMS_32(0), SUMS_32(32), SUMS_32(64))
MULTIPLY(256, "%128", "%129", "%130", "%131", SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96))

// The same with a in registers: four pairs of bf16 per thread, in the layout of a 64 x 16 piece of sums.
template <bool B_BY_ROWS>
__device__ __forceinline__ void multiply(float (&d)[32], const uint32_t* a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_N64
               "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38; }"
               : SUMS_32(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(B_BY_ROWS));
}

#undef MULTIPLY
#undef NAMES_N16
#undef NAMES_N64
#undef NAMES_N128
#undef NAMES_N192
#undef NAMES_N256
#undef SUMS_8
#undef SUMS_32

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// The offset of 16-byte chunk `chunk` of row `row`, in swizzled rows of WIDTH bytes.
template <int WIDTH>
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return row * WIDTH + ((chunk ^ row * WIDTH / 128 % (WIDTH / 16)) << 4);
}

// Stores four 8 x 8 matrices of 16-bit elements from a warp's registers to shared memory. Lane i has the address of row
// i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t first, uint32_t second, uint32_t third,
                                               uint32_t fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(first), "r"(second),
               "r"(third), "r"(fourth)
               : "memory");
}

#endif

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time, so that nothing links to libcuda. nullptr if the driver has none.
inline EncodeTensorMap tensor_map_encoder() {
  static void* const encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
  }();
  return reinterpret_cast<EncodeTensorMap>(encoder);
}

// Sets `sm_count` to the number of SMs of the current GPU if it runs sm_90a and make_map() works, else to 0.
inline cudaError_t hopper_multiprocessors(int& sm_count) {
  int device = 0, major = 0, minor = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  for (const auto& [to, what] :
       {std::pair{&sm_count, cudaDevAttrMultiProcessorCount}, std::pair{&major, cudaDevAttrComputeCapabilityMajor},
        std::pair{&minor, cudaDevAttrComputeCapabilityMinor}})
    if (const cudaError_t status = cudaDeviceGetAttribute(to, what, device)) return status;
  if (major != 9 || minor != 0 || tensor_map_encoder() == nullptr) sm_count = 0;
  return cudaSuccess;
}

// Makes a tensor map of a row-major matrix of T (bf16 or fp32), whose rows are `pitch` elements apart, or of `planes`
// such matrices, one after the other. Boxes are `box_rows` x `box_columns`. In shared memory, rows of a box are
// swizzled if they have 32, 64 or 128 bytes. Call it only if hopper_multiprocessors() found SMs. Returns false if the
// driver refuses.
template <typename T = __nv_bfloat16>
inline bool make_map(CUtensorMap& map, const void* matrix, int rows, int columns, int pitch, uint32_t box_rows,
                     uint32_t box_columns, int planes = 0) {
  constexpr auto TYPE = std::is_same_v<T, float> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(planes)};
  const cuuint64_t strides[] = {pitch * sizeof(T), rows * (pitch * sizeof(T))};
  const cuuint32_t box[] = {box_columns, box_rows, 1}, ones[] = {1, 1, 1};
  const size_t width = box_columns * sizeof(T);
  const auto swizzle = width == 32    ? CU_TENSOR_MAP_SWIZZLE_32B
                       : width == 64  ? CU_TENSOR_MAP_SWIZZLE_64B
                       : width == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                                      : CU_TENSOR_MAP_SWIZZLE_NONE;
  return tensor_map_encoder()(&map, TYPE, planes ? 3 : 2, const_cast<void*>(matrix), sizes, strides, box, ones,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
