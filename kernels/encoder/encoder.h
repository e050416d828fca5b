// Launchers of the encoder (token plus position embedding), without torch: contiguous tensors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "dtype.h"

struct EncoderCall {
  const int64_t* ids;     // (rows,)
  const void* tokens;     // (vocabulary, columns)
  const void* positions;  // (T, columns): row i of the output takes position i % T
  void* out;              // (rows, columns)
  int64_t rows;           // B * T, 1 to 2^31 - 1
  int64_t vocabulary;
  int length;  // T
  int columns;
  DType dtype;
  cudaStream_t stream;
};

#ifdef KERNEL_LEDGER_BINDING  // how tensors become a call
#include "binding.h"

using Launcher = cudaError_t (*)(const EncoderCall&);

template <Launcher LAUNCH>
torch::Tensor run(const torch::Tensor& ids, const torch::Tensor& tokens, const torch::Tensor& positions) {
  const DType dtype = check_operands("encoder", tokens, {positions});
  TORCH_CHECK(
      ids.device() == tokens.device() && ids.is_contiguous() && ids.dim() == 2 && ids.scalar_type() == at::kLong,
      "encoder takes contiguous int64 ids (B, T) on the GPU of the embeddings");
  TORCH_CHECK(tokens.dim() == 2 && positions.dim() == 2 && positions.size(0) == ids.size(1) &&
                  positions.size(1) == tokens.size(1),
              "encoder takes tokens (V, C) and positions (T, C)");
  const c10::cuda::CUDAGuard guard(ids.device());
  torch::Tensor out = torch::empty({ids.size(0), ids.size(1), tokens.size(1)}, tokens.options());
  if (out.numel() == 0) return out;
  C10_CUDA_CHECK(LAUNCH({ids.const_data_ptr<int64_t>(), tokens.const_data_ptr(), positions.const_data_ptr(),
                         out.mutable_data_ptr(), count_rows("encoder", out), tokens.size(0),
                         static_cast<int>(ids.size(1)), static_cast<int>(tokens.size(1)), dtype, current_stream()}));
  return out;
}
#endif

#ifdef KERNEL_LEDGER_DRIVER  // the calls that run under the compute sanitizer
static void drive(Rungs<EncoderCall>& rungs, DType dtype, int batch, int tokens, int columns) {
  constexpr int vocabulary = 37;
  const int rows = batch * tokens;
  std::vector<int64_t> host(rows);
  for (int i = 0; i < rows; ++i) host[i] = i * 7 % (vocabulary + 2) - 1;  // -1 and `vocabulary` are invalid ids
  const size_t size = size_of(dtype);
  const Buffer ids(rows, 8, false), table(static_cast<size_t>(vocabulary) * columns, size),
      positions(static_cast<size_t>(tokens) * columns, size), out(static_cast<size_t>(rows) * columns, size, false);
  CHECK(cudaMemcpy(ids, host.data(), rows * 8, cudaMemcpyHostToDevice));
  rungs.run(dtype, {static_cast<const int64_t*>(ids.at(0)), table, positions, out, rows, vocabulary, tokens, columns,
                    dtype, nullptr});
}

static void drive_encoder(Rungs<EncoderCall>& rungs) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int batch : {1, 3})
      for (const int columns : {1, 6, 131, 768}) drive(rungs, dtype, batch, 7, columns);
    // long enough for v04 and v05 to go through the batch first on an H200, in every width
    drive(rungs, dtype, 3, 5407, 768);
    for (const int columns : {131, 132, 134}) drive(rungs, dtype, 3, 32003, columns);
    drive(rungs, dtype, 6, 5, 768);
  }
}
#endif
