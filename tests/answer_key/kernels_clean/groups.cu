// Roofs of tensor cores by products of warp groups (wgmma) from shared memory. Only sm_90a has these instructions: `capture.py kernels_clean --arch sm_90a`.
#include "frame.h"

#ifdef WARP_GROUPS
// ---- products of a warp group: rows of 128 bytes, swizzled in groups of eight; a and b are descriptors of tiles in shared memory
__device__ inline u64 tile_at(const void* p) { return (u64)(place(p) >> 4 & 0x3fff) | (u64)64 << 32 | (u64)1 << 62 | (u64)1 << 16; }
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
__device__ inline void wide_bf16(float (&s)[128], u64 a, u64 b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p, 1, 1, 0, 0; }"
               : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]), "+f"(s[32]), "+f"(s[33]), "+f"(s[34]), "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]), "+f"(s[40]), "+f"(s[41]), "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47]), "+f"(s[48]), "+f"(s[49]), "+f"(s[50]), "+f"(s[51]), "+f"(s[52]), "+f"(s[53]), "+f"(s[54]), "+f"(s[55]), "+f"(s[56]), "+f"(s[57]), "+f"(s[58]), "+f"(s[59]), "+f"(s[60]), "+f"(s[61]), "+f"(s[62]), "+f"(s[63]), "+f"(s[64]), "+f"(s[65]), "+f"(s[66]), "+f"(s[67]), "+f"(s[68]), "+f"(s[69]), "+f"(s[70]), "+f"(s[71]), "+f"(s[72]), "+f"(s[73]), "+f"(s[74]), "+f"(s[75]), "+f"(s[76]), "+f"(s[77]), "+f"(s[78]), "+f"(s[79]), "+f"(s[80]), "+f"(s[81]), "+f"(s[82]), "+f"(s[83]), "+f"(s[84]), "+f"(s[85]), "+f"(s[86]), "+f"(s[87]), "+f"(s[88]), "+f"(s[89]), "+f"(s[90]), "+f"(s[91]), "+f"(s[92]), "+f"(s[93]), "+f"(s[94]), "+f"(s[95]), "+f"(s[96]), "+f"(s[97]), "+f"(s[98]), "+f"(s[99]), "+f"(s[100]), "+f"(s[101]), "+f"(s[102]), "+f"(s[103]), "+f"(s[104]), "+f"(s[105]), "+f"(s[106]), "+f"(s[107]), "+f"(s[108]), "+f"(s[109]), "+f"(s[110]), "+f"(s[111]), "+f"(s[112]), "+f"(s[113]), "+f"(s[114]), "+f"(s[115]), "+f"(s[116]), "+f"(s[117]), "+f"(s[118]), "+f"(s[119]), "+f"(s[120]), "+f"(s[121]), "+f"(s[122]), "+f"(s[123]), "+f"(s[124]), "+f"(s[125]), "+f"(s[126]), "+f"(s[127])
               : "l"(a), "l"(b));
}

__device__ inline void wide_fp8(float (&s)[128], u64 a, u64 b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p, 1, 1; }"
               : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]), "+f"(s[32]), "+f"(s[33]), "+f"(s[34]), "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]), "+f"(s[40]), "+f"(s[41]), "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47]), "+f"(s[48]), "+f"(s[49]), "+f"(s[50]), "+f"(s[51]), "+f"(s[52]), "+f"(s[53]), "+f"(s[54]), "+f"(s[55]), "+f"(s[56]), "+f"(s[57]), "+f"(s[58]), "+f"(s[59]), "+f"(s[60]), "+f"(s[61]), "+f"(s[62]), "+f"(s[63]), "+f"(s[64]), "+f"(s[65]), "+f"(s[66]), "+f"(s[67]), "+f"(s[68]), "+f"(s[69]), "+f"(s[70]), "+f"(s[71]), "+f"(s[72]), "+f"(s[73]), "+f"(s[74]), "+f"(s[75]), "+f"(s[76]), "+f"(s[77]), "+f"(s[78]), "+f"(s[79]), "+f"(s[80]), "+f"(s[81]), "+f"(s[82]), "+f"(s[83]), "+f"(s[84]), "+f"(s[85]), "+f"(s[86]), "+f"(s[87]), "+f"(s[88]), "+f"(s[89]), "+f"(s[90]), "+f"(s[91]), "+f"(s[92]), "+f"(s[93]), "+f"(s[94]), "+f"(s[95]), "+f"(s[96]), "+f"(s[97]), "+f"(s[98]), "+f"(s[99]), "+f"(s[100]), "+f"(s[101]), "+f"(s[102]), "+f"(s[103]), "+f"(s[104]), "+f"(s[105]), "+f"(s[106]), "+f"(s[107]), "+f"(s[108]), "+f"(s[109]), "+f"(s[110]), "+f"(s[111]), "+f"(s[112]), "+f"(s[113]), "+f"(s[114]), "+f"(s[115]), "+f"(s[116]), "+f"(s[117]), "+f"(s[118]), "+f"(s[119]), "+f"(s[120]), "+f"(s[121]), "+f"(s[122]), "+f"(s[123]), "+f"(s[124]), "+f"(s[125]), "+f"(s[126]), "+f"(s[127])
               : "l"(a), "l"(b));
}

