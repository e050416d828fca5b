// Gradients of rows that were normalised, for LayerNorm and RMSNorm: what a block that stays does with its rows, and the
// sum over the blocks. Needs sm_90 for shared memory and overlapped launches.
#pragma once

#include "overlap_shared.cuh"
#include "reduce.cuh"
#include "vec.cuh"

// How a row maps to threads: G threads have COUNT packets of 16 bytes each, a block has ROWS rows. A ring in shared
// memory has STAGES rows for each of them: one is computed, the others are on their way. CENTRED also begins the next one.
template <int COUNT_, int G_, int ROWS_, int MOST_STAGES>
struct RingMapping {
  static constexpr int COUNT = COUNT_, G = G_, ROWS = ROWS_, THREADS = G * ROWS;
  static constexpr int BLOCKS = THREADS > 256 ? 1 : 2;  // per SM, with 128 registers a thread
  static constexpr uint32_t STAGE_BYTES = 2 * COUNT * THREADS * 16;
  static constexpr int FIT = static_cast<int>((200u << 10) / BLOCKS / STAGE_BYTES);
  static constexpr int STAGES = FIT < MOST_STAGES ? FIT : MOST_STAGES;
  // so many that no further block fits: the next launch starts early, and would put three blocks on one SM, one on another
  static constexpr uint32_t LEAST = (228u << 10) / (BLOCKS + 1);
  static constexpr uint32_t BYTES = STAGES * STAGE_BYTES > LEAST ? STAGES * STAGE_BYTES : LEAST;
};

// Calls `launch` with the mapping for rows of so many packets, or `too_long` if a row does not fit.
template <typename T, int STAGES, typename Launch, typename TooLong>
inline cudaError_t with_ring(int packets, Launch launch, TooLong too_long) {
  if (packets <= 32) return launch(RingMapping<1, 32, 8, STAGES>());
  if (packets <= 64) return launch(RingMapping<2, 32, 8, STAGES>());
  if (packets <= 96) return launch(RingMapping<3, 32, 8, STAGES>());
  if (packets <= 128) return launch(RingMapping<2, 64, 4, STAGES>());
  if (packets <= 192) return launch(RingMapping<3, 64, 4, STAGES>());
  if (packets <= 256) return launch(RingMapping<2, 128, 2, STAGES>());
  if (packets <= 512) return launch(RingMapping<2, 256, 1, STAGES>());
  if (packets <= 1024) return launch(RingMapping<2, 512, 1, STAGES>());
  if constexpr (sizeof(T) == 4)
    if (packets <= 2048) return launch(RingMapping<4, 512, 1, STAGES>());
  return too_long();
}

// The blocks that stay: enough for the rows, and no more than the GPU holds at once.
template <typename M>
inline int ring_blocks(int64_t rows, int multiprocessors) {
  const int64_t wanted = (rows - 1) / M::ROWS + 1, most = static_cast<int64_t>(multiprocessors) * M::BLOCKS;
  return static_cast<int>(wanted < most ? wanted : most);
}

__device__ __forceinline__ void copy_packet(uint32_t to, const void* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#endif
}

// Reads a packet from shared memory, each time that it is called: a row kept in registers from one pass to the next would
// spill.
template <typename Part>
__device__ __forceinline__ Part read_packet(uint32_t from) {
  Part part;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(part.raw.x), "=r"(part.raw.y), "=r"(part.raw.z), "=r"(part.raw.w)
               : "r"(from)
               : "memory");
  return part;
}

// Ends a group of copies of this thread.
__device__ __forceinline__ void end_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps the count right
#endif
}

// Waits for all but the last PENDING groups.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// The sums of four values over the G threads of a row, for each of them. `turn` alternates between 0 and 1: a warp
// overwrites what it wrote two calls ago, which all have read before the barrier of the call in between.
// A warp hands half of its values over at each of two steps, so that eight lanes each are left with one: 6 shuffles in
// place of 20.
template <int G, int ROWS>
__device__ __forceinline__ float4 add_over_row(float4 value, int turn) {
  constexpr uint32_t ALL = 0xffffffffu;
  const int lane = threadIdx.x % 32;
  const bool high = lane & 16, odd = lane & 8;
  const float first = (high ? value.z : value.x) + __shfl_xor_sync(ALL, high ? value.x : value.z, 16);
  const float second = (high ? value.w : value.y) + __shfl_xor_sync(ALL, high ? value.y : value.w, 16);
  float own = (odd ? second : first) + __shfl_xor_sync(ALL, odd ? first : second, 8);  // of value number lane / 8
  const auto over_eight = [&] {
#pragma unroll
    for (int offset = 4; offset > 0; offset >>= 1) own += __shfl_xor_sync(ALL, own, offset);
  };
  over_eight();
  if constexpr (G > 32) {
    constexpr int WARPS = G / 32;
    __shared__ float partial[2][ROWS][WARPS][4];
    float (*of_row)[4] = partial[turn][threadIdx.x / G];
    if (lane % 8 == 0) of_row[threadIdx.x % G / 32][lane / 8] = own;
    join_row<G, ROWS>();
    own = lane % 8 < WARPS ? of_row[lane % 8][lane / 8] : 0.0f;
    if constexpr (WARPS > 8) own += of_row[lane % 8 + 8][lane / 8];
    over_eight();
  }
  return {__shfl_sync(ALL, own, 0), __shfl_sync(ALL, own, 8), __shfl_sync(ALL, own, 16), __shfl_sync(ALL, own, 24)};
}

