// The kernel and its launchers, for the shape that the including file defines.
#pragma once

#include "decode_llama.cuh"

template <bool STAMPED>
__global__ void __launch_bounds__(model::THREADS, 1) decode_model(const __grid_constant__ ModelCall call) {
#if __CUDA_ARCH__ >= 900
  model::Step<STAMPED>(call, shared_memory()).run();
#endif
}

extern "C" const char* model_error(int status) { return cudaGetErrorString(static_cast<cudaError_t>(status)); }

// Words of the exchange, bytes of shared memory, slots of a warp, stamps of a block.
extern "C" void model_sizes(int64_t* sizes) {
  sizes[0] = model::WORDS, sizes[1] = model::SHARED_BYTES, sizes[2] = model::SLOTS, sizes[3] = model::STAMPS;
}

extern "C" int model_resident_blocks(int* blocks) {
  int device, processors, each;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device))
    return status;
  if (const cudaError_t status =
          cudaFuncSetAttribute(decode_model<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, model::SHARED_BYTES))
    return status;
  const cudaError_t status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, decode_model<false>, model::THREADS, model::SHARED_BYTES);
  *blocks = each * processors;
  return status;
}

extern "C" int model_run(const ModelCall* call, void* stream) {
  const auto kernel = call->stamps ? decode_model<true> : decode_model<false>;
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, model::SHARED_BYTES))
    return status;
  ModelCall copy = *call;
  void* arguments[] = {&copy};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(model::BLOCKS), dim3(model::THREADS),
                                     arguments, model::SHARED_BYTES, static_cast<cudaStream_t>(stream));
}