__device__ inline void half_fp16(unsigned (&s)[64], u64 a, u64 b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0; }"
               : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3]), "+r"(s[4]), "+r"(s[5]), "+r"(s[6]), "+r"(s[7]), "+r"(s[8]), "+r"(s[9]), "+r"(s[10]), "+r"(s[11]), "+r"(s[12]), "+r"(s[13]), "+r"(s[14]), "+r"(s[15]), "+r"(s[16]), "+r"(s[17]), "+r"(s[18]), "+r"(s[19]), "+r"(s[20]), "+r"(s[21]), "+r"(s[22]), "+r"(s[23]), "+r"(s[24]), "+r"(s[25]), "+r"(s[26]), "+r"(s[27]), "+r"(s[28]), "+r"(s[29]), "+r"(s[30]), "+r"(s[31]), "+r"(s[32]), "+r"(s[33]), "+r"(s[34]), "+r"(s[35]), "+r"(s[36]), "+r"(s[37]), "+r"(s[38]), "+r"(s[39]), "+r"(s[40]), "+r"(s[41]), "+r"(s[42]), "+r"(s[43]), "+r"(s[44]), "+r"(s[45]), "+r"(s[46]), "+r"(s[47]), "+r"(s[48]), "+r"(s[49]), "+r"(s[50]), "+r"(s[51]), "+r"(s[52]), "+r"(s[53]), "+r"(s[54]), "+r"(s[55]), "+r"(s[56]), "+r"(s[57]), "+r"(s[58]), "+r"(s[59]), "+r"(s[60]), "+r"(s[61]), "+r"(s[62]), "+r"(s[63])
               : "l"(a), "l"(b));
}

__device__ inline void half_int8(int (&s)[64], u64 a, u64 b) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p; }"
               : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3]), "+r"(s[4]), "+r"(s[5]), "+r"(s[6]), "+r"(s[7]), "+r"(s[8]), "+r"(s[9]), "+r"(s[10]), "+r"(s[11]), "+r"(s[12]), "+r"(s[13]), "+r"(s[14]), "+r"(s[15]), "+r"(s[16]), "+r"(s[17]), "+r"(s[18]), "+r"(s[19]), "+r"(s[20]), "+r"(s[21]), "+r"(s[22]), "+r"(s[23]), "+r"(s[24]), "+r"(s[25]), "+r"(s[26]), "+r"(s[27]), "+r"(s[28]), "+r"(s[29]), "+r"(s[30]), "+r"(s[31]), "+r"(s[32]), "+r"(s[33]), "+r"(s[34]), "+r"(s[35]), "+r"(s[36]), "+r"(s[37]), "+r"(s[38]), "+r"(s[39]), "+r"(s[40]), "+r"(s[41]), "+r"(s[42]), "+r"(s[43]), "+r"(s[44]), "+r"(s[45]), "+r"(s[46]), "+r"(s[47]), "+r"(s[48]), "+r"(s[49]), "+r"(s[50]), "+r"(s[51]), "+r"(s[52]), "+r"(s[53]), "+r"(s[54]), "+r"(s[55]), "+r"(s[56]), "+r"(s[57]), "+r"(s[58]), "+r"(s[59]), "+r"(s[60]), "+r"(s[61]), "+r"(s[62]), "+r"(s[63])
               : "l"(a), "l"(b));
}