// Every gridDim.x * ROWSth row: the gradient of its x into `out`. Of each column, what the block's rows add to the
// gradient of the weight, and CENTRED to that of the bias, goes into `sums`: one or two times gridDim.x rows.
// Each thread copies and reads its own packets, so the ring needs no barrier.
template <typename T, typename M, bool CENTRED>
__device__ __forceinline__ void row_gradients(const T* gradient, const T* x, const T* weight, T* out, float* sums,
                                              int rows, int columns, float eps) {
  constexpr int COUNT = M::COUNT, G = M::G, ROWS = M::ROWS, STAGES = M::STAGES, WIDTH = 16 / sizeof(T);
  using Part = Packet<T, WIDTH>;
  extern __shared__ uint4 ring[];
  constexpr uint32_t PACKET_BYTES = M::THREADS * 16, PART_BYTES = COUNT * PACKET_BYTES;
  const uint32_t own_ring = static_cast<uint32_t>(__cvta_generic_to_shared(ring + threadIdx.x));
  const int lane = threadIdx.x % G;
  const uint32_t group = threadIdx.x / G * gridDim.x + blockIdx.x;  // so blocks differ by a row at most, not by ROWS
  const uint32_t step = gridDim.x * ROWS, last = rows;
  const float share = 1.0f / static_cast<float>(columns);
  const auto column_of = [&](int k) { return (k * G + lane) * WIDTH; };
  const auto has = [&](int k) { return column_of(k) < columns; };
  const auto place = [&](uint32_t row) { return static_cast<int64_t>(row) * columns + lane * WIDTH; };
  const auto fetch = [&](uint32_t row, int stage) {
    if (row >= last) return;
    const uint32_t at = own_ring + stage * M::STAGE_BYTES;
    const T *from = x + place(row), *other = gradient + place(row);
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      if (has(k)) {
        copy_packet(at + k * PACKET_BYTES, from + k * G * WIDTH);
        copy_packet(at + PART_BYTES + k * PACKET_BYTES, other + k * G * WIDTH);
      }
  };

  uint32_t row = group;
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    fetch(row + stage * step, stage);
    end_copies();
  }
  Part weights[COUNT];
  float of_weight[COUNT][WIDTH], of_bias[COUNT][WIDTH];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    weights[k].raw = {};
    if (has(k)) weights[k] = Part::load(weight + column_of(k));
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) of_weight[k][j] = of_bias[k][j] = 0.0f;
  }

  // calls `use` with each column, the x of a row there, its gradient, and that times the weight, then `after`
  const auto each = [&](uint32_t at, auto use, auto after) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      if (has(k)) {
        const Part values = read_packet<Part>(at + k * PACKET_BYTES),
                   gradients = read_packet<Part>(at + PART_BYTES + k * PACKET_BYTES);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
          const float given = to_float(gradients.values[j]);
          use(k, j, to_float(values.values[j]), given, given * to_float(weights[k].values[j]));
        }
        after(k);
      }
  };
  const auto sum_of_x = [&](uint32_t at) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      if (has(k)) {
        const Part values = read_packet<Part>(at + k * PACKET_BYTES);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) sum += to_float(values.values[j]);
      }
    return sum;
  };
  float mean = 0.0f;  // of the row; that of the next one comes with the other sums of this one
  if constexpr (CENTRED) {
    float4 sums_of_first = {};
    wait_for_copies<STAGES - 2>();
    if (row < last) {
      sums_of_first.z = sum_of_x(own_ring);
      sums_of_first = add_over_row<G, ROWS>(sums_of_first, 1);
    }
    mean = sums_of_first.z * share;
  }
  for (int turn = 0, stage = 0; row < last; row += step, turn ^= 1) {
    fetch(row + (STAGES - 1) * step, stage == 0 ? STAGES - 1 : stage - 1);  // into what this thread read last
    end_copies();
    wait_for_copies<CENTRED ? STAGES - 2 : STAGES - 1>();  // CENTRED adds up the next row, too
    const uint32_t own = own_ring + stage * M::STAGE_BYTES;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    float4 total = {};
    if constexpr (CENTRED)
      if (row + step < last) total.z = sum_of_x(own_ring + stage * M::STAGE_BYTES);
    each(
        own,
        [&](int, int, float value, float, float wanted) {
          const float centred = CENTRED ? value - mean : value;
          total.x += centred * centred, total.y += centred * wanted;
          if constexpr (CENTRED) total.w += wanted;
        },
        [](int) {});
    total = add_over_row<G, ROWS>(total, turn);
    T* const to = out + place(row);
    const float scale = rsqrtf(total.x * share + eps), mean_product = total.y * scale * share;
    const float slope = -scale * mean_product, offset = -scale * (total.w * share);
    [[maybe_unused]] const float centre = mean * scale;
    float result[WIDTH];
    each(
        own,
        [&](int k, int j, float value, float given, float wanted) {
          const float z = CENTRED ? value * scale - centre : value * scale;
          result[j] = scale * wanted + (CENTRED ? slope * z + offset : slope * z);
          of_weight[k][j] += given * z;
          if constexpr (CENTRED) of_bias[k][j] += given;
        },
        [&](int k) { Part::scaled(result, 1.0f).store(to + k * G * WIDTH); });
    if constexpr (CENTRED) mean = total.z * share;
  }

  const auto put = [&](float* into, const float (&values)[COUNT][WIDTH], bool all) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
      if (all || has(k))
