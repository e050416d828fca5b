// matmul v14_fitted_tile: v11, with tiles of a width that gives every multiprocessor one.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major bf16, sums in fp32.
// Needs    sm_90a, N % 8 == 0, K % 8 == 0, 16-byte aligned bases
// Moves    (M*K + K*N + N + M*N) * 2 bytes.
// Versus   v11: the tile has that of four widths which gives the busiest multiprocessor the least to do. The bias comes
//          while products are made, not word by word while they are written, which took v11 a fifth of its time at
//          1024 x 2304 x 768. A launch takes its places while the one before it drains.
// Expect   at most cuBLAS' time at 4096 and at the projections of 1024 tokens.
// Refuted if   more.
// Source   PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "check.cuh"
#include "hopper.cuh"
#include "matmul.h"
#include "overlap.cuh"
#include "widths.cuh"

namespace {
constexpr int BM = 128, BK = 64;
constexpr int CONSUMERS = 2;  // warpgroups, 64 rows of the tile each
constexpr int THREADS = 128 * (CONSUMERS + 1);
[[maybe_unused]] constexpr int GROUP_ROWS = 16;  // tile rows that stay together in L2
constexpr uint32_t A_BYTES = BM * BK * 2;
constexpr uint32_t MOST_SHARED = 227 * 1024;

// What follows from the width of a block's tile.
template <int BN>
struct Tile {
  static constexpr int TAIL = BN % BOX;  // columns in swizzled rows of 32 bytes, behind those in boxes
  static constexpr int MAIN = BN - TAIL;
  static_assert(TAIL == 0 || TAIL == 16, "rows behind the boxes have 32 bytes");
  static constexpr uint32_t TAIL_AT = A_BYTES + MAIN * BK * 2, STAGE_BYTES = TAIL_AT + TAIL * BK * 2;
  static constexpr int OUT_COLUMNS = BN == 256 ? 128 : BN;  // staged for one store by a consumer
  static constexpr uint32_t OUT_BYTES = 64 * OUT_COLUMNS * 2, BIAS_BYTES = BN * 2;  // of a consumer
  static constexpr uint32_t FIXED_BYTES = 1024 + CONSUMERS * (OUT_BYTES + BIAS_BYTES);
  static constexpr int FIT = (MOST_SHARED - FIXED_BYTES) / (STAGE_BYTES + 16), STAGES = FIT < 8 ? FIT : 8;
  static constexpr uint32_t SHARED_BYTES = FIXED_BYTES + STAGES * (STAGE_BYTES + 16);
};
}  // namespace

struct FittedMaps {
  CUtensorMap a, weight, out, weight_tail, out_tail;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// Where 16 bytes of a row lie in swizzled rows of WIDTH bytes.
template <int WIDTH>
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return row * WIDTH + ((chunk ^ row * WIDTH / 128 % (WIDTH / 16)) << 4);
}

// Matrix descriptor of swizzled rows of 32 bytes.
__device__ __forceinline__ uint64_t narrow_descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(8 * 32 >> 4) << 32 | 3ULL << 62;
}

}  // namespace
#endif

