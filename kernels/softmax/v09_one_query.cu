// softmax v09_one_query: few rows of one query, which sees every key: no division before the load, no prefetch.
// Shapes   scores (..., Tq, Tk) -> out, Tq 1 (others, more than 256 rows or 256 aligned packets are v05's).
// Needs    nothing
// Moves    2 * rows * Tk * sizeof(T) bytes: every score once in, every weight once out.
// Versus   v03 and v05: they divide by Tq to find how many keys a row sees, and each row could prefetch a later one.
// Source   v03_causal
#define ROW_AHEAD_MB 0
#include "causal_row.cuh"
#include "check.cuh"

cudaError_t softmax_v05_early(const SoftmaxCall& call);

// A block of G threads has a row, each thread one packet of WIDTH elements.
template <typename T, int WIDTH, int G>
__global__ void __launch_bounds__(G) softmax_v09_one_query(const T* scores, T* out, int tk, float scale) {
  let_next_start();
  const int64_t start = static_cast<int64_t>(blockIdx.x) * tk;
  wait_for_previous();
  causal_row<T, WIDTH, 1, G, 1>(scores + start, out + start, tk, tk, scale, [] {});
}

template <typename T, int WIDTH, int G>
static cudaError_t launch_rows(const SoftmaxCall& call) {
  const auto kernel = softmax_v09_one_query<T, WIDTH, G>;
  static const bool waits = compiled_to_wait(kernel);
  const cudaError_t status =
      launch_overlapped(kernel, waits, static_cast<int>(call.rows), G, call.stream, static_cast<const T*>(call.scores),
                        static_cast<T*>(call.out), call.tk, call.scale);
  RETURN_IF_LAUNCH_FAILED();
  return status;
}

template <typename T>
static cudaError_t launch(const SoftmaxCall& call) {
  constexpr int WIDTH = 16 / sizeof(T);
  const int packets = call.tk / WIDTH;
  if (call.tq != 1 || alignment_bits(call, sizeof(T)) % 16 || call.rows > FEW_ROWS || packets > 256)
    return softmax_v05_early(call);
  if (packets <= 32) return launch_rows<T, WIDTH, 32>(call);
  if (packets <= 128) return launch_rows<T, WIDTH, 128>(call);
  return launch_rows<T, WIDTH, 256>(call);
}

cudaError_t softmax_v09_one_query(const SoftmaxCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
