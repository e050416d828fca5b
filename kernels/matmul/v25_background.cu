// matmul v25_background: v24, whose idle warps copy the weight to aligned rows while tiles are computed.
// Shapes   a (M, K), weight (K, N), bias (N), out (M, N), row-major fp32.
// Needs    sm_90a, N no multiple of 4 or an unaligned weight, several waves of tiles, the last one nearly full; a
//          workspace, see matmul_v25_background_workspace(); otherwise v24 runs
// Moves    as v24.
// Versus   v24: copying the 154 MB of the LM head's weight takes a twentieth of its product, which leaves DRAM idle. Here a
//          kernel copies what the first wave of tiles needs. Three warps of each block, which only waited for the one
//          thread that feeds the ring, copy the rest, in strips of 256 columns. That thread waits for its tile's strip.
//          A warp writes most outputs in packets of 16 bytes.
#ifndef MATMUL_V25_DEPTH
#define MATMUL_V25_DEPTH 32
#endif
#ifndef MATMUL_V25_STAGES
#define MATMUL_V25_STAGES 4
#endif
#define RING_DEPTH MATMUL_V25_DEPTH
#define RING_STAGES MATMUL_V25_STAGES
#define RING_ANY_OUT 1
#include <algorithm>

#include "any_rows.cuh"
#include "ring.cuh"

// These run what this rung does not take.
cudaError_t matmul_v24_edges(const MatmulCall& call);
cudaError_t matmul_v24_edges_workspace(const MatmulCall& call, size_t& bytes);

namespace {

[[maybe_unused]] constexpr int COPIERS = 3;  // warps of a block
constexpr int MOST_IDLE = 150;  // K times the share of idle SMs in the last wave; more are worth cutting tiles along K
constexpr int LEAST_WAVES = 3;
static_assert(BN == 32 * WORDS, "a warp copies a row of a strip at once");

// The strips of the weight, which are as wide as tiles.
struct Strips {
  Copy<float> weight;
  int count, first;  // all, and those that are copied before the product
  int* ready;        // of each strip, the warps that have copied their rows
};

struct Plan {
  bool takes = false;
  Copy<float> a;
  Strips strips;
  Deal deal;
  size_t bytes = 0;  // of the workspace
};

cudaError_t make_plan(const MatmulCall& call, Plan& plan) {
  int sm_count = 0;
  if (const cudaError_t status = hopper_multiprocessors(sm_count)) return status;
  plan.deal = tiles_of(call);
  plan.deal.blocks = sm_count;
  const int64_t tiles = static_cast<int64_t>(plan.deal.rows) * plan.deal.columns;
  if (sm_count == 0 || tiles < static_cast<int64_t>(LEAST_WAVES) * sm_count) return cudaSuccess;
  const int64_t idle = (tiles + sm_count - 1) / sm_count * sm_count - tiles;
  if (idle * call.k >= static_cast<int64_t>(MOST_IDLE) * sm_count) return cudaSuccess;
  const int count = plan.deal.columns, together = std::min(plan.deal.rows, GROUP_ROWS);
  plan.bytes = count * sizeof(int);
  plan.a = Copy<float>::plan(call.a, call.m, call.k, 16, call.workspace, plan.bytes);
  const Copy<float> weight = Copy<float>::plan(call.weight, call.k, call.n, 16, call.workspace, plan.bytes);
  plan.strips = {weight, count, std::min(count, (sm_count - 1) / together + 1), static_cast<int*>(call.workspace)};
  plan.takes = weight.rows > 0;
  return cudaSuccess;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Copies the strips behind the first ones, in a warp of `warps`.
__device__ __forceinline__ void copy_strips(const Strips& strips, int warp, int warps) {
  const Copy<float>& copy = strips.weight;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int strip = strips.first; strip < strips.count; ++strip) {
    const int first = strip * BN + lane;
#pragma unroll 1
    for (int row = warp; row < copy.rows; row += warps) {
      auto* to = reinterpret_cast<uint32_t*>(copy.to + static_cast<int64_t>(row) * copy.pitch) + first;
      uint32_t words[WORDS];
      read_words(copy.from + static_cast<int64_t>(row) * copy.columns, copy.columns, first, words);
#pragma unroll
      for (int i = 0; i < WORDS; ++i)
        if (first + i * 32 < copy.columns) to[i * 32] = words[i];
    }
    asm volatile("fence.proxy.async.global;" ::: "memory");  // TMA reads it
    __syncwarp();
    if (lane == 0) {
      __threadfence();
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(strips.ready + strip) : "memory");
    }
  }
}

#endif
}  // namespace

__global__ void __launch_bounds__(COPY_THREADS) matmul_v25_pad(const Copy<float> a, const Strips strips) {
  if (blockIdx.x < a.blocks()) return copy_rows(a, blockIdx.x);
  const unsigned block = blockIdx.x - a.blocks();
  copy_rows(strips.weight, block / strips.first * strips.weight.pieces() + block % strips.first);
}