template <int BN>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_v14_fitted_tile(const __grid_constant__ FittedMaps maps, const __nv_bfloat16* __restrict__ bias, int m,
                           int n, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using T = Tile<BN>;
  constexpr int STAGES = T::STAGES, OUT_COLUMNS = T::OUT_COLUMNS, MAIN = T::MAIN, TAIL = T::TAIL;
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t staged = stages + STAGES * T::STAGE_BYTES;
  const uint32_t biases = staged + CONSUMERS * T::OUT_BYTES, full = biases + CONSUMERS * T::BIAS_BYTES;
  const uint32_t empty = full + 8 * STAGES;
  const int rows = (m + BM - 1) / BM, columns = (n + BN - 1) / BN, tiles = rows * columns, steps = (k + BK - 1) / BK;
  const int group = __shfl_sync(0xffffffffU, threadIdx.x / 128, 0);  // the compiler sees that a warp has one
  // Tiles in groups of GROUP_ROWS tile rows, column by column, so that what is resident together shares operands in L2.
  const auto place = [&](int tile, int& row, int& column) {
    const int in_group = GROUP_ROWS * columns, first = tile / in_group * GROUP_ROWS;
    const int height = min(GROUP_ROWS, rows - first);
    row = (first + tile % in_group % height) * BM;
    column = tile % in_group / height * BN;
  };

  let_next_start();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init_barrier(full + 8 * stage, 1);
      init_barrier(empty + 8 * stage, CONSUMERS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (group == CONSUMERS) {  // the producer: one thread
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    if (threadIdx.x % 128 == 0) {
      wait_for_previous();
      int stage = 0;
      uint32_t phase = 1;  // the stages start out empty
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int row, column;
        place(tile, row, column);
        for (int step = 0; step < steps; ++step) {
          wait_barrier(empty + 8 * stage, phase);
          const uint32_t barrier = full + 8 * stage, to = stages + stage * T::STAGE_BYTES;
          expect_bytes(barrier, T::STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
          load_box(to, &maps.a, barrier, step * BK, row);
#pragma unroll
          for (int box = 0; box < MAIN / BOX; ++box)
            load_box(to + A_BYTES + box * BK * BOX * 2, &maps.weight, barrier, column + box * BOX, step * BK);
          if (TAIL > 0) load_box(to + T::TAIL_AT, &maps.weight_tail, barrier, column + MAIN, step * BK);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    wait_for_previous();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t mine = staged + group * T::OUT_BYTES, bias_mine = biases + group * T::BIAS_BYTES;
    int stage = 0;
    uint32_t phase = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      int row, column;
      place(tile, row, column);
      // 16 bytes of the bias for each of the first threads, on their way while products are made
      if (thread < BN / 8 && column + thread * 8 < n)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(bias_mine + thread * 16),
                     "l"(bias + column + thread * 8)
                     : "memory");
      float sums[BN / 2];
      for (int step = 0; step < steps; ++step) {
        wait_barrier(full + 8 * stage, phase);
        const uint32_t at = stages + stage * T::STAGE_BYTES;
        begin_multiply();
#pragma unroll
        for (int part = 0; part < BK / 16; ++part) {
          const uint64_t a = descriptor(at + group * 64 * BK * 2 + part * 32, 16, 1024);
          multiply<true>(reinterpret_cast<float (&)[MAIN / 2]>(sums[0]), a,
                         descriptor(at + A_BYTES + part * 2048, BK * BOX * 2, 1024), step > 0 || part > 0);
          if constexpr (TAIL > 0)
            multiply<true>(reinterpret_cast<float (&)[TAIL / 2]>(sums[MAIN / 2]), a,
                           narrow_descriptor(at + T::TAIL_AT + part * 16 * TAIL * 2), step > 0 || part > 0);
        }
        commit_multiply();
        // the step before has ended now: its stage may be filled again
        wait_multiply<1>();
        if (step > 0 && thread == 0) arrive(empty + 8 * ((stage + STAGES - 1) % STAGES));
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
      wait_multiply<0>();
      if (thread == 0) arrive(empty + 8 * ((stage + STAGES - 1) % STAGES));

      // Out: accumulators -> bf16 -> shared memory, swizzled as the copy engine expects -> rows of 64 columns or fewer.
      asm volatile("cp.async.wait_all;" ::: "memory");  // the bias
#pragma unroll
      for (int part = 0; part < BN / OUT_COLUMNS; ++part) {
        if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        join_named(1 + group);
        uint32_t shift[OUT_COLUMNS / 8];  // the bias of the columns of this lane, two at a time
#pragma unroll
        for (int j = 0; j < OUT_COLUMNS / 8; ++j)
          asm volatile("ld.shared.b32 %0, [%1];"
                       : "=r"(shift[j])
                       : "r"(bias_mine + (part * OUT_COLUMNS + j * 8 + lane % 4 * 2) * 2)
                       : "memory");
#pragma unroll
        for (int j = 0; j < OUT_COLUMNS / 16; ++j) {  // 16 columns: one stmatrix of four 8 x 8 matrices
          const int first = part * OUT_COLUMNS + j * 16;
          uint32_t packed[4];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const __nv_bfloat162 pair = reinterpret_cast<const __nv_bfloat162&>(shift[j * 2 + half]);
            const float low = __low2float(pair), high = __high2float(pair);
            const float* from = sums + first / 2 + half * 4;
            const __nv_bfloat162 upper = __floats2bfloat162_rn(from[0] + low, from[1] + high);
            const __nv_bfloat162 lower = __floats2bfloat162_rn(from[2] + low, from[3] + high);
            packed[half * 2] = reinterpret_cast<const uint32_t&>(upper);
            packed[half * 2 + 1] = reinterpret_cast<const uint32_t&>(lower);
          }
          // matrices: rows 0-7 / 8-15 of the warp x columns 0-7 / 8-15; lane i gives the address of row i % 8 of one
          const int in_row = warp * 16 + lane % 8 + lane / 8 % 2 * 8;
          uint32_t to = mine;
          if (TAIL == 0 || j * 16 < MAIN)
            to += j / 4 * 64 * 128 + swizzled<128>(in_row, j % 4 * 2 + lane / 16);
          else
            to += MAIN * 128 + swizzled<32>(in_row, lane / 16);
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(packed[0]),
                       "r"(packed[1]), "r"(packed[2]), "r"(packed[3])
                       : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        join_named(1 + group);
        if (thread == 0) {
          const int to_row = row + group * 64, at = column + part * OUT_COLUMNS;
#pragma unroll
          for (int box = 0; box < OUT_COLUMNS / BOX; ++box)
            if (at + box * BOX < n) store_box(&maps.out, mine + box * 64 * 128, at + box * BOX, to_row);
          if (TAIL > 0 && at + MAIN < n) store_box(&maps.out_tail, mine + MAIN * 128, at + MAIN, to_row);
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
      }
    }
    if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
#else
  __trap();  // built without the instructions of sm_90a
#endif
}

namespace {

// Boxes of `box_rows` x `box_columns` of a (rows, columns) row-major bf16 matrix, swizzled in shared memory.
bool make_map(EncodeTensorMap encode, CUtensorMap& map, const void* matrix, int rows, int columns, uint32_t box_rows,
              uint32_t box_columns) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[] = {box_columns, box_rows}, steps[] = {1, 1};
  const auto swizzle = box_columns == BOX ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_32B;
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int64_t tiles_of(const MatmulCall& call, int columns) {
  return static_cast<int64_t>((call.m + BM - 1) / BM) * ((call.n + columns - 1) / columns);
}

template <int BN>
cudaError_t launch(const MatmulCall& call, EncodeTensorMap encode, int sm_count) {
  using T = Tile<BN>;
  FittedMaps maps = {};
  if (!make_map(encode, maps.a, call.a, call.m, call.k, BM, BOX) ||
      !make_map(encode, maps.weight, call.weight, call.k, call.n, BK, BOX) ||
      !make_map(encode, maps.out, call.out, call.m, call.n, 64, BOX))
    return cudaErrorInvalidValue;
  if (T::TAIL > 0 && (!make_map(encode, maps.weight_tail, call.weight, call.k, call.n, BK, T::TAIL) ||
                      !make_map(encode, maps.out_tail, call.out, call.m, call.n, 64, T::TAIL)))
    return cudaErrorInvalidValue;
  if (const cudaError_t status = cudaFuncSetAttribute(matmul_v14_fitted_tile<BN>,
                                                      cudaFuncAttributeMaxDynamicSharedMemorySize, T::SHARED_BYTES))
    return status;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min<int64_t>(tiles_of(call, BN), sm_count)));
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = T::SHARED_BYTES;
  config.stream = call.stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, matmul_v14_fitted_tile<BN>, maps, static_cast<const __nv_bfloat16*>(call.bias),
                            call.m, call.n, call.k);
}

using Launch = cudaError_t (*)(const MatmulCall&, EncodeTensorMap, int);

// A tile that a block may have, and its time on an H200 in ns: of a step in K, and beside its steps. With 1950 for the
// launch these give, within 18 %, what all four widths took at GPT-2's projections and at squares of 1024 to 2048; the
// width that they choose was the fastest at each.
struct Choice {
  int columns, step, rest;
  Launch launch;
};
constexpr Choice CHOICES[] = {{256, 582, 2270, launch<256>},
                              {192, 477, 2300, launch<192>},
                              {144, 420, 1570, launch<144>},
                              {64, 220, 450, launch<64>}};

// Of what the busiest multiprocessor does.
int64_t nanoseconds(const MatmulCall& call, const Choice& choice, int sm_count) {
  const int64_t steps = (call.k + BK - 1) / BK, waves = (tiles_of(call, choice.columns) + sm_count - 1) / sm_count;
  return waves * (steps * choice.step + choice.rest);
}

}  // namespace

cudaError_t matmul_v14_fitted_tile(const MatmulCall& call) {
  if (call.n % 8 || call.k % 8) return cudaErrorInvalidValue;
  if (!aligned(call)) return cudaErrorMisalignedAddress;
  int device = 0, sm_count = 0, major = 0, minor = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  for (const auto& [to, what] :
       {std::pair{&sm_count, cudaDevAttrMultiProcessorCount}, std::pair{&major, cudaDevAttrComputeCapabilityMajor},
        std::pair{&minor, cudaDevAttrComputeCapabilityMinor}})
    if (const cudaError_t status = cudaDeviceGetAttribute(to, what, device)) return status;
  static const EncodeTensorMap encode = find_encoder();
  if (major != 9 || minor != 0 || encode == nullptr) return cudaErrorNotSupported;
  const auto* best =
      std::min_element(std::begin(CHOICES), std::end(CHOICES), [&](const Choice& one, const Choice& two) {
        return nanoseconds(call, one, sm_count) < nanoseconds(call, two, sm_count);
      });
  return best->launch(call, encode, sm_count);
}
