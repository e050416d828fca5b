// What the wgmma rungs of matmul_fp8 share: products of e4m3 and how a tile is written.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "check.cuh"
#include "hopper.cuh"
#include "matmul_fp8.h"
#include "overlap_shared.cuh"
#include "tile_order.cuh"

constexpr int BK = 128;  // bytes of a step in K, a swizzled row

// A map of an e4m3 matrix, in boxes of `rows` x 128 bytes. TMA copies pairs of elements as if they were bf16.
inline bool make_fp8_map(CUtensorMap& map, const void* matrix, int rows, int k, uint32_t box_rows) {
  return make_map(map, matrix, rows, k / 2, k / 2, box_rows, BOX);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SUMS_8(i)                                                                                             \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define NAMES_32                                                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_44 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43"
#define NAMES_48 NAMES_44 ", %44, %45, %46, %47"
#define NAMES_64 \
  NAMES_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_88                                                                                                \
  NAMES_64                                                                                                      \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87"
#define NAMES_96 NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_128                                                                                              \
  NAMES_96                                                                                                     \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// d (64 x N) += a (64 x 32) x b (N x 32)^T, e4m3 in shared memory, K contiguous in both. With `keep` 0, d = instead of
// d +=. A whole warpgroup calls it, after begin_multiply(). The tensor cores keep about 14 bits of a sum: each product
// and the sum so far lose what is below 2^-13 of the largest of them.
__device__ __forceinline__ void multiply_fp8(float (&d)[64], uint64_t a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" NAMES_64
               "}, %64, %65, p, 1, 1; }"
               : SUMS_64(0)
               : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply_fp8(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" NAMES_32
               "}, %32, %33, p, 1, 1; }"
               : SUMS_32(0)
               : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply_fp8(float (&d)[44], uint64_t a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %46, 0; wgmma.mma_async.sync.aligned.m64n88k32.f32.e4m3.e4m3 {" NAMES_44
               "}, %44, %45, p, 1, 1; }"
               : SUMS_32(0), SUMS_8(32), SUMS_4(40)
               : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply_fp8(float (&d)[48], uint64_t a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %50, 0; wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3 {" NAMES_48
               "}, %48, %49, p, 1, 1; }"
               : SUMS_32(0), SUMS_8(32), SUMS_8(40)
               : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply_fp8(float (&d)[88], uint64_t a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %90, 0; wgmma.mma_async.sync.aligned.m64n176k32.f32.e4m3.e4m3 {" NAMES_88
               "}, %88, %89, p, 1, 1; }"
               : SUMS_64(0), SUMS_8(64), SUMS_8(72), SUMS_8(80)
               : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply_fp8(float (&d)[96], uint64_t a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {" NAMES_96
               "}, %96, %97, p, 1, 1; }"
               : SUMS_64(0), SUMS_32(64)
               : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply_fp8(float (&d)[128], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" NAMES_128
      "}, %128, %129, p, 1, 1; }"
      : SUMS_64(0), SUMS_64(64)
      : "l"(a), "l"(b), "r"(keep));
}

// multiply_fp8() with `keep` 0, for the compiler: what `d` held before is not read.
#define FRESH_8(i)                                                                                            \
  "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), "=f"(d[i + 6]), \
      "=f"(d[i + 7])
#define FRESH_4(i) "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define FRESH_32(i) FRESH_8(i), FRESH_8(i + 8), FRESH_8(i + 16), FRESH_8(i + 24)
#define FRESH_48(i) FRESH_32(i), FRESH_8(i + 32), FRESH_8(i + 40)
__device__ __forceinline__ void multiply_fresh(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" NAMES_32
               "}, %32, %33, p, 1, 1; }"
               : FRESH_32(0)
               : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_fresh(float (&d)[44], uint64_t a, uint64_t b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n88k32.f32.e4m3.e4m3 {" NAMES_44
               "}, %44, %45, p, 1, 1; }"
               : FRESH_32(0), FRESH_8(32), FRESH_4(40)
               : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_fresh(float (&d)[48], uint64_t a, uint64_t b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3 {" NAMES_48
               "}, %48, %49, p, 1, 1; }"
               : FRESH_48(0)
               : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_fresh(float (&d)[96], uint64_t a, uint64_t b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {" NAMES_96
               "}, %96, %97, p, 1, 1; }"
               : FRESH_48(0), FRESH_48(48)
               : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_fresh(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" NAMES_64
               "}, %64, %65, p, 1, 1; }"
               : FRESH_48(0), FRESH_8(48), FRESH_8(56)
               : "l"(a), "l"(b));
}
#undef FRESH_48
#undef FRESH_32
#undef FRESH_8
#undef FRESH_4

#undef NAMES_32
#undef NAMES_44
#undef NAMES_48
#undef NAMES_64
#undef NAMES_88
#undef NAMES_96
#undef NAMES_128
#undef SUMS_32
#undef SUMS_8
#undef SUMS_4
#undef SUMS_64

// The descriptor of rows of 128 bytes, swizzled, at `address`; and of those that are `bytes` further on: one addition,
// where a new descriptor takes four dependent instructions.
__device__ __forceinline__ uint64_t rows_at(uint32_t address) { return descriptor(address, 16, 1024); }

__device__ __forceinline__ uint64_t advanced(uint64_t rows, uint32_t bytes) {
  return (rows & 0xFFFFFFFF00000000ULL) | (static_cast<uint32_t>(rows) + (bytes >> 4));
}

// Four products, or those from FIRST to END: 64 rows of `a` x N rows of `b`, 128 deep.
template <int FIRST = 0, int END = BK / 32, int SUMS>
__device__ __forceinline__ void multiply_step(float (&d)[SUMS], uint64_t a, uint64_t b, bool keep) {
#pragma unroll
  for (int part = FIRST; part < END; ++part)
    multiply_fp8(d, advanced(a, part * 32), advanced(b, part * 32), keep || part > 0);
}

// The first column of piece `piece` of a tile. Of a width that 64 does not divide, the last two pieces overlap.
template <int BN>
constexpr __device__ int piece_column(int piece) {
  return piece * 64 + 64 <= BN ? piece * 64 : BN - 64;
}

template <int BN>
constexpr int PIECES = (BN + 63) / 64;

// Copies a thread's 16 pairs of bf16, of 64 columns of a warpgroup's 64 rows, to `to`, swizzled as TMA expects.
__device__ __forceinline__ void stage_piece(uint32_t to, const uint32_t* rounded) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 4; ++j)  // 16 columns. Matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15
    store_matrices(to + swizzled<128>(warp * 16 + lane % 8 + lane / 8 % 2 * 8, j * 2 + lane / 16), rounded[j * 4],
                   rounded[j * 4 + 1], rounded[j * 4 + 2], rounded[j * 4 + 3]);
}

// Writes 64 columns, from `column` on, of a warpgroup's 64 rows, as piece `piece`, through one of BUFFERS places of 64 x
// 64 outputs at `staged`. `rounded` are a thread's 16 pairs of bf16.
// Nothing has been in the places of a block's last tile.
template <int BN, int BUFFERS, bool LAST = false>
__device__ __forceinline__ void write_piece(const CUtensorMap* out, uint32_t staged, const uint32_t* rounded, int piece,
                                            int row, int column, int m, int n) {
  const int thread = threadIdx.x % 128, barrier = 1 + threadIdx.x / 128;
  const uint32_t to = staged + piece % BUFFERS * 64 * 128;
  // the next tile's first piece may have the place of this one's last
  constexpr int PENDING = PIECES<BN> % BUFFERS == 0 ? BUFFERS - 1 : 0;
  if constexpr (!LAST) {
    if (thread == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
    join_named(barrier);
  }
  stage_piece(to, rounded);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  join_named(barrier);
  if (thread == 0) {
    if (row < m && column < n) store_box(out, to, column, row);
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
}

// Writes the 64 x BN outputs of a warpgroup.
template <int BN, int BUFFERS, bool LAST = false>
__device__ __forceinline__ void write_tile(const CUtensorMap* out, uint32_t staged, const float* sums, float scale,
                                           int row, int column, int m, int n) {
#pragma unroll
  for (int piece = 0; piece < PIECES<BN>; ++piece) {
    const int from = piece_column<BN>(piece);
    uint32_t rounded[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float* pair = sums + from / 2 + i * 2;
      rounded[i] = pack(pair[0] * scale, pair[1] * scale);
    }
    write_piece<BN, BUFFERS, LAST>(out, staged, rounded, piece, row, column + from, m, n);
  }
}

#endif