template <typename T>
__global__ void __launch_bounds__(ALL_THREADS, 1)
    matmul_v25_background(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap weight_map,
                          const T* __restrict__ bias, T* __restrict__ out, int m, int n, const Deal deal,
                          const Strips strips) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t memory[];
  const uint32_t stages = (shared_address(memory) + 1023) & ~1023U;  // swizzled tiles start at multiples of 1024
  const uint32_t full = stages + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int tiles = deal.rows * deal.columns;

  if (thread == 0) init_ring<STAGES>(full, empty, WARPS);
  __syncthreads();

  if (warp >= WARPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == THREADS) {
      Ring<STAGES> ring = {0, 1};  // all stages start empty
      const int wanted = static_cast<int>(gridDim.x) * COPIERS;
#pragma unroll 1
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int row, column;
        place(deal, tile, row, column);
        const int strip = column / BN;
        if (strip >= strips.first) {
          int found = 0;
          while (found < wanted)
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(strips.ready + strip) : "memory");
          asm volatile("fence.proxy.async.global;" ::: "memory");
        }
#pragma unroll 1
        for (int step = 0; step < deal.steps; ++step) {
          wait_barrier(empty + 8 * ring.stage, ring.phase);
          const uint32_t to = stages + ring.stage * STAGE_BYTES, barrier = full + 8 * ring.stage;
          expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
          load_box(to, &a_map, barrier, step * BK, row);
          load_box(to + A_BYTES, &weight_map, barrier, column, step * BK);
          ring.advance();
        }
      }
      // behind its last step a warp reads the next stage, too, without a use for it
      wait_barrier(empty + 8 * ring.stage, ring.phase);
      arrive(full + 8 * ring.stage);
    } else if (warp > WARPS) {
      copy_strips(strips, static_cast<int>(blockIdx.x) * COPIERS + warp - WARPS - 1, gridDim.x * COPIERS);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");

  const int my_row = warp / WARP_COLUMNS * WARP_TILE + lane / 4;
  const int my_column = warp % WARP_COLUMNS * WARP_TILE + lane % 4 * 4;
  const uint32_t a_mine = my_row * BK * 4 + twist<BK>(my_row), weight_mine = A_BYTES + my_column * 4;
  float left[TM][4];  // four steps in K at a time
  float right[2][TN / 4][4];
  uint32_t a_from = stages + a_mine, weight_from = stages + weight_mine;  // of the current UNROLL steps in K
  const auto read_left = [&](int chunk, int y) { read_shared(left[y], (a_from ^ (chunk * 16)) + y * 8 * BK * 4); };
  const auto read_right = [&](int into, int deep) {
#pragma unroll
    for (int x = 0; x < TN / 4; ++x) read_shared(right[into][x], weight_from + deep * BN * 4 + x * 64);
  };
  // Writes eight of the warp's rows, of which a lane has four packets, those of its sums `y`. The packets change lanes in
  // shared memory, so that a half warp writes a row, in packets that are aligned in `out`, and the warp what is left.
  const auto write_rows = [&](int row, int column, int y, const float4* words) {
    int pitch = n, mine = threadIdx.x;
    asm volatile("" : "+r"(pitch), "+r"(mine));  // the loop has no registers for what follows from them
    const uint32_t staged =
        ((shared_address(memory) + 1023) & ~1023U) + STAGES * (STAGE_BYTES + 16) + mine / 32 * OUT_BYTES;
    row += mine / 32 / WARP_COLUMNS * WARP_TILE + y * 8, column += mine / 32 % WARP_COLUMNS * WARP_TILE;
    mine %= 32;
    __syncwarp();
#pragma unroll
    for (int x = 0; x < TN / 4; ++x)
      asm volatile(
          "st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(staged + mine / 4 * OUT_PITCH + x * 64 + mine % 4 * 16),
          "f"(words[x].x), "f"(words[x].y), "f"(words[x].z), "f"(words[x].w)
          : "memory");
    __syncwarp();
    const auto read = [&](int which, int at) {
      float word;
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(word) : "r"(staged + which * OUT_PITCH + at * 4) : "memory");
      return word;
    };
    const auto row_of = [&](int which) { return out + static_cast<int64_t>(row + which) * pitch + column; };
    const auto unaligned = [](const float* to) { return static_cast<int>(-(reinterpret_cast<uintptr_t>(to) / 4) % 4); };
    {
      const int which = mine / 4, at = mine % 4;  // before the first packet
      float* to = row_of(which);
      if (at < unaligned(to) && row + which < m && column + at < n) to[at] = read(which, at);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int which = i * 2 + mine / 16;
      float* to = row_of(which);
      const int at = unaligned(to) + mine % 16 * 4, left = row + which < m ? min(WARP_TILE, n - column) - at : 0;
      if (left >= 4) {
        *reinterpret_cast<float4*>(to + at) =
            make_float4(read(which, at), read(which, at + 1), read(which, at + 2), read(which, at + 3));
      } else {
        for (int word = 0; word < left; ++word) to[at + word] = read(which, at + word);
      }
    }
  };

  uint32_t taken = 0;     // stages
  wait_barrier(full, 0);  // each block has a tile
