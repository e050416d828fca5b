// softmax v08_half: v03's rows in float16, for GPUs that have no bfloat16.
// Shapes   scores, out (N, Tk) row-major float16, N = B * nh * Tq.
// Needs    rows that fit into registers: Tk up to 8192, 16384, 8192 or 4096, by the widest packet that Tk allows
// Moves    every 32-byte sector with a visible score once, plus N * Tk * 2 bytes written.
// Versus   v03: another dtype; sums stay in fp32, and there is no path for longer rows.
// Source   v03_causal
#define ROW_AHEAD_MB 6

#include "causal_row.cuh"
#include "check.cuh"
#include "half.cuh"

// G threads per row have COUNT packets of WIDTH elements each. A block has ROWS rows.
template <int WIDTH, int COUNT, int G, int ROWS>
__global__ void __launch_bounds__(G* ROWS)
    softmax_v08_half(const __half* scores, __half* out, int rows, int tq, int tk, float scale, int ahead) {
  let_next_start();
  const int row = blockIdx.x * ROWS + threadIdx.x / G;
  if (ROWS > 1 && row >= rows) return;  // whole rows return; no barrier spans two rows
  const int64_t start = static_cast<int64_t>(row) * tk;
  wait_for_previous();
  causal_row<__half, WIDTH, COUNT, G, ROWS>(scores + start, out + start, visible_columns(row, tq, tk), tk, scale, [&] {
    if (AHEAD_BYTES > 0 && WIDTH == 8 && threadIdx.x % G == 0 && ahead < rows - row)
      prefetch_visible(scores, row + ahead, tq, tk);
  });
}

template <int WIDTH>
static cudaError_t launch(const SoftmaxCall& call) {
  const auto in_registers = [&](auto mapping) {
    using M = decltype(mapping);
    const int rows = static_cast<int>(call.rows);
    const auto kernel = softmax_v08_half<WIDTH, M::COUNT, M::G, M::ROWS>;
    static const bool waits = compiled_to_wait(kernel);
    const cudaError_t status = launch_overlapped(
        kernel, waits, (rows - 1) / M::ROWS + 1, M::G * M::ROWS, call.stream, static_cast<const __half*>(call.scores),
        static_cast<__half*>(call.out), rows, call.tq, call.tk, call.scale,
        static_cast<int>(AHEAD_BYTES / (call.tk * static_cast<int64_t>(sizeof(__half)))));
    RETURN_IF_LAUNCH_FAILED();
    return status;
  };
  return with_mapping<__half, WIDTH>(call, in_registers, [] { return cudaErrorInvalidValue; });
}

cudaError_t softmax_v08_half(const SoftmaxCall& call) {
  if (call.dtype != FLOAT16) return cudaErrorInvalidValue;
  const auto addresses = alignment_bits(call, sizeof(__half));
  if (addresses % 16 == 0) return launch<8>(call);
  if (addresses % 8 == 0) return launch<4>(call);
  if (addresses % 4 == 0) return launch<2>(call);
  return launch<1>(call);
}
