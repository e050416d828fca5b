// encoder v06_ahead: L2 fetches the rows of later tokens, whose ids are known; two sums of bf16 an instruction.
// Shapes   ids (B, T); tokens (V, C); positions (T, C); out (B, T, C).
// Needs    16-byte packets, up to 1024 a row, < 2^31 rows of tokens (v05 takes the others); an id outside 0 to V - 1 gives NaN
// Moves    8 bytes per id, each row of tokens that occurs (once), positions once, B * T * C * sizeof(T) out.
// Versus   v05: a row of tokens waits for its id; here a thread reads the id 4 MB ahead and L2 has the row before. Blocks have
//          whole rows, so only a row's position needs a division.
// Source   v05_prepared
#include "check.cuh"
#include "divide.cuh"
#include "encoder.h"
#include "overlap.cuh"
#include "packed.cuh"
#include "vec.cuh"

cudaError_t encoder_v05_prepared(const EncoderCall& call);

#ifndef ENCODER_V06_AHEAD_MB
#define ENCODER_V06_AHEAD_MB 4
#endif

namespace {
constexpr int64_t AHEAD_BYTES = int64_t{ENCODER_V06_AHEAD_MB} << 20;
constexpr int64_t FEW_BYTES = int64_t{16} << 20, MANY_BYTES = int64_t{128} << 20;  // of the output
constexpr uint32_t THREADS = 192, MOST_THREADS = 1024;
template <typename T>
constexpr uint32_t NAN_WORD = sizeof(T) == 2 ? 0x7fff7fffu : 0x7fffffffu;
}  // namespace

// The block's threads have `side` rows at a time, and COUNT times as many in all; `ahead` is in rows. Without AHEAD, both are 1.
template <typename T, int COUNT, bool AHEAD>
__global__ void __launch_bounds__(MOST_THREADS)
    encoder_v06_ahead(const int64_t* ids, const uint4* tokens, const uint4* positions, uint4* out, uint32_t vocabulary,
                      uint32_t rows, Divisor length, Divisor packets, uint32_t side, uint32_t ahead) {
  let_next_start();
  const uint32_t own = AHEAD ? packets.quotient(threadIdx.x) : 0, column = threadIdx.x - own * packets.by;
  const uint32_t first = AHEAD ? blockIdx.x * (COUNT * side) : blockIdx.x;
  const auto at = [&](uint32_t row) { return static_cast<uint64_t>(row) * packets.by + column; };
  const auto inside = [&](uint32_t row) { return !AHEAD || row < rows; };  // without AHEAD, each block has one row
  wait_for_previous();
  uint4 token[COUNT], position[COUNT];
  uint64_t id[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t row = first + k * side + own;
    position[k] = inside(row) ? positions[at(row - length.quotient(row) * length.by)] : uint4{};
    id[k] = inside(row) ? ids[row] : 0;
  }
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    token[k] = {NAN_WORD<T>, NAN_WORD<T>, NAN_WORD<T>, NAN_WORD<T>};
    if (id[k] < vocabulary) token[k] = tokens[at(static_cast<uint32_t>(id[k]))];
  }
  if (AHEAD && threadIdx.x < COUNT * side) {
    const uint32_t row = first + threadIdx.x + ahead;
    const uint64_t later = row < rows ? ids[row] : ~uint64_t{0};
    if (later < vocabulary) prefetch_l2(tokens + later * packets.by, packets.by * 16);
  }
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const uint32_t row = first + k * side + own;
    if (inside(row)) out[at(row)] = sum_of_packets<T>(token[k], position[k]);
  }
}

template <typename T, int COUNT, bool AHEAD>
static cudaError_t launch(const EncoderCall& call, uint32_t packets) {
  const uint32_t side = AHEAD && THREADS > packets ? THREADS / packets : 1;
  const auto kernel = encoder_v06_ahead<T, COUNT, AHEAD>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status = launch_overlapped(
      kernel, waits, static_cast<int>((call.rows - 1) / (COUNT * side) + 1), static_cast<int>(packets * side),
      call.stream, call.ids, static_cast<const uint4*>(call.tokens), static_cast<const uint4*>(call.positions),
      static_cast<uint4*>(call.out), static_cast<uint32_t>(call.vocabulary), static_cast<uint32_t>(call.rows),
      Divisor(static_cast<uint32_t>(call.length)), Divisor(packets), side,
      static_cast<uint32_t>(AHEAD_BYTES / (int64_t{16} * packets)));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t choose(const EncoderCall& call) {
  const int64_t row_bytes = call.columns * static_cast<int64_t>(sizeof(T)), bytes = call.rows * row_bytes;
  const auto addresses = reinterpret_cast<uintptr_t>(call.tokens) | reinterpret_cast<uintptr_t>(call.positions) |
                         reinterpret_cast<uintptr_t>(call.out) | static_cast<uintptr_t>(row_bytes);
  if (addresses % 16 || row_bytes > int64_t{16} * MOST_THREADS || call.vocabulary > 0x7fffffff ||
      call.rows > 0x7fff0000)
    return encoder_v05_prepared(call);
  const auto packets = static_cast<uint32_t>(row_bytes / 16);
  if (AHEAD_BYTES == 0 || bytes <= FEW_BYTES) return launch<T, 1, false>(call, packets);
  return sizeof(T) == 4 && bytes > MANY_BYTES ? launch<T, 4, true>(call, packets) : launch<T, 1, true>(call, packets);
}

cudaError_t encoder_v06_ahead(const EncoderCall& call) {
  return call.dtype == DType::float32 ? choose<float>(call) : choose<__nv_bfloat16>(call);
}
