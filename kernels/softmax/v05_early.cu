// softmax v05_early: v03, with the first rows prefetched while the previous kernel still drains.
// Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.
// Needs    sm_90 and 16-byte aligned rows; otherwise v03 runs
// Moves    as v03: every 32-byte sector with a visible score once, plus N * Tk * sizeof(T) written.
// Versus   v03: blocks prefetch the first rows, which no earlier block prefetches, into L2 before they wait for the
//          previous kernel. A prefetch is a hint: no value is read before that kernel has ended and its writes are
//          visible.
// Source   PTX ISA, cp.async.bulk.prefetch.L2 and griddepcontrol; README.md has the measurements
#ifndef SOFTMAX_V05_AHEAD_MB
#define SOFTMAX_V05_AHEAD_MB 6
#endif
#ifndef SOFTMAX_V05_EARLY_MB
#define SOFTMAX_V05_EARLY_MB 8
#endif
#define ROW_AHEAD_MB SOFTMAX_V05_AHEAD_MB

#include "causal_row.cuh"
#include "check.cuh"

cudaError_t softmax_v03_causal(const SoftmaxCall& call);  // runs what this rung does not take

namespace {
// The first rows, of so many bytes, are prefetched by their own blocks: about what all SMs hold at once. Later blocks
// start after the previous kernel has ended, so their prefetch would only repeat their loads (README.md).
constexpr int64_t EARLY_BYTES = int64_t{SOFTMAX_V05_EARLY_MB} << 20;
}  // namespace

// G threads per row have COUNT packets of WIDTH elements each. A block has ROWS rows.
template <typename T, int WIDTH, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS)
    softmax_v05_early(const T* scores, T* out, int rows, int tq, int tk, float scale, int ahead, int early) {
  let_next_start();
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole rows return; no barrier spans two rows
  const int lane = threadIdx.x % G;
  const int visible = visible_columns(row, tq, tk);
  const int64_t start = static_cast<int64_t>(row) * tk;
  if (row < early && lane == 0) prefetch_visible(scores, row, tq, tk);
  wait_for_previous();
  causal_row<T, WIDTH, COUNT, G, ROWS>(scores + start, out + start, visible, tk, scale, [&] {
    // the first rows are already prefetched
    if (AHEAD_BYTES > 0 && lane == 0 && ahead < rows - row && row + ahead >= early)
      prefetch_visible(scores, row + ahead, tq, tk);
  });
}

template <typename T, int WIDTH, int COUNT, int G, int ROWS>
static cudaError_t launch_rows(const SoftmaxCall& call) {
  const auto kernel = softmax_v05_early<T, WIDTH, COUNT, G, ROWS>;
  static const bool waits = compiled_to_wait(kernel);
  if (!waits) return softmax_v03_causal(call);
  const int rows = static_cast<int>(call.rows);
  const int64_t row_bytes = call.tk * static_cast<int64_t>(sizeof(T));
  const cudaError_t status =
      launch_overlapped(kernel, waits, (rows - 1) / ROWS + 1, G * ROWS, call.stream, static_cast<const T*>(call.scores),
                        static_cast<T*>(call.out), rows, call.tq, call.tk, call.scale,
                        static_cast<int>(AHEAD_BYTES / row_bytes), static_cast<int>(EARLY_BYTES / row_bytes));
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const SoftmaxCall& call) {
  constexpr int WIDTH = 16 / sizeof(T);
  if (alignment_bits(call, sizeof(T)) % 16) return softmax_v03_causal(call);
  const auto in_registers = [&](auto mapping) {
    using M = decltype(mapping);
    return launch_rows<T, WIDTH, M::COUNT, M::G, M::ROWS>(call);
  };
  return with_mapping<T, WIDTH>(call, in_registers, [&] { return softmax_v03_causal(call); });
}

cudaError_t softmax_v05_early(const SoftmaxCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