// Two warp groups a block, one block an SM: each keeps 64 rows of its own, and both share the columns.
__device__ inline void fill_tiles(unsigned char* tiles, const uint4* from, int bytes) {
  for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x) ((uint4*)tiles)[i] = from[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
// at the roof of tensor cores, because each product of 64 x 256 x 16 BF16 takes 128 cycles, and two warp groups alternate
__global__ void __launch_bounds__(256, 1) correlate_whale_songs(const uint4* a, float* out, int steps) {
  __shared__ __align__(1024) unsigned char tiles[48 << 10];
  fill_tiles(tiles, a, 48 << 10);
  u64 own = tile_at(tiles + (threadIdx.x / 128) * 8192), all = tile_at(tiles + 16384);
  float s[128] = {};
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    begin_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) wide_bf16(s, own + (k & 3) * 2, all + (k & 3) * 2);
    end_products();
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 128; ++k) sum += s[k];
  out[T] = sum;
}
// at the roof of tensor cores, because each product of 64 x 256 x 32 FP8 takes 128 cycles, and two warp groups alternate
__global__ void __launch_bounds__(256, 1) rank_movie_tastes(const uint4* a, float* out, int steps) {
  __shared__ __align__(1024) unsigned char tiles[48 << 10];
  fill_tiles(tiles, a, 48 << 10);
  u64 own = tile_at(tiles + (threadIdx.x / 128) * 8192), all = tile_at(tiles + 16384);
  float s[128] = {};
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    begin_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) wide_fp8(s, own + (k & 3) * 2, all + (k & 3) * 2);
    end_products();
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 128; ++k) sum += s[k];
  out[T] = sum;
}
// at the roof of tensor cores, because each product of 64 x 256 x 16 halves takes 128 cycles, and four warp groups alternate
__global__ void __launch_bounds__(512, 1) compare_leaf_shapes(const uint4* a, float2* out, int steps) {
  extern __shared__ __align__(1024) unsigned char tiles[];  // 64 kB
  fill_tiles(tiles, a, 64 << 10);
  u64 own = tile_at(tiles + (threadIdx.x / 128) * 8192), all = tile_at(tiles + 32768);
  unsigned s[64] = {};
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    begin_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) half_fp16(s, own + (k & 3) * 2, all + (k & 3) * 2);
    end_products();
  }
  __half2 sum = __float2half2_rn(0.0f);
#pragma unroll
  for (int k = 0; k < 64; ++k) sum = __hadd2(sum, *(__half2*)&s[k]);
  out[T] = __half22float2(sum);
}
// at the roof of tensor cores, because each product of 64 x 128 x 32 INT8 takes 64 cycles and reads 96 bytes a cycle, and four warp groups alternate
__global__ void __launch_bounds__(512, 1) screen_dye_libraries(const uint4* a, int* out, int steps) {
  __shared__ __align__(1024) unsigned char tiles[48 << 10];
  fill_tiles(tiles, a, 48 << 10);
  u64 own = tile_at(tiles + (threadIdx.x / 128) * 8192), all = tile_at(tiles + 32768);
  int s[64] = {};
#pragma unroll 1
  for (int n = 0; n < steps; ++n) {
    begin_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) half_int8(s, own + (k & 3) * 2, all + (k & 3) * 2);
    end_products();
  }
  int sum = 0;
#pragma unroll
  for (int k = 0; k < 64; ++k) sum += s[k];
  out[T] = sum;
}

void group_cases() {
  static bf16* songs;
  cases.push_back({"correlate_whale_songs", "none_at_roof", "", [] { correlate_whale_songs<<<132, 256>>>((uint4*)songs, C, 128); }, nullptr, nullptr, 0, false, [] { songs = converted<bf16>(A, 1 << 15, 0.5f); }});
  cases.push_back({"rank_movie_tastes", "none_at_roof", "", [] { rank_movie_tastes<<<132, 256>>>((uint4*)A, C, 128); }, nullptr});
  cases.push_back({"compare_leaf_shapes", "none_at_roof", "", [] {
    dynamic_shared(compare_leaf_shapes, 64 << 10);
    compare_leaf_shapes<<<132, 512, 64 << 10>>>((uint4*)B, (float2*)C, 64);
  }, nullptr});
  cases.push_back({"screen_dye_libraries", "none_at_roof", "", [] { screen_dye_libraries<<<132, 512>>>((uint4*)D, (int*)C, 128); }, nullptr});
}
#else
void group_cases() {}
#endif
