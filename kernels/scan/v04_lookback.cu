// scan v04_lookback: one pass. A tile publishes its total, and a warp looks back over those before it until one is done.
// Shapes   x, out (N,).
// Needs    64-bit atomic stores; tiles start in the order of a ticket, so a tile waits only for tiles that run
// Moves    2 * N * 4 bytes: every element once in, once out; 8 bytes a tile more.
// Versus   v03: one read of the elements less, and one launch of work instead of three.
// Source   Merrill and Garland 2016, NVR-2016-002, "Single-pass parallel prefix scan with decoupled look-back"
#include "check.cuh"
#include "scan.h"
#include "tile.cuh"

#ifndef SCAN_V04_THREADS
#define SCAN_V04_THREADS 256
#endif
#ifndef SCAN_V04_PACKETS
#define SCAN_V04_PACKETS 4
#endif

namespace {
constexpr int THREADS = SCAN_V04_THREADS;
using Part = Tile<THREADS, SCAN_V04_PACKETS>;
static_assert(Part::SIZE >= scan::CHUNK, "the workspace holds 8 bytes a chunk");
// The state of a tile: 0 nothing yet, else a flag in the upper half and a sum in the lower.
constexpr uint64_t TOTAL = uint64_t{1} << 32;   // the sum of the tile
constexpr uint64_t PREFIX = uint64_t{2} << 32;  // the sum of all up to and with the tile

__device__ __forceinline__ void publish(uint64_t* state, uint64_t flag, float sum) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(state), "l"(flag | __float_as_uint(sum)) : "memory");
}
__device__ __forceinline__ uint64_t look(const uint64_t* state) {
  uint64_t seen;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(state) : "memory");
  return seen;
}

// The sum of all tiles before `tile`, by one warp: lane l looks at the tile l + 1 back.
__device__ __forceinline__ float look_back(const uint64_t* states, int64_t tile) {
  const int lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int64_t last = tile - 1;; last -= 32) {
    uint64_t seen = PREFIX;  // before the first tile: the prefix 0
    if (last - lane >= 0)
      while ((seen = look(states + last - lane)) < TOTAL) __nanosleep(20);
    const unsigned done = __ballot_sync(0xffffffffu, seen >= PREFIX);
    const int nearest = done ? __ffs(done) - 1 : 31;
    float part = lane <= nearest ? __uint_as_float(static_cast<uint32_t>(seen)) : 0.0f;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) part += __shfl_xor_sync(0xffffffffu, part, distance);
    sum += part;
    if (done) return sum;
  }
}
}  // namespace

__global__ void __launch_bounds__(THREADS)
    scan_v04_lookback(const float* x, float* out, uint64_t* states, unsigned* ticket, int64_t elements) {
  __shared__ float of_warp[Part::WARPS], all_before;
  __shared__ unsigned own;
  if (threadIdx.x == 0) own = atomicAdd(ticket, 1u);
  __syncthreads();
  const int64_t tile = own, start = tile * Part::SIZE;
  const bool wide = aligned(x, out);
  Part part;
  part.load(x + start, elements - start, wide);
  const float total = part.scan_warp();
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) of_warp[warp] = total;
  __syncthreads();
  if (warp == 0) {
    float sum;
    scan_lanes(threadIdx.x < Part::WARPS ? of_warp[threadIdx.x] : 0.0f, sum);
    if (threadIdx.x == 0) publish(states + tile, tile ? TOTAL : PREFIX, sum);
    const float before = tile ? look_back(states, tile) : 0.0f;
    if (threadIdx.x == 0) {
      if (tile) publish(states + tile, PREFIX, before + sum);
      all_before = before;
    }
  }
  __syncthreads();
  part.store(out + start, Part::with_warps_before(all_before, of_warp), elements - start, wide);
}

cudaError_t scan_v04_lookback(const ScanCall& call) {
  const int64_t tiles = (call.elements - 1) / Part::SIZE + 1;
  if (tiles > 0x7fffffff) return cudaErrorInvalidConfiguration;
  auto* ticket = reinterpret_cast<unsigned*>(call.workspace);  // 16 bytes, then the states
  auto* states = reinterpret_cast<uint64_t*>(call.workspace + 4);
  const cudaError_t status = cudaMemsetAsync(call.workspace, 0, 16 + tiles * sizeof(uint64_t), call.stream);
  if (status != cudaSuccess) return status;
  scan_v04_lookback<<<static_cast<unsigned>(tiles), THREADS, 0, call.stream>>>(call.x, call.out, states, ticket,
                                                                               call.elements);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}