#pragma unroll
        for (int j = 0; j < WIDTH; j += 4)
          *reinterpret_cast<float4*>(into + column_of(k) + j) = {values[k][j], values[k][j + 1], values[k][j + 2],
                                                                 values[k][j + 3]};
  };
  const auto of_block = [&](int which) {
    return sums + (static_cast<int64_t>(which) * gridDim.x + blockIdx.x) * columns;
  };
  if constexpr (ROWS == 1) {
    put(of_block(0), of_weight, false);
    if constexpr (CENTRED) put(of_block(1), of_bias, false);
  } else {  // the rows of the block first, through the ring, whose copies have all been read
    constexpr int ROW = COUNT * G * WIDTH;
    static_assert((CENTRED ? 2 : 1) * ROWS * ROW * 4 <= M::BYTES);
    float* shared = reinterpret_cast<float*>(ring);
    __syncthreads();
    put(shared + threadIdx.x / G * ROW, of_weight, true);
    if constexpr (CENTRED) put(shared + (ROWS + threadIdx.x / G) * ROW, of_bias, true);
    __syncthreads();
    for (int column = threadIdx.x; column < columns; column += M::THREADS)
#pragma unroll
      for (int which = 0; which < (CENTRED ? 2 : 1); ++which) {
        float total = 0.0f;
#pragma unroll
        for (int place = 0; place < ROWS; ++place) total += shared[(which * ROWS + place) * ROW + column];
        of_block(which)[column] = total;
      }
  }
}

constexpr int SUM_LANES = 128, SUM_QUADS = 8,
              SUM_THREADS = SUM_LANES * SUM_QUADS;  // rows side by side, packets of four

inline int sum_blocks(int columns, int outputs) { return ((columns - 1) / (SUM_QUADS * 4) + 1) * outputs; }

// The sums over the `count` rows that the blocks left, always in one order. A block has SUM_QUADS * 4 columns of one
// output, and each of its threads three rows: those of two blocks per SM on 192 SMs in one go.
template <typename T>
__device__ __forceinline__ void add_blocks(const float* sums, T* of_weight, T* of_bias, int count, int columns) {
  constexpr int AT_ONCE = 3, WARPS = SUM_THREADS / 32;
  __shared__ float4 partial[WARPS][SUM_QUADS];
  const int slabs = (columns - 1) / (SUM_QUADS * 4) + 1, which = blockIdx.x / slabs, slab = blockIdx.x % slabs;
  const int quad = threadIdx.x % SUM_QUADS, column = (slab * SUM_QUADS + quad) * 4;
  const float* from = sums + static_cast<int64_t>(which) * count * columns + column;
  float4 total = {};
  if (column < columns)
    for (int row = threadIdx.x / SUM_QUADS; row < count; row += AT_ONCE * SUM_LANES) {
      float4 more[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)  // past the end the last row again, so that no load waits for a branch
        more[i] = *reinterpret_cast<const float4*>(from +
                                                   static_cast<int64_t>(min(row + i * SUM_LANES, count - 1)) * columns);
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        if (row + i * SUM_LANES < count)
          total = {total.x + more[i].x, total.y + more[i].y, total.z + more[i].z, total.w + more[i].w};
    }
#pragma unroll
  for (int offset = SUM_QUADS; offset < 32; offset *= 2)
    total = {total.x + __shfl_xor_sync(0xffffffffu, total.x, offset),
             total.y + __shfl_xor_sync(0xffffffffu, total.y, offset),
             total.z + __shfl_xor_sync(0xffffffffu, total.z, offset),
             total.w + __shfl_xor_sync(0xffffffffu, total.w, offset)};
  if (threadIdx.x % 32 < SUM_QUADS) partial[threadIdx.x / 32][quad] = total;
  __syncthreads();
  const int own = slab * SUM_QUADS * 4 + threadIdx.x;
  if (threadIdx.x >= SUM_QUADS * 4 || own >= columns) return;
  float result = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) result += reinterpret_cast<const float*>(partial[warp])[threadIdx.x];
  (which == 0 ? of_weight : of_bias)[own] = from_float<T>(result);
}
