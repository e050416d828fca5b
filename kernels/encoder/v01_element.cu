// encoder v01_element: one thread per element of the output, gather and addition in one launch.
// Shapes   ids (B, T); tokens (V, C); positions (T, C); out (B, T, C).
// Needs    nothing; an id outside 0 to V - 1 gives NaN
// Moves    8 bytes per id, each row of tokens that occurs (once), positions once, B * T * C * sizeof(T) out.
// Versus   PyTorch: one launch instead of two. The gathered rows are neither written nor read again.
// Source   llm.c, dev/cuda/encoder_forward.cu, kernel 2 (the idea)
#include "check.cuh"
#include "encoder.h"
#include "vec.cuh"

#ifndef ENCODER_V01_THREADS
#define ENCODER_V01_THREADS 256
#endif

namespace {
constexpr int THREADS = ENCODER_V01_THREADS;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    encoder_v01_element(const int64_t* ids, const T* tokens, const T* positions, T* out, int64_t elements,
                        int64_t vocabulary, int length, int columns) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= elements) return;
  const int64_t row = at / columns, column = at - row * columns, id = ids[row];
  const bool known = id >= 0 && id < vocabulary;
  out[at] = from_float<T>(
      known ? to_float(tokens[id * columns + column]) + to_float(positions[row % length * columns + column]) : NAN);
}

template <typename T>
static cudaError_t launch(const EncoderCall& call) {
  const int64_t elements = call.rows * call.columns, blocks = (elements - 1) / THREADS + 1;
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  encoder_v01_element<T><<<static_cast<unsigned>(blocks), THREADS, 0, call.stream>>>(
      call.ids, static_cast<const T*>(call.tokens), static_cast<const T*>(call.positions), static_cast<T*>(call.out),
      elements, call.vocabulary, call.length, call.columns);
  RETURN_IF_LAUNCH_FAILED();
  return cudaSuccess;
}

cudaError_t encoder_v01_element(const EncoderCall& call) {
  return call.dtype == DType::float32 ? launch<float>(call) : launch<__nv_bfloat16>(call);
}