#pragma unroll
  for (int y = 0; y < TM; ++y) read_left(0, y);
  read_right(0, 0);
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float sums[TM][TN];
#pragma unroll
    for (int y = 0; y < TM; ++y)
#pragma unroll
      for (int x = 0; x < TN; ++x) sums[y][x] = 0.0f;
    const int pieces = deal.steps * (BK / UNROLL);
#pragma unroll 1
    for (int piece = 1; piece <= pieces; ++piece) {
#pragma unroll
      for (int deep = 0; deep < UNROLL; ++deep) {
        const int now = deep % 2;
        const bool last = deep == UNROLL - 1;
        if (last) {
          if (BK > UNROLL && piece % (BK / UNROLL)) {
            const uint32_t bytes = piece % (BK / UNROLL) * UNROLL * 4;  // of a row of the left tile
            a_from = (stages + taken % STAGES * STAGE_BYTES + a_mine) ^ bytes;
            weight_from += UNROLL * BN * 4;
          } else {  // the whole stage is in registers: go to the next one, whose first operands are read below
            __syncwarp();
            uint32_t lane_now;  // read again: the loop has no register for it
            asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane_now));
            if (lane_now == 0) arrive(empty + taken % STAGES * 8);
            ++taken;
            const uint32_t stage = taken % STAGES;
            a_from = stages + stage * STAGE_BYTES + a_mine;
            weight_from = stages + stage * STAGE_BYTES + weight_mine;
            wait_barrier(full + 8 * stage, taken / STAGES % 2);
          }
        }
        read_right(1 - now, last ? 0 : deep + 1);
        keep_order();
#pragma unroll
        for (int y = 0; y < TM; ++y) {
          multiply_row(sums[y], left[y][deep % 4], right[now], y, now);
          if (deep % 4 == 3) read_left(last ? 0 : deep / 4 + 1, y);
        }
      }
    }
    int row, column, mine = threadIdx.x;
    asm volatile("" : "+r"(mine));
    place(deal, tile, row, column);
    float4 shifts[TN / 4];  // the bias of a lane's columns
#pragma unroll
    for (int x = 0; x < TN / 4; ++x) {
      const int at = column + mine / 32 % WARP_COLUMNS * WARP_TILE + mine % 4 * 4 + x * 16;
      shifts[x] = make_float4(at < n ? bias[at] : 0.0f, at + 1 < n ? bias[at + 1] : 0.0f,
                              at + 2 < n ? bias[at + 2] : 0.0f, at + 3 < n ? bias[at + 3] : 0.0f);
    }
#pragma unroll
    for (int y = 0; y < TM; ++y) {
      float4 words[TN / 4];
#pragma unroll
      for (int x = 0; x < TN / 4; ++x)
        words[x] = make_float4(sums[y][x * 4] + shifts[x].x, sums[y][x * 4 + 1] + shifts[x].y,
                               sums[y][x * 4 + 2] + shifts[x].z, sums[y][x * 4 + 3] + shifts[x].w);
      write_rows(row, column, y, words);
    }
  }
#else
  __trap();  // compiled without the instructions of sm_90a
#endif
}

cudaError_t matmul_v25_background_workspace(const MatmulCall& call, size_t& bytes) {
  Plan plan;
  if (const cudaError_t status = make_plan(call, plan)) return status;
  if (!plan.takes) return matmul_v24_edges_workspace(call, bytes);
  bytes = plan.bytes;
  return cudaSuccess;
}

cudaError_t matmul_v25_background(const MatmulCall& call) {
  Plan plan;
  if (const cudaError_t status = make_plan(call, plan)) return status;
  if (!plan.takes) return matmul_v24_edges(call);
  const Strips& strips = plan.strips;
  RingMaps maps;
  if (!make_maps(maps, call, {plan.a.operand(), strips.weight.operand(), plan.a.pitch, strips.weight.pitch}))
    return cudaErrorInvalidValue;
  const auto kernel = matmul_v25_background<float>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES))
    return status;
  if (const cudaError_t status = cudaMemsetAsync(strips.ready, 0, strips.count * sizeof(int), call.stream))
    return status;
  const unsigned row_blocks = (strips.weight.rows + COPY_ROWS - 1) / COPY_ROWS;
  matmul_v25_pad<<<plan.a.blocks() + row_blocks * strips.first, COPY_THREADS, 0, call.stream>>>(plan.a, strips);
  RETURN_IF_LAUNCH_FAILED();
  // Blocks wait for each other's copies, so CUDA must start all of them or none. <<<blocks, threads, bytes, stream>>>
  // does not say so.
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(plan.deal.blocks));
  config.blockDim = dim3(ALL_THREADS);
  config.dynamicSmemBytes = SHARED_BYTES;
  config.stream = call.stream;
  config.attrs = &together;
  config.numAttrs = 1;
  const cudaError_t status =
      cudaLaunchKernelEx(&config, kernel, maps.a, maps.weight, static_cast<const float*>(call.bias),
                         static_cast<float*>(call.out), call.m, call.n, plan.deal, strips);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}
